//! Fences on the agent: beside requests, the boot configuration, a window, restarts and kills.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdfast_base::ErrorChain;
use holdfast_config::{
    BootChange, BootConfiguration, EffectiveStatus, FenceItem, FenceOwner, FenceStanding,
    InstancePath, Lift,
};
use holdfast_core::{ConfirmAction, Confirmation, FenceRequest, LastWay};
use holdfast_platform::kinds::link;
use holdfast_platform::values::Link;
use holdfast_store::faults::WriteKind;

use super::*;

const ETH0: &str = "/interfaces/interface[name=eth0]";
const HOP: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=static]/route[prefix=198.51.100.0/24]/next-hop[index=0]";

fn policy() -> FenceOwner {
    FenceOwner::Policy("p".into())
}

fn shut() -> FenceItem {
    FenceItem::Shut { interface: "eth0".into() }
}

async fn fence(agent: &Agent, owner: FenceOwner) -> Result<CommitStamp, CommitError> {
    let request =
        FenceRequest { owner, lift: Lift::Nothing, set: vec![shut()], trace: "fault/12".into() };
    let fenced = agent.handle.fence(request).await;
    agent.handle.current_revision().await;
    fenced
}

async fn lift(agent: &Agent, owner: FenceOwner) {
    let trace = "fault/13".into();
    let request = FenceRequest { owner, lift: Lift::Everything, set: Vec::new(), trace };
    agent.handle.fence(request).await.unwrap();
    agent.handle.current_revision().await;
}

fn is_up(kernel: &SimulatedKernel) -> bool {
    let observed = kernel.observed(&link::key("eth0")).unwrap();
    observed.as_any().downcast_ref::<Link>().unwrap().enabled
}

/// Value of `enabled` that Get shows in the configuration of a client, and the administrative status.
fn shown(agent: &Agent) -> [Option<String>; 2] {
    let revision = agent.handle.revision();
    ["config/enabled", "state/admin-status"].map(|leaf| {
        let path = format!("{ETH0}/{leaf}").parse().unwrap();
        let path = agent.handle.models().openconfig.resolve_write(&path).unwrap();
        revision.openconfig.find_leaf(&path).map(|leaf| leaf.value.to_string())
    })
}

#[track_caller]
fn check_shut(agent: &Agent, kernel: &SimulatedKernel, configured: Option<&str>) {
    assert!(!is_up(kernel));
    assert_eq!(shown(agent), [configured.map(str::to_owned), Some("DOWN".to_owned())]);
}

/// The port with `enabled` as asked for.
fn enabled(value: bool) -> String {
    format!(
        r#"{{"openconfig-interfaces:interfaces": {{"interface": [{{"name": "eth0",
            "config": {{"name": "eth0", "enabled": {value}}}}}]}}}}"#
    )
}

fn standings(agent: &Agent) -> Vec<FenceStanding> {
    agent.handle.fences().iter().map(|fence| fence.standing).collect()
}

// proves sv.J12
#[tokio::test]
async fn a_fence_stands_over_what_clients_do() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    assert!(is_up(&kernel));
    let before = shown(&agent);
    let contents = kernel.contents();
    assert_eq!(before[0].as_deref(), Some("true"));

    fence(&agent, policy()).await.unwrap();
    check_shut(&agent, &kernel, Some("true"));
    let records = agent.handle.inspect(|view| {
        let records = view.engine.history().records();
        records.filter_map(|it| it.author.clone()).next_back()
    });
    let author = records.await.unwrap().unwrap();
    assert_eq!((author.client.as_str(), author.trace.as_str()), ("policy p", "fault/12"));

    agent.update(&enabled(true)).await.unwrap();
    check_shut(&agent, &kernel, Some("true"));
    let requests = kernel.requests();
    fence(&agent, FenceOwner::Session("7".into())).await.unwrap();
    lift(&agent, policy()).await;
    assert_eq!(kernel.requests(), requests, "another owner needs no operation");
    check_shut(&agent, &kernel, Some("true"));
    // Others who set it up are overruled as ever.
    kernel.set_up("eth0", true);
    agent.handle.resync().await.unwrap();
    assert!(!is_up(&kernel));

    agent.delete("/").await.unwrap();
    agent.handle.current_revision().await;
    check_shut(&agent, &kernel, None);
    assert_eq!(standings(&agent), [FenceStanding::InForce]);
    agent.update(BOX).await.unwrap();
    check_shut(&agent, &kernel, Some("true"));
    lift(&agent, FenceOwner::Session("7".into())).await;
    agent.turns().await;
    assert_eq!((shown(&agent), kernel.contents()), (before, contents));
    agent.stop().await;
}

