//! Walks of service instances while a commit waits to be confirmed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use holdfast_config::edit::Edit;
use holdfast_config::services::{
    ActionEvent, ActionProgress, ActionUpdate, ForcedBackTrack, ServicePlan,
};
use holdfast_config::{ClaimKey, LayerKey, Layers, layer_rows_diff};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, ConfirmAction, Confirmation, Datastore, Intent, Walks,
};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_store::{Row, Store, StoreError};
use holdfast_telemetry::BoundaryReceiver;
use proptest::prelude::*;
use tempfile::TempDir;

use super::services::{LINK_UP, commit, instance, plan, removal, start, tag, until, until_layers};
use super::{Agent, caller, copied};

/// Id of the commit that must be confirmed.
const WINDOW: &str = "w";
const ROLLBACK_AFTER: Duration = Duration::from_secs(60);

async fn confirmation(
    agent: &Agent,
    edit: Edit,
    action: ConfirmAction,
) -> Result<CommitStamp, CommitError> {
    let confirmation = Some(Confirmation { id: WINDOW.into(), action });
    let options = CommitOptions { confirmation, ..CommitOptions::default() };
    agent.handle.commit(&caller(), edit, options).await
}

/// Begins a commit that must be confirmed.
async fn begin(agent: &Agent, edit: Edit) {
    let action = ConfirmAction::Begin { rollback_after: ROLLBACK_AFTER };
    confirmation(agent, edit, action).await.unwrap();
}

fn layers(agent: &Agent) -> Layers {
    agent.handle.configuration().layers().clone()
}

