//! The whole agent below gRPC on the simulated kernel: a change with every kind of accident.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::Services;
use holdfast_config::tree::NodeRef;
use holdfast_config::{Models, Namespace, json, parallel};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, Core, CoreHandle, Datastore, Intent, Parts, Statuses,
};
use holdfast_platform::probe::Probes;
use holdfast_platform::transport::{Fault, SimulatedKernel, Transport};
use holdfast_scheduler::{Key, ValueState};
use holdfast_services::ServiceTypes;
use holdfast_store::{ArtefactTable, Store, faults};
use proptest::test_runner::Config as ProptestConfig;
use tempfile::TempDir;
use tokio::time::timeout;
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

mod abandon;
mod admission;
mod config_log;
mod fences;
mod impact;
mod ports;
mod publication;
mod readiness;
mod reconcile;
mod routes;
pub(crate) mod service_transactions;
mod service_type;
mod services;
mod side_by_side;
mod ssh_users;
mod state_folder;
mod told;
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
        reconcile(&store, &installed, (&types, &configuration)).await.unwrap();
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

    /// All keys of the engine, with their states.
    async fn states(&self) -> Vec<(Key, ValueState)> {
        let statuses = self.handle.statuses(false).await.unwrap();
        statuses.into_iter().map(|status| (status.key, status.state)).collect()
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

#[tokio::test]
async fn a_change_is_in_the_kernel_on_disk_and_visible_when_it_is_answered() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    let fresh = kernel.contents();
    agent.update(BOX).await.unwrap();
    let (contents, published) = (kernel.contents(), agent.published_text());
    assert_ne!(contents, fresh);
    assert!(
        published.contains(r#""mtu":1414,"#) && published.contains("198.51.100.0/24"),
        "{published}"
    );
    agent.stop().await;

    // A restart in sync asks nothing of the kernel.
    let requests = kernel.requests();
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(agent.published_text(), published);
    assert_eq!((kernel.requests() - requests, kernel.contents()), (0, contents));

    // The port gets back what it had, and readers see nothing of the change.
    agent.delete("/").await.unwrap();
    assert_eq!(kernel.contents(), fresh);
    agent.stop().await;
}

/// The revision of a change with more objects than one thread handles is begun before the objects exist.
#[tokio::test]
async fn a_large_change_shows_what_small_ones_show() {
    const SMALL: usize = 500;
    let all = parallel::FEW + SMALL;
    let mut published = Vec::new();
    for size in [all, SMALL] {
        let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        for first in (0..all).step_by(size) {
            agent.update(&routes(first, size)).await.unwrap();
        }
        let created = kernel.contents().iter().filter(|it| it.contains("/32")).count();
        assert!(created >= all, "{created} of {all} routes are there");
        published.push(agent.published_text());
        agent.stop().await;
    }
    assert_eq!(published[0], published[1]);
}

/// A large change is answered before its revision is made; a reader waits for that revision.
#[tokio::test]
async fn current_revision_after_an_answer_has_the_commit() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let count = parallel::FEW + 1;
    for first in [0, count] {
        let committed = agent.update_all(&[&routes(first, count)]).await.unwrap();
        let revision = agent.handle.current_revision().await;
        assert_eq!((revision.number, revision.time_ns), (committed.revision, committed.time_ns));
        assert_eq!(agent.published_text().matches("\"metric\":20").count(), first + count + 1);
    }
    agent.stop().await;
}

/// The pre-image of the port is recorded first. A large change goes out in portions, and none of them overtakes the
/// operations that wait for the record.
#[tokio::test]
async fn routes_do_not_overtake_the_port_they_leave_by() {
    const MORE_THAN_A_PORTION: usize = 5000;
    let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.store.refuse(faults::Fault::Late).await.unwrap();
    agent.update_all(&[BOX, &routes(0, MORE_THAN_A_PORTION)]).await.unwrap();
    let created = kernel.contents().iter().filter(|it| it.contains("/32")).count();
    assert!(created >= MORE_THAN_A_PORTION, "{created} routes are there");
    agent.stop().await;
}

