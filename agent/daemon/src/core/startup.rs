//! From what the store holds to a running core, and from requests to values.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::Chain;
use holdfast_config::changes::changed_objects;
use holdfast_config::document;
use holdfast_config::edit::EditErrors;
use holdfast_config::limits::excerpt;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::schema::Origin;
use holdfast_config::{
    Cancel, Configuration, InstancePath, LayerKey, Layers, Models, ObjectChange, Tree, parallel,
};
use holdfast_platform::objects::{Listening, ObjectError, Profiles, Registry, VethPairs};
use holdfast_platform::transport::{Events, Transport};
use holdfast_platform::{Collector, descriptors, stored};
use holdfast_scheduler::{Engine, Key, PlanError, Registry as Kinds, SharedValue, TxnId};

use holdfast_store::{Loaded, Store, StoreError};
use holdfast_telemetry::BoundarySender;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

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
    BEAT_QUEUE_DEPTH, COMMIT_QUEUE_DEPTH, CommitError, Core, CoreHandle, Polled, QUERY_QUEUE_DEPTH,
};
use crate::gnsi;
use crate::undertakings::Undertakings;

/// The number of a box's first transaction.
const FIRST_NUMBER: u64 = 1;

/// What the core is made of.
pub struct Parts {
    pub models: Arc<Models>,
    pub transport: Box<dyn Transport>,
    pub events: Events,
    pub collector: Option<Collector>,
    /// What the agent itself counts.
    pub polled: Vec<Arc<dyn Polled>>,
    /// What the gRPC server may be bound to; without it, the default profile.
    pub profiles: Option<Arc<dyn Profiles>>,
    pub store: Store,
    pub loaded: Loaded,
    /// Where clients reach the services.
    pub listening: Listening,
    /// The version of the software that runs.
    pub software_version: String,
    /// Credentials, which come to values of no layer.
    pub logins: Option<gnsi::Logins>,
    /// What the box is delivered with: taken on the first start of all, and never again.
    pub factory: Option<Vec<u8>>,
    /// Where a commit says that it waits to be confirmed.
    pub undertakings: Undertakings,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

/// Why the core does not start. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Rows(#[from] holdfast_config::rows::RowError),
    #[error("cannot take the factory configuration")]
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
    /// Reads the stored configuration, brings the box to it, and returns once the first complete reading of the
    /// box is taken in: from then on revisions tell the truth.
    ///
    /// # Errors
    /// When what is stored cannot be understood.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        let Parts { models, transport, events, collector, .. } = parts;
        let Parts { polled, profiles, store, loaded, listening, factory, logins, .. } = parts;
        let (software, undertakings) = (parts.software_version, parts.undertakings);
        let objects = Arc::new(Objects::new(Arc::clone(&models), profiles)?);
        let next_number = loaded.last_transaction + 1;
        let taken_back = objects.before_rollbacks(&loaded)?;
        let stored = objects.read(loaded.layers)?;
        let configuration = objects.begin(&stored, next_number == FIRST_NUMBER, factory)?;
        let rows = layer_rows_diff(&models, &stored, configuration.layers());
        let before = taken_back.or_else(|| (!rows.is_empty()).then(|| stored.clone()));
        if !rows.is_empty() {
            // Nothing is carried out that the next start would not know of.
            store.write(rows.into_iter().map(holdfast_store::Change::from).collect()).await?;
        }
        let credentials = logins.as_ref().map(gnsi::Logins::last).unwrap_or_default();
        let login_source = logins;
        let logins = login_source.as_ref().map(|it| it.values(configuration.layers()));
        let logins: Vec<_> = logins.unwrap_or_default();
        let mut intent = objects.values(&configuration);
        let concerned = intent.iter().filter(|(key, _)| reconcile::is_concerned(key));
        let configured: Vec<_> = concerned.cloned().collect();
        // What was stored before there was a rule for it is not judged: it fails in the kernel, and says so.
        let mut pairs = VethPairs::default();
        pairs.take_in(intent.iter().map(|(key, value)| (key, Some(value))));
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
                engine.was_applied(objects.values_since(&configuration, &before));
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

/// Values out of configuration: everything about a request that needs no engine.
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

    /// The layers as they were stored.
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

    /// The layers as they were before opening the store took something back: the system may still have what they say.
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

    /// The configuration to begin with: what is stored, without what was only tried; on a box that
    /// has just left the factory, what it was delivered with.
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
                tracing::info!("this box is not new: the factory configuration it began with stays")
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

    /// The values that a configuration comes to.
    fn values(&self, configuration: &Configuration) -> Vec<(Key, SharedValue)> {
        let empty = Configuration::new(Arc::clone(&self.models), Layers::new());
        self.values_since(&empty, configuration)
    }

    /// The same of what differs from another configuration.
    fn values_since(&self, old: &Configuration, new: &Configuration) -> Vec<(Key, SharedValue)> {
        let values = parallel::map(changed_objects(old, new), |change| {
            let branch = change.new.as_ref()?;
            let value = self.registry.value(&change.path, branch);
            // It was accepted once, so another version was here. The rest of the box must come up all the same.
            let refused = |error: &ObjectError| {
                tracing::error!(path = %self.shown(&error.path, Origin::OpenConfig), error = %Chain(error), "stored configuration is not carried out");
            };
            value.inspect_err(refused).ok()
        });
        values.into_iter().flatten().collect()
    }

    /// What a request would make of the configuration, as values and rows; with `shown`, also as clients see it.
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

    /// The values that differ, unless nobody waits for them any more.
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
        changed.unwrap_or_else(|| Ok(Vec::new())) // nobody calls it off
    }

    fn changed(&self, change: ObjectChange, admitted: bool) -> Result<Changed, ObjectError> {
        let (key, value) = match &change.new {
            None => (self.registry.key(&change.path)?, None),
            Some(branch) => match self.registry.value(&change.path, branch) {
                Ok((key, value)) => (key, Some(value)),
                // Another origin holds what is missing, or will: the object waits, the request is fine.
                Err(error) if error.incomplete || admitted => {
                    (self.registry.key(&change.path)?, None)
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Changed { path: change.path, key, existed: change.old.is_some(), value })
    }

    /// The refusal of an object, in the words of a request in this model.
    pub(super) fn refused(&self, error: &ObjectError, origin: Origin) -> CommitError {
        let (path, reason) = (self.shown(&error.path, origin), excerpt(&error.reason));
        CommitError::Object { path, reason }
    }

    /// The refusal of a plan: of two values that exclude one another, at the entry that brings one of them.
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

    /// A native path, as much of it as a message repeats; for who speaks OpenConfig, its counterpart where there is one.
    fn shown(&self, native: &InstancePath, origin: Origin) -> String {
        let models = &self.models;
        match models.map.up_path(native).first().filter(|_| origin == Origin::OpenConfig) {
            Some(path) => excerpt(&path.to_path(models.schema(Origin::OpenConfig))),
            None => excerpt(&native.to_path(models.schema(Origin::Native))),
        }
    }

    /// Rows that keep, or forget, what adopted objects were before us.
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
