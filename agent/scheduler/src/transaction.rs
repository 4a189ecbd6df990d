//! Transactions in flight.
//!
//! ```text
//!               all verified
//! Executing -------------------------------> Done
//!     |
//!     | an operation fails (atomic), or the change is cancelled
//!     v
//! Settling: nothing more is submitted; failed keys are read, until the answers come or the time is over,
//!     |     then wait for conflicting transactions; the way back is planned, in portions
//!     v
//! Undoing: the intent before is planned from the present state, and executed ----> Failed or Cancelled
//! ```
//!
//! An operation is *completed* when its transport answers, and *verified* when the system shows its effect: by an echo
//! (notification), by a fact in the completion, or by a read. The present value of a node follows the completion, so
//! later operations need not wait for verification; the transaction ends when all operations are verified.

mod comparison;
mod conflict_set;
mod dispatch;
mod in_flight;
mod own_plan;
mod release;
mod rollback;
mod take_over;
mod transport_queue;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::change::{Author, IntentChange, Mode};
use crate::dependency::Facet;
use crate::dispatch_order::DispatchOrder;
use crate::graph::NodeIdx;
use crate::history::{OPERATIONS_KEPT, OmittedItems, OperationResult, RecordedOperation, Trigger};
use crate::key::{FixedMap, Key};
use crate::operation::{Now, OpId, OperationError, TxnId};
use crate::planned_operation::{Cause, PlannedOperation};
use crate::portion::drop_beside;
use crate::value::SharedValue;

pub(crate) use comparison::{Comparison, SetId, Verdict};
pub(crate) use conflict_set::{Budget, ConflictSet};
pub(crate) use dispatch::{Dispatch, operation};
pub(crate) use in_flight::InFlight;
pub(crate) use own_plan::{ComparedPlan, Convergence, OwnPlan};
pub(crate) use release::{RELEASE_AFTER, Release, Releases};
pub(crate) use rollback::{Rollback, Stage};
pub(crate) use take_over::{ITEMS_MOST, Item, TakeOver};
pub(crate) use transport_queue::{ABANDONED_KEPT, TransportQueue, unanswered};

