//! What each transport was given and has not answered yet: whose turn it is, and since when.

use std::collections::VecDeque;
use std::time::Duration;

use super::{InFlight, OpState};
use crate::engine::{Engine, Step};
use crate::operation::{Now, OpId, Operation, OperationError, TransportId};

/// Operations given up whose late answers are understood. Older ones show as foreign, or by their mark.
const ABANDONED_KEPT: usize = 1024;
/// Operations for which room is kept when all of a large transaction are answered.
const ROOM_KEPT: usize = 1024;
/// How long an operation may take from when it is its turn until it is cancelled. The slowest single operations known
/// (deleting a bridge, a veth pair) take tens of milliseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// How long a transport has to answer a request to cancel. Those that cannot cancel say nothing at all.
const CANCELLED_WITHIN: Duration = Duration::from_secs(1);

/// The operations of one transport, oldest first. A transport carries them out in this order, so time runs against the
/// first one only.
#[derive(Debug, Default)]
pub(crate) struct TransportQueue {
    operations: VecDeque<OpId>,
    /// Since when it is the first one's turn.
    since: Duration,
    /// The first one took too long, and was asked to end.
    cancelled: Option<OpId>,
}

impl TransportQueue {
    fn push(&mut self, op: OpId, now: Duration) {
        if self.operations.is_empty() {
            self.since = now;
        }
        self.operations.push_back(op);
    }

    /// When the first operation has had its time: to be answered, or to end once it was asked to.
    fn deadline(&self) -> Option<Duration> {
        self.operations.front()?;
        let allowed = if self.cancelled.is_some() { CANCELLED_WITHIN } else { ANSWERED_WITHIN };
        Some(self.since + allowed)
    }

    /// The transport lives: whoever is first has all its time before it.
    pub(super) fn answered(&mut self, now: Duration) {
        self.since = now;
        self.cancelled = None;
    }

    /// Drops what is answered, or given up.
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
    /// Operations are handed out, in this order.
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

    /// When the first transport will have had its time.
    pub(crate) fn transport_deadline(&self) -> Option<Duration> {
        self.transport_queues.values().filter_map(TransportQueue::deadline).min()
    }

    /// Cancels what takes too long, and gives up what does not even answer that.
    pub(crate) fn expire_transports(&mut self, now: Now, step: &mut Step) {
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

    /// Gives up an operation that nobody answers, with all of its transaction that stand behind it.
    fn abandon(&mut self, transport: TransportId, op: OpId, now: Now, step: &mut Step) {
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
    /// An operation that was given up was carried out after all: what it made is ours, and is looked at.
    pub(super) fn take_late_answer(&mut self, op: OpId, done: bool, step: &mut Step) {
        let Some((key, made)) = self.abandoned.remove(&op).filter(|_| done) else { return };
        if let Some(made) = made {
            let idx = self.graph.intern(&key);
            let node = self.graph.node_mut(idx);
            if node.present.is_none() && node.running_op().is_none() {
                node.applied = Some(made);
            }
        }
        step.read.push(key);
    }
}

fn unanswered() -> OperationError {
    let message = format!("no answer within {} s", ANSWERED_WITHIN.as_secs());
    OperationError { transient: true, ..OperationError::message(message) }
}
