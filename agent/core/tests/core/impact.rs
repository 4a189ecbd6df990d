//! Impacts of failures, and marks, on the agent.

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::{EffectiveStatus, InstancePath, Value};
use holdfast_core::{CommitOptions, Datastore, EntryImpact};
use holdfast_platform::failure;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_scheduler::Failure;
use holdfast_telemetry::ViewEntry;

use super::{Agent, BOX, caller, routes};

fn native_path(agent: &Agent, text: &str) -> InstancePath {
    agent.handle.models().native.resolve_write(&text.parse().unwrap()).unwrap()
}

async fn set(agent: &Agent, path: &str, json: &str) {
    let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
    let payload = Payload::Json { text: json.as_bytes().to_vec().into(), ietf: true };
    let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await.unwrap();
}

async fn delete(agent: &Agent, path: &str) {
    let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
    let edit = Edit { deletes: vec![target], ..Edit::default() };
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await.unwrap();
    agent.handle.current_revision().await;
}

/// An entry of the native model, in short: `eth0`, `eth0 10.0.0.1`, or a prefix.
fn path_of(short: &str) -> String {
    match short.split_once(' ') {
        Some((link, ip)) => format!("/interfaces/interface[name={link}]/ipv4/address[ip={ip}]"),
        None if short.contains('/') => {
            format!("{STATIC}/route[prefix={short}]")
        }
        None => format!("/interfaces/interface[name={short}]"),
    }
}

const STATIC: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=s]";

