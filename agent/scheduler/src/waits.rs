//! Waits for the progress of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::SmallVec;

use crate::change::Level;
use crate::key::{FixedMap, Key};
use crate::operation::TxnId;

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) level: Level,
    pub(crate) until: Duration,
    /// All values of the change, parts included.
    pub(crate) keys: Vec<Key>,
    /// Values that were not as intended at the last check.
    pub(crate) left: BTreeSet<Key>,
}

#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) waiters: BTreeMap<TxnId, Waiter>,
    pub(crate) by_key: FixedMap<Key, SmallVec<[TxnId; 1]>>,
}

impl Waits {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.waiters.values().map(|waiter| waiter.until).min()
    }

    pub(crate) fn forget(&mut self, txn: TxnId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&txn)?;
        for key in &waiter.left {
            if let Some(listed) = self.by_key.get_mut(key) {
                listed.retain(|other| *other != txn);
                if listed.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(waiter)
    }

    pub(crate) fn list(&mut self, txn: TxnId, key: Key) {
        let listed = self.by_key.entry(key).or_default();
        if !listed.contains(&txn) {
            listed.push(txn);
        }
    }
}
