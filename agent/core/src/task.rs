//! The loop that owns layers and engine.
//!
//! Each event is handled to its end: by the engine, whose steps go to the transports ([`outbox`](super::outbox)), and by
//! the commit in flight, whose effects are carried out from one queue of inputs ([`commit`](super::commit)).

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdfast_base::{RebootInhibitors, now_ns};
use holdfast_config::Configuration;
use holdfast_platform::objects::VethPairs;
use holdfast_platform::transport::{self, Events, Transport};
use holdfast_scheduler::{Engine, Key, Now, Scope, SharedValue};
use holdfast_security::credentialz::Credentials;
use holdfast_store::{Store, StoreError};
use holdfast_telemetry::{BoundarySender, Revision};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::error;

use super::commit::{CommitInFlight, Input};
use super::confirm::Window;
use super::credentials::CredentialSource;
use super::election::Elections;
use super::events::EventSender;
use super::examination::Examiner;
use super::outbox::Outbox;
use super::planning::CommitPlan;
use super::publication::Publisher;
use super::view::Resync;
use super::{CommitRequest, Query};

/// One thing that wakes the loop.
#[derive(Debug)]
enum Event {
    Commit(Box<CommitRequest>),
    Query(Query),
    /// A heartbeat of the watchdog.
    Beat(oneshot::Sender<()>),
    Platform(transport::Event),
    Job(JobResult),
    DeadlineDue,
    /// The core is to stop, or its owner has dropped it.
    Stop,
    /// A transport has ended by itself: its operations will never be answered.
    TransportsGone,
}

/// Input of the commit in flight.
pub(super) type CommitInput = Input<Box<CommitPlan>>;

/// Result of a job: work that the loop has started and does not await.
#[derive(Debug)]
pub(super) enum JobResult {
    /// An input of the commit in flight, for which it waits.
    Commit(CommitInput),
    /// Result of recording the pre-images of adopted objects, for which their operations wait.
    RestoresWritten(Result<(), StoreError>),
}

pub(super) struct CoreTask {
    pub(super) configuration: Configuration,
    pub(super) engine: Engine,
    pub(super) transport: Box<dyn Transport>,
    pub(super) outbox: Outbox,
    pub(super) examiner: Arc<Examiner>,
    /// Links of the configuration that is final: what the ends of veth pairs are judged by.
    pub(super) pairs: VethPairs,
    pub(super) store: Store,
    /// Number of the transaction that is made final next.
    pub(super) next_number: u64,
    pub(super) publisher: Publisher,
    pub(super) commit: Option<CommitInFlight>,
    /// Inputs of the commit in flight that are not handled yet.
    pub(super) inputs: VecDeque<CommitInput>,
    /// Values of the credentials in force, which no layer holds.
    pub(super) credential_values: BTreeMap<Key, SharedValue>,
    /// Those of credentialz among them.
    pub(super) credentials: Arc<Credentials>,
    /// Holder of the secrets that values name; without it, there are no values of credentials.
    pub(super) credential_source: Option<Arc<dyn CredentialSource>>,
    /// The commit that waits to be confirmed.
    pub(super) window: Option<Window>,
    pub(super) undertakings: RebootInhibitors,
    pub(super) elections: Elections,
    /// Time of the next call of the engine, since `started`.
    pub(super) deadline: Option<Duration>,
    pub(super) started: Instant,
    pub(super) commit_rx: mpsc::Receiver<CommitRequest>,
    pub(super) query_rx: mpsc::Receiver<Query>,
    pub(super) beat_rx: mpsc::Receiver<oneshot::Sender<()>>,
    pub(super) events: Events,
    pub(super) jobs: JobSet,
    pub(super) revision_tx: watch::Sender<Arc<Revision>>,
    /// True while a commit was answered that the newest revision does not show.
    pub(super) behind_tx: watch::Sender<bool>,
    pub(super) configuration_tx: watch::Sender<Configuration>,
    pub(super) boundary_tx: BoundarySender,
    pub(super) stop_rx: oneshot::Receiver<()>,
    /// Completes the start, once the first complete reading of the box was handled.
    pub(super) ready_tx: Option<oneshot::Sender<()>>,
    pub(super) resyncs: Vec<Resync>,
    /// Requests that wait until nothing is under way.
    pub(super) idle_waiters: Vec<oneshot::Sender<()>>,
    pub(super) event_tx: EventSender,
}

/// Jobs under way.
#[derive(Default)]
pub(super) struct JobSet(FuturesUnordered<Pin<Box<dyn Future<Output = JobResult> + Send>>>);

impl JobSet {
    pub(super) fn push(&mut self, job: impl Future<Output = JobResult> + Send + 'static) {
        self.0.push(Box::pin(job));
    }
}

impl std::fmt::Debug for JobSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} under way", self.0.len())
    }
}

impl CoreTask {
    /// Awaits nothing but the next event: what takes time comes back as one.
    pub(super) async fn run(mut self) {
        let mut stopping = false;
        while !(stopping && self.commit.is_none()) {
            match self.next_event(stopping).await {
                Event::Commit(request) => self.admit(*request),
                Event::Query(query) => self.answer(query),
                // The watchdog may have given this one up.
                Event::Beat(answer) => drop(answer.send(())),
                Event::Platform(event) => self.handle_platform_event(event),
                Event::Job(JobResult::Commit(input)) => self.inputs.push_back(input),
                Event::Job(JobResult::RestoresWritten(result)) => self.restores_written(result),
                Event::DeadlineDue => self.deadline_due(),
                Event::Stop => stopping = true,
                Event::TransportsGone => {
                    return error!("a transport has ended; nothing can be changed any more");
                }
            }
            self.advance_commit();
            self.publish_state();
            self.answer_when_idle();
        }
    }

    async fn next_event(&mut self, stopping: bool) -> Event {
        let rollback = self.rollback_due().filter(|_| !stopping);
        let deadline = self.deadline.into_iter().chain(rollback).min();
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(self.started + at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = &mut self.stop_rx, if !stopping => Event::Stop,
            Some(answer) = self.beat_rx.recv() => Event::Beat(answer),
            Some(result) = self.jobs.0.next() => Event::Job(result),
            event = self.events.recv() => event.map_or(Event::TransportsGone, Event::Platform),
            () = due => Event::DeadlineDue,
            Some(query) = self.query_rx.recv(), if !self.is_publishing() => Event::Query(query),
            Some(request) = self.commit_rx.recv(), if self.commit.is_none() && !stopping => Event::Commit(Box::new(request)),
        }
    }

    fn deadline_due(&mut self) {
        let now = self.now();
        if self.deadline.is_some_and(|at| at <= now.monotonic) {
            self.deadline = None;
            let step = self.engine.due(now);
            self.follow(step);
        }
        if self.rollback_due().is_some_and(|at| at <= now.monotonic) {
            self.roll_back_unconfirmed();
        }
    }

    fn handle_platform_event(&mut self, event: transport::Event) {
        let now = self.now();
        let complete =
            matches!(&event, transport::Event::Retrieved { scope: Scope::Everything, .. });
        let step = event.tell(&mut self.engine, now);
        self.follow(step);
        if complete {
            self.note_complete_reading();
        }
        if complete && let Some(ready) = self.ready_tx.take() {
            // Values that were pending before the restart too are no change for the engine, but no revision shows them
            // yet.
            let waiting = self.engine.pending().into_iter().map(|status| status.key);
            self.publisher.mark_dirty(waiting.collect());
            self.publish_state();
            // From now on revisions show the state of the box.
            let _start_was_given_up = ready.send(());
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: now_ns() }
    }
}
