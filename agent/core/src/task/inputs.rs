//! Events that wake the loop, and the channels that they come from.

use holdfast_platform::transport::{self, Events};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::handle::Query;
use crate::request::CommitRequest;
use crate::state::{JobResult, JobSet};

/// One thing that wakes the loop.
#[derive(Debug)]
pub(crate) enum Event {
    Commit(Box<CommitRequest>),
    Query(Query),
    /// A heartbeat of the watchdog.
    Beat(oneshot::Sender<()>),
    Platform(transport::Event),
    Job(JobResult),
    DeadlineDue,
    /// No event has come, and there is state to be shown.
    Publish,
    /// The core is to stop, or its owner has dropped it.
    Stop,
    /// A transport has ended by itself: its operations will never be answered.
    TransportsGone,
}

/// The ends of the channels that others have of the loop.
#[derive(Debug)]
pub(crate) struct Inputs {
    commit_rx: mpsc::Receiver<CommitRequest>,
    query_rx: mpsc::Receiver<Query>,
    beat_rx: mpsc::Receiver<oneshot::Sender<()>>,
    events: Events,
    stop_rx: oneshot::Receiver<()>,
}

/// Conditions of one turn of the loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The next deadline.
    pub(crate) due: Option<Instant>,
    /// True when a change may be taken from the queue.
    pub(crate) may_receive: bool,
    /// True when there is state to be shown.
    pub(crate) has_to_publish: bool,
    /// True once the core is to stop.
    pub(crate) is_stopping: bool,
}

impl Inputs {
    pub(crate) fn new(
        commit_rx: mpsc::Receiver<CommitRequest>,
        query_rx: mpsc::Receiver<Query>,
        beat_rx: mpsc::Receiver<oneshot::Sender<()>>,
        events: Events,
        stop_rx: oneshot::Receiver<()>,
    ) -> Self {
        Self { commit_rx, query_rx, beat_rx, events, stop_rx }
    }

    /// The next event. Of several, the most urgent one comes first.
    pub(crate) async fn next(&mut self, jobs: &mut JobSet, turn: Turn) -> Event {
        let due = async {
            match turn.due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = &mut self.stop_rx, if !turn.is_stopping => Event::Stop,
            Some(answer) = self.beat_rx.recv() => Event::Beat(answer),
            Some(result) = jobs.next() => Event::Job(result),
            event = self.events.recv() => event.map_or(Event::TransportsGone, Event::Platform),
            () = due => Event::DeadlineDue,
            Some(query) = self.query_rx.recv() => Event::Query(query),
            Some(request) = self.commit_rx.recv(), if turn.may_receive && !turn.is_stopping => Event::Commit(Box::new(request)),
            () = std::future::ready(()), if turn.has_to_publish => Event::Publish,
        }
    }
}
