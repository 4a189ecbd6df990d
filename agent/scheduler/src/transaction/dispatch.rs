//! Submission of the operations of a transaction.

use std::borrow::Cow;

use super::{OpState, Transaction};
use crate::graph::Graph;
use crate::operation::{Action, Now, OpId, Operation, TransportId};

/// Decision about an operation that is ready.
pub(crate) enum Dispatch {
    Submit,
    /// Completed by the engine itself.
    ByEngine,
    /// Skipped, since an operation it needs was not done.
    Skip,
    /// Submitted or skipped before.
    AlreadyDispatched,
}

impl Transaction {
    pub(crate) fn dispatch_of(&self, op_index: u32) -> Dispatch {
        let op = &self.operations[op_index as usize];
        match self.progress[op_index as usize].state {
            OpState::Waiting if op.after.iter().any(|&before| self.is_failed(before)) => {
                Dispatch::Skip
            }
            OpState::Waiting if op.transport == TransportId::NONE => Dispatch::ByEngine,
            OpState::Waiting => Dispatch::Submit,
            _ => Dispatch::AlreadyDispatched,
        }
    }

    pub(crate) fn submitted(&mut self, op: OpId, now: Now) {
        self.op_progress_mut(op).state = OpState::Submitted;
        self.outstanding += 1;
        self.last_progress = now.monotonic;
        self.submitted_op(op);
    }

    pub(crate) fn skip_op(&mut self, op: OpId) {
        self.op_progress_mut(op).state = OpState::NotTried;
        self.open -= 1;
        self.failed_op(op);
    }
}

/// Operation as the transport gets it.
pub(crate) fn operation(graph: &Graph, transaction: &Transaction, id: OpId) -> Operation {
    let op = transaction.operation(id);
    Operation {
        id,
        txn: transaction.txn,
        action: op.action,
        key: op.key.clone(),
        old: op.old.clone(),
        new: match op.action {
            Action::Update => graph.outcome(op).map(Cow::into_owned),
            _ => op.new.clone(),
        },
        transport: op.transport,
    }
}
