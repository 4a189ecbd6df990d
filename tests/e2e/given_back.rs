//! Deletions: what others own is given back where the kernel takes it, and never keeps a change from being made.

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{parse_path, update};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tonic::Code;

use crate::documents::{addresses, config_of, ipv4_of, ipv6_of, port};
use crate::foreign_routes::ports;
use crate::refused_sets::refused;

#[tokio::test]
async fn an_address_that_could_never_be_given_back_is_refused() {
    let net = Netns::enter();
    // A tunnel of others has no link-layer address.
    net.ip("tuntap add tun0 mode tun");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for link in ["lo", "tun0"] {
        let path = format!("holdfast_native:/interfaces/interface[name={link}]/mac-address");
        let words =
            refused(&client, &path, json!("02:00:00:00:00:01"), Code::InvalidArgument).await;
        assert!(words.contains("could be given back"), "{link}: {words}");
    }
    assert_eq!(net.link("lo").mac, "00:00:00:00:00:00");
}

/// The link below a tunnel shrinks, so that the MTU of before does not fit any more.
#[tokio::test]
async fn what_the_kernel_does_not_take_back_stays_and_blocks_nothing() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link add vx0 type vxlan id 7 dev eth1 dstport 4789 remote 192.0.2.2");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    // A tunnel of others as a port: its MTU of before is 1450.
    let vx0 = "holdfast_native:/interfaces/interface[name=vx0]";
    client.update(vx0, json!({"mtu": 1300, "description": "tunnel"})).await.unwrap();
    assert_eq!((net.link("vx0").mtu, net.link("vx0").alias.as_str()), (1300, "tunnel"));
    net.ip("link set eth1 mtu 1400");

    client.delete(vx0).await.unwrap();
    let link = net.link("vx0");
    assert_eq!((link.mtu, link.alias.as_str()), (1300, ""), "what can be given back, is");
    assert!(agent.log().contains("cannot be given back"), "the log says so");
    let transactions = agent.show("transactions");
    assert!(transactions.contains("not given back"), "{transactions}");

    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    agent.restart().await;
    let client = agent.gnmi().await;
    client.replace("/", json!({})).await.unwrap();
    assert!(agent.show("pending").is_empty());
}

/// A leaf goes while the rest of its link stays.
#[tokio::test]
async fn a_leaf_that_is_not_taken_back_does_not_keep_others_from_changing() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    net.ip("link add vx0 type vxlan id 7 dev eth1 dstport 4789 remote 192.0.2.2");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let vx0 = "holdfast_native:/interfaces/interface[name=vx0]";
    client.update(vx0, json!({"mtu": 1300, "description": "tunnel"})).await.unwrap();
    net.ip("link set eth1 mtu 1400");
    client.replace(vx0, json!({"name": "vx0", "description": "renamed"})).await.unwrap();
    let link = net.link("vx0");
    assert_eq!((link.mtu, link.alias.as_str()), (1300, "renamed"));
    assert!(agent.log().contains("cannot be given back"));
}

/// The kernel stops to fit a bridge to its ports as soon as somebody sets its MTU.
#[tokio::test]
async fn a_bridge_without_a_configured_mtu_follows_its_ports() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");
    client.update(&native("br0"), json!({"type": "bridge", "mtu": 1200})).await.unwrap();
    for (port, mtu) in [("eth0", 1400), ("eth1", 1500)] {
        client.update(&native(port), json!({"master": "br0", "mtu": mtu})).await.unwrap();
    }
    assert_eq!(net.link("br0").mtu, 1200);
    client.delete(&format!("{}/mtu", native("br0"))).await.unwrap();
    eventually("the least of its ports", || net.link("br0").mtu == 1400).await;
    client.update(&format!("{}/mtu", native("eth1")), 1300).await.unwrap();
    eventually("a port shrinks", || net.link("br0").mtu == 1300).await;
    client.delete(&native("eth1")).await.unwrap();
    eventually("a port goes", || net.link("br0").mtu == 1400).await;
    agent.restart().await;
    net.ip("link set eth0 nomaster");
    net.ip("link set br0 mtu 1250");
    eventually("all is as configured", || {
        net.link("br0").mtu == 1400 && net.link("eth0").master.as_deref() == Some("br0")
    })
    .await;
}

