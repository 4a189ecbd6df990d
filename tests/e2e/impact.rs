//! Consequences of a fault: marks, impacts, root causes, and words from outside that something is down.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use holdfast_proto::holdfast::faults as wire;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::{Credentials, GnmiClient, connect, update};
use holdfast_tests::netns::Netns;
use holdfast_tests::systemd_unit::packaging_folder;
use serde_json::json;
use tonic::Code;

use crate::alarms::{NATIVE, fault, faults, leaf, wait_until_open, wait_until_over};
use crate::documents::port;
use crate::foreign_routes::ports;

const DOWN: &str = "link-down@interface:eth0";
const ROUTES: &str =
    "holdfast_native:/network-instances/network-instance[name=DEFAULT]/static[name=static]/route";

/// The effective status of an entry of the native model; `UP` while it has none.
pub(crate) async fn status(client: &GnmiClient, entry: &str) -> String {
    match client.read(&format!("{entry}/state/effective-status")).await {
        Ok(value) => value.as_str().unwrap().to_owned(),
        Err(status) if status.code() == Code::NotFound => "UP".to_owned(),
        Err(status) => panic!("{status}"),
    }
}

pub(crate) fn route(prefix: &str) -> String {
    format!("{ROUTES}[prefix={prefix}]")
}

pub(crate) fn link(name: &str) -> String {
    format!("holdfast_native:/interfaces/interface[name={name}]")
}

pub(crate) async fn wait_for(client: &GnmiClient, entry: &str, wanted: &str) {
    eventually_async(&format!("{entry} is {wanted}"), async || {
        status(client, entry).await == wanted
    })
    .await;
}

/// Waits until the impact of an alarm has these routes. Beside them, the addresses of the link are down; the kernel
/// makes one of them in its own time.
async fn wait_for_impact(client: &GnmiClient, id: &str, routes_down: u64, degraded: u64) {
    let figure = async |name: &str| leaf(client, NATIVE, id, &format!("impact/{name}")).await;
    eventually_async(&format!("{routes_down} routes suffer from {id}"), async || {
        let down = figure("down").await.and_then(|down| down.as_u64()).unwrap_or_default();
        figure("state").await == Some(json!("complete"))
            && (routes_down + 1..=routes_down + 2).contains(&down)
            && figure("degraded").await == Some(json!(degraded))
    })
    .await;
}

/// A static route by next hops, each with a metric.
pub(crate) async fn add_route(
    client: &GnmiClient,
    prefix: &str,
    next_hops: &[(&str, Option<u64>)],
) {
    let base = format!(
        "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes/static[prefix={prefix}]/next-hops/next-hop"
    );
    let mut updates = Vec::new();
    for (index, (next_hop, metric)) in next_hops.iter().enumerate() {
        let config = format!("{base}[index={index}]/config");
        updates.push(update(&format!("{config}/next-hop"), *next_hop));
        updates.extend(metric.map(|metric| update(&format!("{config}/metric"), metric)));
    }
    let request = holdfast_proto::gnmi::SetRequest { update: updates, ..Default::default() };
    client.set(request).await.unwrap();
}

/// An agent with two ports that have addresses.
pub(crate) async fn agent_with_ports(net: &Netns) -> (AgentProcess, GnmiClient) {
    let agent = AgentProcess::start(net).await;
    let client = agent.gnmi().await;
    let ports = [port("eth0", &["10.0.0.1/24"]), port("eth1", &["10.0.1.1/24"])];
    client.update("/interfaces", json!({"interface": ports})).await.unwrap();
    (agent, client)
}