/// While the disk refuses the pre-image of a port, neither the port nor its dependents are touched. Once the disk
/// accepts it, the port gets back its earlier state in the end.
#[tokio::test]
async fn a_port_without_a_recorded_pre_image_is_not_changed() {
    for is_there in [true, false] {
        let ports: &[&str] = if is_there { &["eth0"] } else { &[] };
        let (kernel, folder) = (SimulatedKernel::new(ports), tempfile::tempdir().unwrap());
        let agent = Agent::start(&kernel, folder.path()).await;
        if is_there {
            agent.store.refuse(faults::Fault::Unwritten).await.unwrap();
            let fresh = kernel.contents();
            let refused = agent.update(BOX).await.unwrap_err().to_string();
            assert!(refused.contains("eth0: cannot record what was there before"), "{refused}");
            assert_eq!(kernel.contents(), fresh);
            agent.update(BOX).await.unwrap();
        } else {
            agent.update(BOX).await.unwrap();
            agent.store.refuse(faults::Fault::Unwritten).await.unwrap();
            kernel.plug("eth0");
            in_force(&agent).await;
        }
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.delete("/").await.unwrap();
        assert_eq!(kernel.contents(), SimulatedKernel::new(&["eth0"]).contents());
        agent.stop().await;
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

#[tokio::test]
async fn a_failure_at_any_request_leaves_everything_as_it_was() {
    let mut nth = 0;
    loop {
        nth += 1;
        let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
        let agent = Agent::start(&kernel, folder.path()).await;
        let before = (kernel.contents(), agent.published_text());
        kernel.fault_at(
            nth,
            if nth % 2 == 0 { Fault::Panic } else { Fault::Fail(nix::libc::EINVAL) },
        );
        let requests = kernel.requests();
        match agent.update(BOX).await {
            Err(CommitError::Failed { undone, .. }) => assert!(undone, "request {nth}"),
            Err(error) => panic!("request {nth}: {error}"),
            Ok(_) => {
                assert!(
                    kernel.requests() - requests < nth,
                    "request {nth} failed and nobody noticed"
                );
                assert!(nth > 3, "the change takes several requests");
                return agent.stop().await;
            }
        }
        assert_eq!((kernel.contents(), agent.published_text()), before, "request {nth}");
        // And the same request does it when nothing is in its way.
        agent.update(BOX).await.unwrap();
        agent.stop().await;
    }
}

/// While the disk refuses to record a change, nothing is asked of the kernel, and the engine intends nothing of it.
#[tokio::test]
async fn a_change_that_cannot_be_recorded_does_not_begin() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    let requests = kernel.requests();
    for document in [BOX, "{}"] {
        let before = (kernel.contents(), agent.published_text(), agent.states().await);
        agent.store.refuse(faults::Fault::Unprepared).await.unwrap();
        let refused = agent.update(document).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(_)), "{refused}");
        agent.pass(Duration::from_secs(10)).await;
        assert_eq!((kernel.contents(), agent.published_text(), agent.states().await), before);
    }
    assert_eq!(kernel.requests(), requests);
    agent.update(BOX).await.unwrap();
    agent.stop().await;
}

/// A commit whose last write the disk refuses is taken back, and the next one succeeds.
#[tokio::test]
async fn a_commit_that_the_disk_refuses_is_taken_back() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    let before = (kernel.contents(), agent.published_text());
    agent.store.refuse(faults::Fault::Lost).await.unwrap();
    let refused = agent.update(BOX).await.unwrap_err();
    assert!(matches!(refused, CommitError::Store(_)), "{refused}");
    agent.pass(Duration::from_secs(10)).await;
    assert_eq!((kernel.contents(), agent.published_text()), before);
    agent.update(BOX).await.unwrap();
    let unchanged = (kernel.contents(), agent.published_text());
    agent.store.refuse(faults::Fault::Misreported).await.unwrap();
    agent.delete("/network-instances").await.unwrap();
    agent.update(BOX).await.unwrap();
    agent.stop().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!((kernel.contents(), agent.published_text()), unchanged);
    agent.stop().await;
}

