//! Queue of changes that wait for transactions in flight.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_common::parallel;

use crate::change::Delta;
use crate::operation::TxnId;
use crate::outcome::PlanError;
use crate::plan::Plan;
use crate::planner::Planning;
use crate::transaction::{Comparison, ConflictSet, SetId};

/// Changes at the head of the queue that later ones may overtake.
pub(crate) const OVERTAKEN_MOST: usize = 16;

/// Changes in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct ChangeQueue {
    pub(crate) changes: VecDeque<QueuedTransaction>,
    /// True while the comparison of a change whose turn has come waits for its next portion.
    pub(crate) is_comparing: bool,
}

/// A change in the queue.
#[derive(Debug)]
pub(crate) struct QueuedTransaction {
    pub(crate) txn: TxnId,
    pub(crate) plan: QueuedPlan,
    /// Number of plans that were made before this one.
    pub(crate) plans_before: u32,
    /// True when the change is to begin without submitting anything: see [`Engine::prepare`](crate::Engine::prepare).
    pub(crate) prepared: bool,
    /// Transaction in flight that the change has to wait for.
    pub(crate) behind: Option<TxnId>,
    /// Comparison of the plan with others.
    pub(crate) comparison: Comparison,
    /// Conflict set, made when a change behind this one is compared with it.
    pub(crate) conflict_set: ConflictSet,
}

#[derive(Debug)]
pub(crate) enum QueuedPlan {
    Made(Box<Plan>),
    /// Plan that is made by the engine itself, mostly again, at the turn of its change.
    InTheMaking(Box<Planning>),
}

/// Outcome of the turn of a change that waits for no transaction in flight.
pub(crate) enum Turn {
    Begin(Box<Plan>),
    Refused(PlanError),
    /// The change has to wait for another one.
    Waits(QueuedTransaction),
    /// The plan of the change is made again, or compared, in portions.
    InPortions(QueuedTransaction),
}

impl QueuedTransaction {
    pub(crate) fn set_id(&self) -> SetId {
        SetId::Queued(self.txn, self.plans_before)
    }

    /// Exchanges the plan for one that is made for the present state.
    pub(crate) fn replan(self, plan: QueuedPlan) -> Self {
        let Self { txn, prepared, plans_before, .. } = self;
        let before = (self.plan, self.comparison, self.conflict_set);
        parallel::drop_aside(before); // a large drop need not delay events
        Self { plans_before: plans_before + 1, ..Self::new(txn, plan, prepared) }
    }

    fn new(txn: TxnId, plan: QueuedPlan, prepared: bool) -> Self {
        Self {
            txn,
            plan,
            plans_before: 0,
            prepared,
            behind: None,
            comparison: Comparison::default(),
            conflict_set: ConflictSet::default(),
        }
    }
}

impl ChangeQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends a change with its plan.
    pub(crate) fn push(&mut self, txn: TxnId, plan: Plan, prepared: bool) {
        self.append(txn, QueuedPlan::Made(Box::new(plan)), prepared);
    }

    /// Appends a change that is to be planned.
    pub(crate) fn push_unplanned(&mut self, txn: TxnId, delta: Delta) {
        self.append(txn, QueuedPlan::InTheMaking(Box::new(Planning::new(delta))), false);
    }

    fn append(&mut self, txn: TxnId, plan: QueuedPlan, prepared: bool) {
        self.changes.push_back(QueuedTransaction::new(txn, plan, prepared));
    }

    /// Lets a prepared change submit its operations when it begins. False if it is not in the queue.
    pub(crate) fn release(&mut self, txn: TxnId) -> bool {
        let queued = self.changes.iter_mut().find(|queued| queued.txn == txn);
        queued.is_some_and(|queued| {
            queued.prepared = false;
            true
        })
    }

    /// Drops a change. False if it is not in the queue.
    pub(crate) fn drop_change(&mut self, txn: TxnId) -> bool {
        let at = self.changes.iter().position(|queued| queued.txn == txn);
        at.is_some_and(|at| self.changes.remove(at).is_some())
    }

    /// Lets the next portion of a comparison be done.
    pub(crate) fn go_on_comparing(&mut self) {
        self.is_comparing = false;
    }

    /// Time of the next portion of a plan that is made, or of a comparison.
    pub(crate) fn deadline(&self, may_begin: bool) -> Option<Duration> {
        let is_due = self.in_the_making().is_some() || self.is_comparing && may_begin;
        is_due.then_some(Duration::ZERO)
    }

    pub(crate) fn in_the_making(&self) -> Option<usize> {
        self.changes.iter().position(|it| matches!(it.plan, QueuedPlan::InTheMaking(_)))
    }
}
