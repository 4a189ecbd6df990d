//! Alarm rules: what an operator asked to be told of.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use serde_json::{Value, json};
use tonic::Code;

use crate::alarms::{DOWN, NATIVE, leaf, wait_until_open, wait_until_over};
use crate::documents::port;
use crate::foreign_routes::ports;

const RULES: &str = "holdfast_native:/fault-management/alarm-rule";
const LINKS: &str = "rule-matched.noc/links@agent";

fn entry(name: &str) -> String {
    format!("{RULES}[owner=noc][name={name}]")
}

/// A leaf of what has come of a rule.
async fn state(client: &GnmiClient, name: &str, leaf: &str) -> Value {
    let entry = format!("holdfast_native:/fault-state/rule[owner=noc][name={name}]");
    client.read(&format!("{entry}/state/{leaf}")).await.unwrap()
}

// proves sv.C13, sv.C21, sv.C22, sv.C24, sv.C29
#[tokio::test]
async fn a_rule_is_an_alarm_while_it_fits_one() {
    let net = ports(&["eth0", "eth1"]);
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let links = [port("eth0", &["10.0.0.1/24"]), port("eth1", &["10.0.1.1/24"])];
    client.update("/interfaces", json!({"interface": links})).await.unwrap();
    let eth0 = "interface:eth0";
    for (name, rule) in [
        (
            "links",
            json!({
                "type": "link-*",
                "resource": eth0,
                "expression": "severity == MAJOR and 'eth0' in resource",
                "severity": "CRITICAL",
                "description": "call the carrier",
            }),
        ),
        ("wrong", json!({"resource": eth0, "expression": "gremlins > 1"})),
        ("off", json!({"resource": eth0, "enabled": false})),
        (
            "each",
            json!({"type": "link-down", "resource": "interface:eth*", "repeat-actions": true}),
        ),
    ] {
        client.update(&entry(name), rule).await.unwrap();
    }
    eventually_async("the rule is looked at", async || {
        client.read("holdfast_native:/fault-state/rule[owner=noc][name=links]/state").await.is_ok()
    })
    .await;
    assert_eq!(state(&client, "links", "state").await, json!("ok"));

    net.ip("link set p1 down");
    wait_until_open(&client, "rule-matched.noc/each@agent").await;
    assert_eq!(leaf(&client, NATIVE, LINKS, "severity").await, None, "that was eth1");
    net.ip("link set p0 down");
    wait_until_open(&client, LINKS).await;
    for (name, value) in [
        ("severity", json!("CRITICAL")),
        ("text", json!("call the carrier")),
        ("source", json!(["rules"])),
    ] {
        assert_eq!(leaf(&client, NATIVE, LINKS, name).await, Some(value), "{name}");
    }
    assert_eq!(state(&client, "links", "state").await, json!("alarm"));
    assert_eq!(state(&client, "links", "fired-count").await, json!("1"));
    assert_eq!(state(&client, "each", "fired-count").await, json!("2"));
    assert_eq!(state(&client, "wrong", "state").await, json!("ok"));
    assert_ne!(state(&client, "wrong", "errors").await, json!("0"));
    let off = client.read("holdfast_native:/fault-state/rule[owner=noc][name=off]/state").await;
    assert_eq!(off.unwrap_err().code(), Code::NotFound);

    // What a rule comes to is a level, after a restart, too.
    let created = leaf(&client, NATIVE, LINKS, "time-created").await;
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_until_open(&client, LINKS).await;
    assert_eq!(leaf(&client, NATIVE, LINKS, "time-created").await, created);
    net.ip("link set p0 up");
    wait_until_over(&client, DOWN).await;
    wait_until_over(&client, LINKS).await;
    assert_eq!(state(&client, "links", "state").await, json!("ok"));
    client.delete(&entry("each")).await.unwrap();
    wait_until_over(&client, "rule-matched.noc/each@agent").await;
}

#[tokio::test]
async fn rules_and_probes_that_cannot_be_are_refused_by_the_set() {
    let net = ports(&["eth0"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let probe = "holdfast_native:/fault-management/probe[name=one]";
    let many: Vec<String> = (1..=17).map(|number| format!("10.0.0.{number}")).collect();
    for (path, value, reason) in [
        (entry("a"), json!({"resource": "interface:eth0", "expression": "severity >="}), "column"),
        (entry("a"), json!({"type": "link-*"}), "require-resource"),
        (probe.to_owned(), json!({"interval": 1000}), "next-hop"),
        (
            probe.to_owned(),
            json!({"next-hop": "10.0.0.2", "target": ["2001:db8::1"]}),
            "not of the family",
        ),
        (probe.to_owned(), json!({"next-hop": "10.0.0.2", "target": many}), "at most 16 targets"),
    ] {
        let refused = client.update(&path, value).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{reason}");
        assert!(refused.message().contains(reason), "{}", refused.message());
    }
    let too_fast = json!({"next-hop": "10.0.0.2", "target": &many[..16], "interval": 100});
    client.update(probe, too_fast.clone()).await.unwrap();
    let two = "holdfast_native:/fault-management/probe[name=two]";
    let refused = client.update(two, too_fast).await.unwrap_err();
    assert!(refused.message().contains("200 packets a second"), "{}", refused.message());
    let any = "holdfast_native:/fault-management/settings/require-resource";
    client.update(any, false).await.unwrap();
    client.update(&entry("a"), json!({"type": "link-*"})).await.unwrap();
}
