//! The one owner of layers and engine, on a thread of its own.
//!
//! Start at [`Datastore::change`] to follow a change, at [`commit`] for the states that it passes, at [`task`] for the
//! loop. Everything that takes time (parsing a request, the store, the kernel) comes back to the loop as an event, so
//! facts flow while a change is carried out. Readers never come here: they take the newest [`Revision`] from a `watch`
//! channel.
//!
//! Absent on purpose: retries of failed requests (the client decides), decisions about order or dependencies (the plan
//! holds them), and anything that knows gRPC.

mod abandon;
mod access;
mod admission;
mod binding;
mod box_state;
mod commit;
mod config_log;
mod confirm;
mod credentials;
mod datastore;
mod drain;
mod election;
mod events;
mod examination;
mod fences;
mod first_showing;
mod follow_up;
mod foreign_routes;
mod handler_calls;
mod impact;
mod intent;
mod last_way;
mod maintenance;
mod options;
mod outbox;
mod packages;
mod pending;
mod planning;
mod preview;
mod publication;
mod readiness;
mod reconcile;
mod remarks;
mod repair_log;
mod run;
mod secret_keeper;
mod service_history;
mod service_preview;
mod shared_engine;
mod startup;
mod task;
mod users;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Caller;
use holdfast_config::edit::{Edit, EditErrors};
use holdfast_config::schema::Origin;
use holdfast_config::services::{Applied, BoxState};
use holdfast_config::{
    ClaimKey, Configuration, InstancePath, Models, Namespace, ServiceTag, Value,
};
use holdfast_platform::kinds::credential;
use holdfast_platform::objects::Registry;
use holdfast_platform::{Collector, RouteLookup};
use holdfast_scheduler::{TransactionRecord, ValueStatus};
use holdfast_store::{Store, StoreError};
use holdfast_telemetry::{BoundaryReceiver, BoundarySender, Revision};
use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::abandon::CancelOnDrop;
use self::publication::RevisionChain;
use self::shared_engine::SharedEngine;
pub use access::AccessChanges;
pub use binding::CertificateId;
pub use box_state::ObservedBox;
pub use config_log::{Restoration, RestoreRequest};
pub use confirm::{ConfirmError, UnconfirmedCommit};
pub use credentials::CredentialSource;
pub use datastore::{Datastore, Statuses};
pub use drain::{DrainPlan, DrainTarget, MAX_DRAINED_HOPS};
pub use election::ElectionError;
pub use events::{CoreEvent, ShortStatus};
pub use examination::SettingsCheck;
pub use fences::FenceRequest;
pub use follow_up::FollowUp;
pub use handler_calls::{HandlerCalls, HandlerQuestion, HandlerReply, HandlerTransaction};
pub use impact::{EntryImpact, GraphVersion};
pub use intent::{CredentialChange, Intent, Values, Walks};
pub use last_way::LastWay;
pub use maintenance::MaintainedLinks;
pub use options::{
    Comment, CommitOptions, ConfirmAction, Confirmation, Election, InvalidComment, MAX_COMMENT,
    PlanHash,
};
pub use packages::package_row;
pub use pending::IncompleteEntry;
pub use preview::{
    BoundedList, ConfigChange, MAX_LISTED, ObjectChange, ObjectEffect, PendingObject, Preview,
};
pub use remarks::Remark;
pub use secret_keeper::UserSecrets;
pub use service_preview::{ServiceChange, StateChange, StateEffect};
pub use startup::{Parts, StartError};
pub use users::ConfiguredUsers;
pub use view::CoreView;

/// Changes that wait for the one in flight. A controller has one under way at a time; more than this is a flood.
const COMMIT_QUEUE_DEPTH: usize = 64;
/// Questions of the local socket that wait for the loop to come round.
const QUERY_QUEUE_DEPTH: usize = 64;
/// Heartbeats that wait for the loop to come round: there is one watchdog.
const BEAT_QUEUE_DEPTH: usize = 1;

