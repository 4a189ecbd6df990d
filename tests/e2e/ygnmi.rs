//! A program with the typed paths of ygnmi, as ondatra has them: cases that the kernel of any host can carry out.
//! The cases are in `tests/clients/ygnmi/cases.go`; those of VLANs and bonds run in the lab.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::ygnmi;
use holdfast_tests::netns::{Link, Netns};

/// Ports of the box, as the program names them.
const PORTS: [&str; 4] = ["eth0", "eth1", "eth2", "eth3"];

/// A box with the ports of the program; the far ends of their cables are up.
fn box_with_ports() -> Netns {
    let net = Netns::enter();
    for (number, port) in PORTS.into_iter().enumerate() {
        let far_end = format!("peer{number}");
        net.ip(&format!("link add {port} type veth peer name {far_end}"));
        net.ip(&format!("link set {far_end} up"));
    }
    net
}

/// The ports, to be compared with those before the agent.
fn ports(net: &Netns) -> Vec<Link> {
    PORTS.map(|port| net.link(port)).to_vec()
}

#[tokio::test]
async fn attributes_reach_the_kernel_in_each_form() {
    let net = box_with_ports();
    let agent = AgentProcess::start(&net).await;
    ygnmi(&agent, "attributes").await;
    let (eth0, eth1) = (net.link("eth0"), net.link("eth1"));
    assert_eq!((eth0.mtu, eth0.alias.as_str(), eth0.up), (1400, "third", true));
    assert_eq!((eth1.mtu, eth1.alias.as_str(), eth1.up), (1500, "", false));
}

#[tokio::test]
async fn addresses_are_moved_and_swapped_in_each_form() {
    let net = box_with_ports();
    let agent = AgentProcess::start(&net).await;
    ygnmi(&agent, "addresses").await;
    assert_eq!(net.addresses("eth0"), ["198.51.100.1/24", "2001:db8:2::1/64"]);
    assert_eq!(net.addresses("eth1"), ["192.0.2.1/24", "2001:db8:1::1/64"]);
    assert_eq!(net.addresses("eth2"), [""; 0]);
}

#[tokio::test]
async fn deletes_of_anything_succeed_in_each_form() {
    let net = box_with_ports();
    net.ip("link set eth0 mtu 1400");
    net.ip("address add 203.0.113.1/24 dev eth3");
    let before = ports(&net);
    let agent = AgentProcess::start(&net).await;
    ygnmi(&agent, "deletes").await;
    assert_eq!(ports(&net), before);
    assert_eq!(net.addresses("eth0"), [""; 0]);
    assert_eq!(net.addresses("eth3"), ["203.0.113.1/24"], "the address of others stays");
}
