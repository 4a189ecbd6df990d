//! Configuration for an absent object waits, and applies when the object appears.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{config_of, port_with_route};
use crate::routes::OURS;

// proves kv.T11
#[tokio::test]
async fn a_port_that_is_plugged_in_later_gets_its_configuration() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    port_with_route(&client, "eth5").await;
    let waiting = agent.show("pending");
    assert!(waiting.contains("eth5") && waiting.contains("198.51.100.0/24"), "{waiting}");

    let applied = || {
        net.find_link("eth5").is_some_and(|link| link.up)
            && net.addresses("eth5") == ["192.0.2.1/24"]
            && net
                .routes(OURS)
                .iter()
                .any(|route| route.starts_with("198.51.100.0/24 via 192.0.2.2 dev eth5"))
    };
    for _ in 0..2 {
        net.ip("link add eth5 type veth peer name peer5");
        net.ip("link set peer5 up");
        eventually("the configuration is applied", applied).await;
        assert!(!agent.show("pending").contains("eth5"));

        net.ip("link del eth5");
        eventually("it waits again", || agent.show("pending").contains("198.51.100.0/24")).await;
    }
}

/// A next hop that lacks its interface makes no route. It is shown with the leaf that it waits for, and becomes a route with it.
#[tokio::test]
async fn a_next_hop_without_the_interface_that_it_needs_is_shown() {
    const HOP: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes/static[prefix=2001:db8:6::/48]/next-hops/next-hop[index=0]";
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    client.update(&format!("{HOP}/config"), json!({"next-hop": "fe80::5"})).await.unwrap();
    let waiting = agent.show("pending");
    assert!(waiting.contains("route[prefix=2001:db8:6::/48]/next-hop[index=0]"), "{waiting}");
    assert!(waiting.contains("waits for interface"), "{waiting}");
    let reference = json!({"config": {"interface": "eth0"}});
    client.update(&format!("{HOP}/interface-ref"), reference).await.unwrap();
    eventually("the route is there", || {
        net.ip("-6 route show proto 150").contains("2001:db8:6::/48 via fe80::5 dev eth0")
            && agent.show("pending").is_empty()
    })
    .await;
}
