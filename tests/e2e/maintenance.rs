//! Maintenance sessions: who may ask for them, what they do to a link, and how it comes back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_proto::gnmi::SetResponse;
use holdfast_proto::holdfast::maintenance as wire;
use holdfast_proto::holdfast::maintenance::maintenance_client::MaintenanceClient;
use holdfast_proto::holdfast::maintenance::watch_response::Content;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use serde_json::json;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::alarms::{NATIVE, leaf, printed, wait_until_open, wait_until_over};
use crate::documents::ipv4_of;
use crate::foreign_routes::ports;
use crate::impact::{add_route, agent_with_ports, link, route, status, wait_for};

pub(crate) type Maintenance = MaintenanceClient<InterceptedService<Channel, Credentials>>;

const SECOND_NS: u64 = 1_000_000_000;
/// Time for the drain and for replies in these tests, in seconds.
const DRAIN: u64 = 1;
const LEAD: u64 = 1;
/// The route of the consumer, as the agent names it.
const ROUTE: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=static]/route[prefix=198.51.100.0/24]";

/// The name of a route in sessions.
pub(crate) fn route_name(prefix: &str) -> String {
    ROUTE.replace("198.51.100.0/24", prefix)
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

pub(crate) async fn maintenance(agent: &AgentProcess, credentials: Credentials) -> Maintenance {
    MaintenanceClient::with_interceptor(agent.channel().await, credentials)
}

/// An agent with eth0 and eth1, short times, and a consumer `ann`, who replies for the routes.
async fn agent_with_consumer(net: &Netns) -> (AgentProcess, GnmiClient) {
    let (agent, client) = agent_with_ports(net).await;
    let settings = json!({
        "settings": {
            "minimum-lead-time": LEAD,
            "drain-timeout": DRAIN,
            "default-action": "stop",
        },
        "consumer": [{
            "id": "routes",
            "identity": "ann",
            "path": [ROUTE],
            "default-action": "stop",
        }],
    });
    client.update("holdfast_native:/maintenance", settings).await.unwrap();
    assert!(agent.user(&["set", "ann", "--role", "read-only"], "secret of ann").status.success());
    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    (agent, client)
}

/// Adds an address to eth0.
async fn add_address(client: &GnmiClient) -> Result<SetResponse, Status> {
    let path = format!("{}/addresses/address[ip=10.0.9.1]/config", ipv4_of("eth0"));
    client.update(&path, json!({"ip": "10.0.9.1", "prefix-length": 24})).await
}

fn ann() -> Credentials {
    Credentials::new("ann", "secret of ann").unwrap()
}

fn new_session(resource: &str, kind: wire::Kind, starts_in: u64) -> wire::CreateRequest {
    wire::CreateRequest {
        resources: vec![resource.to_owned()],
        kind: kind.into(),
        starts_at: now_ns() + starts_in * SECOND_NS,
        allow_isolation: true,
        ..Default::default()
    }
}

pub(crate) async fn create(
    rpc: &mut Maintenance,
    resource: &str,
    kind: wire::Kind,
    starts_in: u64,
) -> wire::Session {
    let created = rpc.create(new_session(resource, kind, starts_in)).await.unwrap().into_inner();
    assert!(created.durable);
    created.session.unwrap()
}

pub(crate) fn of(session: &wire::Session) -> wire::SessionRequest {
    wire::SessionRequest { id: session.id.clone() }
}

fn ack(session: &wire::Session, action: wire::Action) -> wire::ReplyRequest {
    wire::ReplyRequest {
        id: session.id.clone(),
        answer: wire::Answer::Ack.into(),
        action: action.into(),
        ..Default::default()
    }
}

async fn wait_for_state(rpc: &mut Maintenance, session: &wire::Session, wanted: wire::State) {
    eventually_async(&format!("the session is {wanted:?}"), async || {
        let read = rpc.clone().get(of(session)).await.unwrap().into_inner();
        read.session.unwrap().state() == wanted
    })
    .await;
}

/// A session that has begun as early as it may, and has shut eth0.
async fn shut_eth0(rpc: &mut Maintenance, net: &Netns) -> wire::Session {
    let session = create(rpc, "interface:eth0", wire::Kind::Full, DRAIN + LEAD + 1).await;
    wait_for_state(rpc, &session, wire::State::InMaintenance).await;
    eventually("eth0 is shut", || !net.link("eth0").up).await;
    session
}

async fn watch(rpc: &mut Maintenance) -> Streaming<wire::WatchResponse> {
    rpc.watch(wire::WatchRequest::default()).await.unwrap().into_inner()
}

pub(crate) async fn next(stream: &mut Streaming<wire::WatchResponse>) -> Content {
    let message = tokio::time::timeout(Duration::from_secs(60), stream.message()).await;
    message.expect("something is told").unwrap().expect("the stream goes on").content.unwrap()
}

/// The next steps up to a state, each with who is told.
async fn steps_until(
    stream: &mut Streaming<wire::WatchResponse>,
    last: wire::State,
) -> Vec<(String, wire::State)> {
    let mut steps = Vec::new();
    loop {
        let Content::Event(event) = next(stream).await else { panic!("a step is told") };
        if event.change() == wire::event::Change::State {
            steps.push((event.consumer.clone(), event.state()));
        }
        if event.state() == last && event.change() == wire::event::Change::State {
            return steps;
        }
    }
}

// proves sv.C64, sv.C67, sv.C68, sv.C69, sv.C73, sv.C75, sv.C78, sv.C83
#[tokio::test]
async fn a_link_is_announced_shut_and_given_back() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let mut consumer = maintenance(&agent, ann()).await;
    client.update("/interfaces/interface[name=eth0]/config/mtu", 1514).await.unwrap();
    let mut told = watch(&mut consumer).await;
    assert!(matches!(next(&mut told).await, Content::Snapshot(all) if all.sessions.is_empty()));
    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, DRAIN + LEAD + 3).await;
    assert_eq!(session.state(), wire::State::Announced);
    assert_eq!(session.told_as, "MAINTENANCE");

    // The consumer is told of its own object, and of what it may choose; not of the link.
    let Content::Event(announced) = next(&mut told).await else { panic!("a step is told") };
    let seen = announced.session.unwrap();
    assert_eq!((seen.id.as_str(), seen.resources.len()), (session.id.as_str(), 0));
    let [own] = &seen.consumers[..] else { panic!("{seen:?}") };
    assert_eq!(own.objects.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), [ROUTE]);
    assert_eq!(own.allowed_actions.len(), 3, "leaving is not among them: {own:?}");
    let deadline = session.starts_at - DRAIN * SECOND_NS;
    assert_eq!(own.deadline, deadline);
    let shown = format!("holdfast_native:/maintenance-state/session[id={}]", session.id);
    let objects = client.read(&format!("{shown}/consumer[id=routes]/state/object")).await.unwrap();
    assert_eq!(objects, json!([ROUTE]));

    // Nothing new is placed on the link; what is there may change and go.
    let refused = add_address(&client).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(&session.id), "{refused}");
    client.update("/interfaces/interface[name=eth0]/config/description", "is new").await.unwrap();
    add_route(&client, "203.0.113.0/24", &[("10.0.1.2", None)]).await;

    consumer.reply(ack(&session, wire::Action::Stop)).await.unwrap();
    let steps = steps_until(&mut told, wire::State::InMaintenance).await;
    use wire::State::{Draining, InMaintenance, Over, Ready, Restoring};
    let states: Vec<_> = steps.iter().map(|(_, state)| *state).collect();
    assert_eq!(states, [Draining, Ready, InMaintenance]);
    wait_for(&client, &link("eth0"), "MAINTENANCE").await;
    wait_for(&client, &route("198.51.100.0/24"), "MAINTENANCE").await;
    eventually("eth0 is shut", || !net.link("eth0").up).await;
    let enabled = client.read("/interfaces/interface[name=eth0]/config/enabled").await.unwrap();
    assert_eq!(enabled, json!(true), "the client's leaf stays");

    // Whoever works on the link may change it.
    net.ip("link set eth0 mtu 1400");
    admin.work_done(of(&session)).await.unwrap();
    let steps = steps_until(&mut told, Over).await;
    assert_eq!(steps.iter().map(|(_, state)| *state).collect::<Vec<_>>(), [Restoring, Over]);
    wait_for_state(&mut admin, &session, Over).await;
    eventually("eth0 is up, and as it is configured", || {
        net.link("eth0").up && net.link("eth0").mtu == 1500
    })
    .await;
    wait_for(&client, &link("eth0"), "UP").await;
    wait_for(&client, &route("198.51.100.0/24"), "UP").await;
    add_address(&client).await.unwrap();
}

