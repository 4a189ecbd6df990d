//! Queue of changes that wait for transactions in flight.
//!
//! At its turn, a change is planned again if something that its plan has read has changed since: the first portion at once, the
//! others by [`Engine::due`], between events, while the changes behind it wait.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::{Engine, EngineOutput, TransactionOutcome};
use crate::graph::Graph;
use crate::history::Trigger;
use crate::operation::{Now, TxnId};
use crate::plan::{Delta, Plan, PlanError};
use crate::planner::Planning;
use crate::transaction::ConflictSet;

/// Changes at the head of the queue that later ones may overtake.
const OVERTAKEN_MOST: usize = 16;

/// Changes in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct ChangeQueue(VecDeque<QueuedTransaction>);

/// A change in the queue.
#[derive(Debug)]
struct QueuedTransaction {
    txn: TxnId,
    plan: QueuedPlan,
    /// True when the change is to begin without submitting anything: see [`Engine::prepare`].
    prepared: bool,
    /// Transaction in flight that conflicts with the change.
    behind: Option<TxnId>,
    conflict_set: Option<ConflictSet>,
}

#[derive(Debug)]
enum QueuedPlan {
    Made(Box<Plan>),
    /// Plan that is made by the engine itself, mostly again, at the turn of its change.
    InTheMaking(Box<Planning>),
}

/// Plan of a change whose turn has come.
enum Turn {
    Planned(Box<Plan>),
    Refused(PlanError),
    /// The plan is to be made again in portions.
    Again(Box<Planning>),
}

impl ChangeQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        self.0.push_back(QueuedTransaction {
            txn,
            plan,
            prepared,
            behind: None,
            conflict_set: None,
        });
    }

    /// Lets a prepared change submit its operations when it begins. False if it is not in the queue.
    pub(crate) fn release(&mut self, txn: TxnId) -> bool {
        let queued = self.0.iter_mut().find(|queued| queued.txn == txn);
        queued.is_some_and(|queued| {
            queued.prepared = false;
            true
        })
    }

    /// Drops a change. False if it is not in the queue.
    pub(crate) fn drop_change(&mut self, txn: TxnId) -> bool {
        let at = self.0.iter().position(|queued| queued.txn == txn);
        at.is_some_and(|at| self.0.remove(at).is_some())
    }

    /// Time of the next portion of a plan that is made.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.in_the_making().map(|_| Duration::ZERO)
    }

    fn in_the_making(&self) -> Option<usize> {
        self.0.iter().position(|it| matches!(it.plan, QueuedPlan::InTheMaking(_)))
    }

    fn conflict_set_at(&mut self, at: usize, graph: &Graph) -> Option<ConflictSet> {
        let queued = &mut self.0[at];
        match &queued.plan {
            QueuedPlan::Made(plan) => {
                let conflict_set = queued.conflict_set.take();
                Some(conflict_set.unwrap_or_else(|| ConflictSet::of_plan(graph, plan)))
            }
            QueuedPlan::InTheMaking(_) => None,
        }
    }
}

impl Engine {
    /// Starts the first queued change that conflicts neither with a transaction in flight nor with a change before it.
    /// None overtakes a change that is being planned.
    pub(crate) fn start_next_change(&mut self, now: Now, step: &mut EngineOutput) -> bool {
        let mut waiting: Vec<ConflictSet> = Vec::new();
        for at in 0..self.queue.0.len().min(OVERTAKEN_MOST) {
            let behind = self.queue.0[at].behind;
            if behind.is_some_and(|other| self.running.contains(other)) {
                let Some(set) = self.queue.conflict_set_at(at, &self.graph) else { return false };
                waiting.push(set);
                continue;
            }
            let Some(mut queued) = self.queue.0.remove(at) else { return false };
            let QueuedPlan::Made(plan) = queued.plan else {
                self.queue.0.insert(at, queued);
                return false;
            };
            let txn = queued.txn;
            let plan = match self.plan_at_turn(*plan) {
                Turn::Planned(plan) => plan,
                Turn::Refused(reason) => {
                    self.report_outcome(TransactionOutcome::Refused { txn, reason }, step);
                    return true;
                }
                Turn::Again(planning) => {
                    queued.plan = QueuedPlan::InTheMaking(planning);
                    queued.conflict_set = None;
                    self.queue.0.insert(at, queued);
                    return false;
                }
            };
            queued.behind = self.conflicting_transaction(&plan, None);
            let is_clear = waiting.is_empty() || {
                let conflict_set = ConflictSet::of_plan(&self.graph, &plan);
                !waiting.iter().any(|other| other.conflicts(&conflict_set))
            };
            if queued.behind.is_none() && is_clear {
                let plan = (*plan, queued.prepared);
                self.begin_transaction(txn, Trigger::Change, plan, now, step);
                return true;
            }
            queued.plan = QueuedPlan::Made(plan);
            queued.conflict_set = None;
            self.queue.0.insert(at, queued);
            waiting.extend(self.queue.conflict_set_at(at, &self.graph));
        }
        false
    }

    /// Plan for the present state: the given one, unless something that it has read changed since it was made.
    fn plan_at_turn(&mut self, mut plan: Plan) -> Turn {
        if plan.is_current(&self.graph) {
            plan.revision = self.graph.log.revision();
            return Turn::Planned(Box::new(plan));
        }
        self.graph.counters.replanned += 1;
        let mut planning = Planning::from(plan);
        match self.plan_portion(&mut planning) {
            None => Turn::Again(Box::new(planning)),
            Some(Ok(plan)) => Turn::Planned(Box::new(plan)),
            Some(Err(reason)) => Turn::Refused(reason),
        }
    }

    /// Goes on with the plan of a queued change. False if none is in the making.
    pub(crate) fn plan_queued(&mut self, step: &mut EngineOutput) -> bool {
        let Some(at) = self.queue.in_the_making() else { return false };
        let Some(mut queued) = self.queue.0.remove(at) else { return false };
        let QueuedPlan::InTheMaking(planning) = &mut queued.plan else { return false };
        match self.plan_portion(planning) {
            None => self.queue.0.insert(at, queued),
            Some(Ok(plan)) => {
                queued.plan = QueuedPlan::Made(Box::new(plan));
                self.queue.0.insert(at, queued);
            }
            Some(Err(reason)) => {
                let outcome = TransactionOutcome::Refused { txn: queued.txn, reason };
                self.report_outcome(outcome, step);
            }
        }
        true
    }
}
