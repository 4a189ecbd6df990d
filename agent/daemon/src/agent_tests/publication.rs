//! Revisions after changes of the kernel, large and small.

use std::sync::mpsc;
use std::time::Duration;

use holdfast_common::parallel;
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::tree::{Branch, Child, NodeRef};
use holdfast_config::{InstancePath, Name, NodeId, Value, json};
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore, ServiceState};
use holdfast_platform::kinds::route;
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_platform::values::IPV4_METRIC;
use holdfast_scheduler::{Key, ValueState};
use holdfast_telemetry::{LeafVersion, Revision, ViewEntry};
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;

use super::services::{self, commit, instance, removal};
use super::{Agent, BOX, caller, routes};

/// Replaces `/reconciliation` by a document.
async fn replace_reconciliation(agent: &Agent, document: &str) -> Result<(), CommitError> {
    let target = EditTarget { origin: Origin::Native, path: "/reconciliation".parse().unwrap() };
    let payload = Payload::Json { text: document.as_bytes().to_vec().into(), ietf: false };
    let edit = Edit { replaces: vec![(target, payload)], ..Edit::default() };
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await.map(drop)
}

/// `RT_TABLE_MAIN`.
const MAIN_TABLE: u32 = 254;
const FIRST: &str = "10.0.0.0/32";
const SECOND: &str = "10.0.0.1/32";

/// Next hops of a static route, as they are shown.
fn hops(agent: &Agent, prefix: &str) -> String {
    let published: serde_json::Value = serde_json::from_str(&agent.published_text()).unwrap();
    let find = |inside: &serde_json::Value, key: &str, value: &str| {
        let entries = inside.as_array().unwrap().iter();
        entries.clone().find(|it| it[key] == value).unwrap().clone()
    };
    let instances = &published["openconfig-network-instance:network-instances"];
    let instance = find(&instances["network-instance"], "name", "DEFAULT");
    let protocol = find(&instance["protocols"]["protocol"], "name", "static");
    let route = find(&protocol["static-routes"]["static"], "prefix", prefix);
    route["next-hops"].to_string()
}

/// An agent that tells of routes that vanish and does nothing about them.
async fn watchful(kernel: &SimulatedKernel) -> (Agent, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let policy = r#"{"drift-policy": [{"object": "route", "action": "report"}]}"#;
    replace_reconciliation(&agent, policy).await.unwrap();
    (agent, folder)
}

fn first() -> Key {
    route::key(MAIN_TABLE, FIRST.parse().unwrap(), IPV4_METRIC)
}

async fn state(agent: &Agent, key: &Key) -> ValueState {
    let key = key.clone();
    agent.handle.inspect(move |view| view.engine.state(&key)).await.unwrap()
}

#[tokio::test]
async fn a_route_lost_during_a_large_commit_is_not_published() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let (agent, _folder) = watchful(&kernel).await;
    let all = parallel::FEW + 1;
    kernel.fault_at(all as u64, Fault::Hang);
    let document = routes(0, all);
    let meddle = async {
        while !kernel.is_hung() || state(&agent, &first()).await != ValueState::Configured {
            tokio::task::yield_now().await;
        }
        kernel.delete_route(FIRST.parse().unwrap());
        while state(&agent, &first()).await == ValueState::Configured {
            tokio::task::yield_now().await;
        }
        kernel.resume();
    };
    let (result, ()) = tokio::join!(agent.update(&document), meddle);
    result.unwrap();
    assert!(hops(&agent, SECOND).contains("\"state\""), "{}", hops(&agent, SECOND));
    assert!(!hops(&agent, FIRST).contains("\"state\""), "{}", hops(&agent, FIRST));
    agent.stop().await;
}

/// A runtime whose work for threads is done by one, so that a test can hold all of it up.
fn one_worker() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap()
}

/// Commits a document while a thread works on something else from the last operation until the sender is dropped: the
/// commit is answered, and its revision is not built before that.
async fn answered_unshown(
    agent: &Agent,
    kernel: &SimulatedKernel,
    commit: impl Future<Output = CommitStamp>,
) -> (CommitStamp, mpsc::Sender<()>) {
    let (release_tx, release_rx) = mpsc::channel::<()>();
    let hold = async {
        while !kernel.is_hung() {
            tokio::task::yield_now().await;
        }
        let (begun_tx, begun_rx) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            begun_tx.send(()).unwrap();
            release_rx.recv().unwrap_err();
        });
        begun_rx.await.unwrap();
        kernel.resume();
    };
    let (committed, ()) = tokio::join!(commit, hold);
    let shown = agent.handle.revision().number;
    assert!(shown < committed.revision, "answered, and not yet shown, but {shown} is");
    (committed, release_tx)
}

