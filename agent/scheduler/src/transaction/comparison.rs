//! Comparison of a plan with the transactions and plans that it may have to wait for.
//!
//! Of large ones it takes longer than an event may wait, so it is done in portions: those whose turn it is are compared once more
//! by [`Engine::due`](crate::Engine::due), and whatever has changed meanwhile in what the plan has read has it made again.
//!
//! ```text
//! plan ----> conflict sets of ----> values of the plan ----> clear, or behind one of them
//!            all others are         are looked up in
//!            completed              each of the sets
//! ```

use super::conflict_set::{Budget, ConflictSet, GoingKeys, ReservedNodes, Subject};
use super::{Phase, Transaction, drop_beside};
use crate::graph::Graph;
use crate::operation::TxnId;
use crate::plan::Plan;

/// Most operations and values that are looked at in one portion: some three milliseconds of work.
const ITEMS_MOST: usize = 4096;

/// Plans of one change after which a further one is compared without a pause: a stream of events that have it made again delays
/// it, and does not prevent it.
const PLANS_MOST: u32 = 8;

/// How far a plan is compared with others.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    going: GoingKeys,
    sets: Vec<(SetId, Lookups)>,
}

/// How far the values of a plan are looked up in a set.
#[derive(Clone, Copy, Debug)]
enum Lookups {
    /// So many values have no conflict.
    Clear(usize),
    Conflict,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Clear,
    /// The plan has to wait for this one.
    Behind(TxnId),
    /// The budget has ended before.
    Unfinished,
}

/// Identity of a conflict set. A plan that is made again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetId {
    /// Of a change in the queue, with the number of plans that were made for it before.
    Queued(TxnId, u32),
    /// Of a transaction in flight, with its first operation: its way back has another one.
    InFlight(TxnId, u64),
}

impl Budget {
    /// The budget of one step of the engine.
    pub(crate) fn of_step(portion: usize) -> Self {
        Self { left: portion.min(ITEMS_MOST) }
    }

    /// Does away with the limit for a plan before which many were made for the same change.
    pub(crate) fn extend_after(&mut self, plans_before: u32) {
        if plans_before > PLANS_MOST {
            self.left = usize::MAX;
        }
    }
}

impl Comparison {
    /// True when no value of a plan conflicts with a complete set. `None` when the budget ends before that is known.
    pub(crate) fn is_clear_of(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        id: SetId,
        set: &ConflictSet,
        budget: &mut Budget,
    ) -> Option<bool> {
        if !self.going.complete(plan.operations(), budget) {
            return None;
        }
        let at = self.sets.iter().position(|(other, _)| *other == id).unwrap_or_else(|| {
            self.sets.push((id, Lookups::Clear(0)));
            self.sets.len() - 1
        });
        let lookups = &mut self.sets[at].1;
        while let Lookups::Clear(done) = lookups {
            let done = *done;
            if done == plan.values() {
                return Some(true);
            }
            if !budget.spend() {
                return None;
            }
            let change = plan.value(graph, done);
            let is_conflict = change.is_some_and(|change| set.conflicts_with(&change, &self.going));
            *lookups = if is_conflict { Lookups::Conflict } else { Lookups::Clear(done + 1) };
        }
        Some(false)
    }
}

impl Transaction {
    /// Forgets the conflict set, of values that are about to be others, or of a transaction that has ended.
    pub(crate) fn forget_conflict_set(&mut self) {
        let forgotten = std::mem::take(&mut self.conflict_set);
        drop_beside(forgotten.len(), forgotten);
    }

    pub(crate) fn set_id(&self) -> SetId {
        SetId::InFlight(self.txn, self.first_op)
    }

    /// Adds what is missing of the conflict set. False when the budget ends before.
    pub(crate) fn complete_conflict_set(&mut self, graph: &Graph, budget: &mut Budget) -> bool {
        let subject = ReservedNodes { nodes: &self.reserved, operations: &self.operations };
        self.conflict_set.complete(graph, &subject, budget)
    }

    /// True when a plan has to be compared with this transaction. During a rollback, those that only wait for reads need not.
    pub(crate) fn is_opposed_to(&self, going_back: Option<TxnId>) -> bool {
        let only_reads = matches!(self.phase, Phase::Settling { .. });
        going_back.is_none_or(|txn| txn != self.txn && !only_reads)
    }
}
