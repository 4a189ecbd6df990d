//! Sets with a high cost: refused by the name of a limit, without delaying other clients.

use holdfast_config::limits::{EXCERPT, LEAF_LIST_ENTRIES, LIST_ENTRIES, Limit, SET_OPERATIONS};
use holdfast_proto::gnmi::{Path, ScalarArray, SetRequest, TypedValue, Update, typed_value};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{parse_path, update};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tonic::{Code, Status};

use crate::documents::config_of;

const SEARCH: &str = "/system/dns/config/search";

fn domains(from: usize, count: usize) -> Vec<String> {
    (from..from + count).map(|at| format!("d{at}.example")).collect()
}

fn set(update: Update) -> SetRequest {
    SetRequest { update: vec![update], ..Default::default() }
}

fn typed(path: &str, value: typed_value::Value) -> SetRequest {
    let val = Some(TypedValue { value: Some(value) });
    set(Update { path: Some(parse_path(path)), val, ..Default::default() })
}

fn proto(values: Vec<String>) -> typed_value::Value {
    let value = |text| TypedValue { value: Some(typed_value::Value::StringVal(text)) };
    typed_value::Value::LeaflistVal(ScalarArray {
        element: values.into_iter().map(value).collect(),
    })
}

/// The refusal names the limit, its figure and the place, and no more of the request than an excerpt.
#[track_caller]
fn check_over(status: &Status, limit: &Limit, place: &str) {
    let text = status.message();
    assert_eq!(status.code(), Code::ResourceExhausted, "{text}");
    for part in [limit.name, &limit.figure.to_string(), place] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(text.len() < 4 * EXCERPT, "{} bytes", text.len());
}

#[tokio::test]
async fn oversized_leaf_list_is_refused_while_others_are_served() {
    const MANY: usize = 1_000_000;
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let attacker = agent.gnmi().await;
    let other = agent.gnmi().await;
    let mtu = format!("{}/mtu", config_of("eth0"));
    let words = format!("system search-domain {}", domains(0, MANY).join(" "));
    let attacks = [
        set(update(SEARCH, json!(domains(0, MANY)))),
        set(update(
            "/",
            json!({"openconfig-system:system": {"dns": {"config": {"search": domains(0, MANY)}}}}),
        )),
        typed(SEARCH, proto(domains(0, MANY))),
        typed("holdfast_cli:/", typed_value::Value::AsciiVal(words)),
    ];
    for (at, attack) in attacks.into_iter().enumerate() {
        let place = if at == 3 { "line 1: system search-domain" } else { SEARCH };
        let (refused, result) = tokio::join!(attacker.set(attack), other.update(&mtu, 1414 + at));
        check_over(&refused.unwrap_err(), &LEAF_LIST_ENTRIES, place);
        result.unwrap();
        assert_eq!(net.link("eth0").mtu, 1400 + u32::try_from(at).unwrap());
    }
}

#[tokio::test]
async fn leaf_list_limit_is_inclusive() {
    const MOST: usize = LEAF_LIST_ENTRIES.figure;
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let other = agent.gnmi().await;
    // One update for each value, all in one request.
    let update_of = |name: String| update(SEARCH, json!([name]));
    let updates: Vec<_> = domains(0, MOST).into_iter().map(update_of).collect();
    let mtu = format!("{}/mtu", config_of("eth0"));
    let all = client.set(SetRequest { update: updates, ..Default::default() });
    let (all, result) = tokio::join!(all, other.update(&mtu, 1414));
    all.unwrap();
    result.unwrap();
    assert_eq!(client.read(SEARCH).await.unwrap(), json!(domains(0, MOST)));

    let refused = client.set(set(update(SEARCH, json!(domains(MOST, 1))))).await.unwrap_err();
    check_over(&refused, &LEAF_LIST_ENTRIES, SEARCH);
    other.update(&mtu, 1415).await.unwrap();
    assert_eq!(client.read(SEARCH).await.unwrap(), json!(domains(0, MOST)));
}

#[tokio::test]
async fn oversized_sets_are_refused_with_the_limit_named() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let entries = "{},".repeat(LIST_ENTRIES.figure);
    let entries = format!("{{\"openconfig-interfaces:interface\":[{entries}{{}}]}}");
    let refused =
        client.set(typed("/interfaces", typed_value::Value::JsonIetfVal(entries.into()))).await;
    check_over(&refused.unwrap_err(), &LIST_ENTRIES, "/interfaces/interface");

    let delete = vec![Path::default(); SET_OPERATIONS.figure + 1];
    let refused = client.set(SetRequest { delete, ..Default::default() }).await;
    check_over(&refused.unwrap_err(), &SET_OPERATIONS, "");

    // A very long name is not repeated, neither to the client nor in the log.
    let name = "x".repeat(20 << 20);
    let path = format!("/interfaces/interface[name={name}]/config/mtu");
    let refused = client.update(&path, 1414).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    assert!(refused.message().len() < 4 * EXCERPT, "{} bytes", refused.message().len());
    let words =
        client.set(typed("holdfast_cli:/", typed_value::Value::AsciiVal(name))).await.unwrap_err();
    assert_eq!(words.code(), Code::InvalidArgument, "{}", words.message());
    let longest = agent.log().lines().map(str::len).max().unwrap();
    assert!(longest < 8 * EXCERPT, "a line of the log has {longest} bytes");
}
