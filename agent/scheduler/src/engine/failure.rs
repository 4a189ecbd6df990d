//! Failures of operations: retries of single values, and the end of what was not verified in time.

use crate::descriptor::catch_panic;
use crate::engine::Engine;
use crate::graph::{Graph, NodeIdx};
use crate::key::Key;
use crate::operation::{Action, ErrorClass, Now, OpId, OperationError, TxnId};
use crate::output::EngineOutput;
use crate::planned_operation::PlannedOperation;
use crate::retry_state::NextLook;
use crate::transaction::{
    ECHO_WITHIN, OpProgress, OpState, Phase, READ_AGAIN, READS_MOST, VERIFIED_WITHIN,
};
use crate::value::SharedValue;

impl Engine {
    pub(super) fn fail(
        &mut self,
        op: OpId,
        error: OperationError,
        now: Now,
        step: &mut EngineOutput,
    ) {
        if self.leave_as_it_is(op, &error, now, step) {
            return;
        }
        let is_prevented = self.is_prevented(op, &error);
        let Some(transaction) = self.running.of(op) else { return };
        transaction.open -= 1;
        transaction.op_progress_mut(op).state = OpState::Failed(Box::new(error.clone()));
        transaction.failed_op(op);
        let idx = transaction.op_progress(op).idx;
        let operation = transaction.operation(op);
        let cause = operation.cause;
        let key = operation.key.clone();
        let value = operation.new.clone().or_else(|| operation.old.clone());
        self.graph.counters.operations_failed += 1;
        step.read.push(key.clone());
        if transaction.fails_transaction(cause) && !is_prevented {
            let label = self.graph.registry.label(&key, value.as_deref());
            transaction.awaited.insert(idx);
            if transaction.failure.is_none() {
                step.cancel.extend(transaction.unanswered());
                transaction.failure = Some((key, label, error));
            }
        } else {
            self.record_failure(op, error, now, step);
        }
    }

    /// Completes an operation without what it was to give back, where the system refuses to take that back and time does
    /// not help. An object that is released stays as the system has it; an update is sent again as it was asked for.
    fn leave_as_it_is(
        &mut self,
        op: OpId,
        error: &OperationError,
        now: Now,
        step: &mut EngineOutput,
    ) -> bool {
        let Some(transaction) = self.running.of(op) else { return false };
        let idx = transaction.op_progress(op).idx;
        let operation = transaction.operation(op);
        let action = operation.action;
        let key = operation.key.clone();
        let value = operation.new.clone();
        let gives_back = match action {
            Action::Release => true,
            Action::Update => !operation.is_left() && self.graph.restores_in(operation),
            Action::Delete | Action::Adopt | Action::Create => false,
        };
        let is_last = self.graph.node(idx).running_op() == Some(op);
        let is_refused = error.errno.is_some() && !error.is_cancelled();
        let is_final = is_refused && self.classify(idx, error) != ErrorClass::Transient;
        if !gives_back || !is_last || !is_final {
            return false;
        }
        let Some(transaction) = self.running.of(op) else { return false };
        transaction.operation_mut(op).giving_back.get_or_insert_default().left =
            Some(error.clone());
        step.left.push((self.graph.registry.label(&key, value.as_deref()), error.clone()));
        if action == Action::Update {
            self.submit_again(op, now, step);
            return true;
        }
        transaction.op_progress_mut(op).state = OpState::Verified;
        transaction.open -= 1;
        transaction.last_progress = now.monotonic;
        transaction.completed_op(op);
        step.read.push(key);
        self.graph.set_applied(idx, None);
        self.on_verified(idx, action, step);
        true
    }

