//! Unanswered operations of each transport, and their deadlines.

use std::collections::VecDeque;
use std::time::Duration;

use super::{InFlight, OpState};
use crate::engine::{Engine, EngineOutput};
use crate::operation::{Now, OpId, Operation, OperationError, TransportId};

/// Operations given up whose late answers are recognised. Values of older ones show as foreign, or by their mark.
const ABANDONED_KEPT: usize = 1024;
/// Capacity kept after all operations of a large transaction are answered.
const ROOM_KEPT: usize = 1024;
/// Time to answer an operation, from when it is first in its queue, until it is cancelled. The slowest single
/// operations known (deleting a bridge, a veth pair) take tens of milliseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Time for a transport to answer a request to cancel. Transports that cannot cancel never do.
const CANCELLED_WITHIN: Duration = Duration::from_secs(1);

/// Unanswered operations of one transport, oldest first. A transport works in this order, so the deadline applies to
/// the first one only.
#[derive(Debug, Default)]
pub(crate) struct TransportQueue {
    operations: VecDeque<OpId>,
    /// Time since which the first operation is first.
    since: Duration,
    /// First operation, if it was cancelled for taking too long.
    cancelled: Option<OpId>,
}

impl TransportQueue {
    fn push(&mut self, op: OpId, now: Duration) {
        if self.operations.is_empty() {
            self.since = now;
        }
        self.operations.push_back(op);
    }

    /// Deadline of the first operation: to be answered, or to end after its cancellation.
    fn deadline(&self) -> Option<Duration> {
        self.operations.front()?;
        let allowed = if self.cancelled.is_some() { CANCELLED_WITHIN } else { ANSWERED_WITHIN };
        Some(self.since + allowed)
    }

    /// Restarts the time of the first operation: the transport is alive.
    pub(super) fn answered(&mut self, now: Duration) {
        self.since = now;
        self.cancelled = None;
    }

    /// Drops operations that are answered or given up.
    fn drop_answered(&mut self, running: &mut InFlight, now: Duration) {
        let before = self.operations.front().copied();
        while let Some(&op) = self.operations.front() {
            let waits = running.of(op).is_some_and(|transaction| {
                matches!(transaction.op_progress(op).state, OpState::Submitted)
            });
            if waits {
                break;
            }
            self.operations.pop_front();
        }
        if self.operations.is_empty() {
            self.operations.shrink_to(ROOM_KEPT);
        }
        if self.operations.front().copied() != before {
            self.since = now;
            self.cancelled = None;
        }
    }
}

impl Engine {
    /// Appends submitted operations.
    pub(crate) fn enqueue_submitted(&mut self, submitted: &[Operation], now: Now) {
        for op in submitted {
            self.transport_queues.entry(op.transport).or_default().push(op.id, now.monotonic);
        }
    }

    pub(crate) fn drop_answered(&mut self, now: Now) {
        for queue in self.transport_queues.values_mut() {
            queue.drop_answered(&mut self.running, now.monotonic);
        }
    }

    /// Earliest deadline of all transports.
    pub(crate) fn transport_deadline(&self) -> Option<Duration> {
        self.transport_queues.values().filter_map(TransportQueue::deadline).min()
    }

    /// Cancels operations that take too long, and gives up those that do not answer that either.
    pub(crate) fn expire_transports(&mut self, now: Now, step: &mut EngineOutput) {
        let transports: Vec<TransportId> = self.transport_queues.keys().copied().collect();
        for transport in transports {
            let Some(queue) = self.transport_queues.get(&transport) else { continue };
            let Some(&op) = queue.operations.front() else { continue };
            if queue.deadline().is_some_and(|deadline| deadline > now.monotonic) {
                continue;
            }
            if queue.cancelled.is_some() {
                self.abandon(transport, op, now, step);
            } else if let Some(queue) = self.transport_queues.get_mut(&transport) {
                queue.cancelled = Some(op);
                queue.since = now.monotonic;
                step.cancel.push(op);
            }
        }
    }

    /// Gives up an unanswered operation, with all operations of its transaction that follow on the same transport.
    fn abandon(&mut self, transport: TransportId, op: OpId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.of(op) else { return };
        let behind = transaction.unanswered();
        let stuck: Vec<OpId> =
            behind.filter(|&other| transaction.operation(other).transport == transport).collect();
        let txn = transaction.txn;
        transaction.outstanding -= stuck.len();
        for &other in &stuck {
            let operation = transaction.operation(other);
            let made = (operation.key.clone(), operation.new.clone());
            self.abandoned.insert(other, made);
        }
        while self.abandoned.len() > ABANDONED_KEPT {
            self.abandoned.pop_first();
        }
        step.cancel.extend(stuck.iter().copied().filter(|&other| other != op));
        for other in stuck {
            self.fail(other, unanswered(), now, step);
        }
        self.dispatch(txn, now, step);
    }
}

impl Engine {
    /// Takes in a late answer: a value that was created after all is ours, and is read.
    pub(super) fn take_late_answer(&mut self, op: OpId, done: bool, step: &mut EngineOutput) {
        let Some((key, made)) = self.abandoned.remove(&op).filter(|_| done) else { return };
        if let Some(made) = made {
            let idx = self.graph.intern(&key);
            let node = self.graph.node(idx);
            if node.present.is_none() && node.running_op().is_none() {
                self.graph.set_applied(idx, Some(made));
            }
        }
        step.read.push(key);
    }
}

fn unanswered() -> OperationError {
    let message = format!("no answer within {} s", ANSWERED_WITHIN.as_secs());
    OperationError { transient: true, ..OperationError::message(message) }
}
