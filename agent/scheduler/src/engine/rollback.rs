//! Rollback of a transaction that failed, or was cancelled.
//!
//! To go back takes as long as to go on: there may be a hundred thousand operations to be ended, and as many to be planned. So each
//! step of it is done in portions: the first at once, the others by [`Engine::due`], between events.
//!
//! ```text
//! Ending --------> Settled -----------------> Confirming -----> Planning ----> take-over
//! operations end;  failed keys are read,      absence of what   from the       of the plan
//! values of before conflicting transactions   was not done      present state
//! are listed       end                                              |
//!                     ^                                             |
//!                     +-------------- another one conflicts --------+
//! ```
//!
//! *Invariant:* an event that comes while operations end is judged as one that comes after the end of all of them: a fact on the key
//! of an operation has that one ended first, ahead of its turn. No transaction that conflicts with this one begins meanwhile,
//! since its values stay reserved.

use crate::change::{Delta, IntentChange};
use crate::engine::Engine;
use crate::graph::NodeIdx;
use crate::operation::{Action, Now, OpId, TxnId};
use crate::outcome::PlanError;
use crate::output::EngineOutput;
use crate::overlay::to_u32;
use crate::planner::Planning;
use crate::transaction::{
    ComparedPlan, OpState, OwnPlan, Phase, READ_AT_ONCE, Rollback, SETTLED_WITHIN, Stage,
    Transaction,
};

impl Engine {
    /// Begins a rollback: nothing more is submitted, and completed operations count as done.
    pub(super) fn begin_rollback(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.get(txn) else { return };
        let until = now.monotonic + SETTLED_WITHIN;
        transaction.phase = Phase::Settling { until, behind: None };
        transaction.read_due = None;
        transaction.rollback = Some(Box::new(Rollback {
            stage: Stage::Ending,
            done: 0,
            reads: 0,
            touched: Vec::with_capacity(transaction.operations.len()),
            before: Vec::with_capacity(transaction.changes.len()),
            plan: None,
        }));
        self.advance_rollback(txn, now, step);
    }

    /// Begins to plan the way back of a transaction that has settled. False when that has to wait for another transaction, or
    /// takes further portions.
    pub(super) fn begin_undo(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) -> bool {
        let transaction = self.running.get(txn);
        let Some(transaction) = transaction else { return false };
        if let Some(rollback) = &mut transaction.rollback {
            rollback.enter(Stage::Confirming);
        }
        if transaction.operations.len() <= self.portion {
            self.advance_rollback(txn, now, step);
        }
        self.running.get(txn).is_some_and(|transaction| transaction.phase == Phase::Undoing)
    }

    /// Goes on with a rollback that is under way, if there is one.
    pub(crate) fn continue_rollback(&mut self, now: Now, step: &mut EngineOutput) -> bool {
        let txn = self.running.in_rollback();
        txn.inspect(|&txn| self.advance_rollback(txn, now, step)).is_some()
    }

    /// Does the next portion of a rollback, and begins the stages that follow.
    fn advance_rollback(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        let Some(mut transaction) = self.running.take(txn) else { return };
        if let Some(mut rollback) = transaction.rollback.take() {
            if rollback.stage == Stage::Ending
                && self.end_operations(&mut transaction, &mut rollback, step)
            {
                rollback.enter(Stage::Settled);
            } else if rollback.stage == Stage::Confirming
                && self.confirm_absences(&transaction, &mut rollback, now, step)
            {
                rollback.enter(Stage::Planning);
            }
            let planned = match rollback.stage {
                Stage::Planning => self.plan_way_back(&mut transaction, &mut rollback),
                Stage::Ending | Stage::Settled | Stage::Confirming => None,
            };
            match planned {
                None => transaction.rollback = Some(rollback),
                Some(plan) => self.undo(&mut transaction, rollback, plan, now, step),
            }
        }
        self.running.put(transaction);
        self.dispatch(txn, now, step);
    }

    /// Ends a portion of the operations, and lists the values of before. True when all are done.
    fn end_operations(
        &mut self,
        transaction: &mut Transaction,
        rollback: &mut Rollback,
        step: &mut EngineOutput,
    ) -> bool {
        let operations = transaction.operations.len();
        let all = operations + transaction.changes.len();
        let (portion, is_left) = rollback.portion(all, self.portion);
        self.graph.counters.rolled_back += portion.len() as u64;
        for at in portion {
            if let Some(at) = at.checked_sub(operations) {
                let change = &transaction.changes[at];
                let value = &transaction.before[at];
                rollback.before.push(IntentChange { value: value.clone(), ..change.clone() });
                continue;
            }
            let is_completed = self.end_operation(transaction, at, step);
            let operation = &transaction.operations[at];
            if is_completed && rollback.reads < READ_AT_ONCE {
                rollback.reads += 1;
                step.read.push(operation.key.clone());
            }
            let cascaded = operation.cascaded.iter().filter_map(|key| self.graph.find(key));
            rollback.touched.extend(cascaded.chain([transaction.progress[at].idx]));
        }
        !is_left
    }