#[tokio::test]
async fn a_consumer_of_the_ports_own_address_is_asked() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let address = "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]";
    let consumer = json!({"id": "addresses", "identity": "ann", "path": [address]});
    client.update("holdfast_native:/maintenance/consumer[id=addresses]", consumer).await.unwrap();
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let mut session =
        create(&mut admin, "interface:eth0", wire::Kind::Full, DRAIN + LEAD + 3).await;
    session.consumers.retain(|it| it.id != "routes");
    let [asked] = &session.consumers[..] else { panic!("{session:?}") };
    assert_eq!(asked.id, "addresses");
    assert_eq!(asked.objects.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), [address]);
}

#[tokio::test]
async fn a_port_leaves_its_bridge_before_it_is_shut() {
    let net = ports(&["eth0", "eth1"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");
    client.update(&native("br0"), json!({"type": "bridge", "enabled": true})).await.unwrap();
    for port in ["eth0", "eth1"] {
        client.update(&native(port), json!({"master": "br0", "enabled": true})).await.unwrap();
    }
    let settings = json!({"minimum-lead-time": LEAD, "drain-timeout": DRAIN});
    client.update("holdfast_native:/maintenance/settings", settings).await.unwrap();
    let monitor = Monitor::start(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let session = shut_eth0(&mut admin, &net).await;
    assert_eq!(net.link("eth0").master, None);
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"), "the other port stays");
    let lines = monitor.finish(&net).await;
    let of_port = lines.iter().filter(|line| line.contains(": eth0@"));
    let left = of_port.clone().find(|line| !line.contains("master br0")).unwrap();
    assert!(left.contains(",UP,"), "it was up when it left: {lines:#?}");
    let master = client.read(&format!("{}/master", native("eth0"))).await.unwrap();
    assert_eq!(master, json!("br0"), "the client's leaf stays");

    admin.work_done(of(&session)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Over).await;
    eventually("eth0 is back", || {
        net.link("eth0").up && net.link("eth0").master.as_deref() == Some("br0")
    })
    .await;
}

// proves sv.C65, sv.C70, sv.C82
#[tokio::test]
async fn requests_that_cannot_be_are_refused() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let mut consumer = maintenance(&agent, ann()).await;
    let full = |resource: &str, starts_in| new_session(resource, wire::Kind::Full, starts_in);
    let ends = wire::CreateRequest { ends_at: 1, ..full("interface:eth0", 30) };
    let mut nothing = full("interface:eth0", 30);
    nothing.resources.clear();
    for (request, code) in [
        (full("interface:eth0", 1), Code::InvalidArgument),
        (full("interface:eth7", 30), Code::InvalidArgument),
        (full("eth0", 30), Code::InvalidArgument),
        (full("box", 30), Code::InvalidArgument),
        (full("group:uplinks", 30), Code::InvalidArgument),
        (new_session("interface:eth0", wire::Kind::Unset, 30), Code::InvalidArgument),
        (ends, Code::InvalidArgument),
        (nothing, Code::InvalidArgument),
    ] {
        let refused = admin.create(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{request:?}: {refused}");
    }
    let refused = consumer.create(full("interface:eth0", 30)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, 30).await;
    let again = admin.create(full("interface:eth0", 30)).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "{again}");
    assert!(again.message().contains(&session.id), "{again}");
    let of_box = new_session("box", wire::Kind::Restart, 30);
    assert_eq!(admin.create(of_box).await.unwrap_err().code(), Code::FailedPrecondition);
    // Another link is another matter.
    let other = create(&mut admin, "interface:eth1", wire::Kind::Full, 30).await;
    assert_ne!(other.id, session.id);

    let leave = consumer.reply(ack(&session, wire::Action::Leave)).await.unwrap_err();
    assert_eq!(leave.code(), Code::InvalidArgument, "{leave}");
    assert!(agent.user(&["set", "bob", "--role", "read-only"], "secret of bob").status.success());
    let bob = Credentials::new("bob", "secret of bob").unwrap();
    let mut bob = maintenance(&agent, bob).await;
    let reply =
        wire::ReplyRequest { consumer: "routes".to_owned(), ..ack(&session, wire::Action::Stop) };
    assert_eq!(bob.reply(reply.clone()).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(bob.get(of(&session)).await.unwrap_err().code(), Code::NotFound);
    assert!(bob.list(wire::ListRequest {}).await.unwrap().into_inner().sessions.is_empty());
    let unknown = wire::ReplyRequest { id: "7".to_owned(), ..reply.clone() };
    assert_eq!(consumer.reply(unknown).await.unwrap_err().code(), Code::NotFound);
    admin.reply(reply).await.unwrap();
    assert_eq!(admin.work_done(of(&session)).await.unwrap_err().code(), Code::FailedPrecondition);
    for refused in [
        consumer.work_done(of(&session)).await,
        consumer.cancel(of(&session)).await,
        consumer.delete(of(&session)).await,
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
    let consumer = |id: &str, path: &str| json!([{"id": id, "path": [path]}]);
    for entry in [consumer("default", ROUTE), consumer("bad", "/nowhere")] {
        let refused = client.update("holdfast_native:/maintenance/consumer", entry).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
}

// proves sv.C76, sv.C81
#[tokio::test]
async fn a_session_is_cancelled_and_deleted_and_leaves_nothing() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let session = shut_eth0(&mut admin, &net).await;
    let cancelled = admin.cancel(of(&session)).await.unwrap().into_inner().session.unwrap();
    assert_eq!(cancelled.state(), wire::State::Restoring, "the link has to come back first");
    wait_for_state(&mut admin, &session, wire::State::Cancelled).await;
    assert!(net.link("eth0").up);
    let again = admin.cancel(of(&session)).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "{again}");
    admin.delete(of(&session)).await.unwrap();
    assert_eq!(admin.get(of(&session)).await.unwrap_err().code(), Code::NotFound);

    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, 30).await;
    admin.delete(of(&session)).await.unwrap();
    eventually_async("it is forgotten", async || {
        admin.clone().get(of(&session)).await.is_err_and(|it| it.code() == Code::NotFound)
    })
    .await;
    let shown = format!("holdfast_native:/maintenance-state/session[id={}]/state/id", session.id);
    assert_eq!(client.read(&shown).await.unwrap_err().code(), Code::NotFound);
    // Placement is on again.
    add_route(&client, "203.0.113.0/24", &[("10.0.0.2", None)]).await;
}

// proves sv.C66, sv.C74
#[tokio::test]
async fn faults_in_maintenance_are_told_when_it_is_over() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let session = create(&mut admin, "interface:eth0", wire::Kind::Restart, DRAIN + LEAD + 1).await;
    wait_for_state(&mut admin, &session, wire::State::InMaintenance).await;
    wait_for(&client, &link("eth0"), "MAINTENANCE").await;
    assert!(net.link("eth0").up, "a restart shuts nothing");
    net.ip("link set p0 down");
    let down = "link-down@interface:eth0";
    let aside = "holdfast_native:/fault-state/shelved-alarm";
    eventually_async("the alarm is put aside", async || {
        leaf(&client, aside, down, "suppressed-by").await == Some(json!(session.id))
    })
    .await;
    let began = leaf(&client, aside, down, "time-created").await;
    assert_eq!(leaf(&client, NATIVE, down, "severity").await, None);
    assert_eq!(status(&client, &link("eth0")).await, "MAINTENANCE");
    admin.work_done(of(&session)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Over).await;
    wait_until_open(&client, down).await;
    assert_eq!(leaf(&client, NATIVE, down, "time-created").await, began, "its own time");
    wait_for(&client, &link("eth0"), "DOWN").await;
    net.ip("link set p0 up");
    wait_until_over(&client, down).await;
}

#[tokio::test]
async fn a_link_that_does_not_come_back_fails_the_session() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let session = shut_eth0(&mut admin, &net).await;
    net.ip("link set p0 down");
    admin.work_done(of(&session)).await.unwrap();
    let failed = format!("session-failed.{}@agent", session.id);
    wait_for_state(&mut admin, &session, wire::State::Restoring).await;
    wait_for_state(&mut admin, &session, wire::State::Failed).await;
    wait_until_open(&client, &failed).await;
    wait_until_open(&client, "link-down@interface:eth0").await;
    admin.delete(of(&session)).await.unwrap();
    wait_until_over(&client, &failed).await;
}

