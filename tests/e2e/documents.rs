//! Paths and `JSON_IETF` documents that several tests send, and agents that have them.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

/// The static routes of the box.
pub(crate) const STATIC_ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes";

/// The configuration of a port.
pub(crate) fn config_of(port: &str) -> String {
    format!("/interfaces/interface[name={port}]/config")
}

/// The IPv4 part of a port's only subinterface.
pub(crate) fn ipv4_of(port: &str) -> String {
    format!("/interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]/ipv4")
}

/// The IPv6 part of a port's only subinterface.
pub(crate) fn ipv6_of(port: &str) -> String {
    format!("/interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]/ipv6")
}

/// A list of addresses, each `ADDRESS/LENGTH`.
pub(crate) fn addresses(addresses: &[&str]) -> Value {
    let entries: Vec<Value> = addresses
        .iter()
        .map(|address| {
            let (ip, length) = address.split_once('/').unwrap();
            let length: u8 = length.parse().unwrap();
            json!({"ip": ip, "config": {"ip": ip, "prefix-length": length}})
        })
        .collect();
    json!({"address": entries})
}

/// A port that is up, with its addresses, as an entry of `/interfaces/interface`.
pub(crate) fn port(name: &str, ipv4: &[&str]) -> Value {
    json!({
        "name": name,
        "config": {"name": name, "enabled": true},
        "subinterfaces": {"subinterface": [{
            "index": 0,
            "config": {"index": 0},
            "openconfig-if-ip:ipv4": {"addresses": addresses(ipv4)},
        }]},
    })
}

/// One static route with one next hop, as an entry of `static`.
pub(crate) fn route(prefix: &str, next_hop: &str) -> Value {
    json!({
        "prefix": prefix,
        "config": {"prefix": prefix},
        "next-hops": {"next-hop": [{"index": "0", "config": {"index": "0", "next-hop": next_hop}}]},
    })
}

/// Gives a port the address 192.0.2.1/24, and sends 198.51.100.0/24 to 192.0.2.2 behind it.
pub(crate) async fn port_with_route(client: &GnmiClient, name: &str) {
    client
        .update("/interfaces", json!({"interface": [port(name, &["192.0.2.1/24"])]}))
        .await
        .unwrap();
    add_route(client).await;
}

async fn add_route(client: &GnmiClient) {
    client
        .update(STATIC_ROUTES, json!({"static": [route("198.51.100.0/24", "192.0.2.2")]}))
        .await
        .unwrap();
}

/// An agent beside the port `eth0`, which has a carrier and the address 192.0.2.1/24.
pub(crate) async fn agent_with_port() -> (Netns, AgentProcess, GnmiClient) {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ports = json!({"interface": [port("eth0", &["192.0.2.1/24"])]});
    client.update("/interfaces", ports).await.unwrap();
    (net, agent, client)
}

/// An agent with such a port, and with the route of [`port_with_route`].
pub(crate) async fn agent_with_route() -> (Netns, AgentProcess, GnmiClient) {
    let (net, agent, client) = agent_with_port().await;
    add_route(&client).await;
    (net, agent, client)
}
