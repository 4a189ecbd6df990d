//! Deadlines of the transports.

use std::time::Duration;

use crate::engine::Engine;
use crate::operation::{Now, OpId, Operation, TransportId};
use crate::output::EngineOutput;
use crate::transaction::{ABANDONED_KEPT, TransportQueue, unanswered};

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