// proves sv.C64
#[tokio::test]
async fn a_session_outlives_the_agent() {
    let net = ports(&["eth0", "eth1"]);
    let (mut agent, _) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, DRAIN + LEAD + 2).await;
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    assert_eq!(add_address(&client).await.unwrap_err().code(), Code::FailedPrecondition);
    wait_for_state(&mut admin, &session, wire::State::InMaintenance).await;
    let fence = "holdfast_native:/fault-state/fence[resource=interface:eth0][action=shut]/state";
    eventually_async("the fence is durable", async || {
        client.read(&format!("{fence}/owner")).await.is_ok()
    })
    .await;
    agent.kill();
    let monitor = Monitor::start(&net).await;
    agent.restart().await;
    let client = agent.gnmi().await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    wait_for_state(&mut admin, &session, wire::State::InMaintenance).await;
    wait_for(&client, &link("eth0"), "MAINTENANCE").await;
    // In this time the session asks for its fences again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lines = monitor.finish(&net).await;
    let opened = lines.iter().find(|line| line.contains(": eth0@") && line.contains(",UP"));
    assert_eq!(opened, None, "somebody works on it");
    assert!(!net.link("eth0").up, "it stays shut");
    admin.work_done(of(&session)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Over).await;
    eventually("eth0 is up", || net.link("eth0").up).await;
}

