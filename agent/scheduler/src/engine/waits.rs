//! Waits for the progress of a change. Event driven: each step checks the changed keys for which a wait is registered.

use std::collections::BTreeSet;

use crate::change::{Level, Wait};
use crate::engine::Engine;
use crate::graph::Goal;
use crate::key::Key;
use crate::operation::{Now, TxnId};
use crate::outcome::{TransactionOutcome, WaitResult};
use crate::output::EngineOutput;
use crate::plan::Plan;
use crate::status::ValueState;
use crate::waits::Waiter;

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
            let missing = Vec::new();
            let in_time = true;
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
        let level = waiter.level;
        let missing = Vec::new();
        let in_time = true;
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
