//! Convergence: work of the engine for values that are not as intended, without a request.
//!
//! A hundred thousand values may need this work after a start or a resync, or when an object appears that many values
//! wait for. So their plan is made in portions: the first at once, the others by [`Engine::due`], between events.
//!
//! ```text
//! dirty nodes ---> sorted out ------------> plan -----------> transaction, or goals alone
//!                  in portions              in portions       taken over in portions
//!                  | owned: marked          | something that it has read
//!                  | again at the end       | changes: begun again
//!                  | in place: recorded
//! ```
//!
//! At a start, most values are found in place. If nothing relies on such a value, it is recorded as applied while the
//! dirty values are sorted. The other values are left to the plan, because the plan knows what will be removed.
//!
//! Values stay marked as dirty until their plan is made, so that none is dropped or listed a second time. Changes of clients may
//! begin meanwhile. So the plan is made for the state at the moment when it is complete, and then waits for the
//! transactions that conflict with it.

use std::time::Duration;

use crate::engine::{Engine, IN_FLIGHT_MOST};
use crate::graph::NodeIdx;
use crate::history::Trigger;
use crate::operation::Now;
use crate::output::EngineOutput;
use crate::plan::Plan;
use crate::planner::Planning;
use crate::transaction::{Budget, ComparedPlan, Comparison, Convergence, OwnPlan, Verdict};

/// Number of conflicting dirty values up to which each gets a plan of its own.
const DIRTY_SINGLY: usize = 64;

impl Engine {
    /// Plans for the dirty values that no transaction owns. Starts a transaction only when there are operations, or many values
    /// to be recorded as applied. False when there is nothing to begin.
    pub(crate) fn start_convergence(&mut self, now: Now, step: &mut EngineOutput) -> bool {
        self.graph.mark_held_back_dirty();
        if self.convergence.is_some() || self.graph.dirty.is_empty() {
            return false;
        }
        let unsorted = std::mem::take(&mut self.graph.dirty).into_iter();
        let dirty = Vec::with_capacity(unsorted.len());
        let convergence = Convergence { unsorted, dirty, plan: None };
        self.advance_convergence(Box::new(convergence), now, step);
        true
    }

    /// Goes on with the convergence that is being planned, if there is one that may begin.
    pub(crate) fn continue_convergence(&mut self, now: Now, step: &mut EngineOutput) -> bool {
        let may_begin = self.convergence_deadline().is_some();
        let Some(convergence) = self.convergence.take_if(|_| may_begin) else { return false };
        self.advance_convergence(convergence, now, step);
        true
    }

    /// Time of the next portion of a convergence.
    pub(crate) fn convergence_deadline(&self) -> Option<Duration> {
        let may_begin = self.running.len() < IN_FLIGHT_MOST;
        self.convergence.as_ref().filter(|_| may_begin).map(|_| Duration::ZERO)
    }

    fn advance_convergence(
        &mut self,
        mut convergence: Box<Convergence>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Convergence { unsorted, dirty, plan } = &mut *convergence;
        if unsorted.len() > 0 {
            let portion = unsorted.by_ref().take(self.portion);
            dirty.extend(portion.filter(|&idx| self.is_to_be_planned_for(idx, step)));
        }
        if unsorted.len() > 0 {
            self.convergence = Some(convergence);
            return;
        }
        if dirty.is_empty() {
            return;
        }
        let own = plan.get_or_insert_with(|| OwnPlan::new(Planning::of_values(dirty.clone())));
        match self.advance_own_plan(own, None) {
            None => self.convergence = Some(convergence),
            Some(plan) => {
                let dirty = std::mem::take(dirty);
                dirty.iter().for_each(|&idx| self.graph.unmark_dirty(idx));
                // No planner refuses a value that the engine holds already.
                if let Ok(plan) = plan {
                    self.converge(plan, dirty, now, step);
                }
            }
        }
    }

    /// Sorts a dirty value out: one that a transaction owns is marked again at its end, tolerated drift stays, and what is found
    /// in place is recorded as applied, where no plan would decide otherwise.
    fn is_to_be_planned_for(&mut self, idx: NodeIdx, step: &mut EngineOutput) -> bool {
        let owner = self.owner_in_flight(idx);
        match owner {
            Some(owner) => self.running.mark_dirty_after(owner, idx),
            None => self.clear_recovered(idx, step),
        }
        // Beside a transaction, a plan is compared with it.
        let is_found = self.running.is_empty() && self.graph.is_found_for_itself(idx);
        if is_found {
            self.graph.counters.found_in_place += 1;
            self.install_found(idx, step);
        }
        let is_left = owner.is_none() && !is_found && !self.graph.is_drift_tolerated(idx);
        if !is_left {
            self.graph.unmark_dirty(idx);
        }
        is_left
    }

    /// Clears the error of a value that failed and is in place now, so that it is not tried again.
    fn clear_recovered(&mut self, idx: NodeIdx, step: &mut EngineOutput) {
        let node = self.graph.node(idx);
        if node.has_failed() && !self.graph.is_out_of_place(idx) {
            step.changed.push(node.key.clone());
            self.clear_error(idx);
            self.graph.update_unsettled(idx);
        }
    }

    /// Starts the plan. If it conflicts with a running transaction, its values are marked to be planned again when
    /// that ends; up to `DIRTY_SINGLY` values are planned one by one, so that those without a conflict start now.
    fn converge(
        &mut self,
        (plan, behind): ComparedPlan,
        dirty: Vec<NodeIdx>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Some(behind) = behind else {
            return self.begin_convergence(plan, &dirty, now, step);
        };
        if dirty.len() == 1 || dirty.len() > DIRTY_SINGLY {
            dirty.into_iter().for_each(|idx| self.running.mark_dirty_after(behind, idx));
            return;
        }
        let mut budget = Budget::of_step(usize::MAX);
        for idx in dirty {
            let may_begin =
                self.running.len() < IN_FLIGHT_MOST && self.running.in_take_over().is_none();
            // A value that takes longer than an event may wait, to plan for or to compare, is planned for at the end
            // of the conflict.
            let plan =
                may_begin.then(|| self.plan_portion(&mut Planning::of_values(vec![idx]))).flatten();
            let behind = match plan {
                None => Some(behind),
                Some(Err(_)) => None,
                Some(Ok(plan)) => {
                    match self.compare(&plan, &mut Comparison::default(), &mut budget, None) {
                        Verdict::Clear => {
                            self.begin_convergence(plan, &[idx], now, step);
                            None
                        }
                        Verdict::Behind(other) => Some(other),
                        Verdict::Unfinished => Some(behind),
                    }
                }
            };
            if let Some(behind) = behind {
                self.running.mark_dirty_after(behind, idx);
            }
        }
    }

    /// Begins to carry out a plan that is clear of all transactions.
    fn begin_convergence(
        &mut self,
        plan: Plan,
        dirty: &[NodeIdx],
        now: Now,
        step: &mut EngineOutput,
    ) {
        if plan.operations.is_empty() && plan.nodes.len() <= self.portion {
            self.install_goals(plan, step);
        } else {
            let txn = self.next_number();
            self.begin_transaction(txn, Trigger::Convergence, plan, false, now, step);
        }
        if self.running.in_take_over().is_none() {
            dirty.iter().for_each(|&idx| self.graph.forget_if_empty(idx));
        }
    }
}
