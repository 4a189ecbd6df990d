//! Jobs: work that the loop has started and does not await.

use std::future::Future;
use std::pin::Pin;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdfast_scheduler::{Delta, Key};
use holdfast_store::{StoreError, Ticket};

use crate::commit::CommitInput;
use crate::request::CommitError;

/// Result of a job: work that the loop has started and does not await.
#[derive(Debug)]
pub(crate) enum JobResult {
    /// An input of a commit, for which it waits.
    Commit(Ticket, CommitInput),
    /// How to take back a change that the store could not make final.
    Inverted(Ticket, Result<Delta, CommitError>),
    /// Keys whose state is shown at the start, ascending.
    FirstKeys(Vec<Key>),
    /// Result of writing service transactions that failed.
    HistoryWritten(Result<(), StoreError>),
    /// Result of recording the pre-images of adopted objects, for which their operations wait.
    RestoresWritten(Result<(), StoreError>),
}

/// Jobs under way.
#[derive(Default)]
pub(crate) struct JobSet(FuturesUnordered<Pin<Box<dyn Future<Output = JobResult> + Send>>>);

impl JobSet {
    /// Waits for the next job that ends, and returns its result. Returns `None` when no job is under way.
    pub(crate) async fn next(&mut self) -> Option<JobResult> {
        self.0.next().await
    }

    pub(crate) fn push(&mut self, job: impl Future<Output = JobResult> + Send + 'static) {
        self.0.push(Box::pin(job));
    }
}

impl std::fmt::Debug for JobSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} under way", self.0.len())
    }
}
