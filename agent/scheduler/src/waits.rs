//! Waits for the progress of a change. Event driven: each step checks the changed keys for which a wait is registered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::{Engine, EngineOutput, TransactionOutcome};
use crate::graph::Goal;
use crate::key::{FixedMap, Key};
use crate::operation::{Now, TxnId};
use crate::plan::Plan;
use crate::status::ValueState;

/// Progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The change is the intent, and its operations are on their way.
    Accepted,
    /// The transaction ended well; some of its values may be pending.
    Applied,
    /// All of its values are as intended, parts included.
    Converged,
}

/// Request to report the progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    pub level: Level,
    /// Time limit, from the start of the change.
    pub within: Duration,
}

/// End of a wait: the level was reached, or the time is over. A change that is refused, fails or is cancelled is
/// reported by its [`TransactionOutcome`] alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitResult {
    pub txn: TxnId,
    pub level: Level,
    /// Values that were not as intended when the time was over, ascending; empty when the level was reached.
    pub missing: Vec<Key>,
    pub in_time: bool,
}

#[derive(Debug)]
struct Waiter {
    level: Level,
    until: Duration,
    /// All values of the change, parts included.
    keys: Vec<Key>,
    /// Values that were not as intended at the last check.
    left: BTreeSet<Key>,
}

#[derive(Debug, Default)]
pub(crate) struct Waits {
    waiters: BTreeMap<TxnId, Waiter>,
    by_key: FixedMap<Key, SmallVec<[TxnId; 1]>>,
}

impl Waits {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.waiters.values().map(|waiter| waiter.until).min()
    }

    fn forget(&mut self, txn: TxnId) -> Option<Waiter> {
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

    fn list(&mut self, txn: TxnId, key: Key) {
        let listed = self.by_key.entry(key).or_default();
        if !listed.contains(&txn) {
            listed.push(txn);
        }
    }
}

impl Engine {
    /// Registers the wait of a change that is about to begin.
    pub(crate) fn register_wait(
        &mut self,
        txn: TxnId,
        plan: &Plan,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Some(Wait { level, within }) = plan.delta.wait else { return };
        if level == Level::Accepted {
            let (missing, in_time) = (Vec::new(), true);
            return step.reached.push(WaitResult { txn, level, missing, in_time });
        }
        let changed = plan.nodes.iter().filter(|node| node.changed);
        let keys: Vec<Key> = changed.map(|node| node.key.clone()).collect();
        let until = now.monotonic + within;
        let waiter = Waiter { level, until, keys, left: BTreeSet::new() };
        self.waits.waiters.insert(txn, waiter);
    }

    /// Updates the wait of a transaction that has ended; a wait for a change that did not end well is dropped.
    pub(crate) fn on_wait_ended(&mut self, outcome: &TransactionOutcome, step: &mut EngineOutput) {
        let txn = outcome.txn();
        if !matches!(outcome, TransactionOutcome::Done { .. }) {
            self.waits.forget(txn);
            return;
        }
        let Some(waiter) = self.waits.waiters.get(&txn) else { return };
        if waiter.level == Level::Applied {
            self.complete_wait(txn, step);
        } else {
            self.check_wait(txn, step);
        }
    }

    /// Checks all values of a change whose last missing value may have become as intended.
    fn check_wait(&mut self, txn: TxnId, step: &mut EngineOutput) {
        let Some(waiter) = self.waits.waiters.get(&txn) else { return };
        let left: BTreeSet<Key> =
            waiter.keys.iter().filter(|key| !self.is_as_intended(key)).cloned().collect();
        if left.is_empty() {
            return self.complete_wait(txn, step);
        }
        for key in &left {
            self.waits.list(txn, key.clone());
        }
        if let Some(waiter) = self.waits.waiters.get_mut(&txn) {
            waiter.left = left;
        }
    }

    fn complete_wait(&mut self, txn: TxnId, step: &mut EngineOutput) {
        let Some(waiter) = self.waits.forget(txn) else { return };
        let (level, missing, in_time) = (waiter.level, Vec::new(), true);
        step.reached.push(WaitResult { txn, level, missing, in_time });
    }

    /// Checks the waits for the keys that a step changed.
    pub(crate) fn check_changed_waits(&mut self, step: &mut EngineOutput) {
        if self.waits.by_key.is_empty() {
            return;
        }
        let mut ready: BTreeSet<TxnId> = BTreeSet::new();
        for key in &step.changed {
            let Some(listed) = self.waits.by_key.get(key) else { continue };
            if !self.is_as_intended(key) {
                continue;
            }
            for txn in listed.clone() {
                let Some(waiter) = self.waits.waiters.get_mut(&txn) else { continue };
                waiter.left.remove(key);
                if waiter.left.is_empty() {
                    ready.insert(txn);
                }
            }
            self.waits.by_key.remove(key);
        }
        for txn in ready {
            self.check_wait(txn, step);
        }
    }

    fn is_as_intended(&self, key: &Key) -> bool {
        let Some(idx) = self.graph.find(key) else { return true };
        match self.graph.node(idx).goal {
            Goal::Nothing => {
                matches!(self.state(key), ValueState::Nonexistent | ValueState::Obtained)
            }
            _ => self.state(key) == ValueState::Configured,
        }
    }

    /// Reports the waits whose time is over.
    pub(crate) fn expire_waits(&mut self, now: Now, step: &mut EngineOutput) {
        let late = self.waits.waiters.iter().filter(|(_, waiter)| waiter.until <= now.monotonic);
        let late: Vec<TxnId> = late.map(|(txn, _)| *txn).collect();
        for txn in late {
            let Some(waiter) = self.waits.forget(txn) else { continue };
            let mut missing: Vec<Key> =
                waiter.keys.into_iter().filter(|key| !self.is_as_intended(key)).collect();
            missing.sort_unstable();
            step.reached.push(WaitResult { txn, level: waiter.level, missing, in_time: false });
        }
    }
}
