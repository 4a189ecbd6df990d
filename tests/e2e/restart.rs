//! Durability: a Set that was answered with OK outlives the process, and a restart changes only differences.

use std::net::Ipv4Addr;

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{STATIC_ROUTES, agent_with_route, port, route};
use crate::routes::OURS;

// proves 1.85, kv.T3
#[tokio::test]
async fn a_kill_right_after_ok_loses_nothing() {
    let (net, mut agent, _client) = agent_with_route().await;
    agent.kill();
    // As after a power cut: the kernel has none of the agent's objects.
    net.ip("address flush dev eth0");
    net.ip("link set eth0 down");
    assert_eq!(net.routes(OURS), [""; 0]);

    agent.restart().await;
    eventually("address and route are back", || {
        net.addresses("eth0") == ["192.0.2.1/24"]
            && net.routes(OURS) == ["198.51.100.0/24 via 192.0.2.2 dev eth0 metric 20"]
    })
    .await;
    let config = agent
        .gnmi()
        .await
        .read_as("/interfaces/interface[name=eth0]", DataType::Config)
        .await
        .unwrap();
    assert!(config.to_string().contains("192.0.2.1"), "{config}");
    agent.gnmi().await.delete(STATIC_ROUTES).await.unwrap();
}

/// Routes of the Set that is cut off: enough that the kernel has some of them while others are still to come.
const MANY: u32 = 20_000;
/// 10.1.0.0
const FIRST_ROUTE: u32 = 0x0a01_0000;

// proves 1.86
#[tokio::test]
async fn kill_during_a_large_set_rolls_it_back() {
    let (net, mut agent, client) = agent_with_route().await;
    let before = net.routes(OURS);
    let prefix = |number: u32| format!("{}/32", Ipv4Addr::from(FIRST_ROUTE + number));
    let many = (0..MANY).map(|number| route(&prefix(number), "192.0.2.2"));
    let many = json!({"static": many.collect::<Vec<_>>()});
    let cut_off = tokio::spawn(async move { client.update(STATIC_ROUTES, many).await });
    eventually("some of the routes are there", || net.routes(OURS).len() > before.len()).await;
    agent.kill();
    cut_off.await.unwrap().expect_err("it was never answered");

    agent.restart().await;
    eventually("what was there before is there, and no more", || net.routes(OURS) == before).await;
    let client = agent.gnmi().await;
    let change = json!({"static": [route("203.0.113.0/24", "192.0.2.2")]});
    client.update(STATIC_ROUTES, change).await.unwrap();
    assert_eq!(net.routes(OURS).len(), before.len() + 1);
}

// proves kv.T1
#[tokio::test]
async fn a_restart_in_sync_writes_nothing() {
    let (net, mut agent, _client) = agent_with_route().await;
    agent.kill();

    let monitor = Monitor::start(&net).await;
    agent.restart().await;
    agent.gnmi().await.read("/interfaces").await.unwrap();
    assert_eq!(monitor.finish(&net).await, [""; 0]);
    let metrics = agent.http_get("/metrics");
    let asks_the_kernel = |line: &&str| {
        let ours_alone = line.contains("descriptor=\"connected\"");
        line.starts_with("holdfast_operations_total") && !ours_alone
    };
    let operations: Vec<_> = metrics.lines().filter(asks_the_kernel).collect();
    assert!(metrics.contains("holdfast_operations_total"), "{metrics}");
    assert_eq!(operations, [""; 0], "not even what would change nothing");
}

// proves 1.91
#[tokio::test]
async fn root_annotation_is_kept_until_replaced() {
    const ANNOTATION: &str = "openconfig-metadata:protobuf-metadata";
    let net = Netns::enter().with_veth("eth0", "peer0");
    let mut agent = AgentProcess::start(&net).await;
    let note = async |agent: &AgentProcess| {
        let root = agent.gnmi().await.read_as("/", DataType::Config).await.unwrap();
        (root["@"][ANNOTATION].clone(), root.to_string())
    };
    let client = agent.gnmi().await;
    for text in ["Zmlyc3Q=", "c2Vjb25k"] {
        let document = json!({"@": {ANNOTATION: text}, "openconfig-interfaces:interfaces": {"interface": [port("eth0", &[])]}});
        client.update("/", document).await.unwrap();
        assert_eq!(note(&agent).await.0, text);
    }
    agent.kill();
    agent.restart().await;
    let (is_kept, whole) = note(&agent).await;
    assert_eq!(is_kept, "c2Vjb25k");
    assert!(whole.contains("eth0"), "{whole}");
}