/// The running core. Dropping it stops the loop.
#[derive(Debug)]
pub struct Core {
    handle: CoreHandle,
    stop_tx: Option<oneshot::Sender<()>>,
    /// Resolves when the loop has ended: without a value after a panic.
    ended_rx: oneshot::Receiver<()>,
}

/// Access to the core for the services of the agent. Clones share it. Reading takes the newest revision from a channel;
/// changes wait in a queue.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    commit_tx: mpsc::Sender<CommitRequest>,
    query_tx: mpsc::Sender<Query>,
    beat_tx: mpsc::Sender<oneshot::Sender<()>>,
    event_source: events::EventSource,
    chain: Arc<RevisionChain>,
    behind_rx: watch::Receiver<bool>,
    configuration_rx: watch::Receiver<Configuration>,
    engine: SharedEngine,
    graph_rx: watch::Receiver<GraphVersion>,
    registry: Arc<Registry>,
    boundary_tx: BoundarySender,
    /// Reader of polled state; `None` with the simulated kernel, which has nothing to poll.
    collector: Option<Arc<Collector>>,
    route_lookup: RouteLookup,
    /// The database, which has the log of configuration revisions.
    store: Store,
    /// Counters of services of the agent, which no revision holds.
    polled: Arc<[Arc<dyn PolledState>]>,
}

/// State that services of the agent keep and that changes without an event: counters, and when they moved last.
pub trait PolledState: std::fmt::Debug + Send + Sync {
    /// Present values of the leaves, by native path.
    fn leaves(&self) -> Vec<(InstancePath, Value)>;
}

/// State leaves of one service, by native path; `None` removes a leaf.
pub type ServiceState = Vec<(InstancePath, Option<Value>)>;

/// Result of a change that is durable and in the kernel. [`Datastore::current_revision`] shows it from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStamp {
    /// Time of the commit, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of the revision that shows the change: those with smaller numbers do not, all later ones do.
    pub revision: u64,
}

