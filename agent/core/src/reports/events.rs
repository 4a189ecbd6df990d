//! Events about transactions and states, for listeners.

use std::sync::Arc;

use holdfast_scheduler::{Engine, EngineOutput, Key, TransactionRecord, ValueState};
use tokio::sync::broadcast;

/// Events that a reader may fall behind before it is told that it missed some.
const EVENT_QUEUE_DEPTH: usize = 1024;
/// Statuses in one event. Of further ones it has the number alone, and readers read again what they show.
const STATUSES_PER_EVENT: usize = 256;

/// Events for listeners.
#[derive(Clone, Debug)]
pub enum CoreEvent {
    /// A transaction has ended.
    Transaction(Arc<TransactionRecord>),
    /// Values whose state, or the reason for it, has changed; `omitted` more are not listed.
    Statuses { changed: Arc<[ShortStatus]>, omitted: usize },
}

/// Label and state of one value, for one line of a list.
#[derive(Clone, Debug)]
pub struct ShortStatus {
    pub key: Key,
    pub label: String,
    pub state: ValueState,
}

/// Sends events to listeners. Labels of values are made only while there is a listener for all events.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    all: broadcast::Sender<CoreEvent>,
    records: broadcast::Sender<Arc<TransactionRecord>>,
}

/// Source of receivers for new listeners, as long as the core runs.
#[derive(Clone, Debug)]
pub(crate) struct EventSource {
    pub(crate) all: broadcast::WeakSender<CoreEvent>,
    pub(crate) records: broadcast::WeakSender<Arc<TransactionRecord>>,
}

impl Default for EventSender {
    fn default() -> Self {
        let (all, _) = broadcast::channel(EVENT_QUEUE_DEPTH);
        let (records, _) = broadcast::channel(EVENT_QUEUE_DEPTH);
        Self { all, records }
    }
}

impl EventSender {
    pub(crate) fn source(&self) -> EventSource {
        EventSource { all: self.all.downgrade(), records: self.records.downgrade() }
    }

    /// Sends the transactions that a step ended, and the states that it changed.
    pub(crate) fn send(&self, engine: &Engine, step: &EngineOutput) {
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
            let label = engine.label(key);
            let state = engine.state(key);
            ShortStatus { key: key.clone(), label, state }
        };
        let changed = step.changed.iter().take(STATUSES_PER_EVENT).map(short).collect();
        let omitted = step.changed.len().saturating_sub(STATUSES_PER_EVENT);
        let _ = self.all.send(CoreEvent::Statuses { changed, omitted });
    }
}