async fn route(agent: &Agent, prefix: &str, hops: &[(&str, u32)]) {
    let hop = |(index, (ip, metric)): (usize, &(&str, u32))| {
        format!(r#"{{"index": "{index}", "next-hop": "{ip}", "metric": {metric}}}"#)
    };
    let hops: Vec<String> = hops.iter().enumerate().map(hop).collect();
    let json = format!(r#"{{"prefix": "{prefix}", "next-hop": [{}]}}"#, hops.join(","));
    set(agent, &path_of(prefix), &json).await;
}

async fn impact(agent: &Agent, failure: Failure) -> EntryImpact {
    agent.handle.impact(failure).await.unwrap()
}

#[track_caller]
fn check(agent: &Agent, found: &EntryImpact, down: &[&str], degraded: &[&str]) {
    let paths = |all: &[&str]| {
        let mut paths: Vec<InstancePath> =
            all.iter().map(|short| native_path(agent, &path_of(short))).collect();
        paths.sort();
        paths
    };
    assert_eq!(found.down, paths(down), "down");
    assert_eq!(found.degraded, paths(degraded), "degraded");
}

fn all(failures: [Failure; 2]) -> Failure {
    let [mut all, other] = failures;
    all.targets.extend(other.targets);
    all.keys.extend(other.keys);
    all.below.extend(other.below);
    all
}

// proves sv.C41
#[tokio::test]
async fn an_impact_names_the_entries_that_do_not_work() {
    let kernel = SimulatedKernel::new(&["eth0", "eth1", "eth2"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    for (link, ip) in [("eth0", "10.0.0.1"), ("eth1", "10.1.0.1")] {
        let path = path_of(&format!("{link} {ip}"));
        set(&agent, &path, &format!(r#"{{"ip": "{ip}", "prefix-length": 24}}"#)).await;
    }
    set(&agent, "/interfaces/interface[name=eth2]/enabled", "false").await;
    route(&agent, "203.0.1.0/24", &[("10.0.0.2", 20)]).await;
    route(&agent, "203.0.2.0/24", &[("10.0.0.2", 20), ("10.1.0.2", 20)]).await;
    route(&agent, "203.0.3.0/24", &[("10.0.0.2", 20), ("10.1.0.2", 30)]).await;
    route(&agent, "203.0.4.0/24", &[("10.1.0.2", 20)]).await;
    route(&agent, "203.0.5.0/24", &[("10.0.0.2", 20), ("10.9.0.2", 20)]).await;
    route(&agent, "203.0.6.0/24", &[("10.0.0.2", 20), ("10.9.0.2", 30)]).await;
    agent.turns().await;

    let eth0 = || failure::of_interface("eth0");
    let alone = ["203.0.1.0/24", "203.0.5.0/24", "203.0.6.0/24"];
    let shared = ["203.0.2.0/24", "203.0.3.0/24"];
    let down = [&["eth0", "eth0 10.0.0.1"][..], &alone].concat();
    check(&agent, &impact(&agent, eth0()).await, &down, &shared);

    let next_hop = "10.0.0.2".parse().unwrap();
    let found = impact(&agent, failure::of_next_hop(next_hop, ["eth0"])).await;
    check(&agent, &found, &alone, &shared);

    let both = all([eth0(), failure::of_interface("eth1")]);
    let down = [&down[..], &["eth1", "eth1 10.1.0.1", "203.0.4.0/24"], &shared].concat();
    check(&agent, &impact(&agent, both).await, &down, &[]);

    // A link that is administratively down is not a fault.
    check(&agent, &impact(&agent, failure::of_interface("eth2")).await, &[], &[]);

    // An address that others have made goes with its link, and routes with it.
    kernel.add_address("eth0", "10.9.0.1".parse().unwrap(), 24);
    agent.turns().await;
    let found = impact(&agent, eth0()).await;
    assert!(found.down.contains(&native_path(&agent, &path_of("eth0 10.9.0.1"))));
    assert!(found.down.contains(&native_path(&agent, &path_of("203.0.5.0/24"))));
}

// proves sv.C42
#[tokio::test]
async fn who_follows_impacts_is_told_of_changes_of_the_graph() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    agent.turns().await;
    let mut version_rx = agent.handle.graph_version();
    let found = impact(&agent, failure::of_interface("eth0")).await;
    assert_eq!(found.version, *version_rx.borrow_and_update());
    agent.update(&routes(0, 1)).await.unwrap();
    assert!(version_rx.has_changed().unwrap());
    let more = impact(&agent, failure::of_interface("eth0")).await;
    assert_eq!(more.down.len(), found.down.len() + 1);
}

fn mark_of(agent: &Agent, entry: &str) -> Option<String> {
    let leaf = native_path(agent, &format!("{entry}/state/effective-status"));
    match agent.handle.revision().native.find_leaf(&leaf)?.value {
        Value::Enum(name) => Some(name.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_entry_that_is_built_anew_is_marked_as_before() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let address = path_of("eth0 10.0.0.1");
    let prefix = path_of("203.0.1.0/24");
    let build = async || {
        set(&agent, &address, r#"{"ip": "10.0.0.1", "prefix-length": 24}"#).await;
        route(&agent, "203.0.1.0/24", &[("10.0.0.2", 20)]).await;
        agent.turns().await;
    };
    let marked = |mark: Option<EffectiveStatus>| {
        [&prefix, &address].map(|path| (native_path(&agent, path).into(), mark)).to_vec()
    };
    let shown = || [&prefix, &address].map(|path| mark_of(&agent, path));
    build().await;
    assert_eq!(shown(), [None, None]);
    assert_eq!(agent.handle.mark(Vec::new(), marked(Some(EffectiveStatus::Down))), 0);
    assert_eq!(shown(), ["DOWN", "DOWN"].map(|it| Some(it.to_owned())));
    // The kernel loses the address, and the agent brings it back.
    kernel.delete_address("eth0", "10.0.0.1".parse().unwrap(), 24);
    agent.turns().await;
    assert_eq!(shown(), ["DOWN", "DOWN"].map(|it| Some(it.to_owned())));
    for path in [&prefix, &address] {
        delete(&agent, path).await;
    }
    agent.turns().await;
    let revision = agent.handle.revision();
    for path in [&prefix, &address] {
        assert!(!revision.native.contains(&native_path(&agent, path)), "{path}");
    }
    build().await;
    assert_eq!(shown(), ["DOWN", "DOWN"].map(|it| Some(it.to_owned())));
    agent.handle.mark(Vec::new(), marked(None));
    assert_eq!(shown(), [None, None]);
}

#[tokio::test]
async fn ten_thousand_marked_routes_stay_derived() {
    const ROUTES: usize = 10_000;
    /// Objects of an amendment.
    const PORTION: usize = 1024;
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    agent.update(&routes(0, ROUTES)).await.unwrap();
    agent.turns().await;
    let found = impact(&agent, failure::of_interface("eth0")).await;
    assert_eq!(found.down.len(), ROUTES + 3, "the routes of both documents, the port, its address");
    for portion in found.down.chunks(PORTION) {
        let marks = portion.iter().map(|entry| (entry.clone().into(), Some(EffectiveStatus::Down)));
        agent.handle.mark(Vec::new(), marks.collect());
    }
    let of = |below: &str| {
        let list = "/network-instances/network-instance[name=DEFAULT]/static[name=static]/route";
        native_path(&agent, &format!("{list}[prefix=10.0.0.0/32]{below}"))
    };
    let route = of("");
    let leaf = of("/state/effective-status");
    let Some((last, above)) = route.0.split_last() else { panic!("{route:?}") };
    let revision = agent.handle.revision();
    let list = revision.native.find_branch(above).unwrap().list(last.node).cloned().unwrap();
    let derived = list.iter().filter(|(_, entry)| matches!(entry, ViewEntry::Derived(_)));
    assert_eq!((derived.count(), list.len()), (ROUTES + 1, ROUTES + 1));
    let marked = found.down.iter().filter(|entry| {
        let steps = entry.0.iter().chain(&leaf.0[route.0.len()..]).cloned().collect();
        let is_route = entry.last().is_some_and(|step| step.node == last.node);
        is_route && revision.native.contains(&InstancePath(steps))
    });
    assert_eq!(marked.count(), ROUTES + 1);
}