/// The link that the kernel sends packets to this address by.
fn way(net: &Netns, address: &str) -> String {
    let route = net.ip(&format!("route get {address}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_owned()
}

// proves sv.C70, sv.C73
#[tokio::test]
async fn traffic_moves_before_a_link_is_shut_and_comes_back_after() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let settings = json!({"drain-timeout": 6, "quiet-pps": 1000, "default-action": "move"});
    client.update("holdfast_native:/maintenance/settings", settings).await.unwrap();
    add_route(&client, "203.0.113.0/24", &[("10.0.0.2", None), ("10.0.1.2", None)]).await;
    add_route(&client, "203.0.114.0/24", &[("10.0.0.2", None), ("10.0.1.2", Some(500))]).await;
    assert_eq!(way(&net, "203.0.114.9"), "eth0");
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let mut consumer = maintenance(&agent, ann()).await;
    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, 9).await;
    consumer.reply(ack(&session, wire::Action::Stop)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Ready).await;
    for address in ["203.0.113.9", "203.0.114.9"] {
        assert_eq!(way(&net, address), "eth1", "it has moved before the link is shut");
    }
    assert!(net.link("eth0").up);
    let fence = "holdfast_native:/fault-state/fence[resource=interface:eth0][action=drain]/state";
    let owner = json!([format!("session {}", session.id)]);
    assert_eq!(client.read(&format!("{fence}/owner")).await.unwrap(), owner);
    wait_for_state(&mut admin, &session, wire::State::InMaintenance).await;
    eventually("eth0 is shut", || !net.link("eth0").up).await;
    admin.work_done(of(&session)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Over).await;
    assert!(net.link("eth0").up);
    eventually("traffic is back", || way(&net, "203.0.114.9") == "eth0").await;
    eventually_async("nothing is fenced", async || {
        client.read(&format!("{fence}/owner")).await.is_err_and(|it| it.code() == Code::NotFound)
    })
    .await;
}

