//! Uplink groups on the kernel: a bridge whose uplinks are lost one after the other, and what is shut with them.

use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

use crate::alarms::{NATIVE, fault, leaf, wait_until_open, wait_until_over};
use crate::documents::port;
use crate::foreign_routes::ports;
use crate::impact::{add_route, link, route, status, wait_for};
use holdfast_tests::agent::AgentProcess;

const UPLINKS: &str = "uplinks-down@group:uplinks";
const GROUP: &str = "holdfast_native:/fault-management/uplink-group[name=uplinks]";

/// A bridge with the ports eth1, eth2 and eth4, and a port for a customer.
async fn agent_with_bridge(net: &Netns) -> (AgentProcess, GnmiClient) {
    let agent = AgentProcess::start(net).await;
    let client = agent.gnmi().await;
    let native = json!({"interface": [
        {"name": "br0", "type": "bridge", "bridge": {}, "ipv4": {"address": [{"ip": "10.0.0.1", "prefix-length": 24}]}},
        {"name": "eth1", "master": "br0"},
        {"name": "eth2", "master": "br0"},
        {"name": "eth4", "master": "br0"},
    ]});
    client.update("holdfast_native:/interfaces", native).await.unwrap();
    client
        .update("/interfaces", json!({"interface": [port("eth3", &["10.0.3.1/24"])]}))
        .await
        .unwrap();
    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    (agent, client)
}

async fn state(client: &GnmiClient, leaf: &str) -> Option<Value> {
    let path = format!("holdfast_native:/fault-state/uplink-group[name=uplinks]/state/{leaf}");
    match client.read(&path).await {
        Ok(value) => Some(value),
        Err(status) if status.code() == Code::NotFound => None,
        Err(status) => panic!("{status}"),
    }
}

fn group(action: &str) -> Value {
    json!({
        "name": "uplinks", "member": ["eth1", "eth2"], "dependent": ["br0", "eth3"],
        "action": action, "recovery-delay": 1,
    })
}

// proves sv.C38, sv.C39
#[tokio::test]
async fn a_bridge_without_uplinks_is_down_while_its_other_port_works() {
    let net = ports(&["eth1", "eth2", "eth3", "eth4"]);
    let (mut agent, client) = agent_with_bridge(&net).await;
    let mut bridge = group("none");
    bridge["dependent"] = json!(["br0"]);
    client.update(GROUP, bridge).await.unwrap();
    net.ip("link set p1 down");
    wait_for(&client, &link("br0"), "DEGRADED").await;
    assert_eq!(state(&client, "effective-status").await, Some(json!("DEGRADED")));
    assert_eq!(state(&client, "lost").await, Some(json!(["eth1"])));
    assert_eq!(leaf(&client, NATIVE, UPLINKS, "severity").await, None);
    net.ip("link set p2 down");
    wait_until_open(&client, UPLINKS).await;
    wait_for(&client, &link("br0"), "DOWN").await;
    wait_for(&client, &route("198.51.100.0/24"), "DOWN").await;
    let cause = leaf(&client, NATIVE, UPLINKS, "cause").await;
    assert_eq!(cause, Some(json!("link-down@interface:eth2")), "the one lost last");
    for member in ["eth1", "eth2"] {
        let id = format!("link-down@interface:{member}");
        assert_eq!(leaf(&client, NATIVE, &id, "cause").await, None);
    }
    let oper = "/interfaces/interface[name=br0]/state/oper-status";
    eventually_async("br0 is told as up, since another port has a carrier", async || {
        client.read(oper).await.unwrap() == json!("UP")
    })
    .await;
    assert_eq!(status(&client, &link("br0")).await, "DOWN");
    let listed = fault(&agent, &["list"]);
    assert!(listed.contains(UPLINKS) && listed.contains("0 of 2 uplinks are left"), "{listed}");
    let created = leaf(&client, NATIVE, UPLINKS, "time-created").await;

    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_for(&client, &route("198.51.100.0/24"), "DOWN").await;
    assert_eq!(leaf(&client, NATIVE, UPLINKS, "cause").await, cause);
    assert_eq!(leaf(&client, NATIVE, UPLINKS, "time-created").await, created);
    net.ip("link set p1 up");
    wait_until_over(&client, UPLINKS).await;
    wait_for(&client, &link("br0"), "DEGRADED").await;
    wait_for(&client, &route("198.51.100.0/24"), "UP").await;
    client.delete(GROUP).await.unwrap();
    wait_for(&client, &link("br0"), "UP").await;
    assert_eq!(state(&client, "name").await, None);
}

