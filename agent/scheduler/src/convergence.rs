//! Convergence: work that the engine finds by itself, for values that are not as intended.
//!
//! After a start or a resync, or when something appears that many values wait for, there may be a hundred thousand of
//! them. So their plan is made in portions: the first at once, the others by [`Engine::due`], between events.
//!
//! ```text
//! dirty nodes ---> sorted out ------------> plan -----------> transaction, or goals alone
//!                  in portions              in portions       taken over in portions
//!                  | owned: marked          | something that it has read
//!                  | again at the end       | changes: begun again
//!                  | in place: recorded
//!                  | at the end
//! ```
//!
//! At a start, most values are found in place. Those that nothing relies on need no plan: they are recorded as applied once all
//! others are done. Where one of the others goes or changes, they are planned for together with it, since they may rely on it.
//!
//! Values stay marked as dirty until their plan is made, so that none is dropped or listed a second time. Changes of clients may
//! begin meanwhile; the plan is that of the last moment, and waits for what conflicts with it then.

use std::time::Duration;

use crate::engine::{Engine, EngineOutput, IN_FLIGHT_MOST};
use crate::graph::NodeIdx;
use crate::history::Trigger;
use crate::operation::{Action, Now};
use crate::plan::{Plan, PlanError};
use crate::planner::{ComparedPlan, OwnPlan, Planning};
use crate::transaction::{Budget, Comparison, Verdict};

/// Number of conflicting dirty values up to which each is planned for by itself.
const DIRTY_SINGLY: usize = 64;

/// Dirty values that are being planned for.
#[derive(Debug)]
pub(crate) struct Convergence {
    /// Values to be sorted out.
    unsorted: std::vec::IntoIter<NodeIdx>,
    /// Values to be planned for.
    dirty: Vec<NodeIdx>,
    /// Values in place that have only to be recorded as applied, see [`Graph::is_found_for_itself`](crate::graph::Graph).
    found: Vec<NodeIdx>,
    /// Plan in the making, once all values are sorted out.
    plan: Option<OwnPlan>,
    /// Revision of the graph at the end of the last portion.
    revision: u64,
}

/// What a dirty value needs.
enum DirtyValue {
    Plan,
    /// To be recorded as applied.
    Record,
    Nothing,
}

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
        let revision = self.graph.log.revision();
        let convergence = Convergence { unsorted, dirty, found: Vec::new(), plan: None, revision };
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
        let Convergence { unsorted, dirty, found, plan, .. } = &mut *convergence;
        if unsorted.len() > 0 {
            for idx in unsorted.by_ref().take(self.portion) {
                match self.sort_out(idx, step) {
                    DirtyValue::Plan => dirty.push(idx),
                    DirtyValue::Record => found.push(idx),
                    DirtyValue::Nothing => self.graph.unmark_dirty(idx),
                }
            }
        }
        let is_sorted = unsorted.len() == 0;
        if is_sorted && !dirty.is_empty() {
            let own = plan.get_or_insert_with(|| OwnPlan::new(Planning::of_values(dirty.clone())));
            if let Some(plan) = self.advance_own_plan(own, None) {
                return self.end_convergence(convergence, plan, now, step);
            }
        } else if is_sorted && self.record_found_portion(&mut convergence, step) {
            return;
        }
        convergence.revision = self.graph.log.revision();
        self.convergence = Some(convergence);
    }

    /// Sorts a dirty value out: one that a transaction owns is marked again at its end, and tolerated drift stays.
    fn sort_out(&mut self, idx: NodeIdx, step: &mut EngineOutput) -> DirtyValue {
        if let Some(owner) = self.owner_in_flight(idx) {
            self.running.mark_dirty_after(owner, idx);
            return DirtyValue::Nothing;
        }
        self.clear_recovered(idx, step);
        if self.graph.is_drift_tolerated(idx) {
            DirtyValue::Nothing
        } else if self.running.is_empty() && self.graph.is_found_for_itself(idx) {
            DirtyValue::Record // beside a transaction, a plan is compared with it
        } else {
            DirtyValue::Plan
        }
    }

    /// Records the next values found in place as applied. True when none is left.
    fn record_found_portion(
        &mut self,
        convergence: &mut Convergence,
        step: &mut EngineOutput,
    ) -> bool {
        let is_unchanged = convergence.revision == self.graph.log.revision();
        let found = &mut convergence.found;
        for idx in found.drain(found.len().saturating_sub(self.portion)..) {
            self.graph.unmark_dirty(idx);
            let may_record = || self.running.is_empty() && self.graph.is_found_for_itself(idx);
            if is_unchanged || may_record() {
                self.graph.counters.found_in_place += 1;
                self.install_found(idx, step);
            } else {
                self.graph.mark_dirty(idx);
            }
        }
        found.is_empty()
    }

    /// Carries out what is planned, and has the values found in place looked at again after that. Where anything goes or changes,
    /// they may rely on it, and are planned for as well.
    fn end_convergence(
        &mut self,
        mut convergence: Box<Convergence>,
        plan: Result<ComparedPlan, PlanError>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Convergence { dirty, found, plan: made, .. } = &mut *convergence;
        let is_adding = |plan: &Plan| plan.operations.iter().all(|op| op.action == Action::Create);
        if !found.is_empty() && !plan.as_ref().is_ok_and(|(plan, _)| is_adding(plan)) {
            dirty.append(found);
            *made = None;
            if dirty.len() <= self.portion {
                return self.advance_convergence(convergence, now, step);
            }
            self.convergence = Some(convergence);
            return;
        }
        let (dirty, found) = (std::mem::take(dirty), std::mem::take(found));
        dirty.iter().chain(&found).for_each(|&idx| self.graph.unmark_dirty(idx));
        // What the engine holds already is refused by no planner.
        if let Ok(plan) = plan {
            self.converge(plan, dirty, now, step);
        }
        if found.is_empty() {
            return;
        }
        self.recording_after = self.running.numbers().last().copied();
        for idx in found {
            match self.recording_after {
                Some(txn) => self.running.mark_dirty_after(txn, idx),
                None => self.graph.mark_dirty(idx),
            }
        }
    }

    /// Clears the error of a value that failed and is in place now, so that it is not tried again.
    fn clear_recovered(&mut self, idx: NodeIdx, step: &mut EngineOutput) {
        let node = self.graph.node(idx);
        if node.retry.as_ref().is_some_and(|it| it.error.is_some())
            && !self.graph.is_out_of_place(idx)
        {
            step.changed.push(node.key.clone());
            self.clear_error(idx);
            self.graph.update_unsettled(idx);
        }
    }

    /// Carries a plan out. Where it has to wait for a transaction, its values do; of few, each does by itself.
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
            // One that takes longer than an event may wait, to plan for or to compare, is planned for at the end of the conflict.
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
            self.begin_transaction(txn, Trigger::Convergence, (plan, false), now, step);
        }
        if self.running.in_take_over().is_none() {
            dirty.iter().for_each(|&idx| self.graph.forget_if_empty(idx));
        }
    }
}
