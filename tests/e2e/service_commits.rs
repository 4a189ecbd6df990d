//! Instances of services and the commits that walk them: what the revision of an answer has.

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::packed;
use holdfast_tests::subscription::{Event, notification_lines, subscribe_to};
use serde_json::json;
use tempfile::TempDir;

/// An agent with the plain type `bridge-port`.
async fn with_bridge_ports(net: &Netns) -> (TempDir, AgentProcess, GnmiClient) {
    let packages = packed("bridge-port");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(net, &["--services", folder]).await;
    let client = agent.gnmi().await;
    (packages, agent, client)
}

fn bridge_port(name: &str) -> String {
    format!("holdfast_native:/services/bridge-port[name={name}]")
}

// proves sv.A25, sv.B6
#[tokio::test]
async fn an_instance_with_nothing_to_wait_for_is_ready_in_the_revision_of_the_answer() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let (_packages, _agent, client) = with_bridge_ports(&net).await;
    let acme = format!("{}/state/status", bridge_port("acme"));
    let list = subscribe_to(Mode::Stream, &[(&acme, SubscriptionMode::OnChange)]);
    let mut reader = client.subscribe(list).await.unwrap();
    reader.until_sync().await;
    let set = json!({"bridge": "br0", "port": ["eth1"]});
    let answer = client.update(&bridge_port("acme"), set).await.unwrap();
    assert_eq!(client.read(&acme).await.unwrap(), "reached");
    let Event::Notification(first) = reader.next().await.unwrap() else {
        panic!("the status is told");
    };
    let told = notification_lines(&first).concat();
    assert!(told.ends_with("state/status = \"reached\""), "nobody saw it otherwise: {told}");
    assert_eq!(first.timestamp, answer.timestamp);

    let waiting = json!({"bridge": "br0", "port": ["eth9"]});
    client.update(&bridge_port("bolt"), waiting).await.unwrap();
    let bolt = format!("{}/state/status", bridge_port("bolt"));
    assert_eq!(client.read(&bolt).await.unwrap(), "not-reached");
    net.ip("link add eth9 type veth peer name peer9");
    eventually_async("its port is there", async || {
        client.read(&bolt).await.is_ok_and(|status| status == "reached")
    })
    .await;
}
