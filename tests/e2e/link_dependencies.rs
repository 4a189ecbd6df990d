//! Properties of a link that others need: IPv6, an MTU, an identity. They wait for them, in any order.

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{GnmiClient, parse_path, update};
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

use crate::documents::{STATIC_ROUTES, addresses, config_of, ipv6_of};
use crate::refused_sets::refused;

const ADDRESS: &str = "2001:db8::1/64";
const NEIGHBOR: &str = "2001:db8::7";
const PREFIX: &str = "2001:db8:1::/48";

/// IPv6 of eth0: an address, and a neighbour.
fn ipv6() -> Value {
    let neighbor = json!({"ip": NEIGHBOR, "link-layer-address": "02:00:00:00:00:07"});
    json!({
        "addresses": addresses(&[ADDRESS]),
        "neighbors": {"neighbor": [{"ip": NEIGHBOR, "config": neighbor}]},
    })
}

/// A static route whose next hop is behind eth0.
fn route_through_eth0() -> Value {
    json!({"static": [{
        "prefix": PREFIX,
        "config": {"prefix": PREFIX},
        "next-hops": {"next-hop": [{
            "index": "0",
            "config": {"index": "0", "next-hop": "2001:db8::2"},
            "interface-ref": {"config": {"interface": "eth0", "subinterface": 0}},
        }]},
    }]})
}

/// Presence of address, neighbour and route in the kernel.
fn in_kernel(net: &Netns) -> [bool; 3] {
    let neighbors = net.ip("-6 neighbor show dev eth0 nud permanent");
    [
        net.addresses("eth0").contains(&ADDRESS.to_owned()),
        neighbors.contains(NEIGHBOR),
        net.ip("-6 route show proto 150").contains(PREFIX),
    ]
}

/// Checks that everything of IPv6 waits with its reason, and that nothing has failed.
async fn waits(net: &Netns, agent: &AgentProcess, what: &str) {
    eventually(what, || {
        let pending = agent.show("pending");
        let lines = |part: &str| pending.lines().filter(|line| line.contains(part)).count();
        in_kernel(net) == [false; 3] && lines("PENDING") >= 3 && lines("IPv6") >= 2
    })
    .await;
    let values = agent.show("values");
    assert!(!values.contains("FAILED") && !values.contains("RETRYING"), "{what}: {values}");
}

async fn is_back(net: &Netns, agent: &AgentProcess, what: &str) {
    eventually(what, || in_kernel(net) == [true; 3] && agent.show("pending").is_empty()).await;
}

#[tokio::test]
async fn all_of_ipv6_waits_while_its_link_cannot_carry_it() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let enabled = format!("{}/config/enabled", ipv6_of("eth0"));
    let mtu = config_of("eth0");
    let set_mtu = async |client: &GnmiClient, mtu_with_header: u32| {
        client.update(&mtu, json!({"mtu": mtu_with_header})).await.unwrap();
    };
    client.update(&config_of("eth0"), json!({"enabled": true, "mtu": 1514})).await.unwrap();
    client.update(&ipv6_of("eth0"), ipv6()).await.unwrap();
    client.update(STATIC_ROUTES, route_through_eth0()).await.unwrap();
    is_back(&net, &agent, "the first configuration").await;

    client.update(&enabled, false).await.unwrap();
    waits(&net, &agent, "IPv6 is off").await;
    client.update(&enabled, true).await.unwrap();
    assert_eq!(in_kernel(&net), [true; 3], "with the answer to the change");

    set_mtu(&client, 1214).await;
    waits(&net, &agent, "the MTU is too small").await;
    // Forwarding and the switch do not exist in the kernel at this MTU.
    client.update(&enabled, false).await.unwrap();
    agent.restart().await;
    let client = agent.gnmi().await;
    waits(&net, &agent, "after a restart").await;
    set_mtu(&client, 1514).await;
    waits(&net, &agent, "large enough, and still off").await;
    assert_eq!(net.sysctl("ipv6/conf/eth0/disable_ipv6"), "1");
    client.update(&enabled, true).await.unwrap();
    is_back(&net, &agent, "on again").await;

    net.ip("link set eth0 down");
    is_back(&net, &agent, "after a flap").await;
}

/// Others switch IPv6 off on a port that the configuration does not mention, as containers do.
#[tokio::test]
async fn what_others_switch_off_is_waited_for() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    net.ip("link set eth0 up");
    net.shell("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    client.update(&ipv6_of("eth0"), ipv6()).await.unwrap();
    client.update(STATIC_ROUTES, route_through_eth0()).await.unwrap();
    waits(&net, &agent, "off from the beginning").await;
    for _ in 0..2 {
        net.shell("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0");
        is_back(&net, &agent, "switched on").await;
        net.shell("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1");
        waits(&net, &agent, "switched off").await;
    }
}