#[tokio::test]
async fn hosts_that_cannot_be_are_refused_before_the_kernel() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    let ipv4 = ipv4_of("eth0");
    let ipv6 = ipv6_of("eth0");
    let address = |ip: &str, length: u8| json!({"config": {"ip": ip, "prefix-length": length}});
    client
        .update(&format!("{ipv4}/addresses/address[ip=192.0.2.1]"), address("192.0.2.1", 24))
        .await
        .unwrap();
    client
        .update(&format!("{ipv6}/addresses/address[ip=2001:db8::1]"), address("2001:db8::1", 64))
        .await
        .unwrap();
    let neighbor = |family: &str, ip: &str| format!("{family}/neighbors/neighbor[ip={ip}]");
    let entry = |ip: &str, mac: &str| json!({"config": {"ip": ip, "link-layer-address": mac}});
    const MAC: &str = "02:00:00:00:00:07";
    for (family, ip, mac, reason) in [
        (&ipv4, "224.0.0.9", MAC, "multicast"),
        (&ipv4, "255.255.255.255", MAC, "broadcast"),
        (&ipv4, "192.0.2.255", MAC, "broadcast address of 192.0.2.1/24"),
        (&ipv4, "0.0.0.0", MAC, "unspecified"),
        (&ipv4, "127.0.0.9", MAC, "loopback"),
        (&ipv6, "ff02::1", MAC, "multicast"),
        (&ipv6, "::", MAC, "unspecified"),
        (&ipv6, "::1", MAC, "loopback"),
        (&ipv4, "192.0.2.7", "00:00:00:00:00:00", "all zeros"),
        (&ipv4, "192.0.2.7", "01:00:5e:00:00:01", "group address"),
        (&ipv4, "192.0.2.1", MAC, "address 192.0.2.1/24 of eth0"),
        (&ipv6, "2001:db8::1", MAC, "address 2001:db8::1/64 of eth0"),
    ] {
        let path = neighbor(family, ip);
        let words = refused(&client, &path, entry(ip, mac), Code::InvalidArgument).await;
        assert!(words.contains(reason), "{ip}: {words}");
    }
    let kernel = net.ip("neighbor show nud permanent");
    assert_eq!(kernel, "", "nothing is left");
    // An address that a neighbour has is refused as well.
    client.update(&neighbor(&ipv4, "192.0.2.7"), entry("192.0.2.7", MAC)).await.unwrap();
    let path = format!("{ipv4}/addresses/address[ip=192.0.2.7]");
    let words = refused(&client, &path, address("192.0.2.7", 24), Code::InvalidArgument).await;
    assert!(words.contains("neighbor 192.0.2.7 of eth0"), "{words}");
    // So is one whose prefix has the neighbour as its broadcast address.
    client.update(&neighbor(&ipv4, "192.0.2.63"), entry("192.0.2.63", MAC)).await.unwrap();
    let path = format!("{ipv4}/addresses/address[ip=192.0.2.33]");
    let words = refused(&client, &path, address("192.0.2.33", 27), Code::InvalidArgument).await;
    assert!(words.contains("broadcast address of 192.0.2.33/27"), "{words}");
}

