//! A datastore without a kernel: a commit is published at once, and tests set the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_base::{Caller, now_ns};
use holdfast_config::edit::Edit;
use holdfast_config::schema::Origin;
use holdfast_config::services::Applied;
use holdfast_config::{
    ClaimKey, Configuration, InstancePath, Layers, Models, Path, ServiceTag, Value,
};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, Datastore, Intent, PolledCatalog, PolledSources,
    PolledState, Preview, ServiceState,
};
use holdfast_platform::probe::Probes;
use holdfast_store::Store;
use holdfast_telemetry::{
    Boundary, BoundaryReceiver, BoundarySender, ConfigOrState, DerivedLists, Draft, Mutation,
    PolledReading, Revision, RevisionChange,
};
use smol_str::SmolStr;
use tokio::sync::watch;

use crate::device::Device;
use crate::dhcp::LostLeases;
use crate::files::Files;
use crate::gnsi::pathz::tests::MODELS;
use crate::gnsi::{Gnsi, Pathz, TlsProfiles};
use crate::northbound::IgnoredSubscriptions;
use crate::packages::Packages;
use crate::probing::ProbeService;
use crate::reboot::{RebootScope, Reboots};
use crate::settings::UnknownPaths;
use crate::slots::Slots;
use crate::software::{RunningVersion, Software};
use crate::users::Users;

pub(super) const STATIC_ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes";

#[derive(Clone, Debug)]
pub(super) struct FakeDatastore(Arc<FakeState>);

#[derive(Debug)]
struct FakeState {
    configuration: Mutex<Configuration>,
    /// `None` after the end.
    revision_tx: Mutex<Option<watch::Sender<Arc<Revision>>>>,
    boundary_tx: BoundarySender,
    polled: Mutex<Vec<(InstancePath, Value)>>,
    polled_native: Mutex<Vec<(InstancePath, Value)>>,
    reads: AtomicUsize,
    /// Sources that were asked in all these readings.
    asked: AtomicUsize,
    failure: Mutex<Option<CommitError>>,
    device: Device,
    gnsi: Gnsi,
    ignored: Arc<IgnoredSubscriptions>,
    store: Store,
    /// State folder with the database of reboots and artefacts.
    folder: tempfile::TempDir,
}

impl FakeDatastore {
    pub(super) fn new() -> Self {
        Self::with_slots(|_| Slots::default(), "1.0")
    }

    /// A box that runs this version, and has slots for others.
    pub(super) fn with_slots(slots: impl FnOnce(&std::path::Path) -> Slots, runs: &str) -> Self {
        let configuration = Configuration::new(MODELS.clone(), Layers::new());
        let folder = tempfile::tempdir().unwrap();
        let (store, loaded) = Store::open(folder.path()).unwrap();
        let profiles = TlsProfiles::of_box(folder.path(), &BTreeMap::new());
        let slots = slots(folder.path());
        let artefacts = &loaded.artefacts;
        let running = RunningVersion::certain(runs);
        let software =
            Software::new(slots.clone(), running, "first".into(), store.clone(), artefacts);
        let reboots = Reboots::new(&loaded.notes, store.clone(), RebootScope::System);
        Self(Arc::new(FakeState {
            configuration: Mutex::new(configuration),
            revision_tx: Mutex::new(Some(watch::Sender::new(Arc::new(Revision::new(
                MODELS.clone(),
                derived_lists(),
            ))))),
            boundary_tx: BoundarySender::default(),
            polled: Mutex::default(),
            polled_native: Mutex::default(),
            reads: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            failure: Mutex::default(),
            ignored: Arc::new(
                IgnoredSubscriptions::new(&MODELS.native, UnknownPaths::Refuse).unwrap(),
            ),
            gnsi: Gnsi::new(
                &MODELS,
                &Users::new(Vec::new(), store.clone()).unwrap(),
                &store,
                &loaded.artefacts,
                folder.path(),
                profiles,
                crate::northbound::pathz_draft,
            )
            .unwrap()
            .with_undertakings(reboots.undertakings().clone()),
            device: Device {
                reboots,
                probes: ProbeService::new(Probes::here()),
                packages: Packages::new(folder.path(), slots),
                software,
                files: Files::new(folder.path()),
                lost_leases: LostLeases::default(),
            },
            store,
            folder,
        }))
    }

    pub(super) fn reboots(&self) -> Reboots {
        self.0.device.reboots.clone()
    }

