//! The whole agent below gRPC on the simulated kernel. Tests that need the core alone are its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::Services;
use holdfast_config::tree::NodeRef;
use holdfast_config::{Models, Namespace, json};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, Core, CoreHandle, Datastore, Parts, Statuses,
};
use holdfast_platform::probe::Probes;
use holdfast_platform::transport::{SimulatedKernel, Transport};
use holdfast_services::ServiceTypes;
use holdfast_store::{ArtefactTable, Store};
use proptest::test_runner::Config as ProptestConfig;
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use crate::device::Device;
use crate::dhcp::LostLeases;
use crate::gnsi::{Gnsi, TlsProfiles};
use crate::northbound::{IgnoredSubscriptions, resume_activation};
use crate::packages::Packages;
use crate::probing::ProbeService;
use crate::reboot::{RebootScope, Reboots};
use crate::services::{ActionResources, Handlers, PackageInstaller, PackageSigners, reconcile};
use crate::settings::UnknownPaths;
use crate::slots::Slots;
use crate::software::{RunningVersion, Software, this_boot};
use crate::users::Users;

mod config_log;
mod publication;
mod readiness;
pub(crate) mod service_transactions;
mod service_type;
mod services;
mod side_by_side;
mod ssh_users;
mod state_folder;
mod windows;

pub(crate) use self::service_type::{LINK_UP, TestType, package_files, types_of};
pub(crate) use self::state_folder::{copied, memory_folder};

/// A port with an MTU and an address, and a route through it.
pub(crate) const BOX: &str = r#"{
    "openconfig-interfaces:interfaces": {"interface": [{
        "name": "eth0",
        "config": {"name": "eth0", "mtu": 1414, "description": "uplink"},
        "subinterfaces": {"subinterface": [{"index": 0, "config": {"index": 0},
            "openconfig-if-ip:ipv4": {"addresses": {"address": [
                {"ip": "192.0.2.1", "config": {"ip": "192.0.2.1", "prefix-length": 24}}]}}}]}
    }]},
    "openconfig-network-instance:network-instances": {"network-instance": [{
        "name": "DEFAULT", "config": {"name": "DEFAULT"},
        "protocols": {"protocol": [{
            "identifier": "openconfig-policy-types:STATIC", "name": "static",
            "config": {"identifier": "openconfig-policy-types:STATIC", "name": "static"},
            "static-routes": {"static": [{
                "prefix": "198.51.100.0/24", "config": {"prefix": "198.51.100.0/24"},
                "next-hops": {"next-hop": [
                    {"index": "0", "config": {"index": "0", "next-hop": "192.0.2.2"}}]}}]}
        }]}
    }]}
}"#;

pub(crate) struct Agent {
    core: Core,
    pub(crate) handle: CoreHandle,
    pub(crate) device: Device,
    pub(crate) gnsi: Gnsi,
    pub(crate) ignored: Arc<IgnoredSubscriptions>,
    pub(crate) services: PackageInstaller,
    _following: [AbortOnDropHandle<()>; 2],
    store: Store,
}

impl Agent {
    /// Starts an agent. A file `program` in the folder manages the images of the box.
    pub(crate) async fn start(kernel: &SimulatedKernel, folder: &Path) -> Self {
        Self::start_with(kernel, folder, ServiceTypes::new(Arc::new(Models::load().unwrap()))).await
    }

    /// Starts an agent with types of services.
    pub(crate) async fn start_with(
        kernel: &SimulatedKernel,
        folder: &Path,
        types: ServiceTypes,
    ) -> Self {
        let (store, loaded) = Store::open(folder).unwrap();
        let (mut transport, events) = kernel.connect();
        transport.retrieve();
        let models = Arc::clone(types.models());
        let installed = loaded.artefacts.get(&ArtefactTable::ServicePackages).cloned();
        let installed = installed.unwrap_or_default();
        let handlers = Handlers::default();
        let reboots = Reboots::new(&loaded.notes, store.clone(), RebootScope::Agent);
        let stored = loaded.artefacts.get(&ArtefactTable::Certz).cloned().unwrap_or_default();
        let profiles = TlsProfiles::of_box(folder, &stored);
        let transport = Box::new(transport);
        let users = Users::new(loaded.users.clone(), store.clone()).unwrap();
        let gnsi = Gnsi::new(
            &models,
            &users,
            &store,
            &loaded.artefacts,
            folder,
            profiles.clone(),
            crate::northbound::pathz_draft,
        )
        .unwrap()
        .with_undertakings(reboots.undertakings().clone());
        let program = folder.join("program");
        let slots = Slots::new(program.exists().then_some(program));
        let packages = Packages::new(folder, slots.clone());
        packages.sweep().unwrap();
        let running = RunningVersion::find(None, &slots).await;
        let boot = this_boot(RebootScope::Agent, &reboots).unwrap();
        let software = Software::new(slots, running, boot, store.clone(), &loaded.artefacts);
        let ignored = IgnoredSubscriptions::new(&models.native, UnknownPaths::Refuse).unwrap();
        let ignored = Arc::new(ignored);
        let mut polled = gnsi.polled();
        polled.push(ignored.clone());
        let parts = Parts {
            models,
            transport,
            events,
            collector: None,
            polled,
            profiles: Some(Arc::new(profiles)),
            settings_check: None,
            store: store.clone(),
            loaded,
            grpc_services: &[],
            services: (!types.is_empty()).then(|| Arc::new(types.clone()) as Arc<dyn Services>),
            handlers: Some(Arc::new(handlers.clone())),
            factory: None,
            software_version: software.running().to_owned(),
            credential_source: Some(Arc::new(gnsi.logins.clone())),
            undertakings: reboots.undertakings().clone(),
        };
        let core = Core::start(parts).await.unwrap();
        let configuration = core.handle().configuration();
        reconcile(&store, &installed, &types, &configuration).await.unwrap();
        if let Some(configured) = core.handle().users() {
            users.follow(configured);
        }
        gnsi.begin(&core.handle(), core.handle().switch(Namespace::Gnsi)).await;
        let bound = core.handle().certificate_id().unwrap();
        let _following = [
            gnsi.follow_binding(bound, core.handle()).await,
            gnsi.follow_access(core.handle().access_changes().unwrap()),
        ];
        resume_activation(&core.handle(), &gnsi, &software).await.unwrap();
        let device = Device {
            reboots,
            probes: ProbeService::new(Probes::here()),
            packages,
            software,
            lost_leases: LostLeases::default(),
        };
        let actions = ActionResources {
            core: core.handle(),
            probes: device.probes.probes().clone(),
            undertakings: device.reboots.undertakings().clone(),
        };
        let managed = (actions, handlers);
        let services = PackageInstaller::new(managed, (folder, PackageSigners::default()), types);
        let handle = core.handle();
        Self { handle, core, device, gnsi, ignored, services, _following, store }
    }

