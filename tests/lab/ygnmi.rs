//! A program with the typed paths of ygnmi, as ondatra has them: bonds and VLANs, on a kernel that has them.
//! The cases are in `tests/clients/ygnmi/cases.go`; the others run on the host (`tests/e2e/ygnmi.rs`).

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::ygnmi;
use holdfast_tests::eventually::eventually;
use holdfast_tests::in_lab;
use holdfast_tests::netns::{Link, Netns};

/// Ports of the box, as the program names them.
const PORTS: [&str; 4] = ["eth0", "eth1", "eth2", "eth3"];

/// A box with the ports of the program, and the box at the other ends of their cables.
fn two_boxes() -> (Netns, Netns) {
    let net = Netns::enter();
    let other = Netns::detached();
    for (number, port) in PORTS.into_iter().enumerate() {
        let far_end = format!("peer{number}");
        net.add_cable(port, &other, &far_end);
        other.ip(&format!("link set {far_end} up"));
    }
    (net, other)
}

/// The ports, to be compared with those before the agent.
fn ports(net: &Netns) -> Vec<Link> {
    PORTS.map(|port| net.link(port)).to_vec()
}

#[tokio::test]
async fn bonds_and_their_members_are_moved_in_each_form() {
    in_lab!({
        let (net, _other) = two_boxes();
        let before = ports(&net);
        let agent = AgentProcess::start(&net).await;
        ygnmi(&agent, "bonds").await;
        for (member, bond) in [("eth0", "bond1"), ("eth1", "bond0"), ("eth2", "bond1")] {
            assert_eq!(net.link(member).master.as_deref(), Some(bond), "{member}");
        }
        assert_eq!(net.addresses("bond0"), ["192.0.2.1/24"]);
        assert_eq!(net.addresses("bond1"), ["198.51.100.1/24"]);
        for bond in ["bond0", "bond1"] {
            let link = net.ip_json(&format!("link show {bond}")).remove(0);
            let attributes = &link["linkinfo"]["info_data"];
            assert_eq!(attributes["mode"], "802.3ad", "{bond}");
            assert_eq!(attributes["ad_lacp_rate"], "fast", "{bond}");
        }
        let client = agent.gnmi().await;
        client.delete("/lacp/interfaces").await.unwrap();
        client.delete("/interfaces").await.unwrap();
        assert_eq!([net.find_link("bond0"), net.find_link("bond1")], [None, None]);
        eventually("the ports are as they were", || ports(&net) == before).await;
    });
}

#[tokio::test]
async fn vlans_and_their_addresses_are_moved_in_each_form() {
    in_lab!({
        let (net, _other) = two_boxes();
        let agent = AgentProcess::start(&net).await;
        ygnmi(&agent, "vlans").await;
        let links = net.ip_json("link show type vlan");
        let tags: Vec<_> = links
            .iter()
            .map(|link| (link["ifname"].as_str(), link["linkinfo"]["info_data"]["id"].as_u64()))
            .collect();
        assert_eq!(tags, [(Some("eth0.10"), Some(20)), (Some("eth0.20"), Some(10))]);
        assert_eq!(net.addresses("eth0.10"), ["192.0.2.1/24"]);
        assert_eq!(net.addresses("eth0.20"), ["198.51.100.1/24"]);
        agent.gnmi().await.delete("/interfaces").await.unwrap();
        assert_eq!(net.ip_json("link show type vlan").len(), 0);
    });
}
