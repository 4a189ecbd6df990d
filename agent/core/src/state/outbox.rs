//! The way from the engine to the transports.
//!
//! Before an object is taken over, what it was before has to be durable, or a crash could never give it back. So what
//! comes with pre-images waits until the store has them, and whatever comes later waits behind it: the transports are
//! given everything in the order in which the engine said it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_platform::pre_image;
use holdfast_scheduler::{Key, Operation, SharedValue};

/// Batches that the transports have not been given yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The first one waits for the store.
    waiting: VecDeque<Batch>,
    /// Pre-images, or their end, that are not known to be durable.
    owed: BTreeMap<Key, Option<SharedValue>>,
}

/// Operations and readings of one step of the engine.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) restores: Vec<(Key, Option<SharedValue>)>,
    pub(crate) submit: Vec<Operation>,
    pub(crate) read: Vec<Key>,
}

impl Outbox {
    /// Takes a batch in, and gives it back if it may go at once. If it is the first one to wait, the store is to write
    /// [`Self::rows`].
    pub(super) fn push(&mut self, batch: Batch) -> Option<Batch> {
        if self.waiting.is_empty() && !self.is_held(&batch) {
            return Some(batch);
        }
        self.waiting.push_back(batch);
        None
    }

    /// True when no batch waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True when the store is to write what the first batch waits for, and has not begun.
    pub(super) fn has_new_first(&self) -> bool {
        self.waiting.len() == 1
    }

    /// Rows that the first batch waits for, with all that could not be written before.
    pub(super) fn rows(&mut self) -> Option<Vec<holdfast_store::Change>> {
        let first = self.waiting.front_mut()?;
        self.owed.extend(std::mem::take(&mut first.restores));
        Some(restore_rows(&self.owed))
    }

    /// Notes that the store has all rows that it was given.
    pub(super) fn note_written(&mut self) {
        self.owed.clear();
    }

    /// Takes out the first batch.
    pub(super) fn pop(&mut self) -> Option<Batch> {
        self.waiting.pop_front()
    }

    /// True when the first batch has to wait.
    pub(super) fn is_first_held(&self) -> bool {
        self.waiting.front().is_some_and(|next| self.is_held(next))
    }

    /// True when pre-images must be durable before this batch may go.
    fn is_held(&self, batch: &Batch) -> bool {
        let touches = || batch.submit.iter().any(|it| self.owes(&it.key));
        !batch.restores.is_empty() || (!self.owed.is_empty() && touches())
    }

    /// True when the pre-image of an object is known and not yet durable.
    fn owes(&self, key: &Key) -> bool {
        matches!(self.owed.get(key), Some(Some(_)))
    }

    /// Takes out the operations that lack pre-images because the store refused them: all operations of the transactions
    /// that touch such objects in the first batch.
    pub(crate) fn take_refused(&mut self) -> Vec<Operation> {
        let Some(first) = self.waiting.front() else { return Vec::new() };
        let touching = first.submit.iter().filter(|it| self.owes(&it.key));
        let txns: BTreeSet<_> = touching.map(|it| it.txn).collect();
        let refused = |batch: &mut Batch| {
            batch.submit.extract_if(.., |it| txns.contains(&it.txn)).collect::<Vec<_>>()
        };
        self.waiting.iter_mut().flat_map(refused).collect()
    }
}

/// Rows that record, or remove, the pre-images of adopted objects.
fn restore_rows(restores: &BTreeMap<Key, Option<SharedValue>>) -> Vec<holdfast_store::Change> {
    let row = |(key, value): (&Key, &Option<SharedValue>)| {
        let octets = value.as_ref().and_then(|value| pre_image::to_bytes(&**value));
        holdfast_store::Change::restore(key.as_bytes().to_vec(), octets)
    };
    restores.iter().map(row).collect()
}
