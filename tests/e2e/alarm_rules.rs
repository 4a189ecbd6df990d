//! Alarm rules: what an operator asked to be told of.

use holdfast_proto::gnsi::pathz;
use holdfast_proto::holdfast::faults as wire;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use serde_json::{Value, json};
use tonic::Code;

use crate::alarms::{
    DOWN, NATIVE, agent_with_port, fault, faults, leaf, store, wait_until_open, wait_until_over,
};
use crate::foreign_routes::ports;
use crate::impact::agent_with_ports;
use crate::pathz::{ETH0, GUEST, GUEST_PASSWORD, permit};

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
    let (mut agent, client) = agent_with_ports(&net).await;
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
        // True without a text, and neither true nor false with one.
        ("wrong", json!({"resource": eth0, "expression": "text == '' or text"})),
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

    // The result of a rule is a level, after a restart, too.
    let created = leaf(&client, NATIVE, LINKS, "time-created").await;
    store(&agent, LINKS);
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
    let management = "holdfast_native:/fault-management";
    let policy = |name: &str| format!("{management}/policy[name={name}]");
    let shelf = |name: &str| format!("{management}/shelf[name={name}]");
    let monitor = |name: &str| format!("{management}/monitor[name={name}]");
    let many: Vec<String> = (1..=17).map(|number| format!("10.0.0.{number}")).collect();
    for (path, value, reason) in [
        (entry("a"), json!({"resource": "interface:eth0", "expression": "severity >="}), "column"),
        (
            entry("a"),
            json!({"resource": "interface:eth0", "expression": "severitty >= MAJOR"}),
            "there is no `severitty`",
        ),
        (
            entry("a"),
            json!({"resource": "interface:eth0", "expression": "severity > MINOR and text"}),
            "the result is a string, neither true nor false",
        ),
        (entry("a"), threshold("severity > MAJOR"), "there are state, rate"),
        (entry("a"), json!({"type": "link-*"}), "require-resource"),
        (entry("a"), json!({"kind": "threshold"}), "needs an `expression`"),
        (
            entry("a"),
            threshold("state('/interfaces/interface[name=eth0]/state/gremlins') > 1"),
            "gremlins",
        ),
        (
            entry("a"),
            threshold("state('/interfaces/interface[name=eth0]/mtu') > 1"),
            "is configuration",
        ),
        (
            entry("a"),
            threshold("rate('/interfaces/interface/state/oper-status') > 1"),
            "more than one leaf",
        ),
        (entry("a"), threshold("rate('openconfig:/interfaces') > 1"), "is not a leaf"),
        (
            entry("a"),
            json!({"kind": "threshold", "expression": "true", "resource": "interface:eth0"}),
            "belong to an event rule",
        ),
        (
            entry("a"),
            json!({"resource": "interface:eth0", "type": "link-dwn"}),
            "did you mean `link-down`?",
        ),
        (policy("a"), json!({"type": "link-down", "resource": "eth0"}), "fits no resource"),
        (policy("a"), json!({"type": "lnik-*"}), "fits no type of alarm"),
        (shelf("a"), json!({"type": "gremlins"}), "fits no type of alarm"),
        (shelf("a"), json!({"resource": "eth*"}), "begin with `group:`, `interface:`"),
        (monitor("a"), json!({"types": ["x-optics", "optics"]}), "`optics` fits no type"),
        (monitor("a"), json!({"resources": ["port:*"]}), "`port:*` fits no resource"),
        (probe.to_owned(), json!({"interval": 1000}), "next-hop"),
        (
            probe.to_owned(),
            json!({"next-hop": "10.0.0.2", "target": ["2001:db8::1"]}),
            "not of the family",
        ),
        (probe.to_owned(), json!({"next-hop": "10.0.0.2", "target": many}), "at most 16 targets"),
        (probe.to_owned(), json!({"next-hop": "0.0.0.0"}), "not the address of a host"),
        (
            probe.to_owned(),
            json!({"next-hop": "2001:db8::2", "target": ["ff02::1"]}),
            "ff02::1 is not the address of a host",
        ),
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

fn threshold(expression: &str) -> Value {
    json!({"kind": "threshold", "expression": expression, "period": 1, "count": 2})
}

async fn wait_for_state(client: &GnmiClient, owner: &str, name: &str, wanted: &str) {
    let leaf = format!("holdfast_native:/fault-state/rule[owner={owner}][name={name}]/state/state");
    eventually_async(&format!("the rule {name} of {owner} is {wanted}"), async || {
        client.read(&leaf).await.is_ok_and(|state| state == json!(wanted))
    })
    .await;
}

// proves sv.C15, sv.C19
#[tokio::test]
async fn a_threshold_rule_is_an_alarm_while_leaves_are_beyond_it() {
    let net = ports(&["eth0"]);
    let (mut agent, client) = agent_with_port(&net).await;
    let counters = "/interfaces/interface[name=eth0]/state/counters";
    for (name, expression) in [
        ("busy", format!("rate('{counters}/out-pkts') > 5")),
        ("sent", format!("state('openconfig:{counters}/out-pkts') >= 0")),
        (
            "absent",
            "state('/interfaces/interface[name=eth7]/state/oper-status') == 'UP'".to_owned(),
        ),
        ("words", "rate('/interfaces/interface[name=eth0]/state/oper-status') > 1".to_owned()),
    ] {
        client.update(&entry(name), threshold(&expression)).await.unwrap();
    }
    wait_for_state(&client, "noc", "sent", "alarm").await;
    wait_for_state(&client, "noc", "busy", "ok").await;
    wait_for_state(&client, "noc", "absent", "insufficient-data").await;
    assert_eq!(state(&client, "absent", "errors").await, json!("0"));
    wait_for_state(&client, "noc", "words", "insufficient-data").await;
    assert_ne!(state(&client, "words", "errors").await, json!("0"));

    net.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0");
    let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
    let sending = async {
        loop {
            socket.send_to(b"x", "10.0.0.2:9").unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let busy = "rule-matched.noc/busy@agent";
    tokio::select! {
        () = sending => {}
        () = wait_until_open(&client, busy) => {}
    }
    wait_until_over(&client, busy).await;

    // The alarm of a threshold goes on over a restart, until the first look says something else.
    let sent = "rule-matched.noc/sent@agent";
    let created = leaf(&client, NATIVE, sent, "time-created").await;
    store(&agent, sent);
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_until_open(&client, sent).await;
    assert_eq!(leaf(&client, NATIVE, sent, "time-created").await, created);
}

// proves sv.C23
#[tokio::test]
async fn a_rule_that_is_reset_by_hand_waits_for_the_operator() {
    let net = ports(&["eth0"]);
    let (agent, client) = agent_with_port(&net).await;
    let rule = json!({"type": "link-down", "resource": "interface:eth0", "reset": "manual"});
    client.update(&entry("links"), rule).await.unwrap();
    net.ip("link set p0 down");
    wait_until_open(&client, LINKS).await;
    let refused = fault(&agent, &["reset", "noc", "links"]);
    assert!(refused.contains(&format!("still fits the open alarm `{DOWN}`")), "{refused}");
    net.ip("link set p0 up");
    wait_until_over(&client, DOWN).await;
    assert_eq!(state(&client, "links", "state").await, json!("alarm"));
    let unknown = fault(&agent, &["reset", "noc", "gremlins"]);
    assert!(unknown.contains("no alarm rule `gremlins` of `noc`"), "{unknown}");

    let mut rpc = faults(&agent).await;
    let request = |name: &str| wire::ResetAlarmRequest { owner: "noc".into(), name: name.into() };
    let code = rpc.reset_alarm(request("gremlins")).await.unwrap_err().code();
    assert_eq!(code, Code::NotFound);
    assert!(rpc.reset_alarm(request("links")).await.unwrap().into_inner().durable);
    wait_until_over(&client, LINKS).await;
    assert_eq!(state(&client, "links", "state").await, json!("ok"));
    rpc.reset_alarm(request("links")).await.unwrap();
}

// proves sv.C27
#[tokio::test]
async fn a_rule_reads_with_the_rights_of_its_owner() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_ports(&net).await;
    assert!(agent.user(&["set", GUEST, "--role", "admin"], GUEST_PASSWORD).status.success());
    let of_guest = |name: &str| format!("{RULES}[owner={GUEST}][name={name}]");
    for port in ["eth0", "eth1"] {
        let leaf = format!("openconfig:/interfaces/interface[name={port}]/state/oper-status");
        let rule = threshold(&format!("state('{leaf}') == 'UP'"));
        client.update(&of_guest(port), rule).await.unwrap();
        wait_for_state(&client, GUEST, port, "alarm").await;
    }
    let links = json!({"type": "link-down", "resource": "interface:eth1"});
    client.update(&of_guest("links"), links).await.unwrap();
    net.ip("link set p1 down");
    wait_for_state(&client, GUEST, "links", "alarm").await;

    permit(&agent, "one", &[(ETH0, pathz::Mode::Read)]).await;
    wait_for_state(&client, GUEST, "links", "insufficient-data").await;
    wait_for_state(&client, GUEST, "eth1", "insufficient-data").await;
    assert_eq!(
        client
            .read(&format!(
                "holdfast_native:/fault-state/rule[owner={GUEST}][name=eth0]/state/state"
            ))
            .await
            .unwrap(),
        json!("alarm")
    );
    wait_until_over(&client, &format!("rule-matched.{GUEST}/links@agent")).await;
}
