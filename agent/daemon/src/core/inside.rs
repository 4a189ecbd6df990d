//! Looking into the core: questions that run between two of its events, and what it tells of itself.

use std::fmt;
use std::sync::Arc;

use holdfast_config::{Configuration, Models};
use holdfast_platform::objects::Registry;
use holdfast_scheduler::{Engine, Key, Now, Record, State, Step, TxnId};
use tokio::sync::{broadcast, oneshot};

use super::startup::Objects;
use super::task::CoreTask;
use super::{CommitError, CoreHandle, Query};

/// Events that a reader may fall behind before it is told that it missed some.
const TOLD_DEPTH: usize = 1024;
/// Statuses told of one step. Of more the readers are told how many, and read what they show again.
const STATUSES_TOLD: usize = 256;

/// The core as a question sees it. It stands still meanwhile, so a question takes in proportion to its answer and
/// leaves rendering to whoever asks.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) configuration: &'a Configuration,
    pub(crate) now: Now,
    objects: &'a Objects,
}

impl Inside<'_> {
    pub(crate) fn models(&self) -> &Models {
        &self.objects.models
    }

    pub(crate) fn objects(&self) -> &Registry {
        &self.objects.registry
    }
}

/// One question, with its answer channel inside.
pub(super) struct Look(Box<dyn FnOnce(&Inside<'_>) + Send>);

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

/// What the core tells those who listen.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// A transaction has ended.
    Transaction(Arc<Record>),
    /// Values are in another state than before, or in the same one for another reason.
    Statuses { changed: Arc<[ShortStatus]>, omitted: usize },
}

/// The state of one value in a line.
#[derive(Clone, Debug)]
pub(crate) struct ShortStatus {
    pub(crate) key: Key,
    pub(crate) label: String,
    pub(crate) state: State,
}

/// Somebody waits for a complete reading of the box and the repairs that follow.
#[derive(Debug)]
pub(super) struct Resync {
    answer: oneshot::Sender<Vec<Arc<Record>>>,
    /// The last transaction before.
    after: TxnId,
    /// The reading has been taken in.
    heard: bool,
}

/// Tells listeners. Costs nothing while nobody listens; who wants to know of transactions alone has no labels made.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    all: broadcast::Sender<Told>,
    records: broadcast::Sender<Arc<Record>>,
}

/// Where one can listen, as long as the core runs.
#[derive(Clone, Debug)]
pub(super) struct Ear {
    all: broadcast::WeakSender<Told>,
    records: broadcast::WeakSender<Arc<Record>>,
}

impl Default for Teller {
    fn default() -> Self {
        let (all, _) = broadcast::channel(TOLD_DEPTH);
        let (records, _) = broadcast::channel(TOLD_DEPTH);
        Self { all, records }
    }
}

impl Teller {
    pub(super) fn ear(&self) -> Ear {
        Ear { all: self.all.downgrade(), records: self.records.downgrade() }
    }

    /// What a step brought.
    pub(super) fn tell(&self, engine: &Engine, step: &Step) {
        let ended = step.finished.iter().filter_map(|it| engine.history().record(it.txn()));
        for record in ended {
            // There may be no listener.
            let _ = self.records.send(Arc::clone(record));
            let _ = self.all.send(Told::Transaction(Arc::clone(record)));
        }
        if step.changed.is_empty() || self.all.receiver_count() == 0 {
            return;
        }
        let short = |key: &Key| {
            let (label, state) = (engine.label(key), engine.state(key));
            ShortStatus { key: key.clone(), label, state }
        };
        let changed = step.changed.iter().take(STATUSES_TOLD).map(short).collect();
        let omitted = step.changed.len().saturating_sub(STATUSES_TOLD);
        let _ = self.all.send(Told::Statuses { changed, omitted });
    }
}

impl CoreTask {
    pub(super) fn answer(&mut self, query: Query) {
        match query {
            Query::Look(Look(look)) => look(&Inside {
                engine: &self.engine,
                configuration: &self.configuration,
                now: self.now(),
                objects: &self.objects,
            }),
            Query::Show(leaves, shown) => {
                if let Some(revision) = self.publisher.show_services(leaves) {
                    self.revision_tx.send_replace(revision);
                }
                // Whoever had it shown may have gone.
                let _ = shown.send(());
            }
            Query::Resync(answer) => {
                let last = self.engine.history().records().next_back();
                let after = last.map_or(TxnId(0), |record| record.txn);
                self.resyncs.push(Resync { answer, after, heard: false });
                self.transport.retrieve();
            }
            Query::Settled(answer) => self.settling.push(answer),
        }
    }

    /// A complete reading has come.
    pub(super) fn heard_all(&mut self) {
        for resync in &mut self.resyncs {
            resync.heard = true;
        }
    }

    /// Answers those who waited for a resync, or for the end of whatever was under way, once all that followed from
    /// it is done.
    pub(super) fn answer_waiting(&mut self) {
        if self.resyncs.is_empty() && self.settling.is_empty()
            || !self.engine.is_idle()
            || self.is_revealing()
        {
            return;
        }
        for answer in self.settling.drain(..) {
            // Whoever asked may have gone.
            let _ = answer.send(());
        }
        let history = self.engine.history();
        for resync in self.resyncs.extract_if(.., |resync| resync.heard) {
            let records = history.after(resync.after).cloned().collect();
            // Whoever asked may have gone.
            drop(resync.answer.send(records));
        }
    }
}

impl CoreHandle {
    /// Asks the core a question.
    ///
    /// # Errors
    /// When the core has stopped.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Inside<'_>) -> T + Send + 'static,
    ) -> Result<T, CommitError> {
        let (answer, answered) = oneshot::channel();
        let look = move |inside: &Inside<'_>| drop(answer.send(question(inside)));
        self.query(Query::Look(Look(Box::new(look)))).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Reads the whole box, repairs what differs, and gives the transactions that took.
    ///
    /// # Errors
    /// When the core has stopped.
    pub(crate) async fn resync(&self) -> Result<Vec<Arc<Record>>, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Resync(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Returns as soon as nothing is under way: the box is what it should be, but for what waits or failed.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn settled(&self) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Settled(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Hears from now on what the core tells; nothing any more when it has stopped.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Told> {
        let teller = self.ear.all.upgrade();
        teller.map_or_else(|| broadcast::channel(1).1, |teller| teller.subscribe())
    }

    /// The same for the ends of transactions alone.
    pub(crate) fn listen_to_records(&self) -> broadcast::Receiver<Arc<Record>> {
        let teller = self.ear.records.upgrade();
        teller.map_or_else(|| broadcast::channel(1).1, |teller| teller.subscribe())
    }

    async fn query(&self, query: Query) -> Result<(), CommitError> {
        self.query_tx.send(query).await.map_err(|_| CommitError::Stopped)
    }
}
