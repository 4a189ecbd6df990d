//! Alarms of bonds, on the kernel of a guest.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::in_lab;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

/// A leaf of the native model; null while it is not there.
async fn leaf(client: &GnmiClient, path: &str) -> Value {
    client.read(&format!("holdfast_native:{path}")).await.unwrap_or(Value::Null)
}

async fn wait_for(client: &GnmiClient, path: &str, value: Value) {
    eventually_async(&format!("{value} of {path}"), async || leaf(client, path).await == value)
        .await;
}

#[tokio::test]
async fn a_bond_without_members_names_the_one_that_was_lost_last() {
    in_lab!({
        let net = Netns::enter();
        let other = Netns::detached();
        for cable in [1, 2] {
            net.add_cable(&format!("eth{cable}"), &other, &format!("peer{cable}"));
            other.ip(&format!("link set peer{cable} up"));
        }
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let member = |name: &str| json!({"name": name, "aggregate": "bond0"});
        let bond = json!({"name": "bond0", "type": "bond", "bond": {"mode": "balance-xor"}});
        let interfaces = json!({"interface": [bond, member("eth1"), member("eth2")]});
        client.update("holdfast_native:/interfaces", interfaces).await.unwrap();
        wait_for(&client, "/interfaces/interface[name=bond0]/state/oper-status", json!("UP")).await;
        // Links that were just configured may be without a carrier for some seconds, so both have to be seen at work.
        for port in ["eth1", "eth2"] {
            let status = format!("/interfaces/interface[name={port}]/state/oper-status");
            wait_for(&client, &status, json!("UP")).await;
        }

        let status = "/interfaces/interface[name=bond0]/state/effective-status";
        let cause = "/fault-state/alarm[id=link-down@interface:bond0]/state/cause";
        other.ip("link set peer1 down");
        wait_for(&client, status, json!("DEGRADED")).await;
        assert_eq!(leaf(&client, cause).await, Value::Null);
        other.ip("link set peer2 down");
        wait_for(&client, cause, json!("link-down@interface:eth2")).await;
        wait_for(&client, status, json!("DOWN")).await;

        other.ip("link set peer1 up");
        wait_for(&client, status, json!("DEGRADED")).await;
        assert_eq!(leaf(&client, cause).await, Value::Null, "the bond carries again");
        other.ip("link set peer2 up");
        wait_for(&client, status, Value::Null).await;
    });
}
