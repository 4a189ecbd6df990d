//! Start of the core from the stored layers, and translation of configuration into values.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::{Chain, Undertakings};
use holdfast_config::changes::changed_objects;
use holdfast_config::edit::EditErrors;
use holdfast_config::limits::excerpt;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::schema::Origin;
use holdfast_config::{
    Cancel, Configuration, InstancePath, LayerKey, Layers, Models, ObjectChange, Tree, document,
    parallel,
};
use holdfast_platform::objects::{Listening, ObjectError, Profiles, Registry, VethPairs};
use holdfast_platform::transport::{Events, Transport};
use holdfast_platform::{Collector, descriptors, stored};
use holdfast_scheduler::{Engine, Key, PlanError, Registry as Kinds, SharedValue, TxnId};

use holdfast_store::{Loaded, Store, StoreError};
use holdfast_telemetry::BoundarySender;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::credentials::CredentialSource;
use super::election::Elections;
use super::inside::Teller;
use super::intent::Intent;
use super::outbox::Outbox;
use super::preview;
use super::publish::Publisher;
use super::reconcile;
use super::task::{CoreTask, WorkSet};
use super::transaction::{Candidate, Changed};
use super::{
    BEAT_QUEUE_DEPTH, COMMIT_QUEUE_DEPTH, CommitError, Core, CoreHandle, PolledState,
    QUERY_QUEUE_DEPTH,
};

/// The number of a box's first transaction.
const FIRST_NUMBER: u64 = 1;

/// Everything that a core needs to start.
pub struct Parts {
    pub models: Arc<Models>,
    pub transport: Box<dyn Transport>,
    pub events: Events,
    pub collector: Option<Collector>,
    /// Counters of services of the agent.
    pub polled: Vec<Arc<dyn PolledState>>,
    /// TLS profiles that the gRPC server may be bound to; without them, the default profile alone.
    pub profiles: Option<Arc<dyn Profiles>>,
    pub store: Store,
    pub loaded: Loaded,
    /// Addresses of the services, to be shown as state.
    pub listening: Listening,
    /// Version of the running software, to be shown as state.
    pub software_version: String,
    /// Credentials, which come to values of no layer.
    pub credential_source: Option<Arc<dyn CredentialSource>>,
    /// Factory configuration; read on the very first start, and kept in the layers from then on.
    pub factory: Option<Vec<u8>>,
    /// Where a commit says that it waits to be confirmed.
    pub undertakings: Undertakings,
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
    Restore(#[from] stored::StoredError),
    #[error(transparent)]
    Model(#[from] holdfast_platform::objects::ModelError),
    #[error("the core ended before the box was read")]
    Ended,
}

impl Core {
    /// Reads the stored configuration, brings the box to it, and returns once the first complete reading of the box was
    /// handled: from then on revisions show the state of the box.
    ///
    /// # Errors
    /// When stored data cannot be read, or new data cannot be written.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        let Parts { models, transport, events, collector, .. } = parts;
        let Parts {
            polled, profiles, store, loaded, listening, factory, credential_source, ..
        } = parts;
        let (software, undertakings) = (parts.software_version, parts.undertakings);
        let objects = Arc::new(Objects::new(Arc::clone(&models), profiles)?);
        let next_number = loaded.last_transaction + 1;
        let taken_back = objects.before_rollbacks(&loaded)?;
        let stored = objects.read(loaded.layers)?;
        let configuration = objects.begin(&stored, next_number == FIRST_NUMBER, factory)?;
        let rows = layer_rows_diff(&models, &stored, configuration.layers());
        let before = taken_back.or_else(|| (!rows.is_empty()).then(|| stored.clone()));
        if !rows.is_empty() {
            // Recorded before it is carried out, so that the next start knows of it.
            store.write(rows.into_iter().map(holdfast_store::Change::from).collect()).await?;
        }
        let credentials = credential_source.as_ref().map(|it| it.last()).unwrap_or_default();
        let login_source = credential_source;
        let logins = login_source.as_ref().map(|it| it.values(configuration.layers()));
        let logins: Vec<_> = logins.unwrap_or_default();
        let mut intent = objects.values(&configuration);
        let concerned = intent.iter().filter(|(key, _)| reconcile::is_concerned(key));
        let configured: Vec<_> = concerned.cloned().collect();
        // What was stored before there was a rule for it is not judged: it fails in the kernel, and says so.
        let mut pairs = VethPairs::default();
        pairs.update(intent.iter().map(|(key, value)| (key, Some(value))));
        intent.extend(logins.iter().cloned());
        let much = intent.len() > parallel::FEW;
        let restores = loaded.restore.iter().map(|(_, octets)| stored::from_bytes(octets));
        let restores = restores.collect::<Result<_, _>>()?;
        let begin_engine = || {
            let mut engine = Engine::new(descriptors::registry());
            engine.number_from(TxnId(loaded.last_recorded + 1));
            engine.load(intent, restores);
            if let Some(before) = before {
                let before = Configuration::new(Arc::clone(&models), before);
                engine.load_applied(objects.values_since(&configuration, &before));
            }
            engine
        };
        let begin_publisher =
            || Publisher::new(Arc::clone(&objects), &configuration, &listening, &software);
        let (engine, publisher) = parallel::both(much, begin_engine, begin_publisher);
        let (commit_tx, commit_rx) = mpsc::channel(COMMIT_QUEUE_DEPTH);
        let (query_tx, query_rx) = mpsc::channel(QUERY_QUEUE_DEPTH);
        let (beat_tx, beat_rx) = mpsc::channel(BEAT_QUEUE_DEPTH);
        let (revision_tx, revision_rx) = watch::channel(publisher.revision());
        let (behind_tx, behind_rx) = watch::channel(false);
        let (configuration_tx, configuration_rx) = watch::channel(configuration.clone());
        let boundary_tx = BoundarySender::default();
        let (stop_tx, stop_rx) = oneshot::channel();
        let (ready_tx, ready_rx) = oneshot::channel();
        let teller = Teller::default();
        let ear = teller.ear();
        let mut task = CoreTask {
            configuration,
            engine,
            transport,
            outbox: Outbox::default(),
            objects,
            pairs,
            store,
            next_number,
            publisher,
            transaction: None,
            logins: logins.into_iter().collect(),
            credentials,
            login_source,
            window: None,
            undertakings,
            elections: Elections::default(),
            deadline: None,
            started: Instant::now(),
            commit_rx,
            query_rx,
            beat_rx,
            events,
            work: WorkSet::default(),
            revision_tx,
            behind_tx,
            configuration_tx,
            boundary_tx: boundary_tx.clone(),
            stop_rx,
            ready_tx: Some(ready_tx),
            resyncs: Vec::new(),
            settling: Vec::new(),
            teller,
        };
        task.reconcile_as(configured.iter().map(|(key, value)| (key, Some(value))));
        let task = tokio::spawn(task.run());
        ready_rx.await.map_err(|_| StartError::Ended)?;
        let collector = collector.map(Arc::new);
        let handle = CoreHandle {
            commit_tx,
            query_tx,
            beat_tx,
            ear,
            revision_rx,
            behind_rx,
            configuration_rx,
            boundary_tx,
            models,
            collector,
            polled: polled.into(),
        };
        Ok(Self { handle, stop_tx: Some(stop_tx), task })
    }
}

/// Translation of configuration into values: the part of an examination that needs no engine.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) models: Arc<Models>,
    pub(super) registry: Registry,
}

