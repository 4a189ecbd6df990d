//! Unanswered operations of each transport, and their deadlines.

use std::collections::VecDeque;
use std::time::Duration;

use super::{InFlight, OpState};
use crate::operation::{OpId, OperationError};

/// Operations given up whose late answers are recognised. Values of older ones show as foreign, or by their mark.
pub(crate) const ABANDONED_KEPT: usize = 1024;
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
    pub(crate) operations: VecDeque<OpId>,
    /// Time since which the first operation is first.
    pub(crate) since: Duration,
    /// First operation, if it was cancelled for taking too long.
    pub(crate) cancelled: Option<OpId>,
}

impl TransportQueue {
    pub(crate) fn push(&mut self, op: OpId, now: Duration) {
        if self.operations.is_empty() {
            self.since = now;
        }
        self.operations.push_back(op);
    }

    /// Deadline of the first operation: to be answered, or to end after its cancellation.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.operations.front()?;
        let allowed = if self.cancelled.is_some() { CANCELLED_WITHIN } else { ANSWERED_WITHIN };
        Some(self.since + allowed)
    }

    /// Restarts the time of the first operation: the transport is alive.
    pub(crate) fn answered(&mut self, now: Duration) {
        self.since = now;
        self.cancelled = None;
    }

    /// Drops operations that are answered or given up.
    pub(crate) fn drop_answered(&mut self, running: &mut InFlight, now: Duration) {
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

pub(crate) fn unanswered() -> OperationError {
    let message = format!("no answer within {} s", ANSWERED_WITHIN.as_secs());
    OperationError { transient: true, ..OperationError::message(message) }
}