// proves sv.C76
#[tokio::test]
async fn what_cannot_move_fails_a_session_and_nothing_stays_fenced() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    let settings = json!({"drain-timeout": 4, "quiet-pps": 1000});
    client.update("holdfast_native:/maintenance/settings", settings).await.unwrap();
    add_route(&client, "203.0.114.0/24", &[("10.0.0.2", None), ("10.0.1.2", Some(500))]).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let mut consumer = maintenance(&agent, ann()).await;
    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, 7).await;
    consumer.reply(ack(&session, wire::Action::Move)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Failed).await;
    let read = admin.get(of(&session)).await.unwrap().into_inner().session.unwrap();
    assert!(read.reason.contains(ROUTE) && read.reason.contains("has not moved"), "{read:?}");
    wait_until_open(&client, &format!("session-failed.{}@agent", session.id)).await;
    assert_eq!(way(&net, "203.0.114.9"), "eth0", "the drain is taken back");
    assert!(net.link("eth0").up);
    add_route(&client, "203.0.115.0/24", &[("10.0.0.2", None)]).await;
}

// proves sv.C68
#[tokio::test]
async fn a_watcher_that_comes_back_gets_the_steps_that_it_missed() {
    let net = ports(&["eth0", "eth1"]);
    let (mut agent, _client) = agent_with_consumer(&net).await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let mut told = watch(&mut admin).await;
    let session = shut_eth0(&mut admin, &net).await;
    let last = loop {
        let Content::Event(event) = next(&mut told).await else { continue };
        if event.state() == wire::State::InMaintenance && event.consumer.is_empty() {
            break event.id;
        }
    };
    drop(told);
    admin.work_done(of(&session)).await.unwrap();
    wait_for_state(&mut admin, &session, wire::State::Over).await;
    agent.terminate().await;
    agent.restart().await;
    let mut admin = maintenance(&agent, agent.credentials()).await;
    let after = async |rpc: &mut Maintenance, id: u64| {
        let request = wire::WatchRequest { after: Some(id) };
        rpc.watch(request).await.unwrap().into_inner()
    };
    let mut told = after(&mut admin, last).await;
    let mut id = last;
    loop {
        let Content::Event(event) = next(&mut told).await else { panic!("the log has all steps") };
        assert!(event.id > id, "ids ascend, also over a restart: {event:?}");
        id = event.id;
        if event.state() == wire::State::Over && event.consumer.is_empty() {
            break;
        }
    }
    let log = command(&agent, &["log", &session.id]);
    for state in ["announced", "draining", "ready", "in-maintenance", "restoring", "over"] {
        assert!(log.contains(state), "{state}: {log}");
    }
    assert!(command(&agent, &["log", "7"]).contains("there is no session `7`"));

    // The session is not kept any more, so its steps cannot be told, and the watcher gets all sessions anew.
    admin.delete(of(&session)).await.unwrap();
    let mut told = after(&mut admin, last).await;
    let Content::Snapshot(all) = next(&mut told).await else { panic!("a session is missing") };
    assert!(all.gap && all.sessions.is_empty() && all.last_event_id > id, "{all:?}");
}