#[test]
fn a_route_lost_before_the_late_publication_is_not_published() {
    one_worker().block_on(async {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let (agent, _folder) = watchful(&kernel).await;
        let all = parallel::FEW + 1;
        kernel.fault_at(all as u64, Fault::Hang);
        let document = routes(0, all);
        let commit = async { agent.update_all(&[&document]).await.unwrap() };
        let (committed, release_tx) = answered_unshown(&agent, &kernel, commit).await;
        kernel.delete_route(FIRST.parse().unwrap());
        while state(&agent, &first()).await == ValueState::Configured {
            tokio::task::yield_now().await;
        }
        drop(release_tx);
        assert!(agent.handle.current_revision().await.number >= committed.revision);
        assert!(hops(&agent, SECOND).contains("\"state\""), "{}", hops(&agent, SECOND));
        assert!(!hops(&agent, FIRST).contains("\"state\""), "{}", hops(&agent, FIRST));
        agent.stop().await;
    });
}

/// The native tree of a revision.
fn text(revision: &Revision) -> String {
    let schema = revision.schema(Origin::Native);
    let found = NodeRef::Branch(revision.native.root());
    let text = json::print(schema, schema.root(), found, json::Flavour::Ietf, &|_| true);
    String::from_utf8(text.unwrap()).unwrap()
}

/// Routes of the table that a revision shows, and the next hops that it shows as present.
fn routes_of(revision: &Revision) -> (usize, usize) {
    let text = text(revision);
    (text.matches("\"prefix\":\"10.0.").count(), text.matches("\"metric\":20").count())
}

/// Readers that look at each revision while a table of routes comes, changes and goes, and a port changes beside it.
#[tokio::test]
async fn readers_see_all_or_nothing_of_a_large_commit() {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let before = routes_of(&agent.handle.revision());
    let mut watched = agent.handle.watch();
    let all = parallel::FEW + 1;
    let mut after = None;
    for (round, is_there) in [(0, true), (1, false)] {
        let started = watched.borrow_and_update().number;
        let result = if is_there {
            agent.update_all(&[&routes(0, all)]).await.unwrap()
        } else {
            agent.delete("/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes").await.unwrap()
        };
        assert!(result.revision > started + 1, "numbers are kept free for events");
        let mtu = 1400 + round;
        kernel.set_mtu("eth1", mtu);
        let mut last = started;
        let mut shows_mtu = false;
        while last < result.revision || !shows_mtu {
            watched.changed().await.unwrap();
            let revision = watched.borrow_and_update().clone();
            assert!(revision.number > last, "{} after {last}", revision.number);
            last = revision.number;
            shows_mtu |= text(&revision).contains(&format!("\"mtu\":{mtu}"));
            let found = routes_of(&revision);
            let want = match (revision.number < result.revision, is_there) {
                (true, true) => before,
                (true, false) => after.unwrap(),
                (false, true) => *after.get_or_insert(found),
                (false, false) => (0, 0),
            };
            assert_eq!(found, want, "revision {last} of round {round}");
        }
    }
    agent.stop().await;
}

/// Entries of the lists in a branch that are derived, and those that are stored as branches.
fn route_forms(branch: &Branch<LeafVersion>, lists: &[NodeId]) -> (usize, usize) {
    let mut forms = (0, 0);
    for (node, child) in branch.children() {
        match child {
            Child::Leaf(_) => {}
            Child::Container(inner) => add(&mut forms, route_forms(inner, lists)),
            Child::List(list) => {
                for (_, entry) in list.iter() {
                    match entry {
                        ViewEntry::Derived(_) => forms.0 += 1,
                        ViewEntry::Stored(_) if lists.contains(node) => forms.1 += 1,
                        ViewEntry::Stored(entry) => add(&mut forms, route_forms(entry, lists)),
                    }
                }
            }
        }
    }
    forms
}

fn add(forms: &mut (usize, usize), more: (usize, usize)) {
    *forms = (forms.0 + more.0, forms.1 + more.1);
}

/// Both trees of the newest revision.
fn forms_of(agent: &Agent) -> [(usize, usize); 2] {
    let revision = agent.handle.revision();
    let lists = &revision.derived;
    [(&revision.openconfig, &lists.openconfig), (&revision.native, &lists.native)]
        .map(|(tree, lists)| route_forms(tree.root(), lists))
}

