//! Queue of changes that wait for transactions in flight.
//!
//! At its turn, a change is planned again if something that its plan has read has changed since, and compared with those that it may
//! have to wait for: the first portion at once, the others by [`Engine::due`], between events, while the changes behind it wait.

use crate::engine::Engine;
use crate::history::Trigger;
use crate::operation::Now;
use crate::outcome::{PlanError, TransactionOutcome};
use crate::output::EngineOutput;
use crate::plan::Plan;
use crate::planner::Planning;
use crate::queue::{OVERTAKEN_MOST, QueuedPlan, QueuedTransaction, Turn};
use crate::transaction::{Budget, Comparison, Verdict};

impl Engine {
    /// Starts the first queued change that conflicts neither with a transaction in flight nor with a change before it.
    /// None overtakes a change that is being planned or compared.
    pub(crate) fn start_next_change(&mut self, now: Now, step: &mut EngineOutput) -> bool {
        if self.queue.is_comparing {
            return false;
        }
        let mut budget = Budget::of_step(self.portion);
        for at in 0..self.queue.changes.len().min(OVERTAKEN_MOST) {
            let behind = self.queue.changes[at].behind;
            if behind.is_some_and(|other| self.running.contains(other)) {
                continue;
            }
            let Some(queued) = self.queue.changes.remove(at) else { return false };
            let txn = queued.txn;
            let prepared = queued.prepared;
            match self.take_turn(queued, at, &mut budget) {
                Turn::Begin(plan) => {
                    self.begin_transaction(txn, Trigger::Change, *plan, prepared, now, step);
                    return true;
                }
                Turn::Refused(reason) => {
                    self.report_outcome(TransactionOutcome::Refused { txn, reason }, step);
                    return true;
                }
                Turn::Waits(queued) => self.queue.changes.insert(at, queued),
                Turn::InPortions(queued) => {
                    self.queue.is_comparing = matches!(queued.plan, QueuedPlan::Made(_));
                    self.queue.changes.insert(at, queued);
                    return false;
                }
            }
        }
        false
    }

    /// Looks whether a change can begin that `at` others come before.
    fn take_turn(&mut self, queued: QueuedTransaction, at: usize, budget: &mut Budget) -> Turn {
        let mut queued = match self.plan_at_turn(queued) {
            Ok(queued) => queued,
            Err(refused) => return Turn::Refused(refused),
        };
        let QueuedPlan::Made(plan) = queued.plan else { return Turn::InPortions(queued) };
        budget.extend_after(queued.plans_before);
        let verdict = match self.compare(&plan, &mut queued.comparison, budget, None) {
            Verdict::Clear => self.compare_with_earlier(&plan, &mut queued.comparison, at, budget),
            Verdict::Behind(other) => {
                queued.behind = Some(other);
                Some(false)
            }
            Verdict::Unfinished => None,
        };
        if verdict == Some(true) {
            return Turn::Begin(plan);
        }
        queued.plan = QueuedPlan::Made(plan);
        if verdict.is_none() { Turn::InPortions(queued) } else { Turn::Waits(queued) }
    }

    /// True when a plan is clear of the changes that come before it. `None` when the budget ends before that is known.
    fn compare_with_earlier(
        &mut self,
        plan: &Plan,
        comparison: &mut Comparison,
        at: usize,
        budget: &mut Budget,
    ) -> Option<bool> {
        self.count_compared(budget, |engine, budget| {
            for earlier in engine.queue.changes.iter_mut().take(at) {
                let id = earlier.set_id();
                let QueuedPlan::Made(other) = &earlier.plan else { return None };
                if !earlier.conflict_set.complete(&engine.graph, &**other, budget) {
                    return None;
                }
                let set = &earlier.conflict_set;
                if !comparison.is_clear_of(&engine.graph, plan, id, set, budget)? {
                    return Some(false);
                }
            }
            Some(true)
        })
    }

    /// The change with a plan for the present state: the one that it has, unless something that this has read changed since it was
    /// made.
    fn plan_at_turn(
        &mut self,
        mut queued: QueuedTransaction,
    ) -> Result<QueuedTransaction, PlanError> {
        let QueuedPlan::Made(plan) = &mut queued.plan else { return Ok(queued) };
        if plan.renew(&self.graph) {
            return Ok(queued);
        }
        self.graph.counters.replanned += 1;
        let mut planning = Planning::new(std::mem::take(&mut plan.delta));
        let plan = match self.plan_portion(&mut planning) {
            None => QueuedPlan::InTheMaking(Box::new(planning)),
            Some(plan) => QueuedPlan::Made(Box::new(plan?)),
        };
        Ok(queued.replan(plan))
    }

    /// Goes on with the plan of a queued change. False if none is in the making.
    pub(crate) fn plan_queued(&mut self, step: &mut EngineOutput) -> bool {
        let Some(at) = self.queue.in_the_making() else { return false };
        let Some(mut queued) = self.queue.changes.remove(at) else { return false };
        let QueuedPlan::InTheMaking(planning) = &mut queued.plan else { return false };
        match self.plan_portion(planning) {
            None => self.queue.changes.insert(at, queued),
            Some(Ok(plan)) => {
                queued.plan = QueuedPlan::Made(Box::new(plan));
                self.queue.changes.insert(at, queued);
            }
            Some(Err(reason)) => {
                let outcome = TransactionOutcome::Refused { txn: queued.txn, reason };
                self.report_outcome(outcome, step);
            }
        }
        true
    }
}
