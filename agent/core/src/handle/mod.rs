//! Handles of the core: readers take the newest revision from a channel, changes and questions wait in a queue.

mod access;
mod binding;
mod config_log;
mod datastore;
mod drain;
mod events;
mod fences;
mod impact;
mod last_way;
mod polled;
mod remarks;
mod users;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Caller;
use holdfast_config::edit::Edit;
use holdfast_config::schema::Origin;
use holdfast_config::services::{Applied, BoxState};
use holdfast_config::{ClaimKey, Configuration, Models, Namespace, ServiceTag};
use holdfast_platform::RouteLookup;
use holdfast_platform::kinds::credential;
use holdfast_platform::objects::Registry;
use holdfast_scheduler::ValueStatus;
use holdfast_store::Store;
use holdfast_telemetry::{BoundaryReceiver, BoundarySender, PolledReading, Revision};
use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::examination::IncompleteEntry;
use crate::publication::{RevisionChain, ServiceState};
use crate::reports::{EventSource, GraphVersion};
use crate::request::{
    CancelOnDrop, CommitError, CommitOptions, CommitRequest, CommitStamp, Intent, Preview,
    ReplySender,
};
use crate::shared_engine::SharedEngine;

pub use access::AccessChanges;
pub use binding::CertificateId;
pub use datastore::{Datastore, Statuses};
pub use drain::{DrainPlan, DrainTarget, MAX_DRAINED_HOPS};
pub use fences::FenceRequest;
pub use impact::EntryImpact;
pub use last_way::LastWay;
pub use polled::{PolledCatalog, PolledSources, PolledState};
pub use remarks::Remark;
pub use users::ConfiguredUsers;
pub use view::CoreView;
pub(crate) use view::{Inspection, Query};

/// Changes that wait for the one in flight. A controller has one under way at a time; more than this is a flood.
pub(crate) const COMMIT_QUEUE_DEPTH: usize = 64;

/// Questions of the local socket that wait for the loop to come round.
pub(crate) const QUERY_QUEUE_DEPTH: usize = 64;

/// Heartbeats that wait for the loop to come round: there is one watchdog.
pub(crate) const BEAT_QUEUE_DEPTH: usize = 1;

/// The running core. Dropping it stops the loop.
#[derive(Debug)]
pub struct Core {
    pub(crate) handle: CoreHandle,
    pub(crate) stop_tx: Option<oneshot::Sender<()>>,
    /// Resolves when the loop has ended: without a value after a panic.
    pub(crate) ended_rx: oneshot::Receiver<()>,
}

/// Access to the core for the services of the agent. Clones share it. Reading takes the newest revision from a channel;
/// changes wait in a queue.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    pub(crate) commit_tx: mpsc::Sender<CommitRequest>,
    pub(crate) query_tx: mpsc::Sender<Query>,
    pub(crate) beat_tx: mpsc::Sender<oneshot::Sender<()>>,
    pub(crate) event_source: EventSource,
    pub(crate) chain: Arc<RevisionChain>,
    pub(crate) behind_rx: watch::Receiver<bool>,
    pub(crate) configuration_rx: watch::Receiver<Configuration>,
    pub(crate) engine: SharedEngine,
    pub(crate) graph_rx: watch::Receiver<GraphVersion>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) boundary_tx: BoundarySender,
    pub(crate) route_lookup: RouteLookup,
    /// The database, which has the log of configuration revisions.
    pub(crate) store: Store,
    /// Sources of state that no revision holds, by their numbers in the catalog.
    pub(crate) polled: Arc<[Arc<dyn PolledState>]>,
    pub(crate) polled_catalog: Arc<PolledCatalog>,
}

impl Core {
    pub fn handle(&self) -> CoreHandle {
        self.handle.clone()
    }

    /// Lets the transaction in flight end, then stops.
    pub async fn shutdown(mut self) {
        if let Some(stop) = self.stop_tx.take() {
            // The task may have ended already.
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
        let caller = caller.clone();
        let received = Instant::now();
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

    fn polled_catalog(&self) -> Arc<PolledCatalog> {
        Arc::clone(&self.polled_catalog)
    }

    async fn polled(&self, origin: Origin, sources: &PolledSources) -> PolledReading {
        let mut native = PolledReading::default();
        for source in sources.of(&self.polled) {
            native.extend(source.read().await);
        }
        sources.wanted(&self.models(), origin, native)
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
        Ok(crate::examination::incomplete_entries(&registry, &configuration))
    }

    async fn remarks(&self) -> Result<Vec<Remark>, Box<dyn std::error::Error + Send + Sync>> {
        let ours = self.inspect(|view| view.destinations_of_ours()).await?;
        let best = self.route_lookup.of_daemons(&ours).await;
        Ok(self.inspect(move |view| view.remarks(&best)).await?)
    }
}
