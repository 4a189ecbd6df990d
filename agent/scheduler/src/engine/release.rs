//! Release of the nodes of a transaction that has ended.
//!
//! A large transaction has a hundred thousand nodes, and facts must not wait until all of them are released. Its outcome
//! is reported first; a moment later, each turn of the engine releases a portion. Nothing else changes by that: a node whose
//! transaction has ended counts as free ([`Engine::owner_in_flight`]), and the next transaction may reserve it before its
//! turn has come. The release then leaves the node alone, since the one that took it releases it at its own end.

use crate::engine::Engine;
use crate::graph::NodeIdx;
use crate::operation::{Now, TxnId};
use crate::transaction::{RELEASE_AFTER, Release, Transaction};

impl Engine {
    /// Transaction in flight that has reserved a node.
    pub(crate) fn owner_in_flight(&self, idx: NodeIdx) -> Option<TxnId> {
        self.graph.node(idx).owner().filter(|txn| self.running.contains(*txn))
    }

    /// Releases the nodes of a transaction, those of a large one later, and marks the values dirty that waited for its end.
    pub(super) fn release_values(&mut self, transaction: &mut Transaction, now: Now) {
        let txn = transaction.txn;
        let nodes = std::mem::take(&mut transaction.reserved);
        if nodes.len() <= self.portion {
            nodes.into_iter().for_each(|idx| self.release_value(txn, idx));
        } else {
            let due = now.monotonic + RELEASE_AFTER;
            self.releases.0.push_back(Release { txn, nodes: nodes.into_iter(), due });
        }
        for idx in std::mem::take(&mut transaction.dirty_after) {
            self.graph.mark_dirty(idx);
        }
    }

    /// Releases as many nodes as one turn may take, if there are any that are due. Waits for the end of a take-over, whose
    /// plan may have touched some of them.
    pub(crate) fn release_portion(&mut self, now: Now) {
        if self.running.in_take_over().is_some() {
            return;
        }
        let mut left = self.portion;
        while left > 0 {
            let first = self.releases.0.front_mut();
            let Some(first) = first.filter(|it| it.due <= now.monotonic) else { return };
            let txn = first.txn;
            let nodes: Vec<NodeIdx> = first.nodes.by_ref().take(left).collect();
            if nodes.is_empty() {
                self.releases.0.pop_front();
                continue;
            }
            left -= nodes.len();
            nodes.into_iter().for_each(|idx| self.release_value(txn, idx));
        }
    }

    fn release_value(&mut self, txn: TxnId, idx: NodeIdx) {
        let node = self.graph.node_mut(idx);
        if node.owner() != Some(txn) {
            return;
        }
        node.release();
        if self.graph.count_unmet(idx) > 0 && self.graph.is_ours(idx) {
            self.graph.lost_dependency.push(idx); // a dependency was to be created before it, and was not
        }
        let node = self.graph.node_mut(idx);
        let failed = node.has_failed();
        let triggered = node.retry.as_ref().is_some_and(|retry| !retry.triggers.is_empty());
        let missed = std::mem::take(&mut node.dirty_in_flight);
        if missed && self.graph.is_out_of_place(idx) {
            // A target changed while an operation was in flight. The failure may be that of the targets of before.
            if !failed {
                self.graph.mark_dirty(idx);
            } else if triggered {
                self.graph.retry_triggers.triggered.push(idx);
            }
        }
        self.graph.forget_if_empty(idx);
    }
}
