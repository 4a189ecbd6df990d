//! Verification: the way from a completed to a verified operation.
//!
//! A completion says that the transport carried an operation out; only the observed plane shows its effect. An operation
//! is verified when it is completed and the last observed value of its key is as intended, in either order:
//!
//! ```text
//! completion ----> applied, present    (other operations may rely on it)
//! echo or read --> observed            (is_effect_observed: observed satisfies the outcome of the operation)
//! both ----------> verified
//! ```
//!
//! An echo may come before the completion, and an old notification after it, so only the last operation of a
//! transaction on a key is compared; earlier ones count as verified. Without an echo the key is read: at once in a
//! small transaction, after [`ECHO_WITHIN`] in a large one.

use std::borrow::Cow;
use std::sync::Arc;

use crate::descriptor::{Effect, catch_panic};
use crate::engine::Engine;
use crate::graph::{Goal, Graph, NodeIdx};
use crate::key::Key;
use crate::operation::{Action, Now, OpId};
use crate::output::EngineOutput;
use crate::planned_operation::PlannedOperation;
use crate::transaction::{ECHO_WITHIN, OpState, READ_AGAIN, READ_AT_ONCE};
use crate::value::SharedValue;
use crate::value_spec::ValueSpec;

impl Engine {
    /// Takes in a successful completion: the applied plane and the present value follow.
    pub(super) fn on_success(&mut self, op: OpId, now: Now, step: &mut EngineOutput) {
        self.on_completed(op, OpState::Completed(now.monotonic, None), step);
        self.apply_completion(op, step);
        self.try_verify(op, now, step);
    }

    pub(super) fn on_completed(&mut self, op: OpId, state: OpState, step: &mut EngineOutput) {
        let Some(transaction) = self.running.of(op) else { return };
        let count = transaction.progress.len();
        transaction.op_progress_mut(op).state = state;
        transaction.completed_op(op);
        let op_progress = transaction.op_progress(op);
        if self.graph.node(op_progress.idx).running_op() != Some(op) {
            return;
        }
        let OpState::Completed(now, _) = op_progress.state else { return };
        let operation = transaction.operation(op);
        let seen = is_effect_observed(&self.graph, operation, op_progress.idx);
        if !seen && count <= READ_AT_ONCE {
            step.read.push(operation.key.clone());
            transaction.read_due.get_or_insert(now + READ_AGAIN);
        } else if !seen {
            transaction.read_due.get_or_insert(now + ECHO_WITHIN);
        }
    }

    pub(super) fn apply_completion(&mut self, op: OpId, step: &mut EngineOutput) {
        let Some(transaction) = self.running.of(op) else { return };
        let idx = transaction.op_progress(op).idx;
        let operation = transaction.operation(op);
        let action = operation.action;
        let new = operation.new.clone();
        let cascaded = operation.cascaded.clone();
        let node = self.graph.node_mut(idx);
        node.last = Some(crate::status::LastOperation { txn: transaction.txn, action });
        match (action, new) {
            (Action::Delete, _) | (_, None) => {
                self.graph.set_applied(idx, None);
                self.graph.set_present_by_us(idx, None, false);
            }
            (Action::Release, Some(new)) => {
                self.graph.set_applied(idx, None);
                let spec =
                    ValueSpec::of_observed(&self.graph.registry, &self.graph.node(idx).key, &new);
                self.graph.set_present_by_us(idx, Some(spec), false);
            }
            (_, Some(new)) => {
                if action == Action::Create {
                    // A pre-image is obsolete: the object of before is gone, and this one is ours.
                    let key = node.key.clone();
                    self.forget_restore(&key, step);
                }
                let spec = self.spec_of(idx, &new);
                self.graph.set_applied(idx, Some(new));
                self.graph.set_present_by_us(idx, Some(spec), true);
            }
        }
        self.graph.update_unsettled(idx);
        for key in cascaded {
            self.clear_cascaded(&key, op);
            self.forget_restore(&key, step);
            step.changed.push(key);
        }
    }

    /// Clears a value that the system removed in a cascade.
    pub(super) fn clear_cascaded(&mut self, key: &Key, op: OpId) {
        let Some(idx) = self.graph.find(key) else { return };
        self.graph.set_applied(idx, None);
        self.graph.set_observed(idx, None);
        let node = self.graph.node_mut(idx);
        if node.running_op() == Some(op) {
            node.end_op();
        }
        self.graph.set_present(idx, None, false);
        self.graph.update_unsettled(idx);
        self.graph.forget_if_empty(idx);
    }

