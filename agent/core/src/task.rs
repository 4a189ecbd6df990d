//! The loop that owns layers and engine.
//!
//! Each event is handled to its end: by the engine, whose steps go to the transports ([`outbox`](super::outbox)), and by
//! the commits in flight, whose effects are carried out from one queue of events ([`commit`](super::commit)).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use holdfast_platform::{ForeignRoutes, RouteLookup};
use holdfast_scheduler::{Delta, Key, Now, SharedValue, TransactionOutcome, TxnId};
use holdfast_security::credentialz::Credentials;
use holdfast_store::{Store, StoreError, Ticket};
use holdfast_telemetry::BoundarySender;
use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::error;

use super::commit::{CommitTable, Input};
use super::confirm::Window;
use super::credentials::CredentialSource;
use super::election::Elections;
use super::events::EventSender;
use super::examination::Examiner;
use super::first_showing::FirstShowing;
use super::follow_up::FollowUp;
use super::handler_calls::HandlerCalls;
use super::impact::GraphVersion;
use super::maintenance::MaintainedLinks;
use super::outbox::Outbox;
use super::planning::CommitPlan;
use super::publication::Publisher;
use super::repair_log::RepairLog;
use super::service_history::ServiceHistory;
use super::shared_engine::SharedEngine;
use super::view::Resync;
use super::{CommitError, CommitRequest, Query};

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
    /// No event has come, and there is state to be shown.
    Publish,
    /// The core is to stop, or its owner has dropped it.
    Stop,
    /// A transport has ended unexpectedly: its operations will never be answered.
    TransportsGone,
}

/// Input of a commit.
pub(super) type CommitInput = Input<Box<CommitPlan>>;

/// Event of the commits in flight.
#[derive(Debug)]
pub(super) enum CommitEvent {
    Input(Ticket, CommitInput),
    /// End of a transaction of the engine, of a commit or of the engine itself.
    Outcome(TransactionOutcome),
}