/// The text that `holdfast maintenance ...` prints.
fn command(agent: &AgentProcess, arguments: &[&str]) -> String {
    printed(agent, "maintenance", arguments)
}

// proves sv.C81
#[tokio::test]
async fn the_operator_at_the_box_makes_sessions_and_replies() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_consumer(&net).await;
    client.update("holdfast_native:/maintenance/settings/drain-timeout", 30).await.unwrap();
    assert_eq!(command(&agent, &["list"]), "");
    let early = command(&agent, &["create", "interface:eth0", "--in", "1"]);
    assert!(early.contains("the session starts too soon"), "{early}");
    let id = command(&agent, &["create", "interface:eth0", "--in", "60", "--takes", "60"]);
    let id = id.trim();
    let listed = command(&agent, &["list"]);
    assert!(listed.contains(id) && listed.contains("announced"), "{listed}");
    let shown = command(&agent, &["show", id]);
    assert!(shown.contains("consumer routes") && shown.contains(ROUTE), "{shown}");
    for line in ["ends-at", "reply-by", "created-by"] {
        assert!(shown.lines().any(|it| it.starts_with(line)), "{line}: {shown}");
    }
    let refused = command(&agent, &["reply", id, "routes", "ack", "--action", "leave"]);
    assert!(refused.contains("empties the resource"), "{refused}");
    let object = format!("{ROUTE}=own-action");
    assert_eq!(command(&agent, &["reply", id, "routes", "ack", "--object", &object]), "");
    eventually("it drains", || command(&agent, &["show", id]).contains("draining")).await;
    assert_eq!(command(&agent, &["reply", id, "routes", "--done", ROUTE]), "");
    eventually("it is ready", || command(&agent, &["list"]).contains("ready")).await;
    let early = command(&agent, &["done", id]);
    assert!(early.contains("in-maintenance"), "{early}");
    assert_eq!(command(&agent, &["cancel", id]), "");
    let listed = command(&agent, &["list"]);
    assert!(listed.contains("local has cancelled it"), "{listed}");
    assert_eq!(command(&agent, &["delete", id]), "");
    assert_eq!(command(&agent, &["list"]), "");
}