#[tokio::test]
async fn facts_flow_while_the_kernel_does_not_answer() {
    let ports = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&ports, folder.path()).await;
    let mut revisions = agent.handle.watch();
    ports.fault_at(1, Fault::Hang);
    let waiting = agent.update(BOX);
    let watching = async {
        while !ports.is_hung() {
            tokio::time::sleep(Duration::from_millis(1)).await; // the change is on its way
        }
        ports.set_mtu("eth1", 1300);
        loop {
            revisions.changed().await.unwrap();
            if agent.published_text().contains(r#""mtu":1314"#) {
                break;
            }
        }
        let published = agent.published_text();
        assert!(
            !published.contains("uplink") && !published.contains("1414"),
            "not accepted yet: {published}"
        );
        ports.resume();
    };
    let (result, ()) = tokio::join!(waiting, watching);
    result.unwrap();
    assert!(agent.published_text().contains("uplink"));
    agent.stop().await;
}

#[tokio::test]
async fn nothing_is_converged_while_an_operation_is_under_way() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.handle.wait_until_idle().await.unwrap();
    kernel.fault_at(1, Fault::Hang);
    let watching = async {
        while !kernel.is_hung() {
            tokio::time::sleep(Duration::from_millis(1)).await; // the change is on its way
        }
        let mut settled = pin!(agent.handle.wait_until_idle());
        assert!(timeout(Duration::ZERO, &mut settled).await.is_err());
        // Later questions are answered later.
        agent.handle.statuses(true).await.unwrap();
        assert!(timeout(Duration::ZERO, &mut settled).await.is_err());
        kernel.resume();
        settled.await.unwrap();
    };
    let (result, ()) = tokio::join!(agent.update(BOX), watching);
    result.unwrap();
    agent.stop().await;
}

#[tokio::test]
async fn a_port_that_is_missing_gets_its_configuration_when_it_comes() {
    let (kernel, folder) = (SimulatedKernel::new(&[]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let pending = agent.handle.statuses(true).await.unwrap();
    assert!(pending.iter().any(|status| !status.detail.unmet.is_empty()), "{pending:#?}");
    kernel.plug("eth0");
    in_force(&agent).await;
    agent.stop().await;
}

/// Waits until all of [`BOX`] is in force.
async fn in_force(agent: &Agent) {
    let mut revisions = agent.handle.watch();
    while !agent.published_text().contains(r#""oper-status":"UP""#) {
        revisions.changed().await.unwrap();
    }
    while !agent.handle.statuses(true).await.unwrap().is_empty() {
        revisions.changed().await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_object_is_named_in_the_model_of_the_request() {
    const NATIVE: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]/next-hop[index=0]";
    const OPENCONFIG: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]/static-routes/static[prefix=10.0.0.0/8]/next-hops/next-hop[index=0]/config";
    let (kernel, folder) = (SimulatedKernel::new(&[]), tempfile::tempdir().unwrap());
    let agent = Agent::start(&kernel, folder.path()).await;
    for (origin, path, named) in
        [(Origin::Native, NATIVE, "/static["), (Origin::OpenConfig, OPENCONFIG, "/static-routes/")]
    {
        let target = EditTarget { origin, path: path.parse().unwrap() };
        let text = br#"{"next-hop": "224.0.0.1"}"#.to_vec().into();
        let updates = vec![(target, Payload::Json { text, ietf: true })];
        let edit = Edit { updates, ..Edit::default() };
        let refused = agent.handle.commit(&caller(), edit, CommitOptions::default()).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("cannot be a gateway"), "{error}");
    }
    agent.stop().await;
}

/// State of an object is removed with it, also when the object goes because of another one.
#[tokio::test]
async fn published_state_is_equal_after_a_restart() {
    const SETTLED: Duration = Duration::from_secs(10);
    for deletion in [
        "/interfaces/interface[name=eth0]/subinterfaces",
        "/interfaces/interface[name=eth0]",
        "/interfaces",
        "/network-instances",
        "/network-instances/network-instance[name=DEFAULT]/protocols",
    ] {
        let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        assert!(agent.published_text().contains("interface-ref"));
        agent.delete(deletion).await.unwrap();
        agent.pass(SETTLED).await;
        let published = agent.published_text();
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        assert_eq!(agent.published_text(), published, "without {deletion}");
        agent.stop().await;
    }
}

pub(crate) fn caller() -> Caller {
    let source = AuthMethod::Local { uid: 0 };
    Caller { name: "tests".into(), role: Role::Admin, auth_method: source, peer: None }
}