#[tokio::test]
async fn forwarding_waits_for_a_large_enough_mtu() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = "holdfast_native:/interfaces/interface[name=eth0]";
    let forwarding = json!({"mtu": 1000, "ipv6": {"forwarding": true}});
    client.update(native, forwarding).await.unwrap();
    let pending = agent.show("pending");
    assert!(pending.contains("an MTU of 1280 for ipv6 on link eth0"), "{pending}");
    client.update(&format!("{native}/mtu"), 1400).await.unwrap();
    eventually("it forwards", || net.sysctl("ipv6/conf/eth0/forwarding") == "1").await;
}

fn vxlan(vni: u32, mtu: Option<u32>) -> Value {
    let mut link =
        json!({"type": "vxlan", "vxlan": {"vni": vni, "device": "eth0", "remote": "192.0.2.2"}});
    if let Some(mtu) = mtu {
        link["mtu"] = json!(mtu);
    }
    link
}

#[tokio::test]
async fn the_mtu_of_a_tunnel_waits_for_room_on_its_device() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let eth0 = config_of("eth0");
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");
    client.update(&eth0, json!({"enabled": true, "mtu": 1414})).await.unwrap();
    client.update(&native("vx0"), vxlan(7, Some(1500))).await.unwrap();
    let waits = |agent: &AgentProcess| {
        let pending = agent.show("pending");
        let reason = "MTU 1500 is too large for device eth0 (MTU 1400 less 50 bytes)";
        pending.contains("PENDING") && pending.contains(reason)
    };
    eventually("it waits", || waits(&agent)).await;
    assert_eq!(net.link("vx0").mtu, 1350, "as large as possible");
    assert!(net.link("vx0").up, "the tunnel itself works");
    let is_done =
        |agent: &AgentProcess| net.link("vx0").mtu == 1500 && agent.show("pending").is_empty();
    let index = net.link("vx0").index;
    for _ in 0..2 {
        client.update(&eth0, json!({"mtu": 1564})).await.unwrap();
        eventually("the device has grown", || is_done(&agent)).await;
        client.update(&eth0, json!({"mtu": 1414})).await.unwrap();
        eventually("the device shrinks", || waits(&agent) && net.link("vx0").mtu == 1350).await;
    }
    agent.restart().await;
    eventually("it waits after a restart", || waits(&agent) && net.link("vx0").mtu == 1350).await;
    // Others change the device, too.
    let client = agent.gnmi().await;
    client.delete(&format!("{eth0}/mtu")).await.unwrap();
    net.ip("link set eth0 mtu 1600");
    eventually("somebody has grown the device", || is_done(&agent)).await;
    assert_eq!(net.link("vx0").index, index, "never made anew");
    // Without an MTU of its own, a tunnel follows its device.
    client.delete(&format!("{}/mtu", native("vx0"))).await.unwrap();
    eventually("it follows", || net.link("vx0").mtu == 1550).await;
    net.ip("link set eth0 mtu 1500");
    eventually("it follows again", || net.link("vx0").mtu == 1450).await;
}

#[tokio::test]
async fn two_tunnels_of_one_identity_are_refused() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");
    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    client.update(&native("vx0"), vxlan(7, None)).await.unwrap();
    let words = refused(&client, &native("vx1"), vxlan(7, None), Code::InvalidArgument).await;
    assert!(words.contains("vx0") && words.contains("vx1"), "{words}");
    assert!(net.find_link("vx1").is_none());
    // Another port, or another family, is another tunnel.
    let mut other = vxlan(7, None);
    other["vxlan"]["port"] = json!(4790);
    client.update(&native("vx1"), other).await.unwrap();
    let mut other = vxlan(7, None);
    other["vxlan"]["remote"] = json!("2001:db8::2");
    client.update(&native("vx2"), other).await.unwrap();
    assert!(net.find_link("vx2").is_some());
}

