//! How far the examination of one request has come, and whether anybody still waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limits::{LIST_ENTRIES, LimitExceeded};

/// Tells the work on a request that nobody waits for its result any more. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

/// A request has this for its author alone: it is part of no comparison.
impl PartialEq for Cancel {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Why an examination ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("nobody waits for it any more")]
    Abandoned,
}

/// Progress of the payloads of one request. All that read them count into the same one.
#[derive(Debug, Default)]
pub struct Progress {
    entries: AtomicUsize,
    cancel: Cancel,
}

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A point at which work may end early.
    ///
    /// # Errors
    /// When nobody waits any more.
    pub fn check(&self) -> Result<(), Stop> {
        if self.is_cancelled() { Err(Stop::Abandoned) } else { Ok(()) }
    }
}

impl Progress {
    pub fn new(cancel: Cancel) -> Self {
        Self { cancel, ..Self::default() }
    }

    /// Counts list entries that a payload is about to bring, and is a point at which its reading may end early.
    ///
    /// # Errors
    /// When these are more than a configuration may have, or nobody waits any more.
    pub fn count_entries(&self, more: usize) -> Result<(), Stop> {
        let before = self.entries.fetch_add(more, Ordering::Relaxed);
        LIST_ENTRIES.check(before.saturating_add(more))?;
        self.cancel.check()
    }

    /// A point at which work may end early.
    ///
    /// # Errors
    /// As [`Progress::count_entries`].
    pub fn check(&self) -> Result<(), Stop> {
        self.count_entries(0)
    }

    /// The entries that were counted.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Forgets what was counted since: a payload is read once more.
    pub(crate) fn rewind(&self, entries: usize) {
        self.entries.store(entries, Ordering::Relaxed);
    }
}
