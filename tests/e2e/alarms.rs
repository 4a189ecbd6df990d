//! Faults of the box as alarms, in both models.

use std::fs;
use std::time::Duration;

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::holdfast::faults as wire;
use holdfast_proto::holdfast::faults::faults_client::FaultsClient;
use holdfast_proto::holdfast::faults::watch_response::Content;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::certificates::Authority;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use holdfast_tests::services::packed;
use holdfast_tests::subscription::subscribe_to;
use serde_json::{Value, json};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use crate::documents::port;
use crate::foreign_routes::ports;

const OPENCONFIG: &str = "/system/alarms/alarm";
pub(crate) const NATIVE: &str = "holdfast_native:/fault-state/alarm";
const SHELVED: &str = "holdfast_native:/fault-state/shelved-alarm";
pub(crate) const DOWN: &str = "link-down@interface:eth0";

/// A leaf of the state of an alarm, if the alarm is there.
pub(crate) async fn leaf(client: &GnmiClient, list: &str, id: &str, leaf: &str) -> Option<Value> {
    let read = client.read(&format!("{list}[id={id}]/state/{leaf}")).await;
    match read {
        Ok(value) => Some(value),
        Err(status) if status.code() == Code::NotFound => None,
        Err(status) => panic!("{status}"),
    }
}

async fn is_open(client: &GnmiClient, id: &str) -> bool {
    leaf(client, NATIVE, id, "severity").await.is_some()
}

pub(crate) async fn wait_until_open(client: &GnmiClient, id: &str) {
    eventually_async(id, async || is_open(client, id).await).await;
}

pub(crate) async fn wait_until_over(client: &GnmiClient, id: &str) {
    eventually_async(&format!("end of {id}"), async || !is_open(client, id).await).await;
}

/// An agent with eth0 configured.
pub(crate) async fn agent_with_port(net: &Netns) -> (AgentProcess, GnmiClient) {
    let agent = AgentProcess::start(net).await;
    let client = agent.gnmi().await;
    let document = json!({"interface": [port("eth0", &["10.0.0.1/24"])]});
    client.update("/interfaces", document).await.unwrap();
    (agent, client)
}

// proves sv.C31
#[tokio::test]
async fn a_link_without_a_carrier_is_an_alarm_until_it_is_back() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_port(&net).await;
    let list = subscribe_to(Mode::Stream, &[("/system/alarms", SubscriptionMode::OnChange)]);
    let mut told = client.subscribe(list).await.unwrap();
    told.until_sync().await;
    for _ in 0..2 {
        net.ip("link set p0 down");
        told.until(&format!("{OPENCONFIG}[id={DOWN}]/state/severity")).await;
        for (name, value) in [
            ("id", json!(DOWN)),
            ("resource", json!("eth0")),
            ("text", json!("eth0 is up, and the link that it stands on is down")),
            ("severity", json!("openconfig-alarm-types:MAJOR")),
            ("type-id", json!("openconfig-alarm-types:LOS")),
        ] {
            assert_eq!(leaf(&client, OPENCONFIG, DOWN, name).await, Some(value), "{name}");
        }
        for (name, value) in [
            ("type", json!("link-down")),
            ("resource", json!("interface:eth0")),
            ("occurrences", json!("1")),
            ("operator-state", json!("none")),
        ] {
            assert_eq!(leaf(&client, NATIVE, DOWN, name).await, Some(value), "{name}");
        }
        let major = client.read("holdfast_native:/fault-state/summary/major").await.unwrap();
        assert_eq!(major, json!(1));
        net.ip("link set p0 up");
        // The last alarm goes with its container.
        told.until("delete /system/alarms").await;
        assert_eq!(leaf(&client, OPENCONFIG, DOWN, "id").await, None);
    }
    // A port without configuration, and one that is to be down, are not faults.
    net.ip("link set p1 down");
    net.ip("link set p0 down");
    wait_until_open(&client, DOWN).await;
    let enabled = "/interfaces/interface[name=eth0]/config/enabled";
    client.update(enabled, false).await.unwrap();
    wait_until_over(&client, DOWN).await;
    let state = client.read("holdfast_native:/fault-state/summary/major").await.unwrap();
    assert_eq!(state, json!(0), "{}", agent.log());
    assert!(agent.log().contains("raised"), "{}", agent.log());
}

