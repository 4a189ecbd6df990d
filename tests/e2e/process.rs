//! The process: its end, its output, and its error messages.

use std::time::Duration;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{config_of, port};

#[tokio::test]
async fn sigterm_ends_the_agent_within_a_second() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await; // a connection that stays open
    client.capabilities().await.unwrap();

    let (status, took) = agent.terminate().await;
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn show_prints_config_state_and_values() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client
        .update("/interfaces", json!({"interface": [port("eth0", &["192.0.2.1/24"])]}))
        .await
        .unwrap();

    for (what, part) in [("config", "192.0.2.1"), ("state", "eth0"), ("values", "192.0.2.1")] {
        let output = agent.show(what);
        assert!(output.contains(part), "show {what}: {output}");
    }
    assert!(!agent.show("pending").contains("192.0.2.1"));
}

#[tokio::test]
async fn command_errors_have_exit_codes_and_messages() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;

    let second = agent.command("run").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    agent.kill();
    let nobody = agent.command("show").arg("config").output().unwrap();
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
    let nonsense = agent.command("run").arg("--no-such-option").output().unwrap();
    assert_eq!(nonsense.status.code(), Some(2), "{nonsense:?}");
    for complaint in [second, nobody, nonsense] {
        assert!(!complaint.stderr.is_empty());
    }
}

#[tokio::test]
async fn agent_manages_another_network_namespace() {
    let here = Netns::enter();
    let managed = Netns::detached().with_veth("eth0", "peer0");
    let agent = AgentProcess::start_with(&here, &["--netns", managed.path()]).await;
    let client: GnmiClient = agent.gnmi().await;

    client.update(&config_of("eth0"), json!({"mtu": 1414, "enabled": true})).await.unwrap();
    let link = managed.link("eth0");
    assert_eq!((link.mtu, link.up), (1400, true));
    assert_eq!(
        client.read("/interfaces/interface[name=eth0]/state/ifindex").await.unwrap(),
        link.index
    );
    assert_eq!(here.find_link("eth0"), None);
}
