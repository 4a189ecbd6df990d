//! Waits of service instances, and how clients wait for instances.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{
    READ_PLANS, SIZED_PORT, answer_with, plans_with, port_package, set, sized_port, update,
};

const SIZED: &str = "holdfast_native:/services/sized-port[name=acme]";

// proves sv.B18
#[tokio::test]
async fn waits_are_listed_with_who_reads_what_and_how_often_it_changed() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    let place = "port eth9, sized: gate `state('/interfaces/interface[name={}]/state/oper-status'";
    let path = "/interfaces/interface[name=eth9]/state/oper-status";
    answer_with(&gnmic, &READ_PLANS, &["sized-port[name='acme']", "\"state\"", path, place]).await;
    let before = gnmic.json(&READ_PLANS).await.to_string();
    assert!(!before.contains("\"value\":\"UP\""), "{before}");

    net.ip("link set peer9 up");
    eventually("the gate opens", || net.link("eth9").mtu == 1400).await;
    answer_with(&gnmic, &READ_PLANS, &["\"value\":\"UP\""]).await;
    let output = agent.show("service-waits");
    let line = format!("sized-port[name='acme']\n  state {path} was UP  (woke it ");
    assert!(output.starts_with(&line), "{output}");
    assert!(!output.contains("(woke it 0 times)") && output.contains(place), "{output}");

    gnmic.run(&["set", "--delete", SIZED]).await;
    eventually("no wait is left", || agent.show("service-waits").is_empty()).await;
}

/// A gate that reads the state of a route, whose list entries a revision derives.
#[tokio::test]
async fn a_route_wakes_an_instance_that_waits_for_it() {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth9", "peer9");
    net.ip("link set peer1 up");
    net.ip("link set peer9 up");
    let route = "/network-instances/network-instance[name=DEFAULT]/static[name=static]/route[prefix=198.51.100.0/24]";
    let gate = format!("when = \"state('{route}/state/prefix') is not none\"");
    let status =
        "when = \"state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'\"";
    let outline = SIZED_PORT
        .replace(status, &gate)
        .replace("LINES", "")
        .replace("read = [", "read = [\"/network-instances/network-instance/static/route\", ");
    let packages = port_package(&outline);
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    plans_with(&gnmic, &["not-reached", "gate `state("]).await;
    let port = "holdfast_native:/interfaces/interface[name=eth1]";
    update(
        &gnmic,
        port,
        r#"{"enabled": true, "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]}}"#,
    )
    .await;
    let route = format!("holdfast_native:{route}");
    let hop = r#"{"next-hop": [{"index": "0", "next-hop": "192.0.2.2"}]}"#;
    update(&gnmic, &route, hop).await;
    eventually("the gate opens", || net.link("eth9").mtu == 1400).await;
    gnmic.run(&["set", "--delete", &route]).await;
    eventually("the gate closes", || net.link("eth9").mtu == 1500).await;
}

/// Runs a Set of gnmic with an extension of ours, whose message is in a file of `holdfast/`.
async fn set_with(
    gnmic: &Gnmic,
    (file, message): (&str, &str),
    extension: &str,
    arguments: &[&str],
) -> Result<String, String> {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/protos");
    let options = [
        "--proto-dir",
        protos.to_str().unwrap(),
        "--proto-file",
        file,
        "--registered-extensions",
        message,
        "--request-extensions",
        extension,
    ];
    gnmic.outcome(&[&options[..], arguments].concat()).await
}