// proves sv.C9, sv.C32, sv.C41, sv.C45
#[tokio::test]
async fn what_stands_on_a_lost_link_is_marked_and_works_again_with_it() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_ports(&net).await;
    for number in 0..20 {
        add_route(&client, &format!("198.51.{number}.0/24"), &[("10.0.0.2", None)]).await;
    }
    add_route(&client, "203.0.113.0/24", &[("10.0.0.2", None), ("10.0.1.2", None)]).await;
    add_route(&client, "192.0.2.0/24", &[("10.0.0.2", None), ("10.0.1.2", Some(500))]).await;
    net.ip("link set p0 down");
    // Routes with another way are degraded.
    wait_for_impact(&client, DOWN, 20, 2).await;
    assert_eq!(status(&client, &route("198.51.7.0/24")).await, "DOWN");
    assert_eq!(status(&client, &route("203.0.113.0/24")).await, "DEGRADED");
    assert_eq!(status(&client, &route("192.0.2.0/24")).await, "DEGRADED");
    assert_eq!(status(&client, &link("eth0")).await, "DOWN");
    assert_eq!(status(&client, &link("eth1")).await, "UP");
    let enabled = client.read("/interfaces/interface[name=eth0]/config/enabled").await.unwrap();
    assert_eq!(enabled, json!(true));
    let listed = fault(&agent, &["list"]);
    assert!(listed.contains(" down, 2 degraded)"), "{listed}");
    let shown = fault(&agent, &["show", DOWN]);
    let has = |status: &str, prefix: &str| {
        shown.lines().any(|line| line.starts_with(status) && line.contains(prefix))
    };
    assert!(has("DOWN", "[prefix=198.51.7.0/24]"), "{shown}");
    assert!(has("DEGRADED", "[prefix=203.0.113.0/24]"), "{shown}");

    // A route that comes while the alarm is open is accepted, and marked.
    add_route(&client, "198.51.99.0/24", &[("10.0.0.2", None)]).await;
    wait_for(&client, &route("198.51.99.0/24"), "DOWN").await;
    wait_for_impact(&client, DOWN, 21, 2).await;

    net.ip("link set p0 up");
    wait_until_over(&client, DOWN).await;
    for prefix in ["198.51.7.0/24", "203.0.113.0/24", "192.0.2.0/24", "198.51.99.0/24"] {
        wait_for(&client, &route(prefix), "UP").await;
    }
    assert_eq!(status(&client, &link("eth0")).await, "UP");
}

fn latch(resource: &str, down: bool) -> wire::LatchRequest {
    let reason = "optics".to_owned();
    wire::LatchRequest { resource: resource.to_owned(), down, reason, ..Default::default() }
}