/// Reason for which a change was not made. Configuration and kernel are as they were before.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("the request cannot be carried out")]
    Edit(#[source] EditErrors),
    #[error("{path}: {reason}")]
    Object { path: String, reason: String },
    #[error("cannot change {object}: {message}{}", symbol(*.errno))]
    Failed {
        object: String,
        errno: Option<i32>,
        message: String,
        /// False when the rollback failed as well; the engine goes on repairing.
        undone: bool,
    },
    #[error("cannot record the change")]
    Store(#[source] StoreError),
    /// The log of configuration revisions or a checkpoint was not read or written.
    #[error("cannot {attempt}")]
    Log { attempt: &'static str, source: StoreError },
    #[error(transparent)]
    Confirm(#[from] ConfirmError),
    #[error(transparent)]
    Election(#[from] ElectionError),
    #[error("the plan of this change has become {found} instead of {expected}: request it again")]
    PlanDiffers { expected: PlanHash, found: PlanHash },
    #[error(
        "{path}: nothing new is placed on {link} while the maintenance session {session} is open"
    )]
    Closed { path: String, link: SmolStr, session: SmolStr },
    #[error("too many changes wait already")]
    Overloaded,
    /// What the work of handlers depends on changed each time before they had answered.
    #[error("failed in {service}: the configuration kept changing")]
    Unsettled { service: String },
    /// The client has gone before anything of the change was recorded.
    #[error("the client no longer waits for it")]
    Abandoned,
    #[error("the change could not be examined: {reason}")]
    Internal { reason: String },
    #[error("the agent is stopping")]
    Stopped,
}

/// The name of an errno in parentheses, such as ` (EBUSY)`; empty without one.
fn symbol(errno: Option<i32>) -> String {
    errno.map(|number| format!(" ({:?})", nix::errno::Errno::from_raw(number))).unwrap_or_default()
}

#[derive(Debug)]
struct CommitRequest {
    caller: Caller,
    intent: Intent,
    options: CommitOptions,
    received: Instant,
    reply: ReplySender,
}

/// Reply channel of a request.
#[derive(Debug)]
enum ReplySender {
    Commit(oneshot::Sender<Result<CommitStamp, CommitError>>),
    /// A dry run: it ends when its plan is made.
    Preview(oneshot::Sender<Result<Preview, CommitError>>),
}

/// Requests of the local socket and of services that change no configuration.
#[derive(Debug)]
enum Query {
    Inspect(view::Inspection),
    /// Reads the whole box again; answered with the transactions since, when the repairs are done.
    Resync(oneshot::Sender<Vec<Arc<TransactionRecord>>>),
    /// Waits until nothing is under way.
    AwaitIdle(oneshot::Sender<()>),
    /// Tells these links as down, and no others; answered when a revision shows it.
    ForceDown(BTreeSet<SmolStr>, oneshot::Sender<()>),
    /// Takes these links as maintained, and no others.
    Maintain(MaintainedLinks, oneshot::Sender<()>),
}

impl Core {
    pub fn handle(&self) -> CoreHandle {
        self.handle.clone()
    }

    /// Lets the transaction in flight end, then stops.
    pub async fn shutdown(mut self) {
        if let Some(stop) = self.stop_tx.take() {
            // The task may have ended by itself.
            let _ = stop.send(());
        }
        if self.ended_rx.await.is_err() {
            tracing::error!("the core has panicked");
        }
    }
}

impl CoreHandle {
    /// The roles of users by the configuration in force.
    pub fn users(&self) -> Option<ConfiguredUsers> {
        ConfiguredUsers::new(&self.models(), self.configuration_rx.clone())
    }

    /// A function that looks up the switch of a service in the newest configuration, each time it is called.
    pub fn switch(&self, service: Namespace) -> impl Fn() -> bool + Send + Sync + use<> {
        let configuration_rx = self.configuration_rx.clone();
        move || configuration_rx.borrow().layers().is_on(service)
    }

    /// Returns when the loop has ended, in order or by a panic: nothing is changed or shown any more.
    pub async fn ended(&self) {
        self.commit_tx.closed().await;
    }

    /// Returns when the loop has handled the heartbeat: the loop is not stuck.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn beat(&self) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.beat_tx.send(answer).await.map_err(|_| CommitError::Stopped)?;
        answered.await.map_err(|_| CommitError::Stopped)
    }

    /// The TLS profile of the server by the configuration in force.
    pub fn certificate_id(&self) -> Option<CertificateId> {
        CertificateId::new(&self.models(), self.configuration_rx.clone())
    }

    /// Changes of the configuration in force that can give or withdraw permissions.
    pub fn access_changes(&self) -> Option<AccessChanges> {
        AccessChanges::new(&self.models(), self.configuration_rx.clone())
    }

    fn send(
        &self,
        caller: &Caller,
        intent: Intent,
        options: CommitOptions,
        reply: ReplySender,
    ) -> Result<(), CommitError> {
        let (caller, received) = (caller.clone(), Instant::now());
        let request = CommitRequest { caller, intent, options, received, reply };
        self.commit_tx.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => CommitError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => CommitError::Stopped,
        })
    }
}

impl Datastore for CoreHandle {
    fn models(&self) -> Arc<Models> {
        Arc::clone(self.configuration_rx.borrow().shared_models())
    }

    fn revision(&self) -> Arc<Revision> {
        self.chain.newest()
    }

    async fn current_revision(&self) -> Arc<Revision> {
        let mut behind_rx = self.behind_rx.clone();
        // A core that has stopped shows nothing newer.
        drop(behind_rx.wait_for(|behind| !behind).await);
        self.revision()
    }

    fn watch(&self) -> watch::Receiver<Arc<Revision>> {
        self.chain.watch()
    }