    pub(crate) fn store(&self) -> Store {
        self.store.clone()
    }

    pub(crate) async fn update(&self, document: &str) -> Result<CommitStamp, CommitError> {
        let result = self.update_all(&[document]).await;
        self.handle.current_revision().await;
        result
    }

    /// Sends several documents in one request, which may be answered before a revision shows it.
    pub(crate) async fn update_all(&self, documents: &[&str]) -> Result<CommitStamp, CommitError> {
        let update = |document: &&str| {
            let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
            (target, Payload::Json { text: document.as_bytes().to_vec().into(), ietf: true })
        };
        let edit = Edit { updates: documents.iter().map(update).collect(), ..Edit::default() };
        self.handle.commit(&caller(), edit, CommitOptions::default()).await
    }

    async fn delete(&self, path: &str) -> Result<CommitStamp, CommitError> {
        let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
        let edit = Edit { deletes: vec![target], ..Edit::default() };
        self.handle.commit(&caller(), edit, CommitOptions::default()).await
    }

    /// Configuration and state as readers see them, without clocks of the box.
    pub(crate) fn published_text(&self) -> String {
        let revision = self.handle.revision();
        let schema = revision.schema(Origin::OpenConfig);
        let found = NodeRef::Branch(revision.openconfig.root());
        let is_stable = |node: &holdfast_config::schema::Node| node.name != "last-change";
        let text = json::print(schema, schema.root(), found, json::Flavour::Ietf, &is_stable);
        String::from_utf8(text.unwrap_or_default()).unwrap()
    }

    /// Advances the clock, so that the engine does what is due.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
        // The core answers after it has looked at what is due.
        self.handle.statuses(true).await.unwrap();
    }

    /// Lets everything go on that needs no time.
    pub(crate) async fn turns(&self) {
        turns(TURNS).await;
        self.handle.wait_until_idle().await.unwrap();
    }

    pub(crate) async fn stop(self) {
        self.core.shutdown().await;
        self.store.close().await.unwrap();
    }

    /// Ends the agent as a kill does, once its disk has stopped. Returns what is on disk then, in a folder of its own.
    pub(crate) fn killed(self, folder: &Path) -> TempDir {
        // Nothing is written any more, and nothing answered, so it does nothing until its kernel is taken from it.
        copied(folder)
    }
}

/// Configuration of a property of this many cases, unless `PROPTEST_CASES` is set.
pub(crate) fn cases(few: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { few };
    ProptestConfig { cases, failure_persistence: None, ..usual }
}

/// Longest time until something comes that has to come: the disk may be slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Turns after which everything has happened that needs no time.
const TURNS: usize = 300;

/// Turns of the runtime. After some of them, everything has happened that needs no time and no kernel.
pub(crate) async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
        // Examinations and plans have threads of their own.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

/// A document with `count` routes through the neighbour of [`BOX`], from number `first` on.
pub(crate) fn routes(first: usize, count: usize) -> String {
    let route = |number: usize| {
        let prefix = format!("10.0.{}.{}/32", number / 256, number % 256);
        serde_json::json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": [
            {"index": "0", "config": {"index": "0", "next-hop": "192.0.2.2"}}]}})
    };
    let routes: Vec<_> = (first..first + count).map(route).collect();
    serde_json::json!({"openconfig-network-instance:network-instances": {"network-instance": [{
        "name": "DEFAULT", "protocols": {"protocol": [{
            "identifier": "openconfig-policy-types:STATIC", "name": "static",
            "static-routes": {"static": routes}}]}}]}})
    .to_string()
}

pub(crate) fn caller() -> Caller {
    let source = AuthMethod::Local { uid: 0 };
    Caller { name: "tests".into(), role: Role::Admin, auth_method: source, peer: None }
}
