//! Changes that are taken back by themselves unless somebody confirms them in time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::{Engine, Step};
use crate::history::Origin;
use crate::key::Key;
use crate::operation::{Now, TxnId};
use crate::options::IntentSource;
use crate::plan::Delta;
use crate::value::{SharedValue, same};

/// For each key what was intended before, and what the change made of it.
type Changes = Vec<(Key, Option<SharedValue>, Option<SharedValue>)>;

/// A change that came to a good end, and is not confirmed.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    until: Duration,
    source: IntentSource,
    changes: Changes,
}

#[derive(Debug, Default)]
pub(crate) struct Confirmations(BTreeMap<TxnId, Unconfirmed>);

impl Confirmations {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.0.values().map(|change| change.until).min()
    }
}

impl Engine {
    /// Confirms a change: it stays. False when there is no such change that waits for it.
    pub fn confirm(&mut self, txn: TxnId) -> bool {
        self.confirmations.0.remove(&txn).is_some()
    }

    /// The changes that wait to be confirmed, with the moment until which they may be.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (TxnId, Duration)> {
        self.confirmations.0.iter().map(|(txn, change)| (*txn, change.until))
    }

    pub(crate) fn await_confirmation(
        &mut self,
        txn: TxnId,
        until: Duration,
        source: IntentSource,
        before: Vec<(Key, Option<SharedValue>)>,
    ) {
        let changes = before.into_iter().map(|(key, before)| {
            let after = self.direct(&key, source);
            (key, before, after)
        });
        let changes = changes.collect();
        self.confirmations.0.insert(txn, Unconfirmed { until, source, changes });
    }

    /// Takes back what nobody confirmed. What a later change made of a key stays.
    pub(crate) fn expire_confirmations(&mut self, now: Now, step: &mut Step) {
        let late = self.confirmations.0.iter().filter(|(_, change)| change.until <= now.monotonic);
        let late: Vec<TxnId> = late.map(|(txn, _)| *txn).collect();
        // The latest first: an earlier one finds what it made again.
        for txn in late.into_iter().rev() {
            let Some(change) = self.confirmations.0.remove(&txn) else { continue };
            let stands = change.changes.into_iter().filter(|(key, _, after)| {
                same(self.direct(key, change.source).as_ref(), after.as_ref())
            });
            let back = stands.map(|(key, before, _)| (key, before)).collect();
            let delta = Delta::new(back)
                .best_effort()
                .from_source(change.source)
                .described(format!("transaction {} was not confirmed", txn.0));
            if let Ok(plan) = self.plan(delta) {
                let back = self.enqueue(Origin::Rollback, plan);
                step.rolled_back.push((txn, back));
            }
        }
    }
}