    /// True for an operation that the state of another object prevents: its value waits, and the transaction goes on. So do the
    /// values that depend on it, whose operations may have been submitted together with its own.
    fn is_prevented(&mut self, op: OpId, error: &OperationError) -> bool {
        let Some(transaction) = self.running.of(op) else { return false };
        let idx = transaction.op_progress(op).idx;
        let operation = transaction.operation(op);
        let makes = matches!(operation.action, Action::Update | Action::Adopt | Action::Create);
        let follows = transaction.failure.is_none()
            && operation.after.iter().any(|&before| transaction.is_failed(before));
        makes
            && !error.is_cancelled()
            && (follows || self.classify(idx, error) == ErrorClass::Unmet)
    }

    /// Records the failure of an operation without failing its transaction: the value is tried again later.
    pub(super) fn record_failure(
        &mut self,
        op: OpId,
        error: OperationError,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Some(transaction) = self.running.of(op) else { return };
        let idx = transaction.op_progress(op).idx;
        let operation = transaction.operation(op);
        let key = operation.key.clone();
        let cascaded = operation.cascaded.clone();
        let follows = transaction.follows_failure(op);
        transaction.undo_failed |= transaction.phase == Phase::Undoing;
        transaction.failed.push(key.clone());
        if self.graph.node(idx).running_op() == Some(op) {
            self.graph.node_mut(idx).end_op();
        }
        for key in cascaded {
            if let Some(idx) =
                self.graph.find(&key).filter(|&idx| self.graph.node(idx).running_op() == Some(op))
            {
                self.graph.node_mut(idx).end_op();
            }
        }
        if let Some(reason) = self.first_reason(idx, follows, error) {
            self.record_error(idx, reason, now);
        }
        self.confirm_absence(idx, now, step);
        self.graph.forgo_claims(idx);
        step.changed.push(key);
    }

    /// Marks values parked for a delete that failed and is not tried again soon: the value stays, so they may return.
    pub(super) fn mark_parked_dirty(&mut self, failed: &[Key]) {
        for key in failed {
            let Some(idx) = self.graph.find(key) else { continue };
            let node = self.graph.node(idx);
            let tried_again = node.retry.as_ref().is_some_and(|retry| retry.is_due_soon());
            if node.present.is_some() && !node.in_place() && !tried_again {
                self.graph.mark_waiting_dirty(idx);
            }
        }
    }

    fn record_error(&mut self, idx: NodeIdx, error: OperationError, now: Now) {
        let class = self.classify(idx, &error);
        let random = self.jitter_rng.next();
        let node = self.graph.node_mut(idx);
        let retry = node.retry.get_or_insert_default();
        let look = retry.failed(error, class, now.monotonic, random);
        self.schedule_look(idx, look);
        match class {
            ErrorClass::Environment | ErrorClass::Unmet => self.graph.register_retry_triggers(idx),
            ErrorClass::Transient | ErrorClass::Permanent => {
                self.graph.unregister_retry_triggers(idx)
            }
        }
        self.graph.update_unsettled(idx);
    }

    /// Error to be recorded. A create may fail because the delete before it did: it follows that delete, or finds the
    /// object it left behind. Then the error of the delete is the reason, and nothing is recorded where the delete will
    /// be tried again soon.
    fn first_reason(
        &self,
        idx: NodeIdx,
        follows: bool,
        error: OperationError,
    ) -> Option<OperationError> {
        let retry = self.graph.node(idx).retry.as_deref();
        if follows && retry.is_some_and(|retry| retry.is_due_soon()) {
            return None;
        }
        let first = retry.and_then(|retry| retry.error.as_ref());
        let lasting = |first: &&OperationError| self.classify(idx, first) == ErrorClass::Transient;
        let first = first.filter(|_| error.exists()).filter(lasting);
        Some(first.cloned().unwrap_or(error))
    }

    pub(crate) fn classify(&self, idx: NodeIdx, error: &OperationError) -> ErrorClass {
        let kind = self.graph.node(idx).key.kind();
        let descriptor = self.graph.registry.descriptor(kind);
        let validated = descriptor.map(|descriptor| catch_panic(|| descriptor.classify(error)));
        validated.and_then(Result::ok).unwrap_or_else(|| error.class())
    }