impl Objects {
    fn new(models: Arc<Models>, profiles: Option<Arc<dyn Profiles>>) -> Result<Self, StartError> {
        let mut registry = Registry::new(&models.native)?;
        if let Some(profiles) = profiles {
            registry = registry.with_profiles(profiles);
        }
        Ok(Self { models, registry })
    }

    /// Reads layers from rows. Rows that this version does not know are counted in the log, and ignored.
    fn read(&self, rows: Vec<holdfast_store::Row>) -> Result<Layers, StartError> {
        let (layers, unknown) = Layers::from_rows(&self.models, rows)?;
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
    fn before_rollbacks(&self, loaded: &Loaded) -> Result<Option<Layers>, StartError> {
        if loaded.taken_back.is_empty() {
            return Ok(None);
        }
        let kept = loaded.layers.iter().filter(|(key, _)| !loaded.taken_back.contains_key(key));
        let taken = loaded.taken_back.iter();
        let taken = taken.filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        let mut rows: Vec<holdfast_store::Row> = kept.cloned().chain(taken).collect();
        rows.sort();
        self.read(rows).map(Some)
    }

    /// Configuration at the start: the stored layers without what was only tried; on a box that has just left the
    /// factory, the factory configuration.
    fn begin(
        &self,
        stored: &Layers,
        fresh: bool,
        factory: Option<Vec<u8>>,
    ) -> Result<Configuration, StartError> {
        let models = || Arc::clone(&self.models);
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
            Some(text) => document::factory(&self.models, text).map_err(StartError::Factory)?,
            None => Tree::new(),
        };
        if fresh {
            *layers.tree_mut(LayerKey::CLIENT_NATIVE) = factory.clone();
        }
        Ok(Configuration::new(models(), layers).with_factory(factory).restarted())
    }

    /// All values of a configuration.
    fn values(&self, configuration: &Configuration) -> Vec<(Key, SharedValue)> {
        let empty = Configuration::new(Arc::clone(&self.models), Layers::new());
        self.values_since(&empty, configuration)
    }

    /// Values of `new` that differ from those of `old`. A value that cannot be made is logged and left out.
    fn values_since(&self, old: &Configuration, new: &Configuration) -> Vec<(Key, SharedValue)> {
        let values = parallel::map(changed_objects(old, new), |change| {
            let branch = change.new.as_ref()?;
            let value = self.registry.value(&change.path, branch);
            // An earlier version has accepted it. The rest of the box must come up nevertheless.
            let refused = |error: &ObjectError| {
                tracing::error!(path = %self.shown(&error.path, Origin::OpenConfig), error = %Chain(error), "stored configuration is not carried out");
            };
            value.inspect_err(refused).ok()
        });
        values.into_iter().flatten().collect()
    }