    pub(super) fn device(&self) -> Device {
        self.0.device.clone()
    }

    /// The state folder of the box.
    pub(super) fn state_folder(&self) -> &std::path::Path {
        self.0.folder.path()
    }

    /// The store of reboots and artefacts.
    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn gnsi(&self) -> Gnsi {
        self.0.gnsi.clone()
    }

    /// The setting for unknown paths in subscriptions, with its default on the command line.
    pub(super) fn ignored(&self) -> Arc<IgnoredSubscriptions> {
        Arc::clone(&self.0.ignored)
    }

    /// The pathz policy that is in force.
    pub(super) fn pathz(&self) -> Arc<Pathz> {
        Arc::clone(&self.0.gnsi.pathz)
    }

    /// Makes the next commit fail.
    pub(super) fn fail(&self, error: CommitError) {
        *self.0.failure.lock().unwrap() = Some(error);
    }

    /// Sets an OpenConfig state leaf.
    pub(super) fn state(&self, path: &str, value: &str) {
        let (path, value) = leaf(path, value);
        let change =
            RevisionChange { origin: Origin::OpenConfig, path, mutation: Mutation::Set(value) };
        self.publish(|draft| draft.apply(change));
    }

    /// Removes all state at the path.
    pub(super) fn remove_state(&self, path: &str) {
        let path = instance(path);
        let mutation = Mutation::Gone(ConfigOrState::State);
        self.publish(|draft| {
            draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation })
        });
    }

    /// Sets a leaf without events, which readers have to poll.
    pub(super) fn polled_leaf(&self, path: &str, value: &str) {
        let (path, value) = leaf(path, value);
        let mut polled = self.0.polled.lock().unwrap();
        polled.retain(|(other, _)| *other != path);
        polled.push((path, value));
    }

    /// Sets a native leaf without events.
    pub(super) fn polled_native_leaf(&self, path: &str, value: Value) {
        let path = self.models().native.resolve_write(&path.parse().unwrap()).unwrap();
        self.0.polled_native.lock().unwrap().push((path, value));
    }

    /// Appends nodes to the models while readers are there.
    pub(super) fn append(&self, models: &Arc<Models>) {
        let mut configuration = self.0.configuration.lock().unwrap();
        *configuration = configuration.with_models(Arc::clone(models));
        drop(configuration);
        self.publish_with(models, |_| {});
    }

    /// Sources that were asked since the last call.
    pub(super) fn take_asked(&self) -> usize {
        self.0.asked.swap(0, Ordering::SeqCst)
    }

    /// Number of polls.
    pub(super) fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    /// Ends the publication of revisions.
    pub(super) fn stop(&self) {
        self.0.revision_tx.lock().unwrap().take();
    }

    fn with_sender<T>(&self, ask: impl FnOnce(&watch::Sender<Arc<Revision>>) -> T) -> T {
        ask(self.0.revision_tx.lock().unwrap().as_ref().unwrap())
    }

    /// Number of receivers that streams hold.
    pub(super) fn watchers(&self) -> usize {
        self.with_sender(watch::Sender::receiver_count)
    }

    fn publish(&self, change: impl FnOnce(&mut Draft<'_>)) -> Arc<Revision> {
        self.publish_with(&Arc::clone(&self.revision().models), change)
    }

    fn publish_with(
        &self,
        models: &Arc<Models>,
        change: impl FnOnce(&mut Draft<'_>),
    ) -> Arc<Revision> {
        let last = self.revision();
        let mut draft = last.draft(models, now_ns());
        change(&mut draft);
        let next = Arc::new(draft.publish());
        self.with_sender(|tx| tx.send_replace(next.clone()));
        next
    }
}

/// The list of static routes of OpenConfig, as on a box.
fn derived_lists() -> DerivedLists {
    let route = instance(&format!("{STATIC_ROUTES}/static[prefix=10.0.0.0/8]"));
    let list = route.last().map(|step| step.node);
    DerivedLists { openconfig: list.into_iter().collect(), ..DerivedLists::default() }
}

fn instance(path: &str) -> InstancePath {
    MODELS.openconfig.resolve_write(&path.parse::<Path>().unwrap()).unwrap()
}

fn leaf(path: &str, value: &str) -> (InstancePath, Value) {
    let path = instance(path);
    let node = path.last().unwrap().node;
    let value = MODELS.openconfig.leaf(node).ty.parse_text(value).unwrap();
    (path, value)
}

impl Datastore for FakeDatastore {
    fn models(&self) -> Arc<Models> {
        Arc::clone(self.configuration().shared_models())
    }

    fn revision(&self) -> Arc<Revision> {
        self.with_sender(|tx| tx.borrow().clone())
    }

    async fn current_revision(&self) -> Arc<Revision> {
        self.revision()
    }

    fn watch(&self) -> watch::Receiver<Arc<Revision>> {
        self.with_sender(watch::Sender::subscribe)
    }

    fn configuration(&self) -> Configuration {
        self.0.configuration.lock().unwrap().clone()
    }

    /// A source for each container with polled leaves.
    fn polled_catalog(&self) -> Arc<PolledCatalog> {
        let models = self.models();
        let mut sources: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for node in models.native.nodes().iter().filter(|node| node.polled) {
            sources.entry(node.parent).or_default().push(node.id);
        }
        Arc::new(PolledCatalog::of_nodes(&models, sources.into_values()))
    }

    async fn polled(&self, origin: Origin, sources: &PolledSources) -> PolledReading {
        if sources.is_empty() {
            return PolledReading::default();
        }
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        self.0.asked.fetch_add(sources.len(), Ordering::SeqCst);
        match origin {
            Origin::OpenConfig => self.0.polled.lock().unwrap().clone().into(),
            Origin::Native => {
                let mut reading = self.0.ignored.read().await;
                reading.leaves.extend(self.0.polled_native.lock().unwrap().clone());
                reading
            }
        }
    }

    async fn accounts_of_box(&self, _: Vec<SmolStr>) -> Result<BTreeSet<SmolStr>, CommitError> {
        Ok(BTreeSet::new())
    }

    async fn show_state(&self, leaves: ServiceState) {
        let both = |path: &InstancePath| {
            let above = MODELS.map.up_path(path).into_iter();
            let above = above.map(|path| (Origin::OpenConfig, path));
            above.chain([(Origin::Native, path.clone())])
        };
        self.publish(|draft| {
            for (path, value) in leaves {
                for (origin, path) in both(&path) {
                    let mutation = match &value {
                        Some(value) => Mutation::Set(value.clone()),
                        None => Mutation::Gone(ConfigOrState::State),
                    };
                    draft.apply(RevisionChange { origin, path, mutation });
                }
            }
        });
    }

    async fn unapplied(
        &self,
        _: BTreeSet<ServiceTag>,
    ) -> Result<Vec<(ClaimKey, Applied)>, CommitError> {
        Ok(Vec::new())
    }

    fn boundaries(&self) -> BoundaryReceiver {
        self.0.boundary_tx.subscribe()
    }

    async fn preview(
        &self,
        _caller: &Caller,
        _intent: Intent,
        _options: CommitOptions,
    ) -> Result<Preview, CommitError> {
        Err(CommitError::Internal { reason: "there is no engine to plan with".into() })
    }

    async fn commit(
        &self,
        caller: &Caller,
        edit: Edit,
        options: CommitOptions,
    ) -> Result<CommitStamp, CommitError> {
        if options != CommitOptions::default() {
            let reason = "only plain Sets are understood".into();
            return Err(CommitError::Internal { reason });
        }
        if edit.is_empty() {
            let revision = self.revision();
            return Ok(CommitStamp { time_ns: now_ns(), revision: revision.number });
        }
        self.change(caller, Intent::edit(edit)).await
    }

    async fn change_with(
        &self,
        _caller: &Caller,
        intent: Intent,
        _options: CommitOptions,
    ) -> Result<CommitStamp, CommitError> {
        if let Some(error) = self.0.failure.lock().unwrap().take() {
            return Err(error);
        }
        let (next, _) = intent.apply(&self.configuration()).map_err(CommitError::Edit)?;
        if let Intent::Boot { artefacts, .. } = intent {
            self.0.store.write_artefacts(artefacts).await.map_err(CommitError::Store)?;
        }
        let mut configuration = self.0.configuration.lock().unwrap();
        let revision = self.publish(|draft| {
            for origin in [Origin::OpenConfig, Origin::Native] {
                draft.apply_diff(
                    origin,
                    configuration.config_view(origin),
                    next.config_view(origin),
                );
            }
        });
        *configuration = next;
        let boundary =
            Boundary { revision: revision.clone(), transaction: revision.number, confirm_id: None };
        self.0.boundary_tx.send(boundary);
        Ok(CommitStamp { time_ns: revision.time_ns, revision: revision.number })
    }
}
