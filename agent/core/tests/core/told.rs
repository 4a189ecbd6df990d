//! Links that are told as down although they work.

use std::collections::BTreeSet;

use super::*;

/// A state leaf of eth0 in the native model.
fn leaf(agent: &Agent, leaf: &str) -> Option<String> {
    let path = format!("/interfaces/interface[name=eth0]/state/{leaf}").parse().unwrap();
    let path = agent.handle.models().native.resolve_write(&path).unwrap();
    agent.handle.revision().native.find_leaf(&path).map(|leaf| leaf.value.to_string())
}

/// An agent that has configured eth0 and has nothing left to do.
async fn idle_agent(kernel: &SimulatedKernel, folder: &Path) -> Agent {
    let agent = Agent::start(kernel, folder).await;
    agent.update(BOX).await.unwrap();
    in_force(&agent).await;
    agent.handle.wait_until_idle().await.unwrap();
    agent
}

/// Told and observed status.
fn statuses(agent: &Agent) -> [Option<String>; 2] {
    ["oper-status", "observed-status"].map(|name| leaf(agent, name))
}

#[tokio::test]
async fn a_link_that_is_forced_down_is_down_for_readers_alone() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = idle_agent(&kernel, folder.path()).await;
    let before = kernel.requests();
    let configuration = agent.handle.revision().annotation.clone();
    let changed_at = leaf(&agent, "last-change");
    let eth0 = BTreeSet::from(["eth0".into()]);

    for _ in 0..2 {
        agent.handle.force_down(eth0.clone()).await.unwrap();
        // The answer comes when a revision shows it.
        assert_eq!(statuses(&agent), [Some("DOWN".into()), Some("UP".into())]);
    }
    assert!(agent.published_text().contains(r#""oper-status":"DOWN""#));
    assert_eq!(leaf(&agent, "told-down-by").as_deref(), Some("FORCED"));
    assert_eq!(leaf(&agent, "admin-status").as_deref(), Some("UP"));
    assert_ne!(leaf(&agent, "last-change"), changed_at);
    assert_eq!(agent.handle.revision().annotation, configuration);
    agent.handle.wait_until_idle().await.unwrap();
    assert_eq!(kernel.requests(), before, "the kernel is asked for nothing");
    // A change that others make is repaired as always, and lifts nothing.
    kernel.set_mtu("eth0", 1500);
    agent.handle.resync().await.unwrap();
    assert_eq!(leaf(&agent, "mtu").as_deref(), Some("1400"));
    assert_eq!(statuses(&agent), [Some("DOWN".into()), Some("UP".into())]);
    agent.handle.force_down(BTreeSet::new()).await.unwrap();
    assert_eq!(statuses(&agent), [Some("UP".into()), None]);
    agent.stop().await;
}

#[tokio::test]
async fn settings_of_the_status_are_state_and_no_operation() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = idle_agent(&kernel, folder.path()).await;
    let before = kernel.requests();
    let document = r#"{"openconfig-interfaces:interfaces": {"interface": [{
        "name": "eth0", "config": {"name": "eth0"},
        "hold-time": {"config": {"up": 7000, "down": 0}},
        "penalty-based-aied": {"config": {"suppress-threshold": 2500, "decay-half-life": 900}}
    }]}}"#;
    agent.update(document).await.unwrap();
    let shown = ["hold-time/up", "hold-time/down", "penalty/suppress", "penalty/half-life"];
    let shown = shown.map(|name| leaf(&agent, name).unwrap());
    assert_eq!(shown, ["7000", "0", "2500", "900"]);
    let text = agent.published_text();
    assert!(
        text.contains(
            r#""hold-time":{"config":{"down":0,"up":7000},"state":{"down":0,"up":7000}}"#
        ),
        "{text}"
    );
    agent.delete("/interfaces/interface[name=eth0]/hold-time").await.unwrap();
    agent.handle.current_revision().await;
    assert_eq!(leaf(&agent, "hold-time/up"), None);
    assert_eq!(leaf(&agent, "penalty/suppress").as_deref(), Some("2500"));
    assert_eq!(kernel.requests(), before, "the kernel is asked for nothing");
    agent.stop().await;

    // They hold after a restart, too.
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(leaf(&agent, "penalty/half-life").as_deref(), Some("900"));
    agent.stop().await;
}