/// The kernel never asks a neighbour for an address that the box has on any link, so one of the two is refused, in whatever order they come.
#[tokio::test]
async fn a_neighbor_cannot_have_an_address_of_another_link() {
    const MAC: &str = "02:00:00:00:00:07";
    let net = ports(&["eth0", "eth1", "eth2"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let interfaces: Vec<_> = ["eth0", "eth1", "eth2"].map(|name| port(name, &[])).into();
    client.update("/interfaces", json!({"interface": interfaces})).await.unwrap();
    let address = |family: &str, ip: &str| format!("{family}/addresses/address[ip={ip}]");
    let neighbor = |family: &str, ip: &str| format!("{family}/neighbors/neighbor[ip={ip}]");
    let host = |ip: &str, length: u8| json!({"config": {"ip": ip, "prefix-length": length}});
    let entry = |ip: &str| json!({"config": {"ip": ip, "link-layer-address": MAC}});
    let cases = [("192.0.2.1", 24, ipv4_of as fn(&str) -> String), ("2001:db8::1", 64, ipv6_of)];
    for (ip, length, of) in cases {
        let ports = ["eth0", "eth1", "eth2"].map(of);
        let objects = [format!("address {ip}/{length} of eth1"), format!("neighbor {ip} of eth")];
        let is_named = |words: &str| objects.iter().all(|object| words.contains(object.as_str()));
        // The address is first.
        client.update(&address(&ports[1], ip), host(ip, length)).await.unwrap();
        let path = neighbor(&ports[0], ip);
        let words = refused(&client, &path, entry(ip), Code::InvalidArgument).await;
        assert!(is_named(&words), "{words}");
        client.delete(&address(&ports[1], ip)).await.unwrap();
        // Several links have a neighbour with the address.
        client.update(&neighbor(&ports[0], ip), entry(ip)).await.unwrap();
        client.update(&neighbor(&ports[2], ip), entry(ip)).await.unwrap();
        let path = address(&ports[1], ip);
        let words = refused(&client, &path, host(ip, length), Code::InvalidArgument).await;
        assert!(is_named(&words), "{words}");
        client.delete(&neighbor(&ports[0], ip)).await.unwrap();
        let words = refused(&client, &path, host(ip, length), Code::InvalidArgument).await;
        assert!(is_named(&words), "{words}");
        // One Set exchanges them.
        let addresses = json!({"addresses": addresses(&[&format!("{ip}/{length}")])});
        let mut new = entry(ip);
        new["ip"] = json!(ip);
        let neighbors = json!({"neighbors": {"neighbor": [new]}});
        let exchange = SetRequest {
            delete: vec![parse_path(&neighbor(&ports[2], ip))],
            update: vec![update(&ports[1], addresses.clone())],
            ..Default::default()
        };
        client.set(exchange).await.unwrap();
        assert_eq!(net.ip("neighbor show nud permanent"), "", "{ip}");
        assert!(net.ip("address show dev eth1").contains(ip), "{ip}");
        // So does one Set that has both.
        client.delete(&address(&ports[1], ip)).await.unwrap();
        let both = SetRequest {
            update: vec![update(&ports[1], addresses), update(&ports[0], neighbors)],
            ..Default::default()
        };
        let refused = client.set(both).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(is_named(refused.message()), "{refused}");
    }
    // A link-local address is another host on each link.
    client.update(&address(&ipv6_of("eth1"), "fe80::7"), host("fe80::7", 64)).await.unwrap();
    client.update(&neighbor(&ipv6_of("eth0"), "fe80::7"), entry("fe80::7")).await.unwrap();
    assert_eq!(agent.show("pending"), "");
}

/// A gateway that cannot be in the kernel yet is told from one that waits for an address of the box.
#[tokio::test]
async fn a_neighbor_of_a_link_that_is_down_waits_for_an_address_to_go() {
    let net = ports(&["eth0", "eth1"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client
        .update("/interfaces", json!({"interface": [port("eth0", &[]), port("eth1", &[])]}))
        .await
        .unwrap();
    client.update(&config_of("eth0"), json!({"enabled": false})).await.unwrap();
    let neighbor = format!("{}/neighbors/neighbor[ip=192.0.2.1]", ipv4_of("eth0"));
    let entry = json!({"config": {"ip": "192.0.2.1", "link-layer-address": "02:00:00:00:00:07"}});
    client.update(&neighbor, entry).await.unwrap();
    let address = format!("{}/addresses/address[ip=192.0.2.1]", ipv4_of("eth1"));
    let host = json!({"config": {"ip": "192.0.2.1", "prefix-length": 24}});
    client.update(&address, host).await.unwrap();
    client.update(&config_of("eth0"), json!({"enabled": true})).await.unwrap();
    let pending = agent.show("pending");
    assert!(pending.contains("neighbor 192.0.2.1 of eth0"), "{pending}");
    assert!(pending.contains("address/eth1/192.0.2.1 holds what it needs"), "{pending}");
    client.delete(&address).await.unwrap();
    eventually("the neighbour is there", || agent.show("pending").is_empty()).await;
    assert!(net.ip("neighbor show nud permanent").contains("192.0.2.1"));
}

/// The kernel takes 255 bytes, without a final zero.
#[tokio::test]
async fn a_description_may_have_255_octets() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let longest = "x".repeat(255);
    client.update(&config_of("eth0"), json!({"description": longest})).await.unwrap();
    assert_eq!(net.link("eth0").alias, longest);
    let path = format!("{}/description", config_of("eth0"));
    let words = refused(&client, &path, json!("x".repeat(256)), Code::InvalidArgument).await;
    assert!(words.contains("255 bytes at most"), "{words}");
    client.delete(&path).await.unwrap();
    assert_eq!(net.link("eth0").alias, "");
}
