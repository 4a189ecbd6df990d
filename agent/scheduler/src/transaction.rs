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
mod dispatch_order;
mod failure;
mod in_flight;
mod release;
mod rollback;
mod take_over;
mod transport_queue;
mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_common::parallel;

use crate::dependency::Facet;
use crate::engine::{Engine, EngineOutput, TransactionOutcome};
use crate::graph::NodeIdx;
use crate::history::{
    Author, OPERATIONS_KEPT, OmittedItems, OperationResult, RecordedOperation, TransactionRecord,
    Trigger,
};
use crate::key::{FixedMap, Key};
use crate::operation::{Now, OpId, OperationError, TxnId};
use crate::plan::{Cause, IntentChange, Mode, Plan, PlannedOperation};
use crate::value::SharedValue;

pub(crate) use comparison::{Comparison, SetId, Verdict};
pub(crate) use conflict_set::{Budget, ConflictSet};
pub(crate) use dispatch_order::DispatchOrder;
pub(crate) use in_flight::InFlight;
pub(crate) use release::Releases;
use rollback::Rollback;
use take_over::TakeOver;
pub(crate) use transport_queue::TransportQueue;

/// Time without an echo after which the objects of a large batch are read.
const ECHO_WITHIN: Duration = Duration::from_millis(30);
/// Number of operations of a transaction up to which each is read back at once: a read is cheaper than waiting.
const READ_AT_ONCE: usize = 256;
/// Reads requested at a time when many echoes are missing, so that the answers stay small.
const READS_MOST: usize = 4096;
/// Time between two reads of an object that is not yet as it should be.
const READ_AGAIN: Duration = Duration::from_millis(100);
/// Time for an object to become as intended, after its operation was completed and after the last progress of its
/// transaction.
const VERIFIED_WITHIN: Duration = Duration::from_secs(1);
/// Time for reads after a failure, before the rollback is planned without them.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Transaction {
    txn: TxnId,
    trigger: Trigger,
    mode: Mode,
    description: String,
    author: Option<Arc<Author>>,
    /// Requested values, for the history.
    requested: Vec<(Key, Option<SharedValue>)>,
    phase: Phase,
    operations: Vec<PlannedOperation>,
    /// Progress of each operation.
    progress: Vec<OpProgress>,
    /// Number of the first operation.
    first_op: u64,
    order: DispatchOrder,
    /// Nodes reserved by the transaction: no other one changes them until it ends, and none is dropped until it is
    /// [released](release).
    reserved: Vec<NodeIdx>,
    /// Values marked dirty meanwhile, to be planned for when the transaction ends.
    dirty_after: Vec<NodeIdx>,
    /// Conflict set, made when a plan is compared with the transaction.
    conflict_set: ConflictSet,
    /// Rest of a plan that is not taken over yet.
    take_over: Option<Box<TakeOver>>,
    /// True while nothing may be submitted: see [`Engine::prepare`].
    prepared: bool,
    /// Pre-images to be reported with the first operations.
    restores: Vec<(Key, Option<SharedValue>)>,
    /// True when the client cancelled the change.
    cancelled: bool,
    /// Number of operations submitted and not completed.
    outstanding: usize,
    /// Number of operations neither verified nor failed.
    open: usize,
    last_progress: Duration,
    read_due: Option<Duration>,
    failure: Option<(Key, String, OperationError)>,
    undo_failed: bool,
    failed: Vec<Key>,
    pending: Vec<Key>,
    /// The change, and the values that were intended before it, for the rollback.
    changes: Vec<IntentChange>,
    before: Vec<Option<SharedValue>>,
    /// Identities held by the touched values before the change.
    claims_before: FixedMap<Facet, Vec<Key>>,
    /// Way back, while the transaction settles.
    rollback: Option<Box<Rollback>>,
    /// Keys read after a failure without an answer yet.
    awaited: BTreeSet<NodeIdx>,
    /// Operations of the change, once the rollback has begun.
    past: Vec<RecordedOperation>,
    omitted: OmittedItems,
    started: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
struct OpProgress {
    idx: NodeIdx,
    state: OpState,
}

#[derive(Debug)]
enum OpState {
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
    fn may_submit(&self) -> bool {
        match self.phase {
            _ if self.take_over.is_some() => false,
            Phase::Executing => !self.prepared && self.failure.is_none(),
            Phase::Settling { .. } => false,
            Phase::Undoing => true,
        }
    }

    /// True when the failure of an operation with this cause fails the transaction.
    fn fails_transaction(&self, cause: Cause) -> bool {
        let requested = matches!(cause, Cause::Requested | Cause::Parked | Cause::Unparked);
        self.mode == Mode::Atomic && self.phase == Phase::Executing && requested
    }

