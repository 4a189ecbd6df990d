//! Start of the core from the stored layers.

mod run;

use std::sync::Arc;

use holdfast_base::RebootInhibitors;
use holdfast_common::parallel;
use holdfast_config::edit::EditErrors;
use holdfast_config::rows::{LayersReader, RowSplit, layer_rows_diff};
use holdfast_config::services::Services;
use holdfast_config::{Configuration, Layers, Models, Tree, document};
use holdfast_platform::objects::Profiles;
use holdfast_platform::transport::{Events, Transport};
use holdfast_platform::{failure, kinds, pre_image};
use holdfast_scheduler::{Engine, IntentChange, TxnId};
use holdfast_store::{ArtefactTable, LayerRows, Store, StoreError, StoredState};
use tokio::sync::{mpsc, oneshot};

use crate::commit::{CommitTable, ConfirmWindow};
use crate::examination::{CredentialSource, EntryChange, Examiner, HandlerCalls, SettingsCheck};
use crate::handle::{
    BEAT_QUEUE_DEPTH, COMMIT_QUEUE_DEPTH, Core, CoreHandle, PolledCatalog, PolledState,
    QUERY_QUEUE_DEPTH,
};
use crate::publication::Publisher;
use crate::reports::Listeners;
use crate::request::Elections;
use crate::service_history::ServiceHistory;
use crate::shared_engine::SharedEngine;
use crate::state::{Clock, InForce, JobSet, RoutesOfOthers, Start, Transports, Waiters};
use crate::task::{CoreTask, Inputs, reconcile};

/// The number of a box's first transaction.
const FIRST_NUMBER: u64 = 1;

/// Everything that a core needs to start.
pub struct Parts {
    pub models: Arc<Models>,
    pub transport: Box<dyn Transport>,
    pub events: Events,
    /// Sources of state that is read when somebody asks.
    pub polled: Vec<Arc<dyn PolledState>>,
    /// TLS profiles that the gRPC server may be bound to; without them, the default profile alone.
    pub profiles: Option<Arc<dyn Profiles>>,
    /// A check of what makes no object.
    pub settings_check: Option<Arc<dyn SettingsCheck>>,
    pub store: Store,
    pub loaded: StoredState,
    /// Short names of the families of gRPC services, to be shown as state.
    pub grpc_services: &'static [&'static str],
    /// Version of the running software, to be shown as state.
    pub software_version: String,
    /// Credentials, which come to values of no layer.
    pub credential_source: Option<Arc<dyn CredentialSource>>,
    /// Types of services, whose lists are in the models.
    pub services: Option<Arc<dyn Services>>,
    /// Handlers of services; without them, states wait for theirs.
    pub handlers: Option<Arc<dyn HandlerCalls>>,
    /// Factory configuration; read on the very first start, and kept in the layers after that.
    pub factory: Option<Vec<u8>>,
    /// Where a commit says that it waits to be confirmed.
    pub undertakings: RebootInhibitors,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

