//! Ports that get other names: what a port was before the agent belongs to the port.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::port;
use crate::foreign_routes::ports;

/// Lets two ports exchange their names.
fn swap(net: &Netns, one: &str, other: &str) {
    net.shell(&format!(
        "ip -batch - <<'END'
link set {one} down
link set {other} down
link set {one} name swapped
link set {other} name {one}
link set swapped name {other}
END"
    ));
}

/// MTU and alias of a port, and whether next hops over it are left out without a carrier, which follows its addresses.
fn state(net: &Netns, port: &str) -> (u32, String, String) {
    let link = net.link(port);
    let setting = net.sysctl(&format!("ipv4/conf/{port}/ignore_routes_with_linkdown"));
    (link.mtu, link.alias, setting)
}

async fn configure(client: &GnmiClient, name: &str, mtu: u32, address: &str) {
    let mut entry = port(name, &[address]);
    entry["config"]["mtu"] = json!(mtu);
    entry["config"]["description"] = json!(format!("our {name}"));
    client.update("/interfaces", json!({"interface": [entry]})).await.unwrap();
}

async fn is(net: &Netns, port: &str, mtu: u32, alias: &str, setting: &str) {
    let want = (mtu, alias.to_owned(), setting.to_owned());
    eventually(&format!("{port} is {want:?}"), || state(net, port) == want).await;
}

/// The one that has lost a configured name gets back what it was.
#[tokio::test]
async fn a_port_that_loses_a_configured_name_is_given_back() {
    for restarts in [false, true] {
        let net = ports(&["eth2", "eth3"]);
        net.ip("link set eth2 mtu 1450 alias its-own");
        net.ip("link set eth3 mtu 1460");
        let mut agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        configure(&client, "eth2", 1414, "192.0.2.1/24").await;
        assert_eq!(state(&net, "eth2"), (1400, "our eth2".to_owned(), "1".to_owned()));
        let other = state(&net, "eth3");
        if restarts {
            agent.kill();
        }
        swap(&net, "eth2", "eth3");
        if restarts {
            agent.restart().await;
        }
        is(&net, "eth2", 1400, "our eth2", "1").await;
        is(&net, "eth3", 1450, "its-own", "0").await;
        eventually("its address has gone", || {
            !net.ip("address show dev eth3").contains("192.0.2.1")
        })
        .await;
        eventually("all is done", || agent.show("pending").is_empty()).await;
        // The port that came is given back as it came.
        let client = agent.gnmi().await;
        client.delete("/interfaces/interface[name=eth2]").await.unwrap();
        is(&net, "eth2", other.0, &other.1, &other.2).await;
        is(&net, "eth3", 1450, "its-own", "0").await;
    }
}

#[tokio::test]
async fn configured_ports_that_exchange_their_names_are_given_back_as_they_were() {
    for restarts in [false, true] {
        let net = ports(&["eth2", "eth3"]);
        net.ip("link set eth2 mtu 1450 alias its-own");
        net.ip("link set eth3 mtu 1460");
        let mut agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        configure(&client, "eth2", 1414, "192.0.2.1/24").await;
        configure(&client, "eth3", 1314, "198.51.100.1/24").await;
        if restarts {
            agent.kill();
        }
        swap(&net, "eth2", "eth3");
        if restarts {
            agent.restart().await;
        }
        is(&net, "eth2", 1400, "our eth2", "1").await;
        is(&net, "eth3", 1300, "our eth3", "1").await;
        eventually("all is done", || agent.show("pending").is_empty()).await;
        let client = agent.gnmi().await;
        client.delete("/interfaces/interface[name=eth2]").await.unwrap();
        client.delete("/interfaces/interface[name=eth3]").await.unwrap();
        is(&net, "eth2", 1460, "", "0").await;
        is(&net, "eth3", 1450, "its-own", "0").await;
    }
}