    /// True for operations of this transaction; during a rollback, for those of the rollback only.
    fn has(&self, op: OpId) -> bool {
        op.0.checked_sub(self.first_op).is_some_and(|at| at < self.progress.len() as u64)
    }

    fn operation(&self, op: OpId) -> &PlannedOperation {
        &self.operations[self.op_index(op)]
    }

    fn operation_mut(&mut self, op: OpId) -> &mut PlannedOperation {
        let op_index = self.op_index(op);
        &mut self.operations[op_index]
    }

    fn op_progress(&self, op: OpId) -> &OpProgress {
        &self.progress[self.op_index(op)]
    }

    fn op_progress_mut(&mut self, op: OpId) -> &mut OpProgress {
        let op_index = self.op_index(op);
        &mut self.progress[op_index]
    }

    /// True when an operation on the same value failed before this one.
    fn follows_failure(&self, op: OpId) -> bool {
        let own = self.op_progress(op).idx;
        let failed = |&op_index: &u32| {
            let before = &self.progress[op_index as usize];
            before.idx == own && matches!(before.state, OpState::Failed(_))
        };
        self.operation(op).after.iter().any(failed)
    }

    /// True for an operation that failed, or was skipped since another one had failed.
    fn is_failed(&self, op_index: u32) -> bool {
        let state = &self.progress[op_index as usize].state;
        matches!(state, OpState::Failed(_) | OpState::NotTried)
    }

    fn op_index(&self, op: OpId) -> usize {
        usize::try_from(op.0 - self.first_op).expect("operations fit into memory")
    }

    fn op_id(&self, op_index: u32) -> OpId {
        OpId(self.first_op + u64::from(op_index))
    }

    /// Records a submission: operations after this one on the same transport may be submitted, too.
    fn submitted_op(&mut self, op: OpId) {
        let op_index = self.op_index(op);
        self.order.submitted_op(op_index, &self.operations);
    }

    /// Records a completion.
    fn completed_op(&mut self, op: OpId) {
        let op_index = self.op_index(op);
        self.order.completed_op(op_index, &self.operations);
    }

    /// Records a failure: operations that need this one are skipped.
    fn failed_op(&mut self, op: OpId) {
        let op_index = self.op_index(op);
        self.order.failed_op(op_index, &self.operations);
    }

