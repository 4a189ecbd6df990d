//! Subscriptions: changes by the kernel and by Sets arrive at subscribers.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{
    Poll, QosMarking, SubscribeRequest, SubscriptionList, SubscriptionMode, subscribe_request,
};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::{Event, notification_lines, subscribe_to};
use serde_json::json;

use crate::documents::{STATIC_ROUTES, config_of, port, route};

/// The shortest sample interval, in nanoseconds.
const FAST: u64 = 1_000_000_000;

// proves 1.99, 1.100
#[tokio::test]
async fn once_sends_everything_and_ends() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let paths = [("/interfaces/interface[name=eth0]/state", SubscriptionMode::TargetDefined)];

    let mut stream = client.subscribe(subscribe_to(Mode::Once, &paths)).await.unwrap();
    let lines = stream.until_sync().await;
    let index = format!(
        "update /interfaces/interface[name=eth0]/state/ifindex = {}",
        net.link("eth0").index
    );
    assert!(lines.contains(&index), "{lines:#?}");
    assert_eq!(stream.next().await.unwrap(), Event::End);
}

// proves 1.101
#[tokio::test]
async fn each_poll_sends_everything() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let paths = [("/interfaces/interface[name=eth0]/state/mtu", SubscriptionMode::TargetDefined)];

    let mut stream = client.subscribe(subscribe_to(Mode::Poll, &paths)).await.unwrap();
    stream.poll().await;
    let first = stream.until("state/mtu").await;
    stream.until_sync().await;
    net.ip("link set eth0 mtu 1400");
    // The kernel's event takes a while to arrive, and a poll does not read the kernel.
    eventually_async("the agent knows of the MTU", async || {
        client.read(paths[0].0).await.unwrap() == 1414
    })
    .await;
    stream.poll().await;
    let second = stream.until("= 1414").await;
    assert_ne!(first, second);
}

// proves 1.106, 1.109, 1.113
#[tokio::test]
async fn on_change_sends_changes_of_kernel_and_set() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let paths = [
        ("/interfaces/interface[name=*]/state/oper-status", SubscriptionMode::OnChange),
        ("/interfaces/interface[name=eth0]/config", SubscriptionMode::OnChange),
    ];

    let mut stream = client.subscribe(subscribe_to(Mode::Stream, &paths)).await.unwrap();
    let first = stream.until_sync().await;
    assert!(
        first.iter().any(|line| line.contains("[name=eth0]/state/oper-status = \"DOWN\"")),
        "{first:#?}"
    );

    net.ip("link set eth0 up");
    stream.until("[name=eth0]/state/oper-status = \"UP\"").await;
    client.update(&config_of("eth0"), json!({"mtu": 1414, "description": "told"})).await.unwrap();
    stream.until("[name=eth0]/config/description = \"told\"").await;
    client.delete(&format!("{}/description", config_of("eth0"))).await.unwrap();
    stream.until("delete /interfaces/interface[name=eth0]/config/description").await;
    net.ip("link del eth0");
    // One is still configured, the other gone; the order of the kernel's events for the two ends varies.
    let parts = [
        "[name=eth0]/state/oper-status = \"NOT_PRESENT\"",
        "delete /interfaces/interface[name=peer0]",
    ];
    stream.until_all(&parts).await;
}

// proves 1.126
#[tokio::test]
async fn wildcard_subscription_includes_later_ports() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let paths = [("/interfaces/interface[name=*]/state/ifindex", SubscriptionMode::OnChange)];

    let mut stream = client.subscribe(subscribe_to(Mode::Stream, &paths)).await.unwrap();
    stream.until_sync().await;
    net.ip("link add late0 type veth peer name late1");
    stream.until("[name=late0]/state/ifindex").await;
}

// proves 1.107
#[tokio::test]
async fn samples_come_at_their_interval() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let path = "/interfaces/interface[name=eth0]/state/counters/in-octets";

    let mut list = subscribe_to(Mode::Stream, &[(path, SubscriptionMode::Sample)]);
    list.subscription[0].sample_interval = FAST;
    let mut stream = client.subscribe(list).await.unwrap();
    stream.until_sync().await;
    let started = std::time::Instant::now();
    for _ in 0..3 {
        stream.until("in-octets").await;
    }
    let took = started.elapsed();
    assert!(took > Duration::from_nanos(FAST) && took < Duration::from_nanos(6 * FAST), "{took:?}");
}

// proves 1.103
#[tokio::test]
async fn updates_only_omits_initial_values() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    let mut list = subscribe_to(
        Mode::Stream,
        &[("/interfaces/interface[name=eth0]/state", SubscriptionMode::OnChange)],
    );
    list.updates_only = true;
    let mut stream = client.subscribe(list).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Event::Sync);
    net.ip("link set eth0 mtu 1400");
    stream.until("state/mtu = 1414").await;
}

