//! Drains on the kernel: routes with another way leave a link, and nothing is lost on the way.

use holdfast_proto::gnmi;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

use crate::alarms::{fault, wait_until_open, wait_until_over};
use crate::foreign_routes::ports;
use crate::impact::{add_route, agent_with_ports, route};

const VIABLE: &str = "/interfaces/interface[name=eth0]/config/forwarding-viable";
const FENCE: &str =
    "holdfast_native:/fault-state/fence[resource=interface:eth0][action=drain]/state";

/// Three routes by eth0 with another way, and three without.
async fn add_routes(client: &GnmiClient) {
    add_route(client, "203.0.113.0/24", &[("10.0.0.2", None), ("10.0.1.2", None)]).await;
    add_route(client, "203.0.114.0/24", &[("10.0.0.2", None), ("10.0.1.2", Some(500))]).await;
    add_route(client, "203.0.115.0/24", &[("10.0.0.2", Some(7)), ("10.0.1.2", Some(8))]).await;
    for number in 0..3 {
        add_route(client, &format!("198.51.{number}.0/24"), &[("10.0.0.2", None)]).await;
    }
}

/// The link that the kernel sends packets to this address by.
fn way(net: &Netns, address: &str) -> String {
    let route = net.ip(&format!("route get {address}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_owned()
}

async fn wait_for_way(net: &Netns, link: &str) {
    eventually_async(&format!("traffic goes by {link}"), async || {
        ["203.0.113.9", "203.0.114.9", "203.0.115.9"].iter().all(|to| way(net, to) == link)
    })
    .await;
}

async fn fence(client: &GnmiClient, leaf: &str) -> Option<Value> {
    client.read(&format!("{FENCE}/{leaf}")).await.ok()
}

fn left() -> Value {
    let routes = (0..3).map(|number| route(&format!("198.51.{number}.0/24")));
    let native = "holdfast_native:";
    routes.map(|path| path.trim_start_matches(native).to_owned()).collect()
}

#[tokio::test]
async fn a_link_that_is_not_viable_is_left_by_routes_that_have_another_way() {
    let net = ports(&["eth0", "eth1"]);
    let (mut agent, client) = agent_with_ports(&net).await;
    add_routes(&client).await;
    let before = net.ip("route show");
    assert_eq!(way(&net, "203.0.114.9"), "eth0");
    client.update(VIABLE, false).await.unwrap();
    wait_for_way(&net, "eth1").await;
    for number in 0..3 {
        assert_eq!(way(&net, &format!("198.51.{number}.9")), "eth0", "it has no other way");
    }
    eventually_async("the drain is shown", async || {
        fence(&client, "owner").await == Some(json!(["client"]))
            && fence(&client, "left").await == Some(left())
    })
    .await;
    let state = "/interfaces/interface[name=eth0]/state/forwarding-viable";
    assert_eq!(client.read(state).await.unwrap(), json!(false));
    let other = "/interfaces/interface[name=eth1]/state/forwarding-viable";
    assert_eq!(client.read(other).await.unwrap(), json!(true));
    let metric = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes/static[prefix=203.0.115.0/24]/next-hops/next-hop[index=0]";
    assert_eq!(client.read(&format!("{metric}/config/metric")).await.unwrap(), json!(7));
    assert_eq!(client.read(&format!("{metric}/state/metric")).await.unwrap(), json!(1007));
    let elem = gnmi::PathElem { name: "show effective".into(), ..Default::default() };
    let path = gnmi::Path { origin: "cli".into(), elem: vec![elem], ..Default::default() };
    let request = gnmi::GetRequest {
        path: vec![path],
        r#type: gnmi::get_request::DataType::Config.into(),
        encoding: gnmi::Encoding::Ascii.into(),
        ..Default::default()
    };
    let effective = format!("{:?}", client.get(request).await.unwrap());
    assert!(effective.contains("metric 1007 # fence of client"), "{effective}");

    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    wait_for_way(&net, "eth1").await;
    eventually_async("the drain is shown again", async || {
        fence(&client, "left").await == Some(left())
    })
    .await;
    client.delete(VIABLE).await.unwrap();
    wait_for_way_back(&net, &before).await;
    eventually_async("the drain is over", async || fence(&client, "owner").await.is_none()).await;
}

async fn wait_for_way_back(net: &Netns, before: &str) {
    eventually_async("routes are as before", async || net.ip("route show") == before).await;
}

#[tokio::test]
async fn a_policy_drains_and_loses_no_packet() {
    let net = ports(&["eth0", "eth1"]);
    let (agent, client) = agent_with_ports(&net).await;
    add_routes(&client).await;
    let before = net.ip("route show");
    let policy =
        json!({"name": "errors", "type": "x-errors", "action": "drain", "recovery-delay": 0});
    client.update("holdfast_native:/fault-management/policy[name=errors]", policy).await.unwrap();
    let monitor = json!({"name": "crc", "types": ["x-*"]});
    client.update("holdfast_native:/fault-management/monitor[name=crc]", monitor).await.unwrap();
    let report = |alarm: &str, word: &str| {
        fault(&agent, &["report", "--monitor", "crc", alarm, word, "--ttl", "600"])
    };
    let errors = "x-errors@interface:eth0";
    // Packets that have no way are told to the sender at once.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let send = || {
        for host in ["203.0.113.9:9", "203.0.114.9:9", "203.0.115.9:9"] {
            if let Err(error) = socket.send_to(b"packet", host) {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{host}: {error}");
            }
        }
    };
    assert_eq!(report(errors, "raised"), "");
    eventually_async("traffic goes by eth1", async || {
        send();
        ["203.0.113.9", "203.0.114.9", "203.0.115.9"].iter().all(|to| way(&net, to) == "eth1")
    })
    .await;
    // The kernel has the fence before a revision shows it.
    eventually_async("the fence is shown with its owner", async || {
        fence(&client, "owner").await == Some(json!(["policy errors"]))
    })
    .await;
    assert_eq!(report(errors, "cleared"), "");
    eventually_async("routes are as before", async || {
        send();
        net.ip("route show") == before
    })
    .await;

    // A resource that is neither an interface nor a next hop has no ways to be led away from.
    assert_eq!(report("x-errors@box", "raised"), "");
    wait_until_open(&client, "fence-failed.policy-errors@box").await;
    let fences = client.read("holdfast_native:/fault-state/fence").await.ok();
    assert!(!format!("{fences:?}").contains("box"), "nothing is fenced: {fences:?}");
    assert_eq!(report("x-errors@box", "cleared"), "");
    wait_until_over(&client, "fence-failed.policy-errors@box").await;
}
