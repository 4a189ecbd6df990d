//! Operations on service instances and on the queue of their actions, from clients to the kernel.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::{Gnmic, grpcurl};
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::update as update_of;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{answer_with, operate, packed, plans_with, sized_port, update};
use tempfile::TempDir;
use tonic::Request;

const NORTH: &str = "holdfast_native:/services/uplink[name=north]";
const PARAMETERS: &str = r#"{"port": "eth9", "address": "192.0.2.0/31", "peer": "192.0.2.1", "prefix": ["198.51.100.0/24"]}"#;
const QUEUE: [&str; 5] =
    ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/queue"];

/// An agent with the package of the example `uplink`, on a box whose port is up and has a far end.
async fn with_uplinks(net: &Netns, far: &Netns, packages: &TempDir) -> (AgentProcess, Gnmic) {
    net.add_cable("eth9", far, "peer9");
    far.ip("link set peer9 up");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, "holdfast_native:/interfaces/interface[name=eth9]", r#"{"enabled": true}"#)
        .await;
    let is_up = || net.ip_json("link show dev eth9")[0]["operstate"] == "UP";
    eventually("the port is up", is_up).await;
    (agent, gnmic)
}

/// The identifier of the only call in the queue.
async fn call_id(gnmic: &Gnmic) -> String {
    let queue = gnmic.json(&QUEUE).await.to_string();
    let (_, id) = queue.split_once(r#":id":""#).unwrap();
    id.split('"').next().unwrap().to_owned()
}

fn has_route(net: &Netns) -> bool {
    net.ip("route show 198.51.100.0/24").contains("via 192.0.2.1 dev eth9")
}

// proves sv.B67
#[tokio::test]
async fn a_failed_action_stays_in_the_queue_until_an_operator_decides() {
    let net = Netns::enter();
    let far = Netns::detached();
    let packages = packed("uplink");
    let (agent, gnmic) = with_uplinks(&net, &far, &packages).await;
    update(&gnmic, NORTH, PARAMETERS).await;
    let failed = ["status\":\"failed\"", "attempts\":\"1\"", "uplink[name='north']", "probed"];
    answer_with(&gnmic, &QUEUE, &failed).await;
    let first = call_id(&gnmic).await;
    let output = agent.show("services");
    let line = format!(
        "queue of actions\n  {first}  uplink[name='north'] (uplink eth9, probed)  create ping  failed, attempts 1"
    );
    assert!(output.contains(&line), "{output}");

    let refused = operate(&agent, &["cancel", &first]).unwrap_err();
    assert!(refused.contains("is failed"), "{refused}");
    let refused = operate(&agent, &["reschedule", "7"]).unwrap_err();
    assert!(refused.contains("there is no call 7"), "{refused}");
    let again = operate(&agent, &["reschedule", &first]).unwrap();
    assert!(again.contains("queued, attempts 1") && !again.contains(&first), "{again}");
    answer_with(&gnmic, &QUEUE, &["status\":\"failed\"", "attempts\":\"2\""]).await;
    let second = call_id(&gnmic).await;
    assert!(!has_route(&net));
    let request = |result: &str| format!(r#"{{"id": "{second}", "result": "{result}"}}"#);
    let resolve = ["holdfast.services.v1.Operations/Resolve"];
    let refused = grpcurl(&agent, &resolve, &request("RESULT_UNSET")).await.unwrap_err();
    assert!(refused.contains("InvalidArgument"), "{refused}");
    let done = grpcurl(&agent, &resolve, &request("RESULT_DONE")).await.unwrap();
    assert!(done.contains("QUEUE_STATUS_SUCCEEDED"), "{done}");
    eventually("the state behind it is reached", || has_route(&net)).await;
    let gone = gnmic.json(&QUEUE).await.to_string();
    assert!(!gone.contains("attempts"), "{gone}");
    assert!(!agent.show("services").contains("queue"));
}

// proves sv.B70
#[tokio::test]
async fn a_probe_that_a_restart_cuts_off_is_repeated_because_that_does_no_harm() {
    let net = Netns::enter();
    let far = Netns::detached();
    let packages = packed("uplink");
    let (mut agent, gnmic) = with_uplinks(&net, &far, &packages).await;
    far.ip("address add 192.0.2.1/31 dev peer9");
    update(&gnmic, NORTH, PARAMETERS).await;
    answer_with(&gnmic, &QUEUE, &["status\":\"dispatched\"", "attempts\":\"1\""]).await;
    agent.kill();
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    answer_with(&gnmic, &QUEUE, &["status\":\"dispatched\"", "attempts\":\"2\""]).await;
    eventually("the far end has answered", || has_route(&net)).await;
}

// proves sv.A38
#[tokio::test]
async fn nothing_of_a_type_moves_while_it_is_switched_off() {
    const SWITCH: &str = "holdfast_native:/service-settings/type[name=uplink]";
    const WAITS: &str = "its type to be switched on";
    let net = Netns::enter();
    let far = Netns::detached();
    let packages = packed("uplink");
    let (mut agent, gnmic) = with_uplinks(&net, &far, &packages).await;
    update(&gnmic, NORTH, PARAMETERS).await;
    answer_with(&gnmic, &QUEUE, &["status\":\"failed\"", "attempts\":\"1\""]).await;
    update(&gnmic, SWITCH, r#"{"enabled": false}"#).await;
    plans_with(&gnmic, &[WAITS]).await;
    let has_address = || net.ip("address show dev eth9").contains("192.0.2.0/31");
    assert!(has_address(), "what was made stays");

    far.ip("address add 192.0.2.1/31 dev peer9");
    let queued = operate(&agent, &["reschedule", &call_id(&gnmic).await]).unwrap();
    assert!(queued.contains("queued, attempts 1"), "{queued}");
    let south = NORTH.replace("north", "south");
    update(&gnmic, &south, &PARAMETERS.replace("192.0.2.0/31", "203.0.113.0/31")).await;
    let refused = operate(&agent, &["redeploy", "uplink[name='north']"]).unwrap_err();
    assert!(refused.contains("`uplink[name='north']`: its type is switched off"), "{refused}");
    for (command, text) in [
        ("redeploy", "not-reached  (waits for its type to be switched on)"),
        ("check-sync", "uplink[name='north']  is left out: its type is switched off"),
        ("list", "switched off: its instances wait"),
    ] {
        let output = operate(&agent, &[command]).unwrap();
        assert!(output.contains(text), "{command}: {output}");
    }
    agent.kill();
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    tokio::time::sleep(Duration::from_secs(2)).await;
    answer_with(&gnmic, &QUEUE, &["status\":\"queued\"", "attempts\":\"1\""]).await;
    assert!(has_address() && !has_route(&net));
    assert!(!net.ip("address show dev eth9").contains("203.0.113.0"));

    gnmic.run(&["set", "--delete", &south]).await;
    gnmic.run(&["set", "--delete", &format!("{SWITCH}/enabled")]).await;
    eventually("the far end has answered", || has_route(&net)).await;
}

// proves sv.B76
#[tokio::test]
async fn actions_wait_until_a_commit_is_confirmed_and_say_so() {
    const WINDOW: [&str; 5] =
        ["--commit-id", "trial", "--commit-request", "--rollback-duration", "600s"];
    let net = Netns::enter();
    let far = Netns::detached();
    let packages = packed("uplink");
    let (agent, gnmic) = with_uplinks(&net, &far, &packages).await;
    far.ip("address add 192.0.2.1/31 dev peer9");
    let set = ["--update-path", NORTH, "--update-value", PARAMETERS];
    gnmic.run(&[&["-e", "json_ietf", "set"][..], &WINDOW, &set].concat()).await;
    plans_with(&gnmic, &["the commit `trial`, which waits to be confirmed", "\"queued\""]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    plans_with(&gnmic, &["status\":\"queued\"", "attempts\":\"0\""]).await;
    gnmic.run(&["set", "--commit-id", "trial", "--commit-confirm"]).await;
    eventually("the far end has answered", || has_route(&net)).await;
    let output = gnmic.json(&holdfast_tests::services::READ_PLANS).await.to_string();
    assert!(!output.contains("queue-pause"), "{output}");
    drop(agent);
}

const SIZED: &str = "holdfast_native:/services/sized-port[name=acme]";
const SIZED_TAG: &str = "sized-port[name='acme']";

/// Sets an instance with a trace of the client.
async fn set_with_trace(agent: &AgentProcess, path: &str, value: serde_json::Value) {
    let update = vec![update_of(path, value)];
    let mut request = Request::new(SetRequest { update, ..SetRequest::default() });
    request.metadata_mut().insert("x-trace-id", "change/7".parse().unwrap());
    agent.gnmi().await.raw().set(request).await.unwrap();
}

// proves sv.A37, sv.B93, sv.B96
#[tokio::test]
async fn an_instance_has_a_record_and_objects_have_owners() {
    const STATE: &str = "holdfast_native:/services/sized-port[name=acme]/state";
    let state = ["-e", "json_ietf", "get", "--path", STATE];
    let owners = ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/ownership"];
    let net = Netns::enter().with_veth("eth9", "peer9");
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let value = serde_json::json!({"bridge": "br0", "port": "eth9"});
    set_with_trace(&agent, SIZED, value).await;
    let record = [
        "last-user\":\"admin\"",
        "trace-id\":\"change/7\"",
        "port eth9, attached: reached",
        "created\":\"",
    ];
    answer_with(&gnmic, &state, &record).await;
    let bolt = "holdfast_native:/services/sized-port[name=bolt]";
    update(&gnmic, bolt, r#"{"bridge": "br0", "port": "eth8"}"#).await;
    let both = [SIZED_TAG, "sized-port[name='bolt']", "/interfaces/interface[name=br0]"];
    answer_with(&gnmic, &owners, &both).await;

    agent.kill();
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    answer_with(&gnmic, &state, &record).await;
    answer_with(&gnmic, &owners, &both).await;
    gnmic.run(&["set", "--delete", bolt]).await;
    let left = gnmic.json(&owners).await.to_string();
    assert!(left.contains(SIZED_TAG) && !left.contains("bolt") && !left.contains("eth8"), "{left}");
}

// proves sv.B87, sv.B89
#[tokio::test]
async fn operators_follow_instances_and_have_them_deployed_and_checked() {
    let net = Netns::enter();
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let mut watch = agent.command("service");
    watch.args(["watch", "sized-port"]).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    assert!(lines.any(|line| line.starts_with("sized-port[name='acme']  1.0.0  not-reached")));

    let missing = operate(&agent, &["check-sync", "--deep", SIZED_TAG]).unwrap();
    assert!(missing.contains("sized-port[name='acme'] (port eth9, attached)"), "{missing}");
    assert_eq!(operate(&agent, &["check-sync", SIZED_TAG]).unwrap(), "in sync\n");
    net.ip("link add eth9 type veth peer name peer9");
    net.ip("link set peer9 up");
    assert!(lines.any(|line| line == "sized-port[name='acme']  1.0.0  ready"));
    assert_eq!(operate(&agent, &["check-sync", "--deep", SIZED_TAG]).unwrap(), "in sync\n");

    let begun = operate(&agent, &["reactive-redeploy", "--trace-id", "again/7"]).unwrap();
    assert_eq!(begun, "sized-port[name='acme']\n");
    let is_walked =
        || agent.log().contains("trace=again/7 caller=admin what=\"reactive-redeploy\"");
    eventually("it walks on behalf of its last user", is_walked).await;
    let refused = operate(&agent, &["reactive-redeploy", "none"]).unwrap_err();
    assert!(refused.contains("there is no instance of the type `none`"), "{refused}");
    gnmic.run(&["set", "--delete", SIZED]).await;
    assert!(lines.any(|line| line == "sized-port[name='acme']  nothing is left of it"));
    watch.kill().unwrap();
    watch.wait().unwrap();
}