    /// Replaces the time of the next look at a value.
    pub(crate) fn schedule_look(&mut self, idx: NodeIdx, look: NextLook) {
        let retry = self.graph.node_mut(idx).retry.get_or_insert_default();
        if let Some(old) = retry.schedule(look) {
            self.timers.remove(&(old, idx));
        }
        self.timers.insert((look.at, idx));
    }

    /// Schedules retries of failed values with a changed target.
    pub(crate) fn schedule_triggered_retries(&mut self, now: Now, step: &mut EngineOutput) {
        for idx in std::mem::take(&mut self.graph.retry_triggers.triggered) {
            let node = self.graph.node_mut(idx);
            let is_operated = node.running_op().is_some();
            let Some(retry) = node.retry.as_mut().filter(|_| !is_operated) else { continue };
            if retry.error.is_some() && !retry.is_due_soon() {
                step.changed.push(node.key.clone());
                let look = retry.triggered_retry(now.monotonic);
                self.schedule_look(idx, look);
            }
        }
    }

    /// Fails operations that were not verified in time.
    pub(crate) fn expire(&mut self, now: Now, step: &mut EngineOutput) {
        for txn in self.running.numbers() {
            self.expire_reads(txn, now, step);
        }
    }

    fn expire_reads(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.get(txn) else { return };
        let quiet = now.monotonic.saturating_sub(transaction.last_progress);
        if transaction.read_due.is_none_or(|at| at > now.monotonic) {
            return;
        }
        if quiet < ECHO_WITHIN {
            // Echoes are coming in: the missing ones may come as well.
            transaction.read_due = Some(transaction.last_progress + ECHO_WITHIN);
            return;
        }
        let mut reads = 0;
        let mut failed = Vec::new();
        let all = transaction.operations.iter().zip(&transaction.progress);
        for (op, (operation, op_progress)) in (transaction.first_op..).map(OpId).zip(all) {
            let OpState::Completed(since, doubt) = &op_progress.state else { continue };
            let waited = quiet.min(now.monotonic.saturating_sub(*since));
            if waited >= VERIFIED_WITHIN {
                let error = doubt.as_deref().cloned();
                failed.push((
                    op,
                    error.unwrap_or_else(|| mismatch(&self.graph, operation, op_progress)),
                ));
            } else if reads < READS_MOST {
                reads += 1;
                step.read.push(operation.key.clone());
            }
        }
        transaction.read_due = (reads > 0).then(|| now.monotonic + READ_AGAIN);
        for (op, error) in failed {
            self.fail(op, error, now, step);
        }
        self.dispatch(txn, now, step);
    }

    /// Removes a key from the reads that failed transactions wait for.
    pub(crate) fn on_observed(&mut self, idx: NodeIdx) {
        for transaction in self.running.iter_mut() {
            transaction.awaited.remove(&idx);
        }
    }
}

fn mismatch(graph: &Graph, op: &PlannedOperation, op_progress: &OpProgress) -> OperationError {
    let label = |value: &SharedValue| graph.registry.label(&op.key, Some(&**value));
    let meant = op.new.as_ref().or(op.old.as_ref()).map(label);
    let seen = match graph.node(op_progress.idx).observed.as_ref() {
        None => "nothing is there".to_owned(),
        Some(value) if meant.is_none_or(|meant| meant != label(value)) => {
            format!("the system has {}", label(value))
        }
        Some(value) => {
            let asked = op.new.as_ref().or(op.old.as_ref());
            let words = asked.map(|asked| graph.registry.difference(&op.key, &**asked, &**value));
            match words.filter(|words| !words.is_empty()) {
                Some(words) => format!("the system has {words}"),
                None => "the system has something else than was asked for".to_owned(),
            }
        }
    };
    OperationError {
        transient: true,
        ..OperationError::message(format!("done without an error, but {seen}"))
    }
}