/// Time without an echo after which the objects of a large batch are read.
pub(crate) const ECHO_WITHIN: Duration = Duration::from_millis(30);
/// Number of operations of a transaction up to which each is read back at once: a read is cheaper than waiting.
pub(crate) const READ_AT_ONCE: usize = 256;
/// Reads requested at a time when many echoes are missing, so that the answers stay small.
pub(crate) const READS_MOST: usize = 4096;
/// Time between two reads of an object that is not yet as it should be.
pub(crate) const READ_AGAIN: Duration = Duration::from_millis(100);
/// Time for an object to become as intended, after its operation was completed and after the last progress of its
/// transaction.
pub(crate) const VERIFIED_WITHIN: Duration = Duration::from_secs(1);
/// Time for reads after a failure, before the rollback is planned without them.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) txn: TxnId,
    pub(crate) trigger: Trigger,
    pub(crate) mode: Mode,
    pub(crate) description: String,
    pub(crate) author: Option<Arc<Author>>,
    /// Requested values, for the history.
    pub(crate) requested: Vec<(Key, Option<SharedValue>)>,
    pub(crate) phase: Phase,
    pub(crate) operations: Vec<PlannedOperation>,
    /// Progress of each operation.
    pub(crate) progress: Vec<OpProgress>,
    /// Number of the first operation.
    pub(crate) first_op: u64,
    pub(crate) order: DispatchOrder,
    /// Nodes reserved by the transaction: no other one changes them until it ends, and none is dropped until it is
    /// [released](release).
    pub(crate) reserved: Vec<NodeIdx>,
    /// Values marked dirty meanwhile, to be planned for when the transaction ends.
    pub(crate) dirty_after: Vec<NodeIdx>,
    /// Conflict set, made when a plan is compared with the transaction.
    pub(crate) conflict_set: ConflictSet,
    /// Rest of a plan that is not taken over yet.
    pub(crate) take_over: Option<Box<TakeOver>>,
    /// True while nothing may be submitted: see [`Engine::prepare`](crate::Engine::prepare).
    pub(crate) prepared: bool,
    /// Pre-images to be reported with the first operations.
    pub(crate) restores: Vec<(Key, Option<SharedValue>)>,
    /// True when the client cancelled the change.
    pub(crate) cancelled: bool,
    /// Number of operations submitted and not completed.
    pub(crate) outstanding: usize,
    /// Number of operations neither verified nor failed.
    pub(crate) open: usize,
    pub(crate) last_progress: Duration,
    pub(crate) read_due: Option<Duration>,
    pub(crate) failure: Option<(Key, String, OperationError)>,
    pub(crate) undo_failed: bool,
    pub(crate) failed: Vec<Key>,
    pub(crate) pending: Vec<Key>,
    /// The change, and the values that were intended before it, for the rollback.
    pub(crate) changes: Vec<IntentChange>,
    pub(crate) before: Vec<Option<SharedValue>>,
    /// Identities held by the touched values before the change.
    pub(crate) claims_before: FixedMap<Facet, Vec<Key>>,
    /// Way back, while the transaction settles.
    pub(crate) rollback: Option<Box<Rollback>>,
    /// Keys read after a failure without an answer yet.
    pub(crate) awaited: BTreeSet<NodeIdx>,
    /// Operations of the change, once the rollback has begun.
    pub(crate) past: Vec<RecordedOperation>,
    pub(crate) omitted: OmittedItems,
    pub(crate) started: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Executing,
    /// An operation failed: waiting for reads.
    Settling {
        until: Duration,
        /// Conflicting transaction that the rollback has to wait for.
        behind: Option<TxnId>,
    },
    Undoing,
}

#[derive(Debug)]
pub(crate) struct OpProgress {
    pub(crate) idx: NodeIdx,
    pub(crate) state: OpState,
}

#[derive(Debug)]
pub(crate) enum OpState {
    Waiting,
    Submitted,
    /// Completed at this time, and not verified. With an error, verified only if the present object is as intended.
    Completed(Duration, Option<Box<OperationError>>),
    Verified,
    Failed(Box<OperationError>),
    NotTried,
}

