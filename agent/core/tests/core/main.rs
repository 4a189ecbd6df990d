//! The core on the simulated kernel: a change with every kind of accident.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{AuthMethod, Caller, RebootInhibitors, Role};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_config::{Models, json};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, Core, CoreHandle, Datastore, Intent, Parts, Statuses,
};
use holdfast_platform::transport::{SimulatedKernel, Transport};
use holdfast_scheduler::{Key, ValueState};
use holdfast_store::Store;
use tempfile::TempDir;

mod abandon;
mod admission;
mod changes;
mod fences;
mod impact;
mod ports;
mod reconcile;
mod routes;
mod state_folder;
mod told;

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

/// The core with its kernel and its store, and nothing else of the agent.
pub(crate) struct Agent {
    core: Core,
    pub(crate) handle: CoreHandle,
    store: Store,
}

impl Agent {
    pub(crate) async fn start(kernel: &SimulatedKernel, folder: &Path) -> Self {
        let (store, loaded) = Store::open(folder).unwrap();
        let (mut transport, events) = kernel.connect();
        transport.retrieve();
        let parts = Parts {
            models: Arc::new(Models::load().unwrap()),
            transport: Box::new(transport),
            events,
            collector: None,
            polled: Vec::new(),
            profiles: None,
            settings_check: None,
            store: store.clone(),
            loaded,
            grpc_services: &[],
            services: None,
            handlers: None,
            factory: None,
            software_version: String::new(),
            credential_source: None,
            undertakings: RebootInhibitors::default(),
        };
        let core = Core::start(parts).await.unwrap();
        Self { handle: core.handle(), core, store }
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

/// Turns after which everything has happened that needs no time.
const TURNS: usize = 300;

/// Turns of the runtime: after some of them everything has happened that needs no time and no kernel.
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

/// Waits until all of [`BOX`] is in force.
pub(crate) async fn in_force(agent: &Agent) {
    let mut revisions = agent.handle.watch();
    while !agent.published_text().contains(r#""oper-status":"UP""#) {
        revisions.changed().await.unwrap();
    }
    while !agent.handle.statuses(true).await.unwrap().is_empty() {
        revisions.changed().await.unwrap();
    }
}