/// Routes are derived from what is in memory anyway, whether they come small or large, vanish, come back or are read
/// at a start. Only a route with a single changed leaf is stored.
#[tokio::test]
async fn routes_of_a_revision_are_derived() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let (agent, folder) = watchful(&kernel).await;
    let all = parallel::FEW + 10;
    agent.update(&routes(0, 5)).await.unwrap();
    agent.update(&routes(5, all - 5)).await.unwrap();
    let count = all + 1; // with that of the box
    assert_eq!(forms_of(&agent), [(count, 0); 2]);

    kernel.delete_route(FIRST.parse().unwrap());
    while hops(&agent, FIRST).contains("\"state\"") {
        tokio::task::yield_now().await;
    }
    assert_eq!(forms_of(&agent), [(count, 0); 2]);
    replace_reconciliation(
        &agent,
        r#"{"drift-policy": [{"object": "route", "action": "repair"}]}"#,
    )
    .await
    .unwrap();
    while !hops(&agent, FIRST).contains("\"state\"") {
        agent.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(forms_of(&agent), [(count, 0); 2]);

    let described = routes(1, 1)
        .replace(r#""config":{"prefix":"#, r#""config":{"description":"one","prefix":"#);
    agent.update(&described).await.unwrap();
    assert_eq!(forms_of(&agent), [(count - 1, 1); 2]);
    let published = agent.published_text();
    agent.stop().await;

    let agent = Agent::start(&kernel, folder.path()).await;
    while !hops(&agent, SECOND).contains("\"state\"") {
        tokio::task::yield_now().await;
    }
    assert_eq!(forms_of(&agent), [(count, 0); 2]);
    assert_eq!(agent.published_text(), published);
    agent.stop().await;
}

/// Each turn of the core shows a portion, which is a revision.
#[tokio::test]
async fn a_start_shows_each_value_in_place_once() {
    const ROUTES: usize = 6000;
    const PORTION: usize = 2048;
    let mut revisions = Vec::new();
    for document in [BOX, &routes(0, ROUTES)] {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        agent.update(document).await.unwrap();
        let shown = agent.published_text();
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        assert_eq!(agent.published_text(), shown);
        revisions.push(usize::try_from(agent.handle.revision().number).unwrap());
        agent.stop().await;
    }
    let [few, many] = revisions[..] else { unreachable!("two starts") };
    assert!(many <= few + ROUTES.div_ceil(PORTION), "{few} revisions, {many} with the routes");
}

/// The leaf `apply` of a state of the instance `acme`, whose port is `eth1`.
fn apply_leaf(agent: &Agent) -> InstancePath {
    let path = "/service-state/plan[service=access[name='acme'\\]]/component[type=port][name=eth1]/state[name=attached]/apply";
    agent.handle.models().native.resolve_write(&path.parse().unwrap()).unwrap()
}

/// The leaf with a value, as who looked at the plan before it went would show it.
fn late(leaf: &InstancePath, value: &str) -> ServiceState {
    vec![(leaf.clone(), Some(Value::Enum(Name::of(value))))]
}

#[tokio::test]
async fn state_that_comes_late_for_a_plan_that_is_gone_is_not_shown() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = services::start(&kernel, folder.path(), "").await;
    commit(&agent, instance("acme", "eth1")).await.unwrap();
    let leaf = apply_leaf(&agent);
    agent.handle.show_state(late(&leaf, "failed")).await;
    assert!(text(&agent.handle.revision()).contains("\"apply\":\"failed\""));
    commit(&agent, removal("acme")).await.unwrap();
    agent.handle.show_state(late(&leaf, "pending")).await;
    let after = text(&agent.handle.revision());
    assert!(!after.contains("\"component\""), "{after}");
    // The plan of another instance of this name begins without it.
    commit(&agent, instance("acme", "eth1")).await.unwrap();
    assert!(!text(&agent.handle.revision()).contains("\"apply\":\"pending\""));
    agent.stop().await;
}

#[test]
fn state_of_a_plan_that_comes_while_its_end_is_built_is_not_shown() {
    one_worker().block_on(async {
        let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = services::start(&kernel, folder.path(), "").await;
        agent.update(BOX).await.unwrap();
        commit(&agent, instance("acme", "eth1")).await.unwrap();
        let leaf = apply_leaf(&agent);
        let mut boundaries = agent.handle.boundaries();
        let all = parallel::FEW + 1;
        kernel.fault_at(all as u64, Fault::Hang);
        let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
        let payload = Payload::Json { text: routes(0, all).into_bytes().into(), ietf: true };
        let edit = Edit { updates: vec![(target, payload)], ..removal("acme") };
        let committing = async { commit(&agent, edit).await.unwrap() };
        let (committed, release_tx) = answered_unshown(&agent, &kernel, committing).await;
        for value in ["pending", "failed"] {
            agent.handle.show_state(late(&leaf, value)).await;
        }
        drop(release_tx);
        let boundary = boundaries.recv().await.unwrap();
        assert_eq!(boundary.revision.number, committed.revision);
        assert!(!text(&boundary.revision).contains("\"component\""));
        agent.stop().await;
    });
}