/// Sets the instance, and returns the answer that waits for what follows.
async fn set_and_wait(gnmic: &Gnmic, wait: &str, within: &str, value: &str) -> String {
    let extension = format!(r#"{{"26151": {{"wait": "{wait}", "within": "{within}"}}}}"#);
    let message = ("holdfast/wait.proto", "26151:holdfast.Services");
    set_with(gnmic, message, &extension, &set(SIZED, value)).await.unwrap()
}

#[tokio::test]
async fn an_answer_waits_until_the_instance_is_ready_or_the_time_is_over() {
    let net = Netns::enter();
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let value = r#"{"bridge": "br0", "port": "eth9"}"#;
    let since = Instant::now();
    let answer = set_and_wait(&gnmic, "WAIT_READY", "2s", value).await;
    assert!(since.elapsed() >= Duration::from_secs(2), "it waits for as long as it may");
    for part in ["sized-port[name='acme']", "SERVICE_STATUS_NOT_READY", "port eth9", "sized"] {
        assert!(answer.contains(part), "`{part}` is not in {answer}");
    }
    assert!(!answer.contains("\"reached\": true"), "{answer}");
    assert!(net.find_link("br0").is_some(), "the Set was committed");

    let answer = set_and_wait(&gnmic, "WAIT_SETTLED", "1s", r#"{"bridge": "br1"}"#).await;
    assert!(!answer.contains("\"reached\": true"), "the port is not there: {answer}");
    net.ip("link add eth9 type veth peer name peer9");
    let answer = set_and_wait(&gnmic, "WAIT_SETTLED", "60s", r#"{"bridge": "br2"}"#).await;
    assert!(answer.contains("\"reached\": true"), "{answer}");
    assert!(answer.contains("SERVICE_STATUS_NOT_READY"), "its link is not up: {answer}");
    assert_eq!(net.link("eth9").master.as_deref(), Some("br2"));

    let waiting = set_and_wait(&gnmic, "WAIT_READY", "60s", r#"{"bridge": "br3"}"#);
    let plug = async {
        eventually("the Set is committed", || net.find_link("br3").is_some()).await;
        net.ip("link set peer9 up");
    };
    let (answer, ()) = tokio::join!(waiting, plug);
    assert!(answer.contains("\"reached\": true"), "{answer}");
    assert!(answer.contains("SERVICE_STATUS_READY"), "{answer}");
    assert_eq!(net.link("eth9").mtu, 1400);
}

/// `ready` of an instance whose type is switched off speaks of what was made before: the answer to a change that is only
/// stored must not.
#[tokio::test]
async fn a_change_that_is_only_stored_is_not_ready() {
    const WAITS: &str = "waits for its type to be switched on";
    let net = Netns::enter().with_veth("eth9", "peer9");
    net.ip("link set peer9 up");
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let value = r#"{"bridge": "br0", "port": "eth9"}"#;
    let answer = set_and_wait(&gnmic, "WAIT_READY", "60s", value).await;
    assert!(answer.contains("SERVICE_STATUS_READY"), "{answer}");
    let switch = "holdfast_native:/service-settings/type[name=sized-port]";
    update(&gnmic, switch, r#"{"enabled": false}"#).await;
    let answer = set_and_wait(&gnmic, "WAIT_READY", "1s", r#"{"bridge": "br1"}"#).await;
    assert!(answer.contains("SERVICE_STATUS_NOT_READY"), "{answer}");
    assert!(!answer.contains("\"reached\": true"), "{answer}");
    assert!(net.find_link("br1").is_none() && net.find_link("br0").is_some());
    let status = ["-e", "json_ietf", "get", "--path", &format!("{SIZED}/state/status")];
    let status = gnmic.json(&status).await.to_string();
    assert!(status.contains("not-reached"), "{status}");
    let why = agent.command("show").args(["why", "sized-port[name='acme']"]).output().unwrap();
    for output in [agent.show("services"), String::from_utf8(why.stdout).unwrap()] {
        assert!(output.contains(WAITS) && !output.contains("1.0.0  ready"), "{output}");
    }

    gnmic.run(&["set", "--delete", &format!("{switch}/enabled")]).await;
    eventually("the change is made", || net.link("eth9").master.as_deref() == Some("br1")).await;
    eventually("it is ready", || agent.show("services").contains("1.0.0  ready")).await;
}

#[tokio::test]
async fn a_client_that_goes_while_its_answer_waits_changes_nothing() {
    let net = Netns::enter();
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let value = r#"{"bridge": "br0", "port": "eth9"}"#;
    tokio::select! {
        answer = set_and_wait(&gnmic, "WAIT_READY", "60s", value) => panic!("answered: {answer}"),
        () = eventually("the Set is committed", || net.find_link("br0").is_some()) => {}
    }
    plans_with(&gnmic, &["port eth9"]).await;
    update(&gnmic, SIZED, r#"{"bridge": "br1"}"#).await;
    eventually("others go on", || net.find_link("br1").is_some()).await;
}

// proves sv.B113
#[tokio::test]
async fn a_dry_run_shows_states_and_leaves_and_its_hash_covers_gates() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    let packages = sized_port("delete = { commit-after = true }");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let plan = ("holdfast/plan.proto", "26150:holdfast.Plan");
    let value = r#"{"bridge": "br0", "port": "eth9"}"#;
    let dry_run = async |arguments: &[&str]| {
        set_with(&gnmic, plan, r#"{"26150": {"dryRun": {}}}"#, arguments).await.unwrap()
    };
    let preview = dry_run(&set(SIZED, value)).await;
    for part in [
        "sized-port[name='acme']",
        "STATE_EFFECT_REACHED",
        "STATE_EFFECT_WAITING",
        "gate `state(",
        "\"partial\": \"port eth9, sized waits for gate",
        "master",
    ] {
        assert!(preview.contains(part), "`{part}` is not in {preview}");
    }
    assert!(!preview.contains("1400"), "what comes later is not shown: {preview}");
    assert!(net.find_link("br0").is_none(), "nothing is changed");

    let hash = preview.split(r#""hash": ""#).nth(1).and_then(|it| it.split('"').next()).unwrap();
    let expected = format!(r#"{{"26150": {{"expected": {{"hash": "{hash}"}}}}}}"#);
    net.ip("link set peer9 up");
    net.ip("link set eth9 up");
    let moves = async || {
        let preview = dry_run(&set(SIZED, value)).await;
        preview.contains("1400") && !preview.contains("\"partial\"")
    };
    eventually_async("the gate is open", moves).await;
    let refusal = set_with(&gnmic, plan, &expected, &set(SIZED, value)).await.unwrap_err();
    assert!(refusal.contains("Aborted"), "{refusal}");
    assert!(net.find_link("br0").is_none());

    update(&gnmic, SIZED, value).await;
    eventually("it is ready", || agent.show("services").contains("1.0.0  ready")).await;
    let preview = dry_run(&["set", "--delete", SIZED]).await;
    for part in ["STATE_EFFECT_LEFT", "\"partial\": \"port eth9,", "waits for the commit of sized"]
    {
        assert!(preview.contains(part), "`{part}` is not in {preview}");
    }
    assert_eq!(net.link("eth9").mtu, 1400, "nothing is changed");
}
