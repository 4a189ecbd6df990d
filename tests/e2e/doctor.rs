//! The thirteen steps of planned maintenance in OPNFV Doctor, with a consumer in Python.

use holdfast_proto::holdfast::maintenance as wire;
use holdfast_proto::holdfast::maintenance::watch_response::Content;
use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::clients::python_with;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use serde_json::json;
use tonic::{Code, Streaming};

use crate::documents::port;
use crate::foreign_routes::ports;
use crate::impact::{add_route, link, wait_for};
use crate::maintenance::{create, maintenance, next, of, route_name};

/// Time for the drain and for replies, in seconds: the consumer is a program that has to be started.
const DRAIN: u64 = 10;
const LEAD: u64 = 3;

/// A consumer of a route: `voice` replies itself, `data` has to agree, and an administrator replies for it.
async fn configure(client: &GnmiClient) {
    let ports = [port("eth0", &["10.0.0.1/24"]), port("eth1", &["10.0.1.1/24"])];
    client.update("/interfaces", json!({"interface": ports})).await.unwrap();
    let settings = json!({
        "settings": {"minimum-lead-time": LEAD, "drain-timeout": DRAIN},
        "consumer": [
            {
                "id": "voice",
                "identity": "ann",
                "path": [route_name("198.51.100.0/24")],
                "default-action": "own-action",
            },
            {
                "id": "data",
                "path": [route_name("203.0.113.0/24")],
                "default-action": "stop",
                "requires-agreement": true,
            },
        ],
    });
    client.update("holdfast_native:/maintenance", settings).await.unwrap();
    add_route(client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    add_route(client, "203.0.113.0/24", &[("10.0.0.2", None)]).await;
}

/// The next message to administrators: a change, who else is told, the state, and the object.
async fn told(stream: &mut Streaming<wire::WatchResponse>) -> String {
    let Content::Event(event) = next(stream).await else { panic!("a step is told") };
    let who = if event.consumer.is_empty() { "admins" } else { event.consumer.as_str() };
    match event.change() {
        wire::event::Change::State => format!("{who}: {}", event.state().as_str_name()),
        wire::event::Change::ActionDone => format!("{who}: done {}", event.object),
        change => format!("{who}: {}", change.as_str_name()),
    }
}

/// Everything that is told up to something.
async fn told_until(stream: &mut Streaming<wire::WatchResponse>, last: &str) -> Vec<String> {
    let mut all = Vec::new();
    while all.last().is_none_or(|it| it != last) {
        all.push(told(stream).await);
    }
    all
}

// proves sv.C67, sv.C68, sv.C69, sv.C70, sv.C71, sv.C73, sv.C74, sv.C75, sv.C78
#[tokio::test]
async fn the_thirteen_steps() {
    let net = ports(&["eth0", "eth1"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    configure(&client).await;
    assert!(agent.user(&["set", "ann", "--role", "read-only"], "secret of ann").status.success());
    let moves = json!([[
        "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes/static[prefix=198.51.100.0/24]/next-hops/next-hop[index=0]/config",
        {"index": "0", "next-hop": "10.0.1.2"},
    ]])
    .to_string();
    let variables = [
        ("TARGET_USER", "ann"),
        ("TARGET_PASSWORD", "secret of ann"),
        ("MOVER_USER", ADMIN),
        ("MOVER_PASSWORD", PASSWORD),
        ("MOVES", &moves),
    ];
    let consumer = python_with(&agent, "maintenance_client.py", &["own-action"], &variables);
    let (printed, ()) = tokio::join!(consumer, administer(&agent, &client, &net));
    // Steps 3, 4, 5 and 9: the consumer is told, moves on its own, says so, and is told that it is over for it.
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("snapshot")).collect();
    let wanted = ["replied own-action", "state draining PLANNED_MAINTENANCE", "moved 1"];
    assert!(wanted.iter().all(|line| lines.contains(line)), "{printed}");
    let done = format!("done {}", route_name("198.51.100.0/24"));
    assert!(lines.contains(&done.as_str()), "{printed}");
    assert_eq!(lines.last(), Some(&"state over MAINTENANCE_COMPLETE"), "{printed}");
}

/// The steps of the administrator.
async fn administer(agent: &AgentProcess, client: &GnmiClient, net: &holdfast_tests::netns::Netns) {
    let mut admin = maintenance(agent, agent.credentials()).await;
    let mut stream = admin.watch(wire::WatchRequest::default()).await.unwrap().into_inner();
    assert!(matches!(next(&mut stream).await, Content::Snapshot(_)));

    // 1: nothing is placed on the resource any more, and that is acknowledged.
    let session = create(&mut admin, "interface:eth0", wire::Kind::Full, DRAIN + LEAD + 1).await;
    let address = "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.9.1]/config";
    let value = json!({"ip": "10.0.9.1", "prefix-length": 24});
    let refused = client.update(address, value.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");

    // 2: consumers are told, with what is theirs, what would be done by default, and what they may choose.
    for wanted in ["admins", "data", "voice"] {
        assert_eq!(told(&mut stream).await, format!("{wanted}: STATE_ANNOUNCED"));
    }
    let consumer = |name: &str| {
        format!(
            "holdfast_native:/maintenance-state/session[id={}]/consumer[id={name}]/state",
            session.id
        )
    };
    let default = client.read(&format!("{}/default-action", consumer("voice"))).await.unwrap();
    assert_eq!(default, json!("own-action"));
    let allowed = client.read(&format!("{}/allowed-action", consumer("voice"))).await.unwrap();
    assert_eq!(allowed, json!(["move", "own-action", "stop"]));

    // 5: who has to agree does. The other one replies on its own.
    let agreed = wire::ReplyRequest {
        id: session.id.clone(),
        consumer: "data".to_owned(),
        answer: wire::Answer::Ack.into(),
        ..Default::default()
    };
    admin.reply(agreed).await.unwrap();

    // 6: what is to be done is done, and each object is told.
    let drained = told_until(&mut stream, "admins: STATE_READY").await;
    for (name, prefix) in [("data", "203.0.113.0/24"), ("voice", "198.51.100.0/24")] {
        let done = format!("{name}: done {}", route_name(prefix));
        assert!(drained.contains(&done), "{drained:?}");
    }
    for name in ["data", "voice"] {
        assert_eq!(told(&mut stream).await, format!("{name}: STATE_READY"));
    }

    // 7: administrators are told that maintenance begins, and faults are nobody's business.
    assert_eq!(told(&mut stream).await, "admins: STATE_IN_MAINTENANCE");
    wait_for(client, &link("eth0"), "MAINTENANCE").await;
    eventually("eth0 is shut", || !net.link("eth0").up).await;

    // 8: who has something left is told so, and the other one that it is over.
    assert_eq!(told(&mut stream).await, "data: STATE_IN_MAINTENANCE");
    assert_eq!(told(&mut stream).await, "voice: STATE_OVER");

    // 10: the work. 11: the resource is given back.
    admin.work_done(of(&session)).await.unwrap();
    assert_eq!(told(&mut stream).await, "admins: STATE_RESTORING");
    assert_eq!(told(&mut stream).await, "data: STATE_RESTORING");
    // 12: who had something left is told that it is over. 13: administrators are.
    assert_eq!(told(&mut stream).await, "data: STATE_OVER");
    assert_eq!(told(&mut stream).await, "admins: STATE_OVER");
    assert!(net.link("eth0").up);
    wait_for(client, &link("eth0"), "UP").await;
    client.update(address, value).await.unwrap();
}
