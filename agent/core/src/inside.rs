//! Inspection of the core: questions that run between two of its events, and events about transactions and states.

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
/// Statuses in one event. Of further ones it has the number alone, and readers read again what they show.
const STATUSES_TOLD: usize = 256;

/// The core as a question sees it. The loop waits meanwhile, so a question takes time in proportion to its answer, and
/// answers are rendered elsewhere.
#[derive(Debug)]
pub struct CoreView<'a> {
    pub engine: &'a Engine,
    pub configuration: &'a Configuration,
    pub now: Now,
    objects: &'a Objects,
}

impl CoreView<'_> {
    pub fn models(&self) -> &Models {
        &self.objects.models
    }

    pub fn objects(&self) -> &Registry {
        &self.objects.registry
    }
}

/// One question, with its answer channel inside.
pub(super) struct Look(Box<dyn FnOnce(&CoreView<'_>) + Send>);

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

/// Events for listeners.
#[derive(Clone, Debug)]
pub enum CoreEvent {
    /// A transaction has ended.
    Transaction(Arc<Record>),
    /// Values whose state, or the reason for it, has changed; `omitted` more are not listed.
    Statuses { changed: Arc<[ShortStatus]>, omitted: usize },
}

/// Label and state of one value, for one line of a list.
#[derive(Clone, Debug)]
pub struct ShortStatus {
    pub key: Key,
    pub label: String,
    pub state: State,
}

/// A request that waits for a complete reading of the box and the repairs that follow.
#[derive(Debug)]
pub(super) struct Resync {
    answer: oneshot::Sender<Vec<Arc<Record>>>,
    /// The last transaction before the request.
    after: TxnId,
    /// True once the complete reading was handled.
    heard: bool,
}

/// Sends events to listeners. Labels of values are made only while there is a listener for all events.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    all: broadcast::Sender<CoreEvent>,
    records: broadcast::Sender<Arc<Record>>,
}

/// Source of receivers for new listeners, as long as the core runs.
#[derive(Clone, Debug)]
pub(super) struct Ear {
    all: broadcast::WeakSender<CoreEvent>,
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

    /// Sends the transactions that a step ended, and the states that it changed.
    pub(super) fn tell(&self, engine: &Engine, step: &Step) {
        let ended = step.finished.iter().filter_map(|it| engine.history().record(it.txn()));
        for record in ended {
            // There may be no listener.
            let _ = self.records.send(Arc::clone(record));
            let _ = self.all.send(CoreEvent::Transaction(Arc::clone(record)));
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
        let _ = self.all.send(CoreEvent::Statuses { changed, omitted });
    }
}

impl CoreTask {
    pub(super) fn answer(&mut self, query: Query) {
        match query {
            Query::Look(Look(look)) => look(&CoreView {
                engine: &self.engine,
                configuration: &self.configuration,
                now: self.now(),
                objects: &self.objects,
            }),
            Query::Show(leaves, shown) => {
                if let Some(revision) = self.publisher.show_services(leaves) {
                    self.revision_tx.send_replace(revision);
                }
                // The service may have stopped waiting.
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

    /// Notes that a complete reading of the box was handled.
    pub(super) fn heard_all(&mut self) {
        for resync in &mut self.resyncs {
            resync.heard = true;
        }
    }

    /// Answers requests for a resync or for idleness, once the engine has nothing left to do.
    pub(super) fn answer_waiting(&mut self) {
        if self.resyncs.is_empty() && self.settling.is_empty()
            || !self.engine.is_idle()
            || self.is_revealing()
        {
            return;
        }
        for answer in self.settling.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
        let history = self.engine.history();
        for resync in self.resyncs.extract_if(.., |resync| resync.heard) {
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
        let look = move |view: &CoreView<'_>| drop(answer.send(question(view)));
        self.query(Query::Look(Look(Box::new(look)))).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Reads the whole box, repairs what differs, and returns the transactions since the request.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn resync(&self) -> Result<Vec<Arc<Record>>, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Resync(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Returns when nothing is under way: the box matches its configuration, except for pending and failed values.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn settled(&self) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.query(Query::Settled(answer)).await?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// Subscribes to all events from now on; the receiver is closed once the core has stopped.
    pub fn listen(&self) -> broadcast::Receiver<CoreEvent> {
        let teller = self.ear.all.upgrade();
        teller.map_or_else(|| broadcast::channel(1).1, |teller| teller.subscribe())
    }

    /// Subscribes to ended transactions alone, for which no labels are made.
    pub fn listen_to_records(&self) -> broadcast::Receiver<Arc<Record>> {
        let teller = self.ear.records.upgrade();
        teller.map_or_else(|| broadcast::channel(1).1, |teller| teller.subscribe())
    }

    async fn query(&self, query: Query) -> Result<(), CommitError> {
        self.query_tx.send(query).await.map_err(|_| CommitError::Stopped)
    }
}
