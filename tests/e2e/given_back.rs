//! Deletions: what others own is given back where the kernel takes it, and never keeps a change from being made.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::json;
use tonic::Code;

use crate::documents::{config_of, ipv4_of, ipv6_of};
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
    let (ipv4, ipv6) = (ipv4_of("eth0"), ipv6_of("eth0"));
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

/// The kernel takes 255 octets, without a final zero.
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
    assert!(words.contains("at most 255 octets"), "{words}");
    client.delete(&path).await.unwrap();
    assert_eq!(net.link("eth0").alias, "");
}
