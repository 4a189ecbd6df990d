//! Cancelled operations, shared by the caller and the thread that carries operations out.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_scheduler::{Completion, OpId, OperationError};

/// Operations remembered, more than the largest transactions have. Beyond it the last ones are carried out after
/// all, which the contract of [`Transport::cancel`](super::Transport::cancel) permits.
const REMEMBERED_MOST: usize = 1 << 18;

/// Set of cancelled operations; each side has a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelledOperations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Avoids a lookup in the list for each operation while nothing is cancelled, which is nearly always.
    any: AtomicBool,
    operations: Mutex<BTreeSet<OpId>>,
}

impl CancelledOperations {
    /// Cancels these operations.
    pub(crate) fn add(&self, operations: &[OpId]) {
        let mut set = self.lock();
        set.extend(operations);
        while set.len() > REMEMBERED_MOST {
            set.pop_last();
        }
        self.0.any.store(!set.is_empty(), Ordering::Release);
    }

    /// The answer for an operation that was cancelled before it started.
    pub(crate) fn answer(&self, op: OpId) -> Option<Completion> {
        let cancelled = self.0.any.load(Ordering::Acquire) && self.lock().contains(&op);
        let result = Err(OperationError::cancelled());
        cancelled.then_some(Completion { op, result, observed: None })
    }

    /// Forgets the operations up to `last`: a batch has been answered, and with it everything before.
    pub(crate) fn answered(&self, last: Option<OpId>) {
        let (Some(last), true) = (last, self.0.any.load(Ordering::Acquire)) else { return };
        let mut operations = self.lock();
        *operations = operations.split_off(&OpId(last.0 + 1));
        self.0.any.store(!operations.is_empty(), Ordering::Release);
    }

    /// Recovers from a poisoned lock: every change of the list is complete before a panic could happen.
    fn lock(&self) -> MutexGuard<'_, BTreeSet<OpId>> {
        self.0.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_operations_are_remembered_until_answered() {
        let cancelled = CancelledOperations::default();
        let is_cancelled = |ops: &[u64]| -> Vec<bool> {
            ops.iter().map(|op| cancelled.answer(OpId(*op)).is_some()).collect()
        };
        assert_eq!(is_cancelled(&[1, 2]), [false, false]);
        cancelled.add(&[OpId(2), OpId(5)]);
        assert_eq!(is_cancelled(&[1, 2, 5]), [false, true, true]);
        cancelled.answered(Some(OpId(3)));
        assert_eq!(is_cancelled(&[2, 5]), [false, true]);
        cancelled.answered(Some(OpId(5)));
        assert_eq!(is_cancelled(&[5]), [false]);
    }

    #[test]
    fn of_too_many_the_last_ones_are_forgotten() {
        let cancelled = CancelledOperations::default();
        let all: Vec<OpId> = (0..=REMEMBERED_MOST as u64).map(OpId).collect();
        cancelled.add(&all);
        assert!(cancelled.answer(OpId(0)).is_some());
        assert!(cancelled.answer(OpId(REMEMBERED_MOST as u64)).is_none());
    }
}
