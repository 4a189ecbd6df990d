//! `holdfast fault profile`: where the time goes until a fault is told.

use std::process::Output;

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::update;
use serde_json::{Value, json};

use crate::alarms::{agent_with_port, fault, open_alarms};
use crate::foreign_routes::ports;
use crate::impact::agent_with_ports;

const STATIC: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes";
const MANAGEMENT: &str = "holdfast_native:/fault-management";

/// Static routes through a neighbour of each of two ports.
fn routes(count: usize) -> Value {
    let route = |number: usize| {
        let prefix = format!("10.9.{}.{}/32", number % 2, number / 2);
        let next_hop = format!("10.0.{}.2", number % 2);
        let hop = json!({"index": "0", "config": {"index": "0", "next-hop": next_hop}});
        json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": [hop]}})
    };
    json!({"static": (0..2 * count).map(route).collect::<Vec<_>>()})
}

fn profile(agent: &AgentProcess, arguments: &[&str]) -> Output {
    agent.command("fault").arg("profile").args(arguments).output().unwrap()
}

/// The faults that a profile prints as JSON.
fn faults(agent: &AgentProcess, arguments: &[&str]) -> Vec<Value> {
    let output = profile(agent, &[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["faults"].as_array().unwrap().clone()
}

/// Points of a fault that did not come.
fn missing(fault: &Value) -> Vec<&str> {
    let points = fault["points"].as_object().unwrap().iter();
    points.filter(|(_, at)| at.is_null()).map(|(name, _)| name.as_str()).collect()
}

// proves sv.C54, sv.C55, sv.C56, sv.C58, sv.C60, sv.C61
#[tokio::test]
async fn a_profile_says_where_the_time_of_a_fault_goes() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_ports(&net).await;
    for dependents in [1, 10, 25, 50] {
        let replace = vec![update(STATIC, routes(dependents))];
        client.set(SetRequest { replace, ..Default::default() }).await.unwrap();
        for shortcut in [true, false] {
            client.update(&format!("{MANAGEMENT}/settings/shortcut"), shortcut).await.unwrap();
            for resources in [&["interface:eth0"][..], &["interface:eth0", "interface:eth1"]] {
                let measured = faults(&agent, &[&["--runs", "2"], resources].concat());
                assert_eq!(measured.len(), 2 * resources.len());
                for fault in &measured {
                    assert_eq!(missing(fault), ["T06", "T07"], "there are no rules: {fault}");
                    let objects = fault["objects"].as_u64().unwrap();
                    assert!(objects > u64::try_from(dependents).unwrap(), "{fault}");
                    let shares = fault["components"].as_array().unwrap().iter();
                    let sum: f64 = shares.map(|it| it["percent"].as_f64().unwrap()).sum();
                    assert!((99.0..101.0).contains(&sum), "{fault}");
                    // With the shortcut, the alarm is shown before its impact is known.
                    let at = |point: &str| fault["points"][point].as_f64().unwrap();
                    assert_eq!(at("T03") < at("T02"), shortcut, "{fault}");
                    assert!(at("T04") <= at("T05") && at("T08") <= at("T10"), "{fault}");
                }
            }
        }
    }
    assert_eq!(open_alarms(&agent), "", "what was said is taken back");

    let rule = json!({"resource": "interface:*", "expression": "severity >= MINOR"});
    client.update(&format!("{MANAGEMENT}/alarm-rule[owner=noc][name=all]"), rule).await.unwrap();
    let measured = faults(&agent, &["--runs", "1", "interface:eth0"]);
    assert_eq!(missing(&measured[0]), [""; 0]);
    let text = profile(&agent, &["--runs", "1", "interface:eth0"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("T05  the impact is shown as complete"), "{text}");
}

#[tokio::test]
async fn a_profile_beyond_its_limit_fails_and_names_the_step() {
    let net = ports(&["eth0"]);
    let (agent, _client) = agent_with_port(&net).await;
    let refused = profile(&agent, &["--runs", "1", "--limit", "0", "interface:eth0"]);
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("the limit is 0 ms") && said.contains("% of the time passed until"),
        "{said}"
    );
    assert!(!refused.stdout.is_empty(), "the timeline is printed all the same");
    assert_eq!(open_alarms(&agent), "");

    let unknown = profile(&agent, &["interface:eth7"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("there is no interface:eth7"), "{said}");
    fault(&agent, &["data-plane-down", "interface:eth0"]);
    let refused = profile(&agent, &["interface:eth0"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("already has a data-plane-down latch"), "{said}");
    assert!(open_alarms(&agent).contains("data-plane-down"), "it stays");
}