// proves sv.J1
#[tokio::test]
async fn a_fence_of_what_boot_holds_is_refused_and_changes_nothing() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let boot =
        BootConfiguration { openconfig: enabled(true).into(), ..BootConfiguration::default() };
    let boot = Intent::boot(BootChange::Set(Some(boot.into())));
    agent.handle.change(&caller(), boot).await.unwrap();
    let requests = kernel.requests();
    let refused = fence(&agent, policy()).await.unwrap_err();
    let text = ErrorChain(&refused).to_string();
    assert!(text.contains("the layer `boot openconfig` holds another value"), "{text}");
    assert!(is_up(&kernel) && agent.handle.fences().is_empty());
    assert_eq!(kernel.requests(), requests);
    agent.stop().await;
}

// proves sv.J12
#[tokio::test]
async fn a_fence_stands_over_a_rollback_a_restart_and_goes_with_a_factory_reset() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(&enabled(false)).await.unwrap();
    let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
    let payload = Payload::Json { text: BOX.as_bytes().to_vec().into(), ietf: true };
    let edit = Edit { replaces: vec![(target, payload)], ..Edit::default() };
    let action = |action| {
        let confirmation = Some(Confirmation { id: "w".into(), action });
        CommitOptions { confirmation, ..CommitOptions::default() }
    };
    let begin = action(ConfirmAction::Begin { rollback_after: Duration::from_secs(600) });
    agent.handle.commit(&caller(), edit, begin).await.unwrap();
    assert!(is_up(&kernel));
    // It does not wait for the confirmation, and is not taken back.
    fence(&agent, policy()).await.unwrap();
    check_shut(&agent, &kernel, Some("true"));
    let cancel = action(ConfirmAction::Cancel);
    agent.handle.commit(&caller(), Edit::default(), cancel).await.unwrap();
    agent.handle.current_revision().await;
    check_shut(&agent, &kernel, Some("false"));
    agent.update(&enabled(true)).await.unwrap();
    check_shut(&agent, &kernel, Some("true"));
    let fences = agent.handle.fences();
    agent.stop().await;

    let requests = kernel.requests();
    let agent = Agent::start(&kernel, folder.path()).await;
    check_shut(&agent, &kernel, Some("true"));
    assert_eq!((kernel.requests(), agent.handle.fences()), (requests, fences));
    agent.handle.retain_fence_owners(BTreeSet::from([policy()])).await.unwrap();
    check_shut(&agent, &kernel, Some("true"));
    agent.handle.retain_fence_owners(BTreeSet::new()).await.unwrap();
    agent.handle.current_revision().await;
    assert!(is_up(&kernel) && agent.handle.fences().is_empty());

    fence(&agent, policy()).await.unwrap();
    let reset = Intent::FactoryReset { retain_certificates: true };
    agent.handle.change(&caller(), reset).await.unwrap();
    assert!(agent.handle.fences().is_empty());
    agent.stop().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    assert!(agent.handle.fences().is_empty());
    agent.stop().await;
}

