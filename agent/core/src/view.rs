//! Inspection of the core: questions that run between two of its events.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use holdfast_config::{Configuration, Models};
use holdfast_platform::ForeignRoutes;
use holdfast_platform::objects::Registry;
use holdfast_scheduler::{Engine, Now, TransactionRecord, TxnId};
use smol_str::SmolStr;
use tokio::sync::oneshot;

use super::examination::Examiner;
use super::task::CoreTask;
use super::{CommitError, CoreHandle, Query};

/// The core as a question sees it. The loop waits meanwhile, so a question takes time in proportion to its answer, and
/// answers are rendered elsewhere.
#[derive(Debug)]
pub struct CoreView<'a> {
    pub engine: &'a Engine,
    pub configuration: &'a Configuration,
    pub now: Now,
    pub(super) foreign_routes: &'a ForeignRoutes,
    examiner: &'a Examiner,
}

impl CoreView<'_> {
    pub fn models(&self) -> &Models {
        self.configuration.models()
    }

    pub fn objects(&self) -> &Registry {
        &self.examiner.registry
    }
}

/// One question, with its answer channel inside.
pub(super) struct Inspection(Box<dyn FnOnce(&CoreView<'_>) + Send>);

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspection")
    }
}

/// A request that waits for a complete reading of the box and the repairs that follow.
#[derive(Debug)]
pub(super) struct Resync {
    answer: oneshot::Sender<Vec<Arc<TransactionRecord>>>,
    /// The last transaction before the request.
    after: TxnId,
    /// True once the complete reading was handled.
    is_read: bool,
}

impl CoreTask {
    pub(super) fn answer(&mut self, query: Query) {
        match query {
            Query::Inspect(Inspection(inspect)) => inspect(&CoreView {
                engine: &self.engine.read(),
                configuration: &self.configuration,
                now: self.now(),
                foreign_routes: &self.foreign_routes,
                examiner: &self.examiner,
            }),
            Query::Resync(answer) => {
                let engine = self.engine.read();
                let last = engine.history().records().next_back();
                let after = last.map_or(TxnId(0), |record| record.txn);
                drop(engine);
                self.resyncs.push(Resync { answer, after, is_read: false });
                self.transport.retrieve();
            }
            Query::AwaitIdle(answer) => self.idle_waiters.push(answer),
            Query::ForceDown(links, answer) => {
                let now = self.now();
                self.publisher.force_down(&links, now);
                self.revision_waiters.push(answer);
            }
            Query::Maintain(links, answer) => {
                self.maintain(links);
                // The client may have gone.
                let _ = answer.send(());
            }
        }
    }

    /// Notes that a complete reading of the box was taken in.
    pub(super) fn note_complete_reading(&mut self) {
        for resync in &mut self.resyncs {
            resync.is_read = true;
        }
        self.first_showing.note_complete_reading();
    }

    /// Answers requests whose effect the newest revision shows.
    pub(super) fn answer_when_shown(&mut self) {
        for answer in self.revision_waiters.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
    }

    /// Answers requests for a resync or for idleness, once the engine has nothing left to do.
    pub(super) fn answer_when_idle(&mut self) {
        if self.resyncs.is_empty() && self.idle_waiters.is_empty()
            || !self.engine.read().is_idle()
            || self.commits.is_publishing()
            || self.publisher.has_work()
        {
            return;
        }
        for answer in self.idle_waiters.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
        let engine = self.engine.read();
        let history = engine.history();
        for resync in self.resyncs.extract_if(.., |resync| resync.is_read) {
            let records = history.after(resync.after).cloned().collect();
            // The client may have gone.
            drop(resync.answer.send(records));
        }
    }
}

impl CoreHandle {
    /// Asks the core a question.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn inspect<T: Send + 'static>(
        &self,
        question: impl FnOnce(&CoreView<'_>) -> T + Send + 'static,
    ) -> Result<T, CommitError> {
        let (answer, answered) = oneshot::channel();
        let inspect = move |view: &CoreView<'_>| drop(answer.send(question(view)));
        self.query(Query::Inspect(Inspection(Box::new(inspect)))).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Reads the whole box, repairs what differs, and returns the transactions since the request.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn resync(&self) -> Result<Vec<Arc<TransactionRecord>>, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Resync(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Returns when nothing is under way: the box matches its configuration, except for pending and failed values.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn wait_until_idle(&self) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::AwaitIdle(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Tells these links as down, and no others, from the next revision on: their `oper-status` is DOWN whatever the kernel
    /// shows, and `observed-status` says what that is. The kernel is asked for nothing, and no configuration changes. State of
    /// a link on which a commit works is shown when that ends, as always. Not kept over a restart.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn force_down(&self, links: BTreeSet<SmolStr>) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::ForceDown(links, answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    pub(super) async fn query(&self, query: Query) -> Result<(), CommitError> {
        self.query_tx.send(query).await.map_err(|_| CommitError::Stopped)
    }
}