// proves 1.124
#[tokio::test]
async fn qos_marking_sets_the_dscp_of_the_stream() {
    /// AF11, and its value in the byte with two more bits.
    const DSCP: u32 = 10;
    const TOS: &str = "tos:0x28";
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let sockets = || {
        let output = Command::new("ss")
            .args(["--tcp", "--numeric", "--tos", "sport", "=", "9339"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let client = agent.gnmi().await;
    client.capabilities().await.unwrap();
    assert!(!sockets().contains(TOS));

    let mut list = subscribe_to(Mode::Stream, &[("/interfaces", SubscriptionMode::OnChange)]);
    list.qos = Some(QosMarking { marking: DSCP });
    let mut stream = client.subscribe(list).await.unwrap();
    stream.until_sync().await;
    assert!(sockets().contains(TOS), "{}", sockets());
}

// proves 1.95, 1.96, 1.97
#[tokio::test]
async fn invalid_subscribe_requests_are_refused() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let list = subscribe_to(Mode::Stream, &[("/interfaces", SubscriptionMode::OnChange)]);

    for (what, requests) in [
        ("a poll first", vec![subscribe_request::Request::Poll(Poll {})]),
        (
            "no subscription",
            vec![subscribe_request::Request::Subscribe(SubscriptionList::default())],
        ),
        (
            "two lists",
            vec![
                subscribe_request::Request::Subscribe(list.clone()),
                subscribe_request::Request::Subscribe(list.clone()),
            ],
        ),
    ] {
        let requests = requests
            .into_iter()
            .map(|request| SubscribeRequest { request: Some(request), ..Default::default() });
        // The client's side stays open, so the server ends the call.
        let open = endless_requests(requests.collect());
        let mut answers = client.raw().subscribe(open).await.unwrap().into_inner();
        let refusal = loop {
            match tokio::time::timeout(Duration::from_secs(15), answers.message()).await.unwrap() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{what}: ended without a reason"),
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refusal.code(), tonic::Code::InvalidArgument, "{what}: {refusal}");
    }
}

/// The server of the agent in the native model.
const SERVER: &str = "holdfast_native:/system/grpc-server[name=DEFAULT]";

/// Ends with an error unless unknown paths are ignored: nothing but the MTU of eth0 is told otherwise.
async fn once_with_unknown_paths(agent: &AgentProcess) -> Result<Vec<String>, tonic::Code> {
    let mode = SubscriptionMode::TargetDefined;
    let paths = [
        ("/lldp", mode),
        ("/interfaces/interface[name=eth0]/state/mtu", mode),
        ("vendor_native:/ports", mode),
    ];
    let client = agent.gnmi().await;
    let mut stream = client.subscribe(subscribe_to(Mode::Once, &paths)).await.unwrap();
    let mut lines = Vec::new();
    loop {
        match stream.next().await.map_err(|refusal| refusal.code())? {
            Event::Notification(notification) => lines.extend(notification_lines(&notification)),
            Event::Sync => {}
            Event::End => return Ok(lines),
        }
    }
}

// proves 1.105
#[tokio::test]
async fn unknown_paths_are_refused_until_the_configuration_ignores_them() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    assert_eq!(once_with_unknown_paths(&agent).await, Err(tonic::Code::Unimplemented));

    let leaf = format!("{SERVER}/unknown-subscription-paths");
    client.update(&leaf, json!("ignore")).await.unwrap();
    let lines = once_with_unknown_paths(&agent).await.unwrap();
    assert_eq!(lines, ["update /interfaces/interface[name=eth0]/state/mtu = 1514"]);
    once_with_unknown_paths(&agent).await.unwrap();

    let server = client.read(SERVER).await.unwrap();
    let entry = |path: &str| json!({"path": path, "state": {"path": path, "count": "2"}});
    let want = json!([entry("/lldp"), entry("vendor_native:/ports")]);
    assert_eq!(server["holdfast:ignored-subscription"], want, "{server}");
    let log = agent.log();
    for path in ["path=/lldp ", "path=vendor_native:/ports "] {
        let lines = log.lines().filter(|line| format!("{line} ").contains(path)).count();
        assert_eq!(lines, 1, "{path} is logged once, however often it is ignored: {log}");
    }

    client.delete(&leaf).await.unwrap();
    assert_eq!(once_with_unknown_paths(&agent).await, Err(tonic::Code::Unimplemented));
}

#[tokio::test]
async fn an_option_ignores_unknown_paths_unless_the_configuration_refuses_them() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let options = ["--unknown-subscription-paths", "ignore"];
    let agent = AgentProcess::start_with(&net, &options).await;
    let client = agent.gnmi().await;
    assert_eq!(once_with_unknown_paths(&agent).await.unwrap().len(), 1);

    let mut stream = client
        .subscribe(subscribe_to(
            Mode::Stream,
            &[
                ("/lldp", SubscriptionMode::OnChange),
                ("/interfaces/interface[name=eth0]/state/mtu", SubscriptionMode::OnChange),
            ],
        ))
        .await
        .unwrap();
    stream.until_sync().await;
    client.update(&format!("{SERVER}/unknown-subscription-paths"), json!("refuse")).await.unwrap();
    assert_eq!(once_with_unknown_paths(&agent).await, Err(tonic::Code::Unimplemented));
    // An open stream goes on.
    net.ip("link set eth0 mtu 1400");
    stream.until("state/mtu = 1414").await;
}