    /// Ends an operation of a transaction that goes back. True if it was completed, and counts as done.
    fn end_operation(
        &mut self,
        transaction: &mut Transaction,
        at: usize,
        step: &mut EngineOutput,
    ) -> bool {
        let number = transaction.op_id(to_u32(at));
        let op = &transaction.operations[at];
        let op_progress = &mut transaction.progress[at];
        let is_last = self.graph.node(op_progress.idx).running_op() == Some(number);
        let is_completed = is_last && matches!(op_progress.state, OpState::Completed(_, None));
        if is_completed {
            let gone = op.action == Action::Delete;
            self.graph.set_observed(op_progress.idx, op.new.clone().filter(|_| !gone));
        } else if is_last && matches!(op_progress.state, OpState::Waiting) {
            op_progress.state = OpState::NotTried;
        }
        self.end_op_of(op_progress.idx, number);
        step.changed.push(op.key.clone());
        for key in &op.cascaded {
            step.changed.push(key.clone());
            self.graph.find(key).into_iter().for_each(|idx| self.end_op_of(idx, number));
        }
        is_completed
    }

    fn end_op_of(&mut self, idx: NodeIdx, number: OpId) {
        let node = self.graph.node_mut(idx);
        if node.running_op() == Some(number) {
            node.end_op();
        }
    }

    /// Ends the operation on a value ahead of its turn, if its transaction goes back.
    pub(crate) fn end_operation_ahead(&mut self, idx: NodeIdx, step: &mut EngineOutput) {
        let Some(op) = self.graph.node(idx).running_op() else { return };
        let Some(transaction) = self.running.of(op).filter(|it| it.is_ending()) else { return };
        let txn = transaction.txn;
        let at = transaction.op_index(op);
        if let Some(mut transaction) = self.running.take(txn) {
            self.end_operation(&mut transaction, at, step);
            self.running.put(transaction);
        }
    }

    /// Confirms the absence of values whose operations were not done, a portion of them. True when all are.
    fn confirm_absences(
        &mut self,
        transaction: &Transaction,
        rollback: &mut Rollback,
        now: Now,
        step: &mut EngineOutput,
    ) -> bool {
        let (portion, is_left) = rollback.portion(transaction.progress.len(), self.portion);
        self.graph.counters.rolled_back += portion.len() as u64;
        for op_progress in &transaction.progress[portion] {
            if matches!(op_progress.state, OpState::Failed(_) | OpState::NotTried) {
                self.confirm_absence(op_progress.idx, now, step);
            }
        }
        !is_left
    }

    /// Makes a portion of the plan that restores the intent from the present state.
    fn plan_way_back(
        &mut self,
        transaction: &mut Transaction,
        rollback: &mut Rollback,
    ) -> Option<Result<ComparedPlan, PlanError>> {
        let Rollback { touched, before, plan, .. } = rollback;
        let plan = plan.get_or_insert_with(|| {
            let delta = Delta::new(std::mem::take(before)).best_effort();
            let planning = Planning::new(delta).revisiting(std::mem::take(touched));
            OwnPlan::new(planning.keeping(std::mem::take(&mut transaction.claims_before)))
        });
        self.advance_own_plan(plan, Some(transaction.txn))
    }

    /// Takes the plan of the way back over, unless another transaction conflicts with it and has to end before.
    fn undo(
        &mut self,
        transaction: &mut Transaction,
        mut rollback: Box<Rollback>,
        plan: Result<ComparedPlan, PlanError>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        match plan {
            Ok((plan, Some(other))) => {
                let until = now.monotonic;
                transaction.phase = Phase::Settling { until, behind: Some(other) };
                if let Some(own) = &mut rollback.plan {
                    own.take_back(plan);
                }
                rollback.enter(Stage::Settled);
                transaction.rollback = Some(rollback);
            }
            Ok((plan, None)) => {
                transaction.begin_undoing(now);
                self.begin_take_over(transaction, plan, now, step);
            }
            // The change would have been refused for a key named twice with different values.
            Err(_) => {
                transaction.begin_undoing(now);
                transaction.undo_failed = true;
                transaction.open = 0;
            }
        }
    }
}