    /// Applies a request to the configuration, and lists the values and rows that differ; with `shown`, also the
    /// differences that clients see.
    pub(super) fn examine(
        &self,
        old: &Configuration,
        intent: &Intent,
        shown: bool,
    ) -> Result<Candidate, CommitError> {
        let configuration = intent.apply(old).map_err(CommitError::Edit)?;
        let cancel = intent.cancel();
        let (changes, rows) = parallel::both(
            configuration.work().entries > parallel::FEW,
            || self.changes_until(&cancel, old, &configuration, intent.is_admitted()),
            || layer_rows_diff(&self.models, old.layers(), configuration.layers()),
        );
        let changes = changes.ok_or(CommitError::Abandoned)?;
        let changes = changes.map_err(|error| self.refused(&error, intent.origin()))?;
        let rows =
            rows.into_iter().map(holdfast_store::Change::from).chain(intent.rows()).collect();
        let differences = shown.then(|| preview::differences(&self.models, old, &configuration));
        Ok(Candidate { configuration, changes, rows, logins: Vec::new(), differences })
    }

    /// Values that differ; `None` if the request was cancelled meanwhile.
    fn changes_until(
        &self,
        cancel: &Cancel,
        old: &Configuration,
        new: &Configuration,
        admitted: bool,
    ) -> Option<Result<Vec<Changed>, ObjectError>> {
        let changed = changed_objects(old, new);
        let changed = parallel::map(changed, |change| {
            (!cancel.is_cancelled()).then(|| self.changed(change, admitted))
        });
        changed.into_iter().collect()
    }

    /// The values that differ. With `admitted`, one that cannot be made any more is left out instead of refused.
    pub(super) fn changes(
        &self,
        old: &Configuration,
        new: &Configuration,
        admitted: bool,
    ) -> Result<Vec<Changed>, ObjectError> {
        let changed = self.changes_until(&Cancel::default(), old, new, admitted);
        changed.unwrap_or_else(|| Ok(Vec::new())) // this token is never cancelled
    }

    fn changed(&self, change: ObjectChange, admitted: bool) -> Result<Changed, ObjectError> {
        let (key, value) = match &change.new {
            None => (self.registry.key(&change.path)?, None),
            Some(branch) => match self.registry.value(&change.path, branch) {
                Ok((key, value)) => (key, Some(value)),
                // Another origin has the missing leaf, or may supply it later: the object waits, and the request is
                // accepted.
                Err(error) if error.incomplete || admitted => {
                    (self.registry.key(&change.path)?, None)
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Changed { path: change.path, key, existed: change.old.is_some(), value })
    }

    /// Error for an object that cannot be made, with its path in the model of the request.
    pub(super) fn refused(&self, error: &ObjectError, origin: Origin) -> CommitError {
        let (path, reason) = (self.shown(&error.path, origin), excerpt(&error.reason));
        CommitError::Object { path, reason }
    }

    /// Error for a plan that cannot be made. For two values that exclude one another, it names the entry of one of
    /// them.
    pub(super) fn unplanned(
        &self,
        error: &PlanError,
        (kinds, changes): (&Kinds, &[Changed]),
        origin: Origin,
    ) -> CommitError {
        let refused = CommitError::planning(error);
        let PlanError::Conflict { key, .. } = error else { return refused };
        let brings = |change: &&Changed| {
            let kind = kinds.descriptor(change.key.kind());
            let parts = kind.zip(change.value.as_ref()).map(|(kind, value)| kind.parts(&**value));
            change.key == *key || parts.into_iter().flatten().any(|(part, _)| part == *key)
        };
        match changes.iter().find(brings) {
            Some(change) => {
                let path = self.shown(&change.path, origin);
                CommitError::Object { path, reason: excerpt(error) }
            }
            None => refused,
        }
    }

    /// A native path, shortened for messages; for an OpenConfig request, its counterpart in that model if there is one.
    fn shown(&self, native: &InstancePath, origin: Origin) -> String {
        let models = &self.models;
        match models.map.up_path(native).first().filter(|_| origin == Origin::OpenConfig) {
            Some(path) => excerpt(&path.to_path(models.schema(Origin::OpenConfig))),
            None => excerpt(&native.to_path(models.schema(Origin::Native))),
        }
    }

    /// Rows that record, or remove, the pre-images of adopted objects.
    pub(super) fn restore_rows(
        restores: &BTreeMap<Key, Option<SharedValue>>,
    ) -> Vec<holdfast_store::Change> {
        let row = |(key, value): (&Key, &Option<SharedValue>)| {
            let octets = value.as_ref().and_then(|value| stored::to_bytes(&**value));
            holdfast_store::Change::restore(key.as_bytes().to_vec(), octets)
        };
        restores.iter().map(row).collect()
    }
}