/// A client of everything hears of a lost link amid a large table: while it is synchronised, and while it is told a change.
#[tokio::test]
async fn a_lost_link_is_told_amid_a_large_table() {
    const ROUTES: u32 = 20_000;
    /// 10.0.0.0.
    const TEN: u32 = 10 << 24;
    const STATUS: &str = "/interfaces/interface[name=eth0]/state/oper-status";
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ports = json!({"interface": [port("eth0", &["192.0.2.1/24"])]});
    client.update("/interfaces", ports).await.unwrap();
    let prefix = |number| format!("{}/32", Ipv4Addr::from_bits(TEN + number));
    let routes: Vec<_> = (0..ROUTES).map(|number| route(&prefix(number), "192.0.2.2")).collect();
    let up = format!("update {STATUS} = \"UP\"");
    // Until others see the loss, the client reads no more than the first routes.
    let lose = async || {
        net.ip("link set peer0 down");
        eventually_async("the loss is seen", async || client.read(STATUS).await.unwrap() != "UP")
            .await;
    };

    client.update(STATIC_ROUTES, json!({"static": routes})).await.unwrap();
    let everything = subscribe_to(Mode::Stream, &[("/", SubscriptionMode::OnChange)]);
    let mut stream = agent.gnmi().await.subscribe(everything).await.unwrap();
    let mut known = KnownRoutes::default();
    let first = stream.until_all(&["/static["]).await;
    assert!(first.contains(&up), "{first:#?}");
    known.follow(&first);
    lose().await;
    let rest = stream.until_sync().await;
    let lost = rest.iter().position(|line| line.contains(STATUS)).expect("the loss is told");
    known.follow(&rest[..lost]);
    assert!(known.0.len() < routes.len(), "the loss is told after all routes");
    known.follow(&rest[lost..]);
    assert_eq!(known.0.len(), routes.len());

    net.ip("link set peer0 up");
    stream.until(&up).await;
    client.delete(STATIC_ROUTES).await.unwrap();
    while !known.0.is_empty() {
        known.follow(&stream.until_all(&["delete "]).await);
    }
    client.update(STATIC_ROUTES, json!({"static": routes})).await.unwrap();
    known.follow(&stream.until_all(&["/static["]).await);
    lose().await;
    known.follow(&stream.until_all(&[STATUS]).await);
    assert!(known.0.len() < routes.len(), "the loss is told after all routes");
    while known.0.len() < routes.len() {
        known.follow(&stream.until_all(&["/static["]).await);
    }
}

/// Static routes that a client was told of, by the path of a leaf of each.
#[derive(Debug, Default)]
struct KnownRoutes(BTreeSet<String>);

impl KnownRoutes {
    fn follow(&mut self, lines: &[String]) {
        for line in lines {
            if let Some(deleted) = line.strip_prefix("delete ") {
                let below = self.0.range(deleted.to_owned()..);
                let below: Vec<_> =
                    below.take_while(|leaf| leaf.starts_with(deleted)).cloned().collect();
                below.iter().for_each(|leaf| assert!(self.0.remove(leaf)));
            }
            let told = line.strip_prefix("update ").and_then(|line| line.split_once(" = "));
            if let Some((leaf, _)) = told
                && leaf.contains("/static[")
                && leaf.ends_with("/config/prefix")
            {
                self.0.insert(leaf.to_owned());
            }
        }
    }
}

/// A stream of requests that does not end after the last.
fn endless_requests(
    requests: Vec<SubscribeRequest>,
) -> impl tokio_stream::Stream<Item = SubscribeRequest> {
    use tokio_stream::StreamExt;
    tokio_stream::iter(requests).chain(tokio_stream::pending())
}
