//! Progress and cancellation of the examination of one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limits::{LIST_ENTRIES, LimitExceeded};

/// Tells the work on a request that its client has gone. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

/// Always equal, so that comparisons of requests ignore it.
impl PartialEq for CancelToken {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Reason for ending an examination early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("the client no longer waits for the answer")]
    Cancelled,
}

/// Progress of the payloads of one request, shared by all of their parsers.
#[derive(Debug, Default)]
pub struct ParseProgress {
    entries: AtomicUsize,
    cancel: CancelToken,
}

impl CancelToken {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Checks for cancellation.
    ///
    /// # Errors
    /// When the request was cancelled.
    pub fn check(&self) -> Result<(), StopReason> {
        if self.is_cancelled() { Err(StopReason::Cancelled) } else { Ok(()) }
    }
}

impl ParseProgress {
    pub fn new(cancel: CancelToken) -> Self {
        Self { cancel, ..Self::default() }
    }

    /// Counts list entries that a payload is about to add, and checks for cancellation.
    ///
    /// # Errors
    /// When the entries exceed the limit of a configuration, or the request was cancelled.
    pub fn count_entries(&self, more: usize) -> Result<(), StopReason> {
        let before = self.entries.fetch_add(more, Ordering::Relaxed);
        LIST_ENTRIES.check(before.saturating_add(more))?;
        self.cancel.check()
    }

    /// Checks the limit and for cancellation.
    ///
    /// # Errors
    /// The errors of [`ParseProgress::count_entries`].
    pub fn check(&self) -> Result<(), StopReason> {
        self.count_entries(0)
    }

    /// Number of entries so far.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Resets the count to `entries`, because a payload is parsed again.
    pub(crate) fn rewind(&self, entries: usize) {
        self.entries.store(entries, Ordering::Relaxed);
    }
}
