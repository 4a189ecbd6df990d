//! Submission of operations, and their completions.

use smallvec::SmallVec;

use crate::engine::Engine;
use crate::history::Trigger;
use crate::key::Key;
use crate::operation::{Action, Completion, Fact, Now, OpId, OperationError, TxnId};
use crate::output::EngineOutput;
use crate::transaction::{Dispatch, OpState, Phase, operation};

impl Engine {
    /// Submits ready operations, up to a portion at a time: the next completion, or [`Engine::due`], continues.
    pub(crate) fn dispatch(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        let mut most = self.portion;
        while most > 0 {
            let done = self.submit_ready(txn, most, now, step);
            if done == 0 {
                return;
            }
            most -= done;
            if most == 0 && !self.is_answer_due(txn) {
                most = self.portion;
            }
        }
    }

    fn is_answer_due(&mut self, txn: TxnId) -> bool {
        self.running.get(txn).is_some_and(|transaction| transaction.outstanding > 0)
    }

    /// Submits ready operations and returns their number.
    fn submit_ready(
        &mut self,
        txn: TxnId,
        most: usize,
        now: Now,
        step: &mut EngineOutput,
    ) -> usize {
        let Some(transaction) = self.running.get(txn) else { return 0 };
        if !transaction.may_submit() {
            return 0;
        }
        let ready = transaction.order.take_ready(most);
        let count = ready.len();
        let mut left_out = Vec::new();
        let mut by_engine = Vec::new();
        step.submit.reserve(ready.len());
        for op_index in ready {
            let op = transaction.op_id(op_index);
            match transaction.dispatch_of(op_index) {
                Dispatch::AlreadyDispatched => {}
                Dispatch::Skip => {
                    transaction.skip_op(op);
                    left_out.push(op);
                }
                Dispatch::ByEngine => {
                    transaction.submitted_op(op);
                    by_engine.push(op);
                }
                Dispatch::Submit => {
                    transaction.submitted(op, now);
                    step.submit.push(operation(&self.graph, transaction, op));
                }
            }
        }
        for op in left_out {
            let error = OperationError {
                transient: true,
                ..OperationError::message("an operation it depends on was not done")
            };
            self.record_failure(op, error, now, step);
        }
        for op in by_engine {
            self.on_success(op, now, step);
        }
        count
    }

    /// Submits an operation a second time, without what it was to give back.
    pub(super) fn submit_again(&mut self, op: OpId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.of(op) else { return };
        transaction.op_progress_mut(op).state = OpState::Submitted;
        transaction.outstanding += 1;
        transaction.last_progress = now.monotonic;
        step.submit.push(operation(&self.graph, transaction, op));
    }

    pub(crate) fn complete(
        &mut self,
        completions: Vec<Completion>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let mut moved: SmallVec<[TxnId; 4]> = SmallVec::new();
        step.changed.reserve(completions.len());
        for Completion { op, result, observed } in completions {
            let transaction = self.running.of(op).filter(|transaction| {
                matches!(transaction.op_progress(op).state, OpState::Submitted)
            });
            let Some(transaction) = transaction else {
                self.take_late_answer(op, result.is_ok(), step);
                continue;
            };
            if !moved.contains(&transaction.txn) {
                moved.push(transaction.txn);
            }
            self.take_answer(op, result, observed, now, step);
        }
        for txn in moved {
            self.dispatch(txn, now, step);
        }
    }

    fn take_answer(
        &mut self,
        op: OpId,
        result: Result<(), OperationError>,
        observed: Option<Fact>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Some(transaction) = self.running.of(op) else { return };
        if self.reading.is_some() {
            let operation = transaction.operation(op);
            let keys: Vec<Key> =
                operation.cascaded.iter().chain([&operation.key]).cloned().collect();
            keys.iter().for_each(|key| self.read_ahead(key, now, step));
        }
        let Some(transaction) = self.running.of(op) else { return };
        transaction.outstanding -= 1;
        transaction.last_progress = now.monotonic;
        // During a rollback, a cancelled operation counts as failed.
        let failed = transaction.failure.is_some() && transaction.phase == Phase::Executing;
        let idx = transaction.op_progress(op).idx;
        let operation = transaction.operation(op);
        let action = operation.action;
        if let Some(queue) = self.transport_queues.get_mut(&operation.transport) {
            queue.answered(now.monotonic);
        }
        if let Some(fact) = observed.filter(|fact| fact.key == operation.key) {
            self.graph.set_observed(idx, fact.value);
        }
        match result {
            Ok(()) => self.on_success(op, now, step),
            Err(error) if error.is_gone() && action == Action::Delete => {
                self.on_success(op, now, step)
            }
            Err(error) if error.exists() && action == Action::Create => {
                let state = OpState::Completed(now.monotonic, Some(Box::new(error)));
                self.on_completed(op, state, step);
                self.try_verify(op, now, step);
            }
            Err(error) if error.is_cancelled() && failed => transaction.skip_op(op),
            Err(error) => self.fail(op, error, now, step),
        }
    }

    /// Aborts a change of a client: cancels what was submitted, and undoes what was done.
    pub(crate) fn abort(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.get(txn) else { return };
        if transaction.phase != Phase::Executing || transaction.trigger != Trigger::Change {
            return;
        }
        if transaction.take_over.is_some() {
            transaction.cancelled = true;
            return;
        }
        transaction.prepared = false;
        step.restores.append(&mut transaction.restores); // the engine relies on them
        let named = transaction.operations.first().map(|op| op.key.clone());
        let Some(key) = named.or_else(|| transaction.changes.first().map(|it| it.key.clone()))
        else {
            return;
        };
        transaction.cancelled = true;
        step.cancel.extend(transaction.unanswered());
        let label = self.graph.label(&key);
        if let Some(transaction) = self.running.get(txn) {
            transaction.failure.get_or_insert((key, label, OperationError::cancelled()));
            transaction.last_progress = now.monotonic;
        }
    }
}