    /// Operations submitted and not answered.
    fn unanswered(&self) -> impl Iterator<Item = OpId> + '_ {
        let progress = (self.first_op..).map(OpId).zip(&self.progress);
        progress
            .filter(|(_, op_progress)| matches!(op_progress.state, OpState::Submitted))
            .map(|(op, _)| op)
    }

    /// Drops what only a transaction in flight needs.
    fn drop_bulk(&mut self) {
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
    fn record(&mut self, undo: bool) {
        let mut progress = std::mem::take(&mut self.progress);
        let mut operations = std::mem::take(&mut self.operations);
        for (op, op_progress) in operations.iter_mut().zip(&mut progress) {
            let result = match std::mem::replace(&mut op_progress.state, OpState::Waiting) {
                OpState::Verified => match op.left.take() {
                    Some(error) => OperationResult::NotGivenBack(*error),
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
            let (old, new) = (op.old.take(), op.new.take());
            let PlannedOperation { action, ref key, cause, .. } = *op;
            let key = key.clone();
            self.past.push(RecordedOperation { action, key, cause, old, new, undo, result });
        }
        drop_beside(operations.len(), operations);
    }
}

/// Drops something with so many items; where these are many, on another thread, so that no event waits.
pub(crate) fn drop_beside<T: Send + 'static>(items: usize, dropped: T) {
    if items > OPERATIONS_KEPT {
        parallel::drop_aside(dropped);
    }
}

impl Engine {
    pub(crate) fn begin_transaction(
        &mut self,
        txn: TxnId,
        trigger: Trigger,
        (mut plan, prepared): (Plan, bool),
        now: Now,
        step: &mut EngineOutput,
    ) {
        let requested = plan.delta.changes.iter().take(OPERATIONS_KEPT);
        let requested = requested.map(|it| (it.key.clone(), it.value.clone())).collect();
        let mut transaction = Transaction {
            txn,
            trigger,
            mode: plan.delta.mode,
            description: plan.delta.description.clone(),
            author: plan.delta.author.clone(),
            requested,
            phase: Phase::Executing,
            operations: Vec::new(),
            progress: Vec::new(),
            first_op: 0,
            order: DispatchOrder::default(),
            reserved: Vec::new(),
            dirty_after: Vec::new(),
            conflict_set: ConflictSet::default(),
            take_over: None,
            prepared,
            restores: Vec::new(),
            cancelled: false,
            outstanding: 0,
            open: 0,
            last_progress: now.monotonic,
            read_due: None,
            failure: None,
            undo_failed: false,
            failed: Vec::new(),
            pending: Vec::new(),
            changes: std::mem::take(&mut plan.delta.changes),
            before: std::mem::take(&mut plan.before),
            claims_before: FixedMap::default(),
            rollback: None,
            awaited: BTreeSet::new(),
            past: Vec::new(),
            omitted: OmittedItems::default(),
            started: now,
        };
        self.graph.counters.transactions += 1;
        self.register_wait(txn, &plan, now, step);
        self.begin_take_over(&mut transaction, plan, now, step);
        self.running.put(transaction);
        self.after_take_over(txn, now, step);
    }

    /// Lets a transaction submit its operations, once its plan is taken over. The step of the first ones has the
    /// pre-images.
    pub(crate) fn release_prepared(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        if let Some(transaction) = self.running.get(txn) {
            transaction.prepared = false;
            if transaction.take_over.is_some() {
                return;
            }
            step.restores.append(&mut transaction.restores);
            self.dispatch(txn, now, step);
        }
    }

    pub(crate) fn count(&mut self, plan: &Plan) {
        let counters = &mut self.graph.counters;
        counters.plans += 1;
        counters.visited += plan.cost.visited;
        counters.edges += plan.cost.edges;
        counters.operations_planned += plan.operations.len() as u64;
    }

    /// Installs the goals of a plan without operations.
    pub(crate) fn install_goals(&mut self, mut plan: Plan, step: &mut EngineOutput) {
        self.count(&plan);
        let mut indexes = Vec::with_capacity(plan.nodes.len());
        for node in &plan.nodes {
            indexes.push(node.idx.unwrap_or_else(|| self.graph.intern(&node.key)));
        }
        for (node, &idx) in plan.nodes.iter_mut().zip(&indexes) {
            self.install_goal(node, idx, &mut plan.target_refs, step);
        }
        plan.found.iter().for_each(|&oidx| self.install_found(indexes[oidx as usize], step));
        for (key, value) in plan.restores {
            self.graph.set_restore(&key, Some(value.clone()));
            step.restores.push((key, Some(value)));
        }
        indexes.into_iter().for_each(|idx| self.graph.forget_if_empty(idx));
    }

    /// Advances a transaction. False when it has to wait.
    pub(crate) fn advance_transaction(
        &mut self,
        txn: TxnId,
        now: Now,
        step: &mut EngineOutput,
    ) -> bool {
        let is_between_portions = self.is_between_portions();
        let Some(transaction) = self.running.get(txn) else { return false };
        match transaction.phase {
            _ if transaction.take_over.is_some() => false,
            Phase::Executing if transaction.prepared => false,
            Phase::Executing if transaction.failure.is_some() => {
                if transaction.outstanding > 0 {
                    return false;
                }
                self.begin_rollback(txn, now, step);
                true
            }
            Phase::Settling { until, behind } => {
                let hears = !transaction.awaited.is_empty() && now.monotonic < until;
                let is_under_way = transaction.has_rollback_due();
                let waits = behind.is_some_and(|other| self.running.contains(other));
                let may_go_on = !hears && !waits && !is_under_way && !is_between_portions;
                may_go_on && self.begin_undo(txn, now, step)
            }
            Phase::Executing | Phase::Undoing => {
                if transaction.open > 0 {
                    return false;
                }
                if let Some(transaction) = self.running.take(txn) {
                    self.end(transaction, now, step);
                }
                true
            }
        }
    }

    fn end(&mut self, mut transaction: Transaction, now: Now, step: &mut EngineOutput) {
        let undo = transaction.phase == Phase::Undoing;
        // The engine has found many values in place.
        let is_unnoticed =
            transaction.trigger == Trigger::Convergence && transaction.operations.is_empty();
        transaction.record(undo);
        transaction.drop_bulk();
        let txn = transaction.txn;
        self.release_values(&mut transaction, now);
        if is_unnoticed {
            return;
        }
        self.mark_parked_dirty(&transaction.failed);
        let outcome = match transaction.failure.take() {
            Some(_) if transaction.cancelled => {
                TransactionOutcome::Cancelled { txn, undone: !transaction.undo_failed }
            }
            Some((key, label, error)) => TransactionOutcome::Failed {
                txn,
                key,
                label,
                error,
                undone: !transaction.undo_failed,
            },
            None => TransactionOutcome::Done {
                txn,
                pending: transaction.pending,
                failed: transaction.failed,
            },
        };
        let trigger = transaction.trigger;
        self.history.push(TransactionRecord {
            txn,
            trigger,
            description: transaction.description,
            author: transaction.author,
            requested: transaction.requested,
            started_ns: transaction.started.unix_ns,
            ended_ns: now.unix_ns,
            operations: transaction.past,
            omitted: transaction.omitted.count,
            outcome: outcome.bounded(OPERATIONS_KEPT),
        });
        self.history.count_omitted(trigger, &transaction.omitted);
        self.report_outcome(outcome, step);
    }
}