/// A fence that was answered stands after a kill, and one that was not leaves nothing.
#[tokio::test]
async fn a_kill_leaves_a_fence_as_it_was_answered() {
    for (write, is_done, kind, stands) in [
        (1, true, WriteKind::Prepare, false),
        (2, false, WriteKind::Commit, false),
        (2, true, WriteKind::Commit, true),
        (3, true, WriteKind::Prepare, true),
    ] {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = memory_folder();
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        agent.turns().await;
        let stopped_rx = agent.store().stop_at(write, is_done).await.unwrap();
        let stopped = async { stopped_rx.await.unwrap().kind };
        let both = async {
            let fenced = fence(&agent, policy()).await;
            (fenced, fence(&agent, FenceOwner::Client).await)
        };
        tokio::select! {
            stopped = stopped => assert_eq!(stopped, kind, "write {write}"),
            answer = both => panic!("write {write}: {answer:?}"),
        }
        let killed = agent.killed(folder.path());
        let agent = Agent::start(&kernel, killed.path()).await;
        agent.turns().await;
        assert_eq!(!is_up(&kernel), stands, "write {write}");
        let owners: Vec<_> = agent.handle.fences().into_iter().flat_map(|it| it.owners).collect();
        let want = if stands { vec![policy()] } else { Vec::new() };
        assert_eq!(owners, want, "write {write}");
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_drained_next_hop_has_the_higher_metric() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    agent.turns().await;
    let path = |text: &str| -> InstancePath {
        agent.handle.models().native.resolve_write(&text.parse().unwrap()).unwrap()
    };
    let request = FenceRequest {
        owner: FenceOwner::Session("7".into()),
        lift: Lift::Nothing,
        set: vec![FenceItem::Raise { next_hop: path(HOP), metric: 1020 }],
        trace: "fault/14".into(),
    };
    agent.handle.fence(request).await.unwrap();
    let metrics = || {
        let lines = kernel.describe();
        let routes = lines.into_iter().filter(|line| line.contains("198.51.100.0/24"));
        routes.collect::<Vec<String>>()
    };
    let found = metrics();
    assert!(found.len() == 1 && found[0].contains("1020"), "{found:?}");
    // The route goes and comes: the fence waits, and is there again.
    agent.delete("/network-instances").await.unwrap();
    assert_eq!(standings(&agent), [FenceStanding::Waits]);
    assert_eq!(metrics(), [""; 0]);
    agent.update(BOX).await.unwrap();
    assert_eq!(metrics(), found);
    lift(&agent, FenceOwner::Session("7".into())).await;
    assert!(!metrics()[0].contains("1020"), "{:?}", metrics());
    agent.stop().await;
}

#[tokio::test]
async fn the_last_way_is_named() {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    agent.turns().await;
    let nobody = BTreeSet::new();
    let find = async |interface: &str, sessions: &BTreeSet<IpAddr>| {
        agent.handle.last_way(interface, sessions).await.unwrap()
    };
    assert_eq!(find("eth1", &nobody).await, None);
    let route = HOP.trim_end_matches("/next-hop[index=0]").to_owned();
    let entries = LastWay::Entries { first: route.clone(), others: 0 };
    assert_eq!(entries.to_string(), format!("`{route}` has no other way"));
    assert_eq!(find("eth0", &nobody).await, Some(entries));
    for (address, is_there) in
        [("192.0.2.1", true), ("::ffff:192.0.2.1", true), ("192.0.2.9", false)]
    {
        let sessions = BTreeSet::from([address.parse().unwrap()]);
        let found = find("eth0", &sessions).await;
        let is_session = matches!(found, Some(LastWay::Session { .. }));
        assert_eq!(is_session, is_there, "{address}: {found:?}");
    }
    // An object that is marked as DOWN already loses nothing.
    let entry = agent.handle.models().native.resolve_write(&route.parse().unwrap()).unwrap();
    agent.handle.mark(Vec::new(), vec![(entry.into(), Some(EffectiveStatus::Down))]);
    assert_eq!(find("eth0", &nobody).await, None);
    agent.update(&BOX.replace("198.51.100.0/24", "0.0.0.0/0")).await.unwrap();
    agent.turns().await;
    let default = |prefix| Some(LastWay::DefaultRoute { prefix });
    assert_eq!(find("eth0", &nobody).await, default("0.0.0.0/0"));
    // Default routes of other programs count, too, and those of ours beside them.
    kernel.set_up("eth1", true);
    kernel.add_foreign_route_by("0.0.0.0/0".parse().unwrap(), "eth1", 50);
    kernel.add_foreign_route_by("::/0".parse().unwrap(), "eth1", 50);
    agent.handle.resync().await.unwrap();
    assert_eq!(find("eth1", &nobody).await, default("::/0"));
    kernel.add_foreign_route_by("::/0".parse().unwrap(), "eth0", 60);
    agent.handle.resync().await.unwrap();
    assert_eq!(find("eth1", &nobody).await, None);
    agent.stop().await;
}