// proves sv.C1, sv.C3, sv.C5, sv.C8, sv.C35, sv.C36
#[tokio::test]
async fn a_port_that_is_said_to_be_down_is_down_until_that_is_taken_back() {
    let net = ports(&["eth0", "eth1"]);
    let (mut agent, client) = agent_with_ports(&net).await;
    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    assert!(agent.user(&["set", "eve", "--role", "read-only"], "secret of eve").status.success());
    assert!(agent.user(&["set", "adam", "--role", "admin"], "secret of adam").status.success());
    let mut rpc = faults(&agent).await;
    let eth0 = "interface:eth0";
    let forced = "forced-down@interface:eth0";
    let oper = async |client: &GnmiClient| {
        client.read("/interfaces/interface[name=eth0]/state/oper-status").await.unwrap()
    };
    let done = rpc.set_forced_down(latch(eth0, true)).await.unwrap().into_inner();
    assert!(done.durable);
    assert_eq!(oper(&client).await, json!("DOWN"), "with the answer");
    assert!(net.ip("link show eth0").contains("LOWER_UP"), "the kernel is left alone");
    wait_for(&client, &route("198.51.100.0/24"), "DOWN").await;
    let text = leaf(&client, NATIVE, forced, "text").await;
    assert_eq!(text, Some(json!("eth0 is forced down, says admin: optics")));
    let observed = format!("{}/state/observed-status", link("eth0"));
    assert_eq!(client.read(&observed).await.unwrap(), json!("UP"));

    // Changes of the kernel, a replaced configuration and a restart change nothing of it.
    net.ip("link set p0 down");
    net.ip("link set p0 up");
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_until_open(&client, forced).await;
    assert_eq!(oper(&client).await, json!("DOWN"));
    wait_for(&client, &route("198.51.100.0/24"), "DOWN").await;

    let adam = Credentials::new("adam", "secret of adam").unwrap();
    let eve = Credentials::new("eve", "secret of eve").unwrap();
    let mut as_adam =
        wire::faults_client::FaultsClient::with_interceptor(agent.channel().await, adam);
    let mut as_eve =
        wire::faults_client::FaultsClient::with_interceptor(agent.channel().await, eve);
    for (refused, code) in [
        (as_adam.set_forced_down(latch(eth0, false)).await, Code::PermissionDenied),
        (as_eve.set_forced_down(latch(eth0, true)).await, Code::PermissionDenied),
        (as_adam.set_forced_down(latch("interface:eth7", true)).await, Code::InvalidArgument),
        (as_adam.set_forced_down(latch("agent", true)).await, Code::InvalidArgument),
        (as_adam.set_forced_down(latch("eth0", true)).await, Code::InvalidArgument),
    ] {
        assert_eq!(refused.unwrap_err().code(), code);
    }
    let lift = wire::LatchRequest { r#override: true, ..latch(eth0, false) };
    as_adam.set_forced_down(lift).await.unwrap();
    assert_eq!(oper(&client).await, json!("UP"));
    wait_until_over(&client, forced).await;
    wait_for(&client, &route("198.51.100.0/24"), "UP").await;

    // The data plane is another matter: the operational status stays.
    as_adam.set_data_plane_down(latch(eth0, true)).await.unwrap();
    wait_for(&client, &link("eth0"), "DOWN").await;
    assert_eq!(oper(&client).await, json!("UP"));
    as_adam.set_data_plane_down(latch(eth0, false)).await.unwrap();
    wait_for(&client, &link("eth0"), "UP").await;
}

/// Has a program that may report optics of interfaces for a minute.
async fn add_monitor(client: &GnmiClient, identity: &str) {
    let monitor = json!({
        "name": "optics",
        "identity": identity,
        "types": ["x-*"],
        "resources": ["interface:*"],
        "max-ttl": 60,
        "rate": 5,
    });
    let path = "holdfast_native:/fault-management/monitor[name=optics]";
    client.update(path, monitor).await.unwrap();
}

fn report(id: &str, status: wire::ReportStatus) -> wire::ReportEventRequest {
    let (kind, resource) = id.split_once('@').unwrap();
    wire::ReportEventRequest {
        event_id: "1".to_owned(),
        monitor: "optics".to_owned(),
        r#type: kind.to_owned(),
        resource: resource.to_owned(),
        status: status.into(),
        cause: "4 dB too dim".to_owned(),
        ttl: 2,
        ..Default::default()
    }
}

// proves sv.C33, sv.C48
#[tokio::test]
async fn a_program_reports_what_its_entry_permits() {
    let net = ports(&["eth0"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client
        .update("/interfaces", json!({"interface": [port("eth0", &["10.0.0.1/24"])]}))
        .await
        .unwrap();
    assert!(agent.user(&["set", "mon", "--role", "read-only"], "secret of mon").status.success());
    add_monitor(&client, "mon").await;
    let credentials = Credentials::new("mon", "secret of mon").unwrap();
    let mut rpc =
        wire::faults_client::FaultsClient::with_interceptor(agent.channel().await, credentials);
    let dim = "x-optics@interface:eth0";
    let answers = async |rpc: &mut wire::faults_client::FaultsClient<_>,
                         reports: Vec<wire::ReportEventRequest>| {
        let stream = rpc.report_event(tokio_stream::iter(reports)).await.unwrap();
        let mut stream = stream.into_inner();
        let mut codes = Vec::new();
        while let Some(answer) = stream.message().await.unwrap() {
            codes.push(Code::from(i32::try_from(answer.code).unwrap()));
        }
        codes
    };
    use wire::ReportStatus::{Cleared, Raised, Unset};
    assert_eq!(answers(&mut rpc, vec![report(dim, Raised)]).await, [Code::Ok]);
    wait_until_open(&client, dim).await;
    assert_eq!(leaf(&client, NATIVE, dim, "source").await, Some(json!(["optics"])));
    let silent = "monitor-silent.optics@agent";
    wait_until_open(&client, silent).await;
    wait_for(&client, &link("eth0"), "UNKNOWN").await;
    assert_eq!(answers(&mut rpc, vec![report(dim, Cleared)]).await, [Code::Ok]);
    wait_until_over(&client, dim).await;
    wait_until_over(&client, silent).await;
    wait_for(&client, &link("eth0"), "UP").await;

    tokio::time::sleep(std::time::Duration::from_secs(1)).await; // another second of its rate
    let wrong = vec![
        report("link-down@interface:eth0", Raised),
        report("x-optics@box", Raised),
        report("x-optics@interface:eth7", Raised),
        report(dim, Unset),
        report("gremlins@interface:eth0", Raised),
        wire::ReportEventRequest { monitor: "fans".to_owned(), ..report(dim, Raised) },
    ];
    use Code::{InvalidArgument, PermissionDenied};
    let codes = answers(&mut rpc, wrong).await;
    let wanted = [
        PermissionDenied,
        PermissionDenied,
        InvalidArgument,
        InvalidArgument,
        InvalidArgument,
        PermissionDenied,
    ];
    assert_eq!(codes, wanted);
    let many = vec![report(dim, Raised); 20];
    let codes = answers(&mut rpc, many).await;
    assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");
    wait_until_open(&client, "queue-overflow.optics@agent").await;
    let refused =
        client.read("holdfast_native:/fault-state/monitor[name=optics]/state/refused").await;
    let refused: u64 = refused.unwrap().as_str().unwrap().parse().unwrap();
    assert!(refused >= 15, "{refused}");

    // The command on the box needs no identity, and obeys the same entry.
    let fan = "x-fan@interface:eth0";
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let text = fault(
        &agent,
        &["report", "--monitor", "optics", fan, "--text", "stands still", "--ttl", "30"],
    );
    assert_eq!(text, "");
    wait_until_open(&client, fan).await;
    let text = fault(&agent, &["report", "--monitor", "optics", "link-down@interface:eth0"]);
    assert!(text.starts_with("holdfast: ") && text.contains("`types` are `x-*`"), "{text}");
    client.delete("holdfast_native:/fault-management/monitor[name=optics]").await.unwrap();
    wait_until_over(&client, fan).await;
}

// proves sv.C2, sv.C7, sv.C52
#[tokio::test]
async fn a_policy_shuts_a_port_and_gives_it_back() {
    let net = ports(&["eth0", "eth1"]);
    let (mut agent, client) = agent_with_ports(&net).await;
    let policy =
        json!({"name": "errors", "type": "x-errors", "action": "shut", "recovery-delay": 1});
    client.update("holdfast_native:/fault-management/policy[name=errors]", policy).await.unwrap();
    let monitor = json!({"name": "crc", "types": ["x-*"]});
    client.update("holdfast_native:/fault-management/monitor[name=crc]", monitor).await.unwrap();
    let errors = "x-errors@interface:eth0";
    let report = |agent: &AgentProcess, word: &str| {
        fault(agent, &["report", "--monitor", "crc", errors, word, "--ttl", "600"])
    };
    assert_eq!(report(&agent, "raised"), "");
    eventually_async("eth0 is shut", async || !net.link("eth0").up).await;
    let enabled = "/interfaces/interface[name=eth0]/config/enabled";
    assert_eq!(client.read(enabled).await.unwrap(), json!(true), "the client's own leaf stays");
    let admin = "/interfaces/interface[name=eth0]/state/admin-status";
    assert_eq!(client.read(admin).await.unwrap(), json!("DOWN"));
    client.update(enabled, true).await.unwrap();
    assert!(!net.link("eth0").up, "a client does not take it off");
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_until_open(&client, errors).await;
    assert!(!net.link("eth0").up, "nor does a restart");
    report(&agent, "cleared");
    eventually_async("eth0 is up again", async || net.link("eth0").up).await;

    // Where a route would lose its last way, the port is not shut, until there is another one.
    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    report(&agent, "raised");
    let refused = "fence-failed.policy-errors@interface:eth0";
    wait_until_open(&client, refused).await;
    assert!(net.link("eth0").up);
    let text = leaf(&client, NATIVE, refused, "text").await.unwrap().to_string();
    assert!(text.contains("198.51.100.0/24") && text.contains("no other way"), "{text}");
    report(&agent, "cleared");
    wait_until_over(&client, errors).await;
    wait_until_over(&client, refused).await;
}

// proves sv.C2
#[tokio::test]
async fn a_port_that_is_said_to_be_down_is_shut_where_that_is_asked_for() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_ports(&net).await;
    let mut rpc = faults(&agent).await;
    let fenced = wire::LatchRequest { fence: true, ..latch("interface:eth0", true) };
    rpc.set_forced_down(fenced.clone()).await.unwrap();
    assert!(!net.link("eth0").up, "with the answer");
    wait_until_open(&client, "forced-down@interface:eth0").await;
    rpc.set_forced_down(latch("interface:eth0", false)).await.unwrap();
    eventually_async("eth0 is up again", async || net.link("eth0").up).await;

    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    let refused = rpc.set_forced_down(fenced.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("198.51.100.0/24"), "{refused}");
    assert!(net.link("eth0").up);
    let forced = leaf(&client, NATIVE, "forced-down@interface:eth0", "id").await;
    assert_eq!(forced, None, "nothing is latched");
    let isolating = wire::LatchRequest { allow_isolation: true, ..fenced };
    rpc.set_forced_down(isolating).await.unwrap();
    assert!(!net.link("eth0").up);
}

/// Runs the shipped script for sensors, with files in place of those of the kernel.
fn run_hwmon(agent: &AgentProcess, sensors: &Path) {
    let question = agent.command("fault");
    let program = question.get_program().to_str().unwrap();
    let arguments: Vec<&str> = question.get_args().map(|it| it.to_str().unwrap()).collect();
    let holdfast = sensors.join("holdfast");
    let text = format!("#!/bin/sh\nshift\nexec {program} {} \"$@\"\n", arguments.join(" "));
    fs::write(&holdfast, text).unwrap();
    fs::set_permissions(&holdfast, fs::Permissions::from_mode(0o755)).unwrap();
    let script = packaging_folder().join("monitors/hwmon");
    let mut command = Command::new(script);
    let output = command.env("HWMON", sensors).env("HOLDFAST", &holdfast).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn the_shipped_script_reports_sensors_of_the_box() {
    let net = ports(&["eth0"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let monitor = "holdfast_native:/fault-management/monitor[name=hwmon]";
    let permits = json!({"types": ["x-sensor"], "resources": ["box"]});
    client.update(monitor, permits).await.unwrap();
    let sensors = tempfile::tempdir().unwrap();
    let chip = sensors.path().join("hwmon0");
    fs::create_dir(&chip).unwrap();
    let set = |file: &str, value: &str| fs::write(chip.join(file), format!("{value}\n")).unwrap();
    for (file, value) in [
        ("name", "coretemp"),
        ("temp1_input", "45000"),
        ("temp1_crit", "100000"),
        ("temp1_label", "Core 0"),
        ("fan1_input", "900"),
        ("fan1_alarm", "0"),
    ] {
        set(file, value);
    }
    let hot = "x-sensor.coretemp-hwmon0-temp1@box";
    let still = "x-sensor.coretemp-hwmon0-fan1@box";
    run_hwmon(&agent, sensors.path());
    assert_eq!(leaf(&client, NATIVE, hot, "text").await, None);
    set("temp1_input", "100000");
    set("fan1_alarm", "1");
    run_hwmon(&agent, sensors.path());
    wait_until_open(&client, hot).await;
    wait_until_open(&client, still).await;
    let text = leaf(&client, NATIVE, hot, "text").await.unwrap();
    assert_eq!(text, json!("Core 0 reads 100000, and 100000 is critical"));
    set("temp1_input", "60000");
    set("fan1_alarm", "0");
    run_hwmon(&agent, sensors.path());
    wait_until_over(&client, hot).await;
    wait_until_over(&client, still).await;
}

#[tokio::test]
async fn the_port_by_which_an_administrator_is_connected_is_not_shut() {
    let net = ports(&["eth0", "eth1"]);
    let agent = AgentProcess::start_with(&net, &["--listen", "0.0.0.0:9340"]).await;
    let client = agent.gnmi().await;
    let ports = [port("eth0", &["10.0.0.1/24"]), port("eth1", &["10.0.1.1/24"])];
    client.update("/interfaces", json!({"interface": ports})).await.unwrap();
    assert!(agent.user(&["set", "eve", "--role", "read-only"], "secret of eve").status.success());
    let ca = std::fs::read_to_string(agent.ca_file()).unwrap();
    let over_eth0 = async |credentials: Credentials| {
        let address = "10.0.0.1:9340".parse().unwrap();
        let channel = connect(address, &ca).await.unwrap();
        let client = GnmiClient::over(channel, credentials);
        client.capabilities().await.unwrap();
        client
    };
    let _reader = over_eth0(Credentials::new("eve", "secret of eve").unwrap()).await;
    let admin = over_eth0(agent.credentials()).await;
    let mut rpc = faults(&agent).await;
    let fenced = wire::LatchRequest { fence: true, ..latch("interface:eth0", true) };
    let refused = rpc.set_forced_down(fenced.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let reason = "eth0 is not shut: an administrator is connected to its address 10.0.0.1";
    assert!(refused.message().contains(reason), "{refused}");

    let policy = json!({"name": "errors", "type": "x-errors", "action": "shut"});
    client.update("holdfast_native:/fault-management/policy[name=errors]", policy).await.unwrap();
    let monitor = json!({"name": "crc", "types": ["x-*"]});
    client.update("holdfast_native:/fault-management/monitor[name=crc]", monitor).await.unwrap();
    let report =
        ["report", "--monitor", "crc", "x-errors@interface:eth0", "raised", "--ttl", "600"];
    assert_eq!(fault(&agent, &report), "");
    let failed = "fence-failed.policy-errors@interface:eth0";
    wait_until_open(&client, failed).await;
    let text = leaf(&client, NATIVE, failed, "text").await.unwrap().to_string();
    assert!(text.contains(reason), "{text}");
    assert!(net.link("eth0").up);

    // A login over SSH counts, whoever serves it. Another user's connection does not count, and one that has ended neither.
    let server = std::net::TcpListener::bind("10.0.0.1:22").unwrap();
    let login = std::net::TcpStream::connect("10.0.0.1:22").unwrap();
    let accepted = server.accept().unwrap();
    drop(admin);
    let is_closed = async || rpc.clone().set_forced_down(fenced.clone()).await;
    let refused = is_closed().await.unwrap_err();
    assert!(refused.message().contains(reason), "{refused}");
    drop((login, accepted, server));
    eventually_async("the port is shut", async || {
        rpc.clone().set_forced_down(fenced.clone()).await.is_ok()
    })
    .await;
    assert!(!net.link("eth0").up);
}