#[tokio::test]
async fn an_alarm_survives_a_kill_with_the_time_when_it_began() {
    let net = ports(&["eth0", "eth1"]);
    let (mut agent, client) = agent_with_port(&net).await;
    let both = json!({"interface": [port("eth1", &["10.0.1.1/24"])]});
    client.update("/interfaces", both).await.unwrap();
    net.ip("link set p0 down");
    net.ip("link set p1 down");
    let other = "link-down@interface:eth1";
    wait_until_open(&client, DOWN).await;
    wait_until_open(&client, other).await;
    let began = leaf(&client, NATIVE, DOWN, "time-created").await.unwrap();
    let last = client.read("holdfast_native:/fault-state/summary/last-event-id").await.unwrap();
    store(&agent, DOWN);
    agent.kill();
    net.ip("link set p1 up");
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_until_over(&client, other).await;
    assert_eq!(leaf(&client, NATIVE, DOWN, "time-created").await, Some(began));
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let now = client.read("holdfast_native:/fault-state/summary/last-event-id").await.unwrap();
    assert!(number(&now) > number(&last), "{now} comes after {last}");
    net.ip("link set p0 up");
    wait_until_over(&client, DOWN).await;
}

#[tokio::test]
async fn a_port_that_is_not_there_is_an_alarm_until_it_comes() {
    let net = Netns::enter();
    let (_agent, client) = agent_with_port(&net).await;
    let missing = "link-missing@interface:eth0";
    wait_until_open(&client, missing).await;
    assert_eq!(leaf(&client, OPENCONFIG, missing, "type-id").await, Some(json!("link-missing")));
    net.ip("link add eth0 type veth peer name p0");
    net.ip("link set p0 up");
    wait_until_over(&client, missing).await;
}

#[tokio::test]
async fn policies_and_shelves_decide_what_becomes_of_a_condition() {
    let net = ports(&["eth0"]);
    let (_agent, client) = agent_with_port(&net).await;
    net.ip("link set p0 down");
    wait_until_open(&client, DOWN).await;
    let policy = "holdfast_native:/fault-management/policy[name=lab]";
    let severe = json!({"name": "lab", "type": "link-*", "severity": "CRITICAL"});
    client.update(policy, severe).await.unwrap();
    eventually_async("its severity is that of the policy", async || {
        leaf(&client, NATIVE, DOWN, "severity").await == Some(json!("CRITICAL"))
    })
    .await;
    client.update(&format!("{policy}/effect"), "ignore").await.unwrap();
    wait_until_over(&client, DOWN).await;
    client.delete(policy).await.unwrap();
    wait_until_open(&client, DOWN).await;

    let shelf = "holdfast_native:/fault-management/shelf[name=rack]";
    client.update(shelf, json!({"name": "rack", "resource": "interface:eth*"})).await.unwrap();
    eventually_async("it is put aside", async || {
        leaf(&client, SHELVED, DOWN, "shelf").await == Some(json!("rack"))
    })
    .await;
    assert_eq!(leaf(&client, OPENCONFIG, DOWN, "id").await, None);
    let summary = client.read("holdfast_native:/fault-state/summary").await.unwrap();
    assert_eq!(summary["holdfast:shelved"], json!(1), "{summary}");
    client.delete(shelf).await.unwrap();
    wait_until_open(&client, DOWN).await;
    assert_eq!(leaf(&client, SHELVED, DOWN, "id").await, None);

    for (path, value) in [
        (format!("{policy}/severity"), json!("indeterminate")),
        (format!("{policy}/type"), json!("")),
        (format!("{policy}/raise-after"), json!(86_400_001)),
        ("/system/alarms/alarm[id=x]/state/text".to_owned(), json!("mine")),
    ] {
        let refused = client.update(&path, value).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{path}: {refused}");
    }
}