/// Result of a job: work that the loop has started and does not await.
#[derive(Debug)]
pub(super) enum JobResult {
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

pub(super) struct CoreTask {
    pub(super) configuration: Configuration,
    pub(super) engine: SharedEngine,
    pub(super) transport: Box<dyn Transport>,
    pub(super) outbox: Outbox,
    pub(super) examiner: Arc<Examiner>,
    /// Links of the configuration that is final: what the ends of veth pairs are judged by.
    pub(super) pairs: Arc<VethPairs>,
    /// Routes of other programs; routes of ours may take over some of them.
    pub(super) foreign_routes: ForeignRoutes,
    pub(super) route_lookup: RouteLookup,
    /// Keys under which the engine was shown foreign routes of another metric, to be taken over.
    pub(super) routes_shown: BTreeSet<Key>,
    pub(super) store: Store,
    /// Number of the transaction that is made final next.
    pub(super) next_number: u64,
    pub(super) publisher: Publisher,
    pub(super) commits: CommitTable,
    /// Events of commits that are not handled yet.
    pub(super) commit_events: VecDeque<CommitEvent>,
    /// A request that runs alone, and waits until no commit is in flight.
    pub(super) request_alone: Option<CommitRequest>,
    /// Values of the credentials in force, which no layer holds.
    pub(super) credential_values: BTreeMap<Key, SharedValue>,
    /// Artefacts of credentialz among them.
    pub(super) credentials: Arc<Credentials>,
    /// Holder of the secrets that values name; without it, there are no values of credentials.
    pub(super) credential_source: Option<Arc<dyn CredentialSource>>,
    /// Handlers of services.
    pub(super) handlers: Option<Arc<dyn HandlerCalls>>,
    /// The commit that waits to be confirmed.
    pub(super) window: Option<Window>,
    /// Id and time of its rollback, as the last revision shows them.
    pub(super) shown_window: Option<(SmolStr, Duration)>,
    /// Links that maintenance sessions have.
    pub(super) maintained: Arc<MaintainedLinks>,
    pub(super) undertakings: RebootInhibitors,
    pub(super) elections: Elections,
    /// Reports of commits whose values are not all in the system.
    pub(super) settling: BTreeMap<TxnId, FollowUp>,
    /// Time of the next call of the engine, since `started`.
    pub(super) deadline: Option<Duration>,
    pub(super) started: Instant,
    pub(super) commit_rx: mpsc::Receiver<CommitRequest>,
    pub(super) query_rx: mpsc::Receiver<Query>,
    pub(super) beat_rx: mpsc::Receiver<oneshot::Sender<()>>,
    pub(super) events: Events,
    pub(super) jobs: JobSet,
    /// True while a commit was answered that the newest revision does not show.
    pub(super) behind_tx: watch::Sender<bool>,
    pub(super) configuration_tx: watch::Sender<Configuration>,
    pub(super) graph_tx: watch::Sender<GraphVersion>,
    pub(super) boundary_tx: BoundarySender,
    pub(super) stop_rx: oneshot::Receiver<()>,
    pub(super) first_showing: FirstShowing,
    /// True while the store keeps what was taken back at the start.
    pub(super) has_taken_back: bool,
    pub(super) resyncs: Vec<Resync>,
    /// Requests that wait for the next revision.
    pub(super) revision_waiters: Vec<oneshot::Sender<()>>,
    /// Requests that wait until nothing is under way.
    pub(super) idle_waiters: Vec<oneshot::Sender<()>>,
    pub(super) event_tx: EventSender,
    pub(super) repair_log: RepairLog,
    /// The last service transactions.
    pub(super) service_history: ServiceHistory,
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
        while !(stopping && self.commits.is_empty()) {
            match self.next_event(stopping).await {
                Event::Commit(request) => self.receive(*request),
                Event::Query(query) => self.answer(query),
                // The watchdog may have given this one up.
                Event::Beat(answer) => drop(answer.send(())),
                Event::Platform(event) => self.handle_platform_event(event),
                Event::Job(JobResult::Commit(ticket, input)) => self.push_input(ticket, input),
                Event::Job(JobResult::Inverted(ticket, inverted)) => {
                    self.start_undo(ticket, inverted);
                }
                Event::Job(JobResult::FirstKeys(keys)) => self.begin_showing(keys),
                Event::Job(JobResult::RestoresWritten(result)) => self.restores_written(result),
                Event::Job(JobResult::HistoryWritten(result)) => {
                    self.service_history_written(result);
                }
                Event::DeadlineDue => self.deadline_due(),
                Event::Publish => {} // as after each event
                Event::Stop => stopping = true,
                Event::TransportsGone => {
                    return error!("a transport has ended; nothing can be changed any more");
                }
            }
            self.advance_commits();
            self.admit_alone();
            self.publish_state();
            self.show_window();
            self.tell_graph_version();
            self.answer_when_shown();
            self.complete_start();
            self.forget_taken_back();
            self.answer_when_idle();
        }
        self.repair_log.finish();
    }

    async fn next_event(&mut self, stopping: bool) -> Event {
        let rollback = self.rollback_due().filter(|_| !stopping);
        let log = self.repair_log.deadline();
        let told = self.publisher.due();
        let deadline = self.deadline.into_iter().chain(rollback).chain(log).chain(told).min();
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
            Some(query) = self.query_rx.recv() => Event::Query(query),
            Some(request) = self.commit_rx.recv(), if self.may_receive() && !stopping => Event::Commit(Box::new(request)),
            () = std::future::ready(()), if self.publisher.has_work() => Event::Publish,
        }
    }

    fn deadline_due(&mut self) {
        let now = self.now();
        self.repair_log.log_due(now);
        self.publisher.tell_due(now);
        if self.deadline.is_some_and(|at| at <= now.monotonic) {
            self.deadline = None;
            let step = self.engine.write().due(now);
            self.follow(step);
        }
        if self.rollback_due().is_some_and(|at| at <= now.monotonic) {
            self.roll_back_unconfirmed();
        }
    }

    fn handle_platform_event(&mut self, event: transport::Event) {
        let now = self.now();
        self.log_changed_order(&event);
        self.log_routes_of_daemons(&event);
        let changed = self.foreign_routes.note(&event);
        let event = self.with_routes_to_take_over(event, &changed);
        let step = event.report_to(&mut self.engine.write(), now);
        self.follow(step);
        self.follow_foreign_routes(&changed);
    }

    /// Tells those who follow impacts of a change of the graph, after the revision that shows it.
    fn tell_graph_version(&self) {
        let version = GraphVersion(self.engine.read().dependency_version());
        self.graph_tx.send_if_modified(|known| std::mem::replace(known, version) != version);
    }

    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: now_ns() }
    }
}