    /// Spec of a value of ours: that of the goal, where the goal is what was applied.
    pub(crate) fn spec_of(&self, idx: NodeIdx, value: &SharedValue) -> Arc<ValueSpec> {
        let node = self.graph.node(idx);
        match &node.goal {
            Goal::Valid(goal, spec) if Arc::ptr_eq(goal, value) => Arc::clone(spec),
            _ => {
                ValueSpec::of_intended(&self.graph.registry, &node.key, value, false, None, &mut 0)
                    .unwrap_or_else(|_| {
                        ValueSpec::of_observed(&self.graph.registry, &node.key, value)
                    })
            }
        }
    }

    /// Compares a completed operation with the observed value.
    pub(crate) fn try_verify(&mut self, op: OpId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.of(op) else { return };
        let op_progress = transaction.op_progress(op);
        let operation = transaction.operation(op);
        let OpState::Completed(_, doubt) = &op_progress.state else { return };
        let idx = op_progress.idx;
        let action = operation.action;
        let doubtful = doubt.is_some();
        let last = self.graph.node(idx).running_op() == Some(op);
        if last && !is_effect_observed(&self.graph, operation, idx) {
            return;
        }
        if !last && let Some(error) = doubt.as_deref().cloned() {
            return self.fail(op, error, now, step);
        }
        let believed = !last && action != Action::Delete;
        let left = if believed { self.graph.outcome(operation) } else { None };
        let left = left.map(Cow::into_owned);
        transaction.op_progress_mut(op).state = OpState::Verified;
        transaction.open -= 1;
        transaction.last_progress = now.monotonic;
        if !last {
            // A later operation on the same key will be compared. Should that not be done, this value is believed.
            self.graph.set_observed(idx, left);
            return;
        }
        if doubtful {
            self.apply_completion(op, step);
        }
        self.on_verified(idx, action, step);
    }

    pub(super) fn on_verified(&mut self, idx: NodeIdx, action: Action, step: &mut EngineOutput) {
        let node = self.graph.node_mut(idx);
        node.end_op();
        let key = node.key.clone();
        let observable = self
            .graph
            .registry
            .descriptor(key.kind())
            .is_none_or(|descriptor| descriptor.observable());
        if !observable {
            let applied = self.graph.node(idx).applied.clone();
            self.graph.set_observed(idx, applied.filter(|_| action != Action::Delete));
        }
        if action == Action::Delete {
            self.record_remainder(idx, &key);
        }
        if action == Action::Release {
            self.on_released(idx, &key, step);
        }
        self.clear_error(idx);
        self.graph.update_unsettled(idx);
        self.graph.forget_if_empty(idx);
        step.changed.push(key);
    }

    /// Completes a release: the object is as before us, and no longer managed.
    pub(super) fn on_released(&mut self, idx: NodeIdx, key: &Key, step: &mut EngineOutput) {
        self.forget_restore(key, step);
        self.record_remainder(idx, key);
    }

    /// Drops a pre-image that will not be put back any more.
    fn forget_restore(&mut self, key: &Key, step: &mut EngineOutput) {
        if self.graph.set_restore(key, None) {
            step.restores.push((key.clone(), None));
        }
    }

    /// Records that the value the system still shows under the key is not ours.
    fn record_remainder(&mut self, idx: NodeIdx, key: &Key) {
        let observed = self.graph.node(idx).observed.clone();
        let present =
            observed.map(|observed| ValueSpec::of_observed(&self.graph.registry, key, &observed));
        self.graph.set_present(idx, present, false);
    }

    /// Clears errors and a scheduled retry.
    pub(crate) fn clear_error(&mut self, idx: NodeIdx) {
        self.graph.unregister_retry_triggers(idx);
        let Some(retry) = &mut self.graph.node_mut(idx).retry else { return };
        let (error, due) = retry.clear();
        if let Some(at) = due {
            self.timers.remove(&(at, idx));
        }
        if error.is_some() && self.graph.node(idx).present.is_some() {
            self.graph.mark_waiting_dirty(idx); // values parked for its deletion may rely on it again
        }
    }
}

/// True when the observed value shows the effect of the operation.
fn is_effect_observed(graph: &Graph, op: &PlannedOperation, idx: NodeIdx) -> bool {
    let node = graph.node(idx);
    let Some(descriptor) = graph.registry.descriptor(op.key.kind()) else { return true };
    if !descriptor.observable() || descriptor.effect() == Effect::Property {
        return true;
    }
    match (op.action, &node.observed) {
        (Action::Delete, None) => true,
        (Action::Delete, Some(observed)) => {
            let old = op.old.as_ref();
            let rest =
                old.and_then(|old| catch_panic(|| descriptor.after_delete(&**old)).ok().flatten());
            rest.is_some_and(|rest| graph.satisfied(&op.key, &rest, observed))
        }
        // The object itself may have gone together with the attributes we gave back.
        (Action::Release, None) => true,
        (_, Some(observed)) => {
            graph.outcome(op).is_some_and(|expected| graph.satisfied(&op.key, &expected, observed))
        }
        _ => false,
    }
}