    fn configuration(&self) -> Configuration {
        self.configuration_rx.borrow().clone()
    }

    async fn polled(&self, origin: Origin) -> Vec<(InstancePath, Value)> {
        let mut native = match &self.collector {
            Some(collector) => collector.read().await.to_vec(),
            None => Vec::new(),
        };
        native.extend(self.polled.iter().flat_map(|it| it.leaves()));
        match origin {
            Origin::Native => native,
            Origin::OpenConfig => self.models().map.up(&native),
        }
    }

    async fn accounts_of_box(&self, names: Vec<SmolStr>) -> Result<BTreeSet<SmolStr>, CommitError> {
        self.inspect(move |view| {
            let there = |name: &SmolStr| {
                let [.., observed] = view.engine.planes(&credential::account_key(name));
                observed.is_some()
            };
            names.into_iter().filter(there).collect()
        })
        .await
    }

    async fn show_state(&self, leaves: ServiceState) {
        self.chain.amend(leaves, Vec::new());
    }

    fn boundaries(&self) -> BoundaryReceiver {
        self.boundary_tx.subscribe()
    }

    async fn commit(
        &self,
        caller: &Caller,
        edit: Edit,
        options: CommitOptions,
    ) -> Result<CommitStamp, CommitError> {
        let _waiting = CancelOnDrop(edit.cancel.clone());
        self.change_with(caller, Intent::edit(edit), options).await
    }

    async fn preview(
        &self,
        caller: &Caller,
        intent: Intent,
        options: CommitOptions,
    ) -> Result<Preview, CommitError> {
        let _waiting = CancelOnDrop(intent.cancel());
        let (answer, answered) = oneshot::channel();
        self.send(caller, intent, options, ReplySender::Preview(answer))?;
        answered.await.unwrap_or(Err(CommitError::Stopped))
    }

    async fn unapplied(
        &self,
        services: BTreeSet<ServiceTag>,
    ) -> Result<Vec<(ClaimKey, Applied)>, CommitError> {
        self.resync().await?;
        let state = self.observed_box();
        let claims = state.configuration().layers().claims();
        let keys = services.iter().flat_map(|tag| claims.of_instance(tag)).map(|(key, _)| key);
        let applied = keys.map(|key| (key.clone(), state.applied(key)));
        Ok(applied.filter(|(_, applied)| *applied != Applied::Done).collect())
    }

    async fn change_with(
        &self,
        caller: &Caller,
        intent: Intent,
        options: CommitOptions,
    ) -> Result<CommitStamp, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(caller, intent, options, ReplySender::Commit(answer))?;
        answered.await.unwrap_or(Err(CommitError::Stopped))
    }
}

#[tonic::async_trait]
impl Statuses for CoreHandle {
    async fn statuses(
        &self,
        pending_only: bool,
    ) -> Result<Vec<ValueStatus>, Box<dyn std::error::Error + Send + Sync>> {
        if !pending_only {
            return Ok(self.inspect(|view| view.engine.statuses()).await?);
        }
        Ok(self.inspect(|view| view.engine.pending()).await?)
    }

    async fn monotonic_now(&self) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.inspect(|view| view.now.monotonic).await?)
    }

    async fn incomplete_entries(
        &self,
    ) -> Result<Vec<IncompleteEntry>, Box<dyn std::error::Error + Send + Sync>> {
        let parts = |view: &CoreView<'_>| (view.objects().clone(), view.configuration.clone());
        let (registry, configuration) = self.inspect(parts).await?;
        Ok(pending::entries(&registry, &configuration))
    }

    async fn remarks(&self) -> Result<Vec<Remark>, Box<dyn std::error::Error + Send + Sync>> {
        let ours = self.inspect(|view| view.destinations_of_ours()).await?;
        let best = self.route_lookup.of_daemons(&ours).await;
        Ok(self.inspect(move |view| view.remarks(&best)).await?)
    }
}
