//! Static routes, few and many.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

use crate::documents::{STATIC_ROUTES, agent_with_port, port, route};

/// The protocol number in the kernel of the routes that the agent makes.
pub(crate) const OURS: &str = "150";

const MANY: u32 = 10_000;

#[tokio::test]
async fn next_hops_metrics_and_dropping_reach_the_kernel() {
    let (net, _agent, client) = agent_with_port().await;

    let hop = |index: &str, next_hop: &str, metric: u32| json!({"index": index, "config": {"index": index, "next-hop": next_hop, "metric": metric}});
    let entry = |prefix: &str, hops: &[Value]| json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": hops}});
    let routes = json!({"static": [
        entry("198.51.100.0/24", &[hop("0", "192.0.2.2", 10), hop("1", "192.0.2.3", 10)]),
        entry("203.0.113.0/24", &[hop("0", "openconfig-local-routing:DROP", 20)]),
        route("0.0.0.0/0", "192.0.2.9"),
    ]});
    client.update(STATIC_ROUTES, routes).await.unwrap();

    let routes = net.routes(OURS).join("\n");
    assert!(routes.contains("default via 192.0.2.9 dev eth0"), "{routes}");
    assert!(
        routes.contains("nexthop via 192.0.2.2") && routes.contains("nexthop via 192.0.2.3"),
        "{routes}"
    );
    assert!(routes.contains("198.51.100.0/24 metric 10"), "{routes}");
    assert!(routes.contains("blackhole 203.0.113.0/24 metric 20"), "{routes}");

    client.delete(STATIC_ROUTES).await.unwrap();
    assert_eq!(net.routes(OURS), [""; 0]);
}

#[tokio::test]
async fn route_is_restored_when_the_foreign_one_is_removed() {
    let (net, agent, client) = agent_with_port().await;
    client
        .update(STATIC_ROUTES, json!({"static": [route("10.0.0.0/8", "192.0.2.2")]}))
        .await
        .unwrap();
    net.ip("route replace 10.0.0.0/8 via 192.0.2.77 proto static metric 20");
    eventually("it is told", || agent.show("pending").contains("10.0.0.0/8")).await;
    assert_eq!(net.routes(OURS), [""; 0], "what is not ours stays");
    net.ip("route del 10.0.0.0/8 proto static metric 20");
    eventually("ours is back", || net.routes(OURS).join("").contains("10.0.0.0/8 via 192.0.2.2"))
        .await;
}

#[tokio::test]
async fn ten_thousand_routes_arrive_in_one_set() {
    let (net, _agent, client) = agent_with_port().await;

    let prefix = |number: u32| format!("10.{}.{}.0/24", number / 256, number % 256);
    let routes: Vec<Value> = (0..MANY).map(|number| route(&prefix(number), "192.0.2.2")).collect();
    client.replace(STATIC_ROUTES, json!({"static": routes})).await.unwrap();

    assert_eq!(net.routes(OURS).len(), MANY as usize);
    let read = client.read(STATIC_ROUTES).await.unwrap();
    assert_eq!(
        read["openconfig-network-instance:static"].as_array().map(Vec::len),
        Some(MANY as usize)
    );

    client
        .replace(STATIC_ROUTES, json!({"static": [route(&prefix(7), "192.0.2.2")]}))
        .await
        .unwrap();
    assert_eq!(net.routes(OURS).len(), 1);
}

#[tokio::test]
async fn a_route_uses_the_uplinks_that_can_be_reached() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link set peer0 up");
    net.ip("link set peer1 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let mut second = port("eth1", &["203.0.113.1/24"]);
    second["config"]["enabled"] = json!(false);
    let ports = json!({"interface": [port("eth0", &["192.0.2.1/24"]), second]});
    client.update("/interfaces", ports).await.unwrap();
    let hop = |index: &str, next_hop: &str| json!({"index": index, "config": {"index": index, "next-hop": next_hop}});
    let hops = [hop("a", "192.0.2.2"), hop("b", "203.0.113.2"), hop("c", "198.51.100.2")];
    let entry = json!({"prefix": "10.0.0.0/8", "config": {"prefix": "10.0.0.0/8"}, "next-hops": {"next-hop": hops}});
    client.update(STATIC_ROUTES, json!({"static": [entry]})).await.unwrap();

    // The links by which the kernel's route leaves, and the next hops that are shown as state.
    let links = || {
        let text = net.ip("route show 10.0.0.0/8 proto 150");
        let words: Vec<&str> = text.split_whitespace().collect();
        let links = words.windows(2).filter(|pair| pair[0] == "dev").map(|pair| pair[1]);
        links.collect::<Vec<_>>().join(" ")
    };
    let kernel_hops = async || {
        let read = client.read(STATIC_ROUTES).await.unwrap();
        let hops = &read["openconfig-network-instance:static"][0]["next-hops"]["next-hop"];
        let hops = hops.as_array().cloned().unwrap_or_default();
        let there = hops.iter().filter(|hop| !hop["state"].is_null());
        there.filter_map(|hop| hop["index"].as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((links().as_str(), kernel_hops().await.as_str()), ("eth0", "a"));
    let values = agent.show("values");
    let line = values.lines().find(|line| line.contains("route 10.0.0.0/8 metric"));
    let line = line.unwrap_or_default();
    assert!(line.contains("CONFIGURED") && line.contains("does without"), "{values}");
    assert!(line.contains("gateway 203.0.113.2") && line.contains("198.51.100.2"), "{line}");
    let pending = agent.show("pending");
    let waiting =
        pending.lines().find(|it| it.contains("route 10.0.0.0/8 metric")).unwrap_or_default();
    assert!(waiting.contains("does without"), "{pending}");
    assert!(
        waiting.contains("gateway 203.0.113.2") && waiting.contains("198.51.100.2"),
        "{waiting}"
    );

    const ENABLED: &str = "/interfaces/interface[name=eth1]/config/enabled";
    client.update(ENABLED, json!(true)).await.unwrap();
    assert_eq!((links().as_str(), kernel_hops().await.as_str()), ("eth0 eth1", "a b"));
    client.update(ENABLED, json!(false)).await.unwrap();
    assert_eq!((links().as_str(), kernel_hops().await.as_str()), ("eth0", "a"));
    client.update(ENABLED, json!(true)).await.unwrap();

    // The second port is pulled, and plugged in again.
    net.ip("link del eth1");
    eventually("the route does without", || links() == "eth0").await;
    net.ip("link add eth1 type veth peer name peer1");
    net.ip("link set peer1 up");
    eventually("the route uses it again", || links() == "eth0 eth1").await;
    // No next hop is left, and the route waits for all of them.
    client.update("/interfaces/interface[name=eth0]/config/enabled", json!(false)).await.unwrap();
    assert_eq!(links(), "eth1");
    client.update(ENABLED, json!(false)).await.unwrap();
    assert_eq!(links(), "");
    eventually("it waits", || agent.show("pending").contains("route 10.0.0.0/8 metric")).await;
}