pub(crate) type Faults = FaultsClient<InterceptedService<Channel, Credentials>>;

pub(crate) async fn faults(agent: &AgentProcess) -> Faults {
    FaultsClient::with_interceptor(agent.channel().await, agent.credentials())
}

async fn watch(faults: &mut Faults, after: Option<u64>) -> Streaming<wire::WatchResponse> {
    let request = wire::WatchRequest { filter: None, after };
    faults.watch(request).await.unwrap().into_inner()
}

async fn next(stream: &mut Streaming<wire::WatchResponse>) -> Content {
    let message = tokio::time::timeout(Duration::from_secs(60), stream.message()).await;
    message.expect("something is told").unwrap().expect("the stream goes on").content.unwrap()
}

/// The next event: its id, what changed, and the alarm. The numbers of impacts, which come when they are known, are left out.
async fn next_event(stream: &mut Streaming<wire::WatchResponse>) -> (u64, wire::Change, String) {
    loop {
        match next(stream).await {
            Content::Event(event) if event.change() == wire::Change::Impact => {}
            Content::Event(event) => return (event.id, event.change(), event.alarm.unwrap().id),
            other => panic!("{other:?}"),
        }
    }
}

// proves sv.C51
#[tokio::test]
async fn a_watcher_is_told_of_each_change_and_goes_on_where_it_was() {
    let net = ports(&["eth0"]);
    let (mut agent, client) = agent_with_port(&net).await;
    let mut rpc = faults(&agent).await;
    let mut stream = watch(&mut rpc, None).await;
    let Content::Snapshot(first) = next(&mut stream).await else { panic!("a snapshot first") };
    assert!(first.alarms.is_empty() && !first.gap, "{first:?}");
    let Content::Sync(sync) = next(&mut stream).await else { panic!("then sync") };
    assert_eq!(sync.last_event_id, 0);
    net.ip("link set p0 down");
    let (raised, change, id) = next_event(&mut stream).await;
    assert_eq!((change, id.as_str()), (wire::Change::Raised, DOWN));

    let word = |id: &str, text: &str| wire::SetOperatorStateRequest {
        id: id.to_owned(),
        state: wire::OperatorState::Ack.into(),
        text: text.to_owned(),
    };
    let said = rpc.set_operator_state(word(DOWN, "ticket 7")).await.unwrap().into_inner();
    assert!(said.durable);
    let (said, change, _) = next_event(&mut stream).await;
    assert!(change == wire::Change::Operator && said > raised, "{change:?} {said}");
    drop(stream);
    assert_eq!(leaf(&client, NATIVE, DOWN, "operator").await, Some(json!("admin")));
    net.ip("link set p0 up");
    wait_until_over(&client, DOWN).await;

    let mut stream = watch(&mut rpc, Some(raised)).await;
    assert_eq!(next_event(&mut stream).await, (said, wire::Change::Operator, DOWN.to_owned()));
    let (cleared, change, _) = next_event(&mut stream).await;
    assert!(change == wire::Change::Cleared && cleared > said, "{change:?} {cleared}");
    assert!(
        matches!(next(&mut stream).await, Content::Sync(sync) if sync.last_event_id == cleared)
    );
    let log = wire::QueryRequest { filter: None, events_after: Some(0) };
    let log = rpc.query(log).await.unwrap().into_inner();
    let changes = log.events.iter().filter(|event| event.change() != wire::Change::Impact);
    assert_eq!(changes.count(), 3, "{log:?}");
    let ids: Vec<u64> = log.events.iter().map(|event| event.id).collect();
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");

    for (request, code) in [
        (word(DOWN, ""), Code::NotFound),
        (word("link-down", ""), Code::InvalidArgument),
        (word("gremlins@agent", ""), Code::InvalidArgument),
        (word(DOWN, &"x".repeat(1025)), Code::InvalidArgument),
        (wire::SetOperatorStateRequest { state: 7, ..word(DOWN, "") }, Code::InvalidArgument),
    ] {
        let refused = rpc.set_operator_state(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{request:?}: {refused}");
    }
    let unknown = wire::Filter { least_severity: 9, ..wire::Filter::default() };
    let unknown = wire::QueryRequest { filter: Some(unknown), events_after: None };
    assert_eq!(rpc.query(unknown).await.unwrap_err().code(), Code::InvalidArgument);

    // After an end in order, the log goes on.
    agent.terminate().await;
    agent.restart().await;
    let mut rpc = faults(&agent).await;
    let mut stream = watch(&mut rpc, Some(said)).await;
    let (id, change, _) = next_event(&mut stream).await;
    assert_eq!((change, id), (wire::Change::Cleared, cleared));
    while !matches!(next(&mut stream).await, Content::Sync(_)) {}
    net.ip("link set p0 down");
    let (raised, change, _) = next_event(&mut stream).await;
    assert_eq!((change, raised), (wire::Change::Raised, cleared + 1));
    net.ip("link set p0 up");
    next_event(&mut stream).await;

    // After a kill, some events may be lost, and the watcher is told all that is open.
    agent.kill();
    agent.restart().await;
    net.ip("link set p0 down");
    wait_until_open(&agent.gnmi().await, DOWN).await;
    let mut rpc = faults(&agent).await;
    let mut stream = watch(&mut rpc, Some(cleared)).await;
    let Content::Snapshot(all) = next(&mut stream).await else { panic!("a snapshot") };
    assert!(all.gap && all.alarms.len() == 1, "{all:?}");
    assert!(all.alarms[0].event_id > cleared);
}

#[tokio::test]
async fn readers_see_alarms_and_change_nothing() {
    let net = ports(&["eth0"]);
    let (agent, client) = agent_with_port(&net).await;
    assert!(agent.user(&["set", "eve", "--role", "read-only"], "secret of eve").status.success());
    net.ip("link set p0 down");
    wait_until_open(&client, DOWN).await;
    let credentials = Credentials::new("eve", "secret of eve").unwrap();
    let mut rpc = FaultsClient::with_interceptor(agent.channel().await, credentials);
    let open = rpc.query(wire::QueryRequest::default()).await.unwrap().into_inner();
    assert_eq!(open.alarms.len(), 1);
    let word = wire::SetOperatorStateRequest {
        id: DOWN.to_owned(),
        state: wire::OperatorState::Ack.into(),
        text: String::new(),
    };
    let refused = rpc.set_operator_state(word).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

/// Open alarms, as the operator at the box sees them.
pub(crate) fn open_alarms(agent: &AgentProcess) -> String {
    fault(agent, &["list"])
}

/// Acknowledges an alarm at the box, and returns what that prints.
pub(crate) fn acknowledge(agent: &AgentProcess, id: &str) -> String {
    fault(agent, &["ack", id])
}

/// Output of `holdfast fault ...`.
pub(crate) fn fault(agent: &AgentProcess, arguments: &[&str]) -> String {
    printed(agent, "fault", arguments)
}

/// Waits until the rows of all alarms so far are on the disk. They are written in their order, beside everything else, and the
/// answer to an operator waits for the row of what was said.
pub(crate) fn store(agent: &AgentProcess, alarm: &str) {
    let answer = fault(agent, &["ack", alarm]);
    assert!(!answer.contains("not on disk"), "{answer}");
}

/// Output of a command at the box. It begins with `holdfast: ` where the command fails.
pub(crate) fn printed(agent: &AgentProcess, command: &str, arguments: &[&str]) -> String {
    let output = agent.command(command).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.success(), !text.starts_with("holdfast: "), "{text}");
    text
}

#[tokio::test]
async fn the_operator_at_the_box_sees_and_acknowledges_alarms() {
    let net = ports(&["eth0"]);
    let (agent, client) = agent_with_port(&net).await;
    assert_eq!(fault(&agent, &["list"]), "");
    net.ip("link set p0 down");
    wait_until_open(&client, DOWN).await;
    let line = fault(&agent, &["list"]);
    assert!(line.starts_with("MAJOR  20") && line.contains(DOWN), "{line}");
    assert_eq!(fault(&agent, &["ack", DOWN, "--text", "cable ordered"]), "");
    assert!(fault(&agent, &["list"]).contains("acknowledged by local"));
    let all = fault(&agent, &["show", DOWN]);
    assert!(all.contains("operator-text   cable ordered"), "{all}");
    assert_eq!(fault(&agent, &["list", "--severity", "critical"]), "");
    assert_eq!(fault(&agent, &["list", "--resource", "interface:eth1"]), "");
    let log = fault(&agent, &["log"]);
    assert!(log.lines().count() == 3 && log.contains("operator"), "{log}");
    for wrong in [
        &["show", "link-down@interface:eth7"][..],
        &["ack", "link-down"],
        &["list", "--severity", "terrible"],
    ] {
        let text = fault(&agent, wrong);
        assert!(text.starts_with("holdfast: "), "{wrong:?}: {text}");
    }
}

/// A program that keeps what it gets, and fails each time until a file is there.
fn program(folder: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("told");
    let got = folder.join("got");
    let ready = folder.join("ready");
    let script = format!(
        "#!/bin/sh\ncat >>{got}\n[ -e {ready} ]\n",
        got = got.display(),
        ready = ready.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_program_gets_each_change_until_it_takes_it_and_after_a_restart() {
    let net = ports(&["eth0"]);
    let (mut agent, client) = agent_with_port(&net).await;
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let resume = folder.path().join("last-event");
    let start = |agent: &AgentProcess| {
        let mut command = agent.command("fault");
        command.args(["watch", "--exec"]).arg(&program).arg("--resume").arg(&resume);
        command.spawn().unwrap()
    };
    let got = || std::fs::read_to_string(folder.path().join("got")).unwrap_or_default();
    let mut watcher = start(&agent);
    eventually_async("it is started again", async || got().matches("snapshot").count() > 1).await;
    assert!(!resume.exists());
    std::fs::write(folder.path().join("ready"), "").unwrap();
    eventually_async("the snapshot is taken", async || resume.exists()).await;
    net.ip("link set p0 down");
    eventually_async("the program is told", async || got().contains("\"change\":\"raised\"")).await;
    agent.restart().await;
    wait_until_open(&agent.gnmi().await, DOWN).await;
    eventually_async("the next agent tells what is open, as events may be lost", async || {
        got().contains("\"gap\":true")
    })
    .await;
    net.ip("link set p0 up");
    eventually_async("it is told of the end by the next agent", async || {
        got().contains("\"change\":\"cleared\"")
    })
    .await;
    watcher.kill().unwrap();
    watcher.wait().unwrap();
    drop(client);
    let last = got().matches("cleared").count();
    let client = agent.gnmi().await;
    let raised = || fault(&agent, &["log"]).matches("raised").count();
    let before = raised();
    net.ip("link set p0 down");
    wait_until_open(&client, DOWN).await;
    net.ip("link set p0 up");
    wait_until_over(&client, DOWN).await;
    assert_eq!(raised(), before + 1, "the log has it");
    let mut watcher = start(&agent);
    eventually_async("what came meanwhile is told", async || {
        got().matches("cleared").count() > last
    })
    .await;
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

/// A server in Python that keeps what is posted to it, and refuses the first message.
const SERVER: &str = r#"
import http.server, ssl, sys
folder, port = sys.argv[1], int(sys.argv[2])
class Hook(http.server.BaseHTTPRequestHandler):
    refusals = 1
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(folder + "/posted", "ab") as posted:
            posted.write(self.headers["content-type"].encode() + b" " + body + b"\n")
        self.send_response(503 if Hook.refusals else 204)
        Hook.refusals = 0
        self.send_header("content-length", "0")
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", port), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

// proves sv.C20
#[tokio::test]
async fn each_change_is_posted_as_a_cloud_event_until_it_is_taken() {
    let net = ports(&["eth0"]);
    let (agent, client) = agent_with_port(&net).await;
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("alerts");
    let server = authority.server();
    std::fs::write(folder.path().join("ca.pem"), &authority.pem).unwrap();
    std::fs::write(folder.path().join("cert.pem"), &server.certificate).unwrap();
    std::fs::write(folder.path().join("key.pem"), &server.key).unwrap();
    std::fs::write(folder.path().join("server.py"), SERVER).unwrap();
    let mut hook = std::process::Command::new("python3")
        .arg(folder.path().join("server.py"))
        .args([folder.path().to_str().unwrap(), "8443"])
        .spawn()
        .unwrap();
    let post = |url: &str| {
        let mut command = agent.command("fault");
        command.args(["watch", "--post", url, "--ca"]).arg(folder.path().join("ca.pem"));
        command.arg("--resume").arg(folder.path().join("last-event"));
        command
    };
    let refused = post("http://127.0.0.1:8443/hook").output().unwrap();
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("https:// addresses only"), "{refused}");
    let mut watcher = post("https://127.0.0.1:8443/hook").spawn().unwrap();
    let posted = || std::fs::read_to_string(folder.path().join("posted")).unwrap_or_default();
    eventually_async("the snapshot is posted again", async || {
        posted().matches("\"snapshot-0\"").count() == 2
    })
    .await;
    net.ip("link set p0 down");
    wait_until_open(&client, DOWN).await;
    eventually_async("the alarm is posted", async || posted().contains("\"raised\"")).await;
    let line = posted().lines().find(|line| line.contains("\"raised\"")).unwrap().to_owned();
    let (content_type, event) = line.split_at(line.find('{').unwrap());
    assert!(content_type.starts_with("application/cloudevents+json"), "{content_type}");
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["subject"], json!(DOWN));
    assert_eq!(event["id"].as_str(), Some(event["data"]["id"].to_string()).as_deref());
    for process in [&mut watcher, &mut hook] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[tokio::test]
async fn an_object_that_something_else_changes_again_and_again_is_an_alarm() {
    let net = ports(&["eth0"]);
    let (agent, client) = agent_with_port(&net).await;
    let has_address = || net.addresses("eth0").iter().any(|it| it == "10.0.0.1/24");
    let alarms = || fault(&agent, &["list", "--type", "config-drift"]);
    for _ in 0..3 {
        net.ip("address del 10.0.0.1/24 dev eth0");
        eventually_async("the address is back", async || has_address()).await;
    }
    eventually_async("the fourth repair is an alarm", async || {
        if has_address() {
            net.ip("address del 10.0.0.1/24 dev eth0");
        }
        eventually_async("the address is back", async || has_address()).await;
        alarms().contains("WARNING")
    })
    .await;
    let listed = alarms();
    assert!(listed.contains("config-drift@value:address"), "{listed}");
    assert!(client.read("/system/alarms").await.unwrap().to_string().contains("config-drift"));
}

#[tokio::test]
async fn a_package_that_was_not_loaded_is_an_alarm_until_a_start_without_it() {
    let net = ports(&["eth0"]);
    let packages = packed("bridge-port");
    let folder = packages.path().to_str().unwrap();
    let damaged = packages.path().join("access-2.0.0.hfs");
    fs::write(&damaged, "no archive").unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let client = agent.gnmi().await;
    let invalid = "package-invalid.access-2.0.0.hfs@agent";
    wait_until_open(&client, invalid).await;
    let text = leaf(&client, NATIVE, invalid, "text").await.unwrap();
    assert!(text.as_str().unwrap().contains("was not loaded at the start"), "{text}");
    fs::remove_file(damaged).unwrap();
    agent.restart().await;
    wait_until_over(&agent.gnmi().await, invalid).await;
}