/// A link follows the MTU of the one below as often as that is changed, at once, and without an alarm about drift.
#[tokio::test]
async fn a_link_follows_the_mtu_of_its_device_again_and_again() {
    /// More repairs than an alarm about drift takes.
    const CHANGES: u32 = 8;
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let macvlan = json!({"type": "macvlan", "macvlan": {"device": "eth0"}});
    client.update(&config_of("eth0"), json!({"enabled": true, "mtu": 1414})).await.unwrap();
    client.update("holdfast_native:/interfaces/interface[name=mv0]", macvlan).await.unwrap();
    for number in 1..=CHANGES {
        let mtu = 1400 + 10 * number;
        client.update(&config_of("eth0"), json!({"mtu": mtu + 14})).await.unwrap();
        eventually("it follows", || net.link("mv0").mtu == mtu).await;
    }
    let transactions = agent.show("transactions");
    assert!(!transactions.contains("WAS-DRIFTED"), "{transactions}");
    let alarms = client.read("holdfast_native:/fault-state").await.unwrap().to_string();
    assert!(!alarms.contains("config-drift"), "{alarms}");
    // A change of others is drift.
    net.ip("link set mv0 mtu 1300");
    eventually("it is repaired", || net.link("mv0").mtu == 1400 + 10 * CHANGES).await;
    let transactions = agent.show("transactions");
    assert!(transactions.contains("WAS-DRIFTED"), "{transactions}");
}

/// The frames of a link go to one taker. Another one is refused before anything is done, and gets them in the same Set in
/// which the first one goes.
#[tokio::test]
async fn the_frames_of_a_link_have_one_taker() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");
    let macvlan = || json!({"type": "macvlan", "macvlan": {"device": "eth0"}});
    client.update(&native("eth0"), json!({"enabled": true})).await.unwrap();
    for name in ["mv0", "mv1"] {
        client.update(&native(name), macvlan()).await.unwrap();
    }
    client.update(&native("br0"), json!({"type": "bridge"})).await.unwrap();
    let port = json!({"master": "br0"});
    let words = refused(&client, &native("eth0"), port.clone(), Code::InvalidArgument).await;
    assert!(words.contains("eth0") && words.contains("mv0"), "{words}");
    assert!(net.find_link("mv0").is_some() && net.link("eth0").master.is_none());
    let request = SetRequest {
        delete: ["mv0", "mv1"].map(|name| parse_path(&native(name))).to_vec(),
        update: vec![update(&native("eth0"), port)],
        ..SetRequest::default()
    };
    client.set(request).await.unwrap();
    assert!(net.link("eth0").master.is_some() && net.find_link("mv1").is_none());
    let words = refused(&client, &native("mv0"), macvlan(), Code::InvalidArgument).await;
    assert!(words.contains("mv0") && words.contains("eth0"), "{words}");
}

/// Two hosts with one address: the kernel of the second one finds out.
#[tokio::test]
async fn a_duplicate_address_is_shown_and_tried_again() {
    let net = Netns::enter();
    let other = Netns::detached();
    net.add_cable("eth0", &other, "eth0");
    other.ip("link set eth0 up");
    other.ip("address add 2001:db8::1/64 dev eth0 nodad");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    client.update(&format!("{}/addresses", ipv6_of("eth0")), addresses(&[ADDRESS])).await.unwrap();
    let is_duplicate = || net.ip("-6 address show dev eth0").contains("dadfailed");
    eventually("the kernel finds the other host", is_duplicate).await;
    eventually("it is said", || {
        agent.show("pending").contains("another host on the link has this address")
    })
    .await;
    let status = format!("{}/addresses/address[ip=2001:db8::1]/state/status", ipv6_of("eth0"));
    let mut seen = Vec::new();
    while !seen.contains(&json!("DUPLICATE")) {
        seen.push(client.read(&status).await.unwrap());
    }

    other.ip("address del 2001:db8::1/64 dev eth0");
    eventually("the address is usable", || {
        let text = net.ip("-6 address show dev eth0 to 2001:db8::1");
        text.contains("2001:db8::1") && !text.contains("tentative") && !text.contains("dadfailed")
    })
    .await;
    eventually("nothing is left to say", || agent.show("pending").is_empty()).await;
    assert_eq!(client.read(&status).await.unwrap(), json!("PREFERRED"));
}

#[tokio::test]
async fn a_bridge_of_others_takes_ports_although_its_entry_has_no_type() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link add br0 type bridge");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&format!("{}/description", config_of("br0")), "of others").await.unwrap();
    client.update("holdfast_native:/interfaces/interface[name=eth0]/master", "br0").await.unwrap();
    let is_port = || net.link("eth0").master.as_deref() == Some("br0");
    eventually("eth0 is a port", is_port).await;
    net.ip("link delete br0");
    eventually("eth0 waits for the bridge", || agent.show("pending").contains("br0")).await;
    net.ip("link add br0 type veth peer name br0p");
    eventually("another link is br0", || net.find_link("br0").is_some()).await;
    assert!(agent.show("pending").contains("waits for bridge br0"), "{}", agent.show("pending"));
    net.ip("link delete br0");
    net.ip("link add br0 type bridge");
    eventually("eth0 is a port again", is_port).await;
}
