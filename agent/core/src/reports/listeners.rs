//! Listeners to the steps of the engine, apart from transports and readers of revisions.

use std::time::Duration;

use holdfast_scheduler::{Engine, EngineOutput, Now};
use tokio::sync::watch;

use super::events::{EventSender, EventSource};
use super::repair_log::RepairLog;

/// Number of changes of what values there are, what they need and what they provide. While it stays, each failure has the same
/// impact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphVersion(pub u64);

#[derive(Debug)]
pub(crate) struct Listeners {
    event_tx: EventSender,
    graph_tx: watch::Sender<GraphVersion>,
    repair_log: RepairLog,
}

impl Default for Listeners {
    fn default() -> Self {
        let (graph_tx, _) = watch::channel(GraphVersion::default());
        Self { event_tx: EventSender::default(), graph_tx, repair_log: RepairLog::default() }
    }
}

impl Listeners {
    pub(crate) fn event_source(&self) -> EventSource {
        self.event_tx.source()
    }

    /// A receiver of each version of the graph.
    pub(crate) fn watch_graph(&self) -> watch::Receiver<GraphVersion> {
        self.graph_tx.subscribe()
    }

    /// Tells of a step of the engine.
    pub(crate) fn note(&mut self, engine: &Engine, step: &EngineOutput, now: Now) {
        self.event_tx.send(engine, step);
        self.repair_log.note(engine, step, now);
    }

    /// Tells those who follow impacts of a change of the graph.
    pub(crate) fn tell_graph_version(&self, engine: &Engine) {
        let version = GraphVersion(engine.dependency_version());
        self.graph_tx.send_if_modified(|known| std::mem::replace(known, version) != version);
    }

    /// Time of the next call of [`Self::log_due`], since the start.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.repair_log.deadline()
    }

    /// Logs what was held back for long enough.
    pub(crate) fn log_due(&mut self, now: Now) {
        self.repair_log.log_due(now);
    }

    /// Logs what was held back.
    pub(crate) fn finish(&mut self) {
        self.repair_log.finish();
    }
}
