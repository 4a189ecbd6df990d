//! Parts of tests that run a core on the simulated kernel: those of this crate, and those of crates above it.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{AuthMethod, Caller, RebootInhibitors, Role};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_config::{Models, json};
use holdfast_platform::transport::{SimulatedKernel, Transport};
use holdfast_scheduler::{Key, ValueState};
use holdfast_store::{Store, StoredState};
use tempfile::TempDir;

use crate::{
    CommitError, CommitOptions, CommitStamp, Core, CoreHandle, Datastore, Parts, PolledState,
    Statuses,
};

/// A port with an MTU and an address, and a route through it.
pub const BOX: &str = r#"{
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

/// The parts of a core on this kernel, and nothing else of an agent.
pub fn parts(kernel: &SimulatedKernel, store: Store, loaded: StoredState) -> Parts {
    let (mut transport, events) = kernel.connect();
    transport.retrieve();
    Parts {
        models: Arc::new(Models::load().unwrap()),
        transport: Box::new(transport),
        events,
        polled: Vec::new(),
        profiles: None,
        settings_check: None,
        store,
        loaded,
        grpc_services: &[],
        services: None,
        handlers: None,
        factory: None,
        software_version: String::new(),
        credential_source: None,
        undertakings: RebootInhibitors::default(),
    }
}

/// A core with its store, as a client uses it.
#[derive(Debug)]
pub struct CoreFixture {
    core: Core,
    pub handle: CoreHandle,
    store: Store,
}

impl CoreFixture {
    /// Starts a core with its kernel and its store, and nothing else of the agent.
    pub async fn start(kernel: &SimulatedKernel, folder: &Path) -> Self {
        Self::start_with(kernel, folder, Vec::new()).await
    }

    /// Starts a core with sources of polled state.
    pub async fn start_with(
        kernel: &SimulatedKernel,
        folder: &Path,
        polled: Vec<Arc<dyn PolledState>>,
    ) -> Self {
        let (store, loaded) = Store::open(folder).unwrap();
        let parts = Parts { polled, ..parts(kernel, store.clone(), loaded) };
        Self::of(Core::start(parts).await.unwrap(), store)
    }

    /// A core that was started on this store.
    pub fn of(core: Core, store: Store) -> Self {
        Self { handle: core.handle(), core, store }
    }

    pub fn store(&self) -> Store {
        self.store.clone()
    }

    pub async fn update(&self, document: &str) -> Result<CommitStamp, CommitError> {
        let result = self.update_all(&[document]).await;
        self.handle.current_revision().await;
        result
    }

    /// Sends several documents in one request, which may be answered before a revision shows it.
    pub async fn update_all(&self, documents: &[&str]) -> Result<CommitStamp, CommitError> {
        let update = |document: &&str| {
            let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
            (target, Payload::Json { text: document.as_bytes().to_vec().into(), ietf: true })
        };
        let edit = Edit { updates: documents.iter().map(update).collect(), ..Edit::default() };
        self.handle.commit(&caller(), edit, CommitOptions::default()).await
    }

    /// Sends lines of the native model.
    pub async fn update_lines(&self, lines: &str) -> Result<CommitStamp, CommitError> {
        let target = EditTarget { origin: Origin::Native, path: "/".parse().unwrap() };
        let update = (target, Payload::Cli { text: lines.to_owned() });
        let edit = Edit { updates: vec![update], ..Edit::default() };
        let result = self.handle.commit(&caller(), edit, CommitOptions::default()).await;
        self.handle.current_revision().await;
        result
    }

    pub async fn delete(&self, path: &str) -> Result<CommitStamp, CommitError> {
        let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
        let edit = Edit { deletes: vec![target], ..Edit::default() };
        self.handle.commit(&caller(), edit, CommitOptions::default()).await
    }

    /// Configuration and state as readers see them, without clocks of the box.
    pub fn published_text(&self) -> String {
        let revision = self.handle.revision();
        let schema = revision.schema(Origin::OpenConfig);
        let found = NodeRef::Branch(revision.openconfig.root());
        let is_stable = |node: &holdfast_config::schema::Node| node.name != "last-change";
        let text = json::print(schema, schema.root(), found, json::Flavour::Ietf, &is_stable);
        String::from_utf8(text.unwrap_or_default()).unwrap()
    }

    /// All keys of the engine, with their states.
    pub async fn states(&self) -> Vec<(Key, ValueState)> {
        let statuses = self.handle.statuses(false).await.unwrap();
        statuses.into_iter().map(|status| (status.key, status.state)).collect()
    }

    /// Advances the clock, so that the engine does what is due.
    pub async fn pass(&self, time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
        // The core answers after it has looked at what is due.
        self.handle.statuses(true).await.unwrap();
    }

    /// Lets everything go on that needs no time.
    pub async fn turns(&self) {
        turns(TURNS).await;
        self.handle.wait_until_idle().await.unwrap();
    }

    pub async fn stop(self) {
        self.core.shutdown().await;
        self.store.close().await.unwrap();
    }

    /// Ends the agent as a kill does, once its disk has stopped. Returns what is on disk then, in a folder of its own.
    pub fn killed(self, folder: &Path) -> TempDir {
        // Nothing is written any more, and nothing answered, so it does nothing until its kernel is taken from it.
        copied(folder)
    }
}

/// Turns after which everything has happened that needs no time.
const TURNS: usize = 300;

/// Turns of the runtime: after some of them everything has happened that needs no time and no kernel.
pub async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
        // Examinations and plans have threads of their own.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

/// A document with `count` routes through the neighbour of [`BOX`], from number `first` on.
pub fn routes(first: usize, count: usize) -> String {
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

pub fn caller() -> Caller {
    let source = AuthMethod::Local { uid: 0 };
    Caller { name: "tests".into(), role: Role::Admin, auth_method: source, peer: None }
}

/// Waits until all of [`BOX`] is in force.
pub async fn in_force(agent: &CoreFixture) {
    let mut revisions = agent.handle.watch();
    while !agent.published_text().contains(r#""oper-status":"UP""#) {
        revisions.changed().await.unwrap();
    }
    while !agent.handle.statuses(true).await.unwrap().is_empty() {
        revisions.changed().await.unwrap();
    }
}

/// A state folder in memory, for tests of many starts and commits: a durable write takes milliseconds on a disk.
pub fn memory_folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// A copy of the state folder, as a kill leaves it.
pub fn copied(folder: &Path) -> TempDir {
    let copy = memory_folder();
    for file in fs::read_dir(folder).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    copy
}