impl Transaction {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.phase {
            _ if self.take_over.is_some() || self.has_rollback_due() => Some(Duration::ZERO),
            Phase::Settling { behind: Some(_), .. } => None,
            Phase::Settling { until, .. } => Some(until),
            Phase::Executing | Phase::Undoing if self.may_submit() && self.order.has_ready() => {
                Some(Duration::ZERO)
            }
            Phase::Executing | Phase::Undoing => self.read_due,
        }
    }

    /// True when operations may be submitted.
    pub(crate) fn may_submit(&self) -> bool {
        match self.phase {
            _ if self.take_over.is_some() => false,
            Phase::Executing => !self.prepared && self.failure.is_none(),
            Phase::Settling { .. } => false,
            Phase::Undoing => true,
        }
    }

    /// True when the failure of an operation with this cause fails the transaction.
    pub(crate) fn fails_transaction(&self, cause: Cause) -> bool {
        let requested = matches!(cause, Cause::Requested | Cause::Parked | Cause::Unparked);
        self.mode == Mode::Atomic && self.phase == Phase::Executing && requested
    }

    /// True for operations of this transaction; during a rollback, for those of the rollback only.
    fn has(&self, op: OpId) -> bool {
        op.0.checked_sub(self.first_op).is_some_and(|at| at < self.progress.len() as u64)
    }

    pub(crate) fn operation(&self, op: OpId) -> &PlannedOperation {
        &self.operations[self.op_index(op)]
    }

    pub(crate) fn operation_mut(&mut self, op: OpId) -> &mut PlannedOperation {
        let op_index = self.op_index(op);
        &mut self.operations[op_index]
    }

    pub(crate) fn op_progress(&self, op: OpId) -> &OpProgress {
        &self.progress[self.op_index(op)]
    }

    pub(crate) fn op_progress_mut(&mut self, op: OpId) -> &mut OpProgress {
        let op_index = self.op_index(op);
        &mut self.progress[op_index]
    }

    /// True when an operation on the same value failed before this one.
    pub(crate) fn follows_failure(&self, op: OpId) -> bool {
        let own = self.op_progress(op).idx;
        let failed = |&op_index: &u32| {
            let before = &self.progress[op_index as usize];
            before.idx == own && matches!(before.state, OpState::Failed(_))
        };
        self.operation(op).after.iter().any(failed)
    }

    /// True for an operation that failed, or was skipped since another one had failed.
    pub(crate) fn is_failed(&self, op_index: u32) -> bool {
        let state = &self.progress[op_index as usize].state;
        matches!(state, OpState::Failed(_) | OpState::NotTried)
    }

    pub(crate) fn op_index(&self, op: OpId) -> usize {
        usize::try_from(op.0 - self.first_op).expect("operations fit into memory")
    }

    pub(crate) fn op_id(&self, op_index: u32) -> OpId {
        OpId(self.first_op + u64::from(op_index))
    }

    /// Records a submission: operations after this one on the same transport may be submitted, too.
    pub(crate) fn submitted_op(&mut self, op: OpId) {
        let op_index = self.op_index(op);
        self.order.submitted_op(op_index, &self.operations);
    }

    /// Records a completion.
    pub(crate) fn completed_op(&mut self, op: OpId) {
        let op_index = self.op_index(op);
        self.order.completed_op(op_index, &self.operations);
    }

    /// Records a failure: operations that need this one are skipped.
    pub(crate) fn failed_op(&mut self, op: OpId) {
        let op_index = self.op_index(op);
        self.order.failed_op(op_index, &self.operations);
    }

    /// Operations submitted and not answered.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = OpId> + '_ {
        let progress = (self.first_op..).map(OpId).zip(&self.progress);
        progress
            .filter(|(_, op_progress)| matches!(op_progress.state, OpState::Submitted))
            .map(|(op, _)| op)
    }

    /// Drops what only a transaction in flight needs.
    pub(crate) fn drop_bulk(&mut self) {
        self.forget_conflict_set();
        let bulk = (
            std::mem::take(&mut self.changes),
            std::mem::take(&mut self.before),
            std::mem::take(&mut self.claims_before),
            std::mem::take(&mut self.order),
        );
        drop_beside(bulk.0.len(), bulk);
    }

    /// Records the results of the operations; those beyond the bound of a record are only counted.
    pub(crate) fn record(&mut self, undo: bool) {
        let mut progress = std::mem::take(&mut self.progress);
        let mut operations = std::mem::take(&mut self.operations);
        for (op, op_progress) in operations.iter_mut().zip(&mut progress) {
            let result = match std::mem::replace(&mut op_progress.state, OpState::Waiting) {
                OpState::Verified => match op.giving_back.take().and_then(|it| it.left) {
                    Some(error) => OperationResult::NotGivenBack(error),
                    None => OperationResult::Verified,
                },
                OpState::Completed(..) => OperationResult::Completed,
                OpState::Failed(error) => OperationResult::Failed(*error),
                OpState::Waiting | OpState::Submitted | OpState::NotTried => {
                    OperationResult::NotTried
                }
            };
            if self.past.len() == OPERATIONS_KEPT {
                self.omitted.add(op.key.kind(), op.action, op.cause, &result);
                continue;
            }
            let old = op.old.take();
            let new = op.new.take();
            let PlannedOperation { action, ref key, cause, .. } = *op;
            let key = key.clone();
            self.past.push(RecordedOperation { action, key, cause, old, new, undo, result });
        }
        drop_beside(operations.len(), operations);
    }
}