// proves sv.C52
#[tokio::test]
async fn dependents_are_shut_until_a_while_after_an_uplink_is_back() {
    let net = ports(&["eth1", "eth2", "eth3", "eth4"]);
    let (mut agent, client) = agent_with_bridge(&net).await;
    let mut customer = group("shut");
    customer["dependent"] = json!(["eth3"]);
    client.update(GROUP, customer).await.unwrap();
    let fence =
        "holdfast_native:/fault-state/fence[resource=interface:eth3][action=shut]/state/owner";
    for peer in ["p1", "p2"] {
        net.ip(&format!("link set {peer} down"));
    }
    eventually_async("eth3 is shut", async || !net.link("eth3").up).await;
    eventually_async("the fence is shown", async || {
        client.read(fence).await.ok() == Some(json!(["group uplinks"]))
    })
    .await;
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_until_open(&client, UPLINKS).await;
    assert!(!net.link("eth3").up, "a restart does not take it off");
    net.ip("link set p2 up");
    wait_until_over(&client, UPLINKS).await;
    eventually_async("eth3 is up again", async || net.link("eth3").up).await;
    assert_eq!(status(&client, &link("eth3")).await, "DEGRADED");

    // A group keeps the members that it needs: the second one is not shut.
    let policy = json!({"name": "errors", "type": "x-errors", "action": "shut"});
    client.update("holdfast_native:/fault-management/policy[name=errors]", policy).await.unwrap();
    let monitor = json!({"name": "crc", "types": ["x-*"]});
    client.update("holdfast_native:/fault-management/monitor[name=crc]", monitor).await.unwrap();
    let errors =
        ["report", "--monitor", "crc", "x-errors@interface:eth2", "raised", "--ttl", "600"];
    assert_eq!(fault(&agent, &errors), "");
    let refused = "fence-failed.policy-errors@interface:eth2";
    wait_until_open(&client, refused).await;
    let text = leaf(&client, NATIVE, refused, "text").await.unwrap().to_string();
    assert!(text.contains("the uplink group or bond `uplinks` needs 1 members"), "{text}");
    assert!(net.link("eth2").up);
}

#[tokio::test]
async fn a_group_that_depends_on_itself_is_refused_with_the_way_round() {
    let net = ports(&["eth1"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let own = json!({"name": "uplinks", "member": ["eth1", "eth2"], "dependent": ["eth2"]});
    let refused = client.update(GROUP, own).await.unwrap_err();
    let text = refused.message();
    assert!(text.contains("/fault-management/uplink-group[name=uplinks]"), "{text}");
    assert!(text.contains("eth2 is a dependent of `uplinks` and a member of `uplinks`"), "{text}");
    let groups = json!({"uplink-group": [
        {"name": "one", "member": ["eth1"], "dependent": ["eth2"]},
        {"name": "two", "member": ["eth2"], "dependent": ["eth1"]},
    ]});
    let refused = client.update("holdfast_native:/fault-management", groups).await.unwrap_err();
    let text = refused.message();
    assert!(
        text.contains("eth2 is a dependent of `one` and a member of `two`, eth1 is a dependent of `two` and a member of `one`"),
        "{text}"
    );
    // Interfaces that nobody knows are not an error: they may come later, and are lost until then.
    let unknown = json!({"name": "uplinks", "member": ["eth7"], "dependent": ["eth8"]});
    client.update(GROUP, unknown).await.unwrap();
    wait_until_open(&client, UPLINKS).await;
    assert_eq!(state(&client, "lost").await, Some(json!(["eth7"])));
}
