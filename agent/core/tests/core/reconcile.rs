//! Drift policies and the switch of reconciliation.

use std::time::Duration;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_core::{CommitError, CommitOptions, Datastore};
use holdfast_platform::kinds::{self, link};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_scheduler::ValueState;
use holdfast_store::faults::WriteKind;

use super::{Agent, BOX, caller, memory_folder};

/// Replaces `/reconciliation` by a document.
async fn replace_reconciliation(agent: &Agent, document: &str) -> Result<(), CommitError> {
    let target = EditTarget { origin: Origin::Native, path: "/reconciliation".parse().unwrap() };
    let payload = Payload::Json { text: document.as_bytes().to_vec().into(), ietf: false };
    let edit = Edit { replaces: vec![(target, payload)], ..Edit::default() };
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await.map(drop)
}

/// Polls until the link is in the wanted state, because the test does not get the kernel's events.
async fn until(agent: &Agent, expected: ValueState) {
    let state = || agent.handle.inspect(|view| view.engine.state(&link::key("eth0")));
    while state().await.unwrap() != expected {
        tokio::task::yield_now().await;
    }
}

fn mtu(kernel: &SimulatedKernel) -> String {
    let lines = kernel.contents();
    lines.into_iter().find(|line| line.contains("eth0") && line.contains("mtu")).unwrap()
}

#[tokio::test]
async fn drift_policy_report_keeps_a_foreign_change() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let ours = mtu(&kernel);
    let report = r#"{"drift-policy": [{"object": "link/eth0", "action": "report"}]}"#;
    replace_reconciliation(&agent, report).await.unwrap();
    kernel.set_mtu("eth0", 1300);
    until(&agent, ValueState::Drifted).await;
    agent.pass(Duration::from_secs(60)).await;
    until(&agent, ValueState::Drifted).await;
    assert_ne!(mtu(&kernel), ours);

    replace_reconciliation(&agent, "{}").await.unwrap();
    until(&agent, ValueState::Configured).await;
    assert_eq!(mtu(&kernel), ours);

    // A start brings the box to its configuration; after that the policy that is stored counts.
    replace_reconciliation(&agent, report).await.unwrap();
    agent.stop().await;
    kernel.set_mtu("eth0", 1300);
    let agent = Agent::start(&kernel, folder.path()).await;
    until(&agent, ValueState::Configured).await;
    assert_eq!(mtu(&kernel), ours);
    kernel.set_mtu("eth0", 1300);
    until(&agent, ValueState::Drifted).await;
    agent.stop().await;
}

#[tokio::test]
async fn drift_policy_for_an_unknown_object_is_refused_with_the_known_kinds() {
    let kernel = SimulatedKernel::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let policy = r#"{"drift-policy": [{"object": "cable/eth0", "action": "report"}]}"#;
    let error = replace_reconciliation(&agent, policy).await.unwrap_err().to_string();
    for word in ["drift-policy[object=cable/eth0]", "`cable/eth0`", "link, "] {
        assert!(error.contains(word), "{error}");
    }
    assert!(replace_reconciliation(&agent, r#"{"resync-interval": 1}"#).await.is_err());
    agent.stop().await;
}

/// The kernel sends no event for a new alias of a link that is down.
#[tokio::test]
async fn drift_without_an_event_is_found_by_the_periodic_resync() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let down = r#"{"openconfig-interfaces:interfaces": {"interface": [{"name": "eth0",
        "config": {"name": "eth0", "enabled": false, "description": "uplink"}}]}}"#;
    agent.update(down).await.unwrap();
    replace_reconciliation(&agent, r#"{"resync-interval": 600}"#).await.unwrap();
    let ours = kernel.contents();
    kernel.set_alias("eth0", "theirs");
    assert_ne!(kernel.contents(), ours);
    agent.pass(Duration::from_secs(599)).await;
    assert_ne!(kernel.contents(), ours);
    agent.pass(Duration::from_secs(2)).await;
    let mut revisions = agent.handle.watch();
    while kernel.contents() != ours {
        revisions.changed().await.unwrap();
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_port_of_others_is_as_before_a_change_that_a_kill_takes_back() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = memory_folder();
    let agent = Agent::start(&kernel, folder.path()).await;
    let port = |leaves: &str| {
        format!(
            r#"{{"openconfig-interfaces:interfaces":{{"interface":[
                {{"name":"eth0","config":{{"name":"eth0",{leaves}}}}}]}}}}"#
        )
    };
    agent.update(&port(r#""description":"uplink""#)).await.unwrap();
    let before = mtu(&kernel);
    // The change is prepared and in the kernel, and its commit is not made.
    let stopped_rx = agent.store().stop_at(2, false).await.unwrap();
    let document = port(r#""mtu":1414"#);
    tokio::select! {
        stopped = stopped_rx => assert_eq!(stopped.unwrap().kind, WriteKind::Commit),
        answer = agent.update(&document) => panic!("{answer:?}"),
    }
    assert!(mtu(&kernel).contains("mtu: Some(1400)"));
    let folder = agent.killed(folder.path());
    // The start that takes it back is killed before the kernel answers.
    kernel.hang_at(kinds::LINK);
    let agent = Agent::start(&kernel, folder.path()).await;
    while kernel.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    drop(agent.store().stop_at(1, false).await.unwrap());
    let folder = agent.killed(folder.path());
    let agent = Agent::start(&kernel, folder.path()).await;
    kernel.resume();
    agent.turns().await;
    assert!(!agent.published_text().contains("\"mtu\":1414,\"name\""), "the change is taken back");
    assert_eq!(mtu(&kernel), before);
    agent.stop().await;
}

#[tokio::test]
async fn an_attribute_that_a_kill_keeps_from_being_given_back_is_ours_all_the_same() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = memory_folder();
    let agent = Agent::start(&kernel, folder.path()).await;
    let document = r#"{"openconfig-interfaces:interfaces":{"interface":[
        {"name":"eth0","config":{"name":"eth0","description":"uplink","mtu":1414}}]}}"#;
    agent.update(document).await.unwrap();
    assert!(mtu(&kernel).contains("mtu: Some(1400)"));
    // The deletion is prepared, and the kernel is not asked for it: the next start takes it back.
    const MTU: &str = "/interfaces/interface[name=eth0]/config/mtu";
    let stopped_rx = agent.store().stop_at(1, true).await.unwrap();
    tokio::select! {
        stopped = stopped_rx => assert_eq!(stopped.unwrap().kind, WriteKind::Prepare),
        answer = agent.delete(MTU) => panic!("{answer:?}"),
    }
    let folder = agent.killed(folder.path());
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.turns().await;
    assert!(mtu(&kernel).contains("mtu: Some(1400)"), "the deletion is taken back");
    agent.delete(MTU).await.unwrap();
    assert!(mtu(&kernel).contains("mtu: Some(1500)"), "as before us");
    agent.stop().await;
}