/// The rows that a start finds after a kill at this moment.
async fn rows_after_kill(folder: &Path) -> Vec<Row> {
    let copy = copied(folder);
    let (store, loaded) = Store::open(copy.path()).unwrap();
    let mut rows = Vec::new();
    let take = |key: &[u8], value: &[u8]| -> Result<(), StoreError> {
        rows.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    loaded.layers.visit(take).unwrap();
    store.close().await.unwrap();
    rows
}

fn is_sized(plan: &ServicePlan) -> bool {
    plan.components.iter().filter_map(|it| it.state("sized")).any(|state| state.is_reached)
}

/// True once the second state is known to wait for the port.
fn waits_for_port(plan: &ServicePlan, port: &str) -> bool {
    let states = plan.components.iter().filter_map(|it| it.state("sized"));
    let mut reasons = states.filter_map(|state| state.waits_for.as_deref());
    reasons.any(|reason| reason == format!("port {port}"))
}

/// Progress of the action of an instance.
fn progress(agent: &Agent, name: &str) -> Option<ActionProgress> {
    let plan = plan(agent, name)?;
    plan.calls().next().map(|call| call.action.progress.clone())
}

/// A gate, behind which an action is asked for.
fn acting() -> String {
    let ping = r#"{ builtin = "ping", params = { destination = "'127.0.0.1'", count = "1", interval = "1" } }"#;
    format!("{LINK_UP}\n  sticky = true\n  action = {ping}")
}

/// An agent with the instance `bolt`, and with `acme` in a commit that waits. Both have gone on inside of it.
struct Bench {
    kernel: SimulatedKernel,
    folder: TempDir,
    agent: Agent,
    boundaries: BoundaryReceiver,
    before: Layers,
    rows_before: Vec<Row>,
}

impl Bench {
    async fn new() -> Self {
        let kernel = SimulatedKernel::new(&[]);
        let folder = tempfile::tempdir().unwrap();
        let agent = start(&kernel, folder.path(), &acting()).await;
        commit(&agent, instance("bolt", "eth2")).await.unwrap();
        until(&agent, "bolt", |plan| waits_for_port(plan, "eth2")).await;
        let before = layers(&agent);
        let rows_before = rows_after_kill(folder.path()).await;
        let boundaries = agent.handle.boundaries();
        begin(&agent, instance("acme", "eth1")).await;
        for (name, port) in [("acme", "eth1"), ("bolt", "eth2")] {
            assert!(!is_sized(&plan(&agent, name).unwrap()));
            kernel.plug(port);
            until(&agent, name, is_sized).await;
        }
        agent.turns().await;
        for name in ["acme", "bolt"] {
            assert_eq!(progress(&agent, name), Some(ActionProgress::Queued), "{name}");
        }
        Self { kernel, folder, agent, boundaries, before, rows_before }
    }

    /// Takes away what the walks have waited for.
    async fn unplug(&self) {
        ["eth1", "eth2"].iter().for_each(|port| self.kernel.unplug(port));
        self.agent.turns().await;
    }

    /// Checks that all is as it was, and that `bolt` goes on when its port comes again.
    async fn check_taken_back(self) {
        let Self { kernel, folder, agent, before, rows_before, .. } = self;
        until_layers(&agent, |layers| *layers == before).await;
        agent.turns().await;
        assert!(layers(&agent) == before, "the claims and plans are as before");
        assert!(rows_after_kill(folder.path()).await == rows_before, "and so are their rows");

        let mut boundaries = agent.handle.boundaries();
        kernel.plug("eth2");
        until(&agent, "bolt", is_sized).await;
        assert_eq!(boundaries.recv().await.unwrap().confirm_id, None, "it belongs to no commit");
        until(&agent, "bolt", |plan| plan.calls().all(|call| !call.action.is_under_way())).await;
        agent.stop().await;
    }
}

// proves sv.J17, sv.J18
#[tokio::test]
async fn a_cancelled_commit_takes_the_walks_inside_of_it_along() {
    let mut bench = Bench::new().await;
    // The commit and both walks carry its id.
    for _ in 0..3 {
        let boundary = bench.boundaries.recv().await.unwrap();
        assert_eq!(boundary.confirm_id.as_deref(), Some(WINDOW));
    }
    bench.unplug().await;
    confirmation(&bench.agent, Edit::default(), ConfirmAction::Cancel).await.unwrap();
    bench.check_taken_back().await;
}

// proves sv.J17
#[tokio::test]
async fn a_commit_that_is_not_confirmed_in_time_takes_them_along() {
    let bench = Bench::new().await;
    bench.unplug().await;
    bench.agent.pass(ROLLBACK_AFTER).await;
    bench.check_taken_back().await;
}

// proves sv.J17
#[tokio::test]
async fn a_kill_takes_them_along() {
    let bench = Bench::new().await;
    let killed = copied(bench.folder.path());
    let agent = {
        let Bench { kernel, agent, before, rows_before, boundaries, .. } = bench;
        // The box of the killed agent has what the walks have made.
        agent.stop().await;
        ["eth1", "eth2"].iter().for_each(|port| kernel.unplug(port));
        let agent = start(&kernel, killed.path(), &acting()).await;
        Bench { kernel, folder: killed, agent, boundaries, before, rows_before }
    };
    agent.check_taken_back().await;
}

// proves sv.J17
#[tokio::test]
async fn a_confirmed_commit_keeps_them_and_lets_their_actions_go() {
    let bench = Bench::new().await;
    let agent = &bench.agent;
    let inside = layers(agent);
    confirmation(agent, Edit::default(), ConfirmAction::Confirm).await.unwrap();
    assert!(layers(agent) == inside, "a confirmation changes nothing");
    for name in ["acme", "bolt"] {
        until(agent, name, |plan| plan.calls().all(|call| !call.action.is_under_way())).await;
    }
    let outside = layers(agent);
    agent.turns().await;
    bench.agent.stop().await;
    let agent = start(&bench.kernel, bench.folder.path(), &acting()).await;
    assert!(layers(&agent) == outside, "all of it is on disk");
    agent.stop().await;
}

#[tokio::test]
async fn operations_and_news_of_actions_wait_until_a_commit_is_confirmed() {
    let bench = Bench::new().await;
    let agent = &bench.agent;
    let due = || BTreeSet::from([tag("bolt")]);
    let component = ["port".into(), "eth2".into()];
    let state = ClaimKey { tag: tag("bolt"), component: component.clone(), state: "sized".into() };
    let forced = (tag("bolt"), ForcedBackTrack { component, state: None });
    let news = ActionUpdate { state, id: 1, event: ActionEvent::Dispatched };
    for walks in [
        Walks { due: due(), is_redeployment: true, ..Walks::default() },
        Walks { due: due(), is_redeployment: true, is_lenient: true, ..Walks::default() },
        Walks { due: due(), forced: [forced].into(), ..Walks::default() },
        Walks { due: due(), actions: vec![news], ..Walks::default() },
    ] {
        let refused = agent.handle.change(&caller(), Intent::Walk(walks)).await.unwrap_err();
        assert!(matches!(refused, CommitError::Confirm(_)), "{refused}");
    }
    let intent = Intent::Resurrect { service: tag("bolt"), edit: Edit::default() };
    let refused = agent.handle.change(&caller(), intent).await.unwrap_err();
    assert!(matches!(refused, CommitError::Confirm(_)), "{refused}");
    let walks = Walks { due: due(), ..Walks::default() };
    agent.handle.change(&caller(), Intent::Walk(walks)).await.unwrap();
    bench.agent.stop().await;
}

/// Events of a box while a commit waits.
#[derive(Clone, Debug)]
enum Event {
    Plug(&'static str, bool),
    Walk(&'static str),
    Turns,
}

fn event() -> impl Strategy<Value = Event> {
    let port = prop::sample::select(vec!["eth1", "eth2", "eth3"]);
    prop_oneof![
        4 => (port, any::<bool>()).prop_map(|(port, there)| Event::Plug(port, there)),
        1 => prop::sample::select(vec!["acme", "bolt", "coop"]).prop_map(Event::Walk),
        3 => Just(Event::Turns),
    ]
}

/// Makes events happen in a commit that waits. A kill at any moment and a cancellation leave nothing of them.
async fn run(is_removal: bool, events: &[Event]) {
    let kernel = SimulatedKernel::new(&["eth3"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    for (name, port) in [("bolt", "eth2"), ("coop", "eth3")] {
        commit(&agent, instance(name, port)).await.unwrap();
    }
    until(&agent, "bolt", |plan| waits_for_port(plan, "eth2")).await;
    until(&agent, "coop", ServicePlan::is_ready).await;
    let before = layers(&agent);
    let rows = rows_after_kill(folder.path()).await;
    begin(&agent, if is_removal { removal("coop") } else { instance("acme", "eth1") }).await;
    let mut is_there = BTreeSet::from(["eth3"]);
    for event in events {
        match event {
            Event::Plug(port, true) if is_there.insert(port) => kernel.plug(port),
            Event::Plug(port, false) if is_there.remove(port) => kernel.unplug(port),
            Event::Plug(..) => {}
            Event::Walk(name) => {
                let walks = Walks { due: BTreeSet::from([tag(name)]), ..Walks::default() };
                agent.handle.change(&caller(), Intent::Walk(walks)).await.unwrap();
            }
            Event::Turns => {
                agent.turns().await;
                assert!(
                    rows_after_kill(folder.path()).await == rows,
                    "a kill leaves nothing of it"
                );
            }
        }
    }
    confirmation(&agent, Edit::default(), ConfirmAction::Cancel).await.unwrap();
    let after = layers(&agent);
    assert_eq!(after.book.get(&tag("acme")), None);
    let instances = |layers: &Layers| layers.tree(LayerKey::CLIENT_NATIVE).clone();
    assert!(instances(&after) == instances(&before), "the configuration is as before");
    // The walks that judge the box again may be under way.
    let handle = agent.handle.clone();
    agent.stop().await;
    let models = handle.models();
    let last = handle.configuration();
    let in_memory = layer_rows_diff(&models, &Layers::new(), last.layers());
    let mut in_memory: Vec<Row> =
        in_memory.into_iter().filter_map(|row| Some((row.key, row.value?))).collect();
    in_memory.sort();
    assert!(rows_after_kill(folder.path()).await == in_memory, "memory and disk agree");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_a_window_outlives_a_kill(
        is_removal in any::<bool>(),
        events in prop::collection::vec(event(), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(is_removal, &events));
    }
}