/// Reason for which the core does not start. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Rows(#[from] holdfast_config::rows::RowError),
    #[error("cannot apply the factory configuration")]
    Factory(#[source] EditErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Restore(#[from] pre_image::PreImageError),
    #[error(transparent)]
    Model(#[from] holdfast_platform::objects::ModelError),
    #[error("cannot start the thread of the core")]
    Thread(#[source] std::io::Error),
    #[error("the core ended before the box was read")]
    Ended,
}

impl Core {
    /// Reads the stored configuration, brings the box to it, and returns once the first complete reading of the box
    /// was handled: revisions show the state of the box after that.
    ///
    /// # Errors
    /// When stored data cannot be read, or new data cannot be written.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        let Parts { models, transport, events, .. } = parts;
        let polled_catalog = Arc::new(PolledCatalog::new(&models, &parts.polled));
        let route_lookup = transport.route_lookup();
        let Parts {
            polled,
            profiles,
            settings_check,
            store,
            loaded,
            grpc_services,
            factory,
            credential_source,
            services,
            handlers,
            ..
        } = parts;
        let software = parts.software_version;
        let undertakings = parts.undertakings;
        let examiner = Arc::new(Examiner::new(Arc::clone(&models), profiles, settings_check)?);
        let next_number = loaded.last_transaction + 1;
        let taken_back = layers_before_rollbacks(&models, &loaded)?;
        let stored = read_layers(&models, &loaded.layers)?;
        drop(loaded.layers);
        let is_first = next_number == FIRST_NUMBER;
        let configuration = first_configuration(&models, &stored, is_first, factory, services)?;
        let rows = layer_rows_diff(&models, &stored, configuration.layers());
        let before = taken_back.or_else(|| (!rows.is_empty()).then(|| stored.clone()));
        if !rows.is_empty() {
            // Recorded before it is carried out, so that the next start knows of it, should this one not get so far.
            store.write_over(rows.into_iter().map(holdfast_store::Change::from).collect()).await?;
        }
        let has_taken_back = before.is_some();
        let credentials = credential_source.as_ref().map(|it| it.last()).unwrap_or_default();
        let credential_values = credential_source.as_ref();
        let credential_values: Vec<_> =
            credential_values.map(|it| it.values(&configuration)).unwrap_or_default();
        let configured = examiner.first_changes(&configuration);
        let settings = reconcile::settings(&examiner.registry, &configured);
        // Values that were stored before there was a rule for them are not judged: they fail in the kernel, and say
        // so.
        let mut relations = examiner.registry.relations();
        relations.update(configured.iter().flat_map(EntryChange::differences));
        let credential_intent = credential_values.iter().cloned().map(IntentChange::from);
        let intent = configured.iter().flat_map(EntryChange::intent);
        let intent: Vec<_> = intent.chain(credential_intent).collect();
        let much = intent.len() > parallel::FEW;
        let restores = loaded.restore.iter().map(|(_, octets)| pre_image::from_bytes(octets));
        let restores = restores.collect::<Result<_, _>>()?;
        let transactions = loaded.artefacts.get(&ArtefactTable::ServiceTransactions);
        let service_history = transactions.map(ServiceHistory::load).unwrap_or_default();
        let begin_engine = || {
            let mut engine = Engine::new(kinds::registry());
            engine.number_from(TxnId(loaded.last_recorded + 1));
            engine.index_kinds(&failure::INDEXED_KINDS);
            engine.load(intent, restores);
            if let Some(before) = before {
                let before = Configuration::new(Arc::clone(&models), before);
                engine.load_applied(examiner.links_of_either(&configuration, &before));
            }
            engine
        };
        let begin_publisher = || {
            let registry = Arc::clone(&examiner.registry);
            let history = service_history.all();
            Publisher::new(registry, &configuration, &configured, history, grpc_services, &software)
        };
        let (engine, publisher) = parallel::both(much, begin_engine, begin_publisher);
        drop(configured);
        let (commit_tx, commit_rx) = mpsc::channel(COMMIT_QUEUE_DEPTH);
        let (query_tx, query_rx) = mpsc::channel(QUERY_QUEUE_DEPTH);
        let (beat_tx, beat_rx) = mpsc::channel(BEAT_QUEUE_DEPTH);
        let chain = Arc::clone(publisher.chain());
        let (stop_tx, stop_rx) = oneshot::channel();
        let (ready_tx, ready_rx) = oneshot::channel();
        let engine = SharedEngine::new(engine);
        let read_beside = engine.clone();
        let registry = Arc::clone(&examiner.registry);
        let log = store.clone();
        let mut task = CoreTask {
            in_force: InForce::new(
                configuration,
                relations,
                credential_values.into_iter().collect(),
                credentials,
            ),
            engine,
            transports: Transports::new(transport),
            examiner,
            routes: RoutesOfOthers::new(route_lookup.clone()),
            store,
            publisher,
            commits: CommitTable::new(next_number),
            credential_source,
            handlers,
            window: ConfirmWindow::new(undertakings),
            maintained: Arc::default(),
            elections: Elections::default(),
            clock: Clock::start(),
            inputs: Inputs::new(commit_rx, query_rx, beat_rx, events, stop_rx),
            jobs: JobSet::default(),
            start: Start::new(ready_tx, has_taken_back),
            waiters: Waiters::default(),
            listeners: Listeners::default(),
            service_history,
        };
        let configuration_rx = task.in_force.watch();
        let behind_rx = task.publisher.watch_behind();
        let boundary_tx = task.publisher.boundaries();
        let graph_rx = task.listeners.watch_graph();
        let event_source = task.listeners.event_source();
        task.reconcile_as(settings);
        let ended_rx = run::start(task).map_err(StartError::Thread)?;
        ready_rx.await.map_err(|_| StartError::Ended)?;
        let handle = CoreHandle {
            commit_tx,
            query_tx,
            beat_tx,
            event_source,
            chain,
            behind_rx,
            configuration_rx,
            engine: read_beside,
            graph_rx,
            registry,
            boundary_tx,
            route_lookup,
            store: log,
            polled: polled.into(),
            polled_catalog,
        };
        Ok(Self { handle, stop_tx: Some(stop_tx), ended_rx })
    }
}

/// The configuration that a store had, for a caller who looks at it without a core. Instances of services are left out, because
/// their types are known to an agent alone.
///
/// # Errors
/// When stored data cannot be read.
pub fn stored_configuration(
    models: &Arc<Models>,
    loaded: &StoredState,
) -> Result<Configuration, StartError> {
    let layers = read_layers(models, &loaded.layers)?;
    Ok(Configuration::new(Arc::clone(models), layers))
}

/// Reads layers from rows, those of many on two threads.
fn read_layers(models: &Models, rows: &LayerRows) -> Result<Layers, StartError> {
    let read = |is_taken: &dyn Fn(&[u8]) -> bool| {
        let mut reader = LayersReader::new(models);
        rows.visit(|key, value| -> Result<(), StartError> {
            if is_taken(key) { Ok(reader.row(key, value)?) } else { Ok(()) }
        })?;
        layers_of(reader)
    };
    let is_much = rows.len() > parallel::FEW;
    let Some(split) = RowSplit::of_sample(rows.sample()).filter(|_| is_much) else {
        return read(&|_| true);
    };
    let first = || read(&|key| !split.is_second(key));
    let second = || read(&|key| split.is_second(key));
    let (first, second) = parallel::both(true, first, second);
    Ok(first?.joined(&second?))
}

/// Layers of all rows that were read. Rows that this version does not know are counted in the log, and ignored.
fn layers_of(reader: LayersReader<'_>) -> Result<Layers, StartError> {
    let (layers, unknown) = reader.finish()?;
    if unknown > 0 {
        tracing::warn!(
            unknown,
            "stored configuration holds items that this version does not know; they are ignored"
        );
    }
    Ok(layers)
}

/// Layers as they were before the store took a change back while it was opened; the kernel may still have that
/// change.
fn layers_before_rollbacks(
    models: &Models,
    loaded: &StoredState,
) -> Result<Option<Layers>, StartError> {
    if loaded.taken_back.is_empty() {
        return Ok(None);
    }
    let mut reader = LayersReader::new(models);
    loaded.layers.visit(|key, value| -> Result<(), StartError> {
        if !loaded.taken_back.contains_key(key) {
            reader.row(key, value)?;
        }
        Ok(())
    })?;
    for (key, value) in &loaded.taken_back {
        if let Some(value) = value {
            reader.row(key, value)?;
        }
    }
    layers_of(reader).map(Some)
}

/// Configuration at the start: the stored layers without what was only tried; on a box that has just left the
/// factory, the factory configuration.
fn first_configuration(
    models: &Arc<Models>,
    stored: &Layers,
    fresh: bool,
    factory: Option<Vec<u8>>,
    services: Option<Arc<dyn Services>>,
) -> Result<Configuration, StartError> {
    let mut layers = stored.clone();
    let fresh = fresh && layers == Layers::new();
    match factory {
        Some(text) if fresh => layers.factory_text = Some(text.into()),
        Some(_) => {
            tracing::info!("this box is not new: it keeps its first factory configuration")
        }
        None => {}
    }
    let factory = match &layers.factory_text {
        Some(text) => document::factory(models, text).map_err(StartError::Factory)?,
        None => Tree::new(),
    };
    if fresh {
        return Ok(Configuration::of_factory(models, services, factory, layers.factory_text));
    }
    let stored = Configuration::new(Arc::clone(models), layers);
    Ok(stored.with_services(services).with_factory(factory).restarted())
}
