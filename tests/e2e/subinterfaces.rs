//! Subinterface 0 of a port and its two families: switches, descriptions and MTUs as controllers send them.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

const PORT: &str = "/interfaces/interface[name=eth0]";
const SUBINTERFACE: &str = "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]";

/// A port with one address of each family, and these additional leaves.
fn with(interface: Value, subinterface: Value, ipv4: Value, ipv6: Value) -> Value {
    let mut interface = interface;
    interface["name"] = json!("eth0");
    interface["type"] = json!("iana-if-type:ethernetCsmacd");
    let mut subinterface = subinterface;
    subinterface["index"] = json!(0);
    let address = |ip: &str, length: u8| json!({"address": [{"ip": ip, "config": {"ip": ip, "prefix-length": length}}]});
    json!({
        "config": interface,
        "subinterfaces": {"subinterface": [{
            "index": 0,
            "config": subinterface,
            "openconfig-if-ip:ipv4": {"config": ipv4, "addresses": address("192.0.2.1", 24)},
            "openconfig-if-ip:ipv6": {"config": ipv6, "addresses": address("2001:db8::1", 64)},
        }]},
    })
}

async fn state(client: &GnmiClient, leaf: &str) -> Value {
    client.read(&format!("{SUBINTERFACE}/{leaf}")).await.unwrap()
}

#[tokio::test]
async fn a_subinterface_shuts_its_port_and_names_it() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for (interface, subinterface, up, alias) in [
        (json!({}), json!({"enabled": true, "description": "sub"}), true, "sub"),
        (json!({"description": "port"}), json!({"description": "sub"}), true, "port"),
        (json!({}), json!({"enabled": false}), false, ""),
        (json!({"enabled": false}), json!({"enabled": true}), false, ""),
        (json!({"enabled": false}), json!({"enabled": false}), false, ""),
        (json!({"enabled": true}), json!({"enabled": true}), true, ""),
    ] {
        let text = format!("{interface} {subinterface}");
        let described = subinterface["description"].clone();
        let port = with(interface, subinterface, json!({}), json!({}));
        client.replace(PORT, port).await.unwrap();
        assert_eq!((net.link("eth0").up, net.link("eth0").alias.as_str()), (up, alias), "{text}");
        assert_eq!(state(&client, "state/enabled").await, json!(up), "{text}");
        let status = if up { "UP" } else { "DOWN" };
        assert_eq!(state(&client, "state/admin-status").await, json!(status), "{text}");
        if described.is_string() {
            assert_eq!(state(&client, "state/description").await, described, "{text}");
        }
    }
    client.delete(PORT).await.unwrap();
    assert!(!net.link("eth0").up, "as it was before");
}

#[tokio::test]
async fn a_family_is_switched_off_and_on() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let kernel = || {
        let addresses = net.addresses("eth0");
        let has = |ip: &str| addresses.iter().any(|address| address == ip);
        let off = net.sysctl("ipv6/conf/eth0/disable_ipv6");
        (has("192.0.2.1/24"), has("2001:db8::1/64"), off == "1")
    };
    let on = json!({"enabled": true});
    let off = json!({"enabled": false});
    for (ipv4, ipv6, want) in [
        (&json!({}), &json!({}), (true, true, false)),
        (&off, &on, (false, true, false)),
        (&on, &off, (true, false, true)),
        (&on, &on, (true, true, false)),
    ] {
        let port = with(json!({}), json!({}), ipv4.clone(), ipv6.clone());
        client.replace(PORT, port).await.unwrap();
        assert_eq!(kernel(), want, "{ipv4} {ipv6}");
        let (has_ipv4, _, ipv6_off) = want;
        assert_eq!(state(&client, "ipv4/state/enabled").await, json!(has_ipv4));
        assert_eq!(state(&client, "ipv6/state/enabled").await, json!(!ipv6_off));
    }
    let path = format!("{SUBINTERFACE}/ipv6/config/enabled");
    client.update(&path, false).await.unwrap();
    agent.restart().await;
    assert_eq!(kernel(), (true, false, true));
    // Leaves without configuration have their original values.
    agent.gnmi().await.delete(&path).await.unwrap();
    assert_eq!(kernel(), (true, true, false));
}

#[tokio::test]
async fn the_mtu_of_a_family_is_that_of_its_link() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let mtu = |octets: u32| json!({"mtu": octets});
    for (interface, ipv4, ipv6) in [
        (json!({}), mtu(1400), json!({})),
        (json!({}), json!({}), mtu(1400)),
        (mtu(1414), mtu(1400), mtu(1400)),
    ] {
        client.replace(PORT, with(interface, json!({}), ipv4, ipv6)).await.unwrap();
        assert_eq!(net.link("eth0").mtu, 1400);
        for family in ["ipv4", "ipv6"] {
            assert_eq!(state(&client, &format!("{family}/state/mtu")).await, json!(1400));
        }
    }
    // Another value is refused by name.
    let refused = client.update(&format!("{SUBINTERFACE}/ipv4/config/mtu"), 1500).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("ipv4/config/mtu"), "{}", refused.message());
    assert!(refused.message().contains("IPv4 has the MTU of its link"), "{}", refused.message());
    assert_eq!(net.link("eth0").mtu, 1400);
}

#[tokio::test]
async fn an_address_is_of_the_type_that_its_configuration_says() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let address = |ip: &str, kind: &str| json!({"ip": ip, "config": {"ip": ip, "prefix-length": 24, "type": kind}});
    let ipv4 = |first: &str, second: &str| {
        let mut port = with(json!({}), json!({}), json!({}), json!({}));
        let addresses = [address("192.0.2.1", first), address("192.0.2.2", second)];
        port["subinterfaces"]["subinterface"][0]["openconfig-if-ip:ipv4"]["addresses"]["address"] =
            json!(addresses);
        port
    };
    for (first, second) in [("SECONDARY", "PRIMARY"), ("PRIMARY", "SECONDARY")] {
        client.replace(PORT, ipv4(first, second)).await.unwrap();
        for (ip, kind) in [("192.0.2.1", first), ("192.0.2.2", second)] {
            let leaf = format!("ipv4/addresses/address[ip={ip}]/state/type");
            assert_eq!(state(&client, &leaf).await, json!(kind), "{ip}");
        }
    }
    let ipv6 = "ipv6/addresses/address[ip=2001:db8::1]";
    assert_eq!(state(&client, &format!("{ipv6}/state/type")).await, json!("GLOBAL_UNICAST"));
    let refused =
        client.update(&format!("{SUBINTERFACE}/{ipv6}/config/type"), "LINK_LOCAL_UNICAST").await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let parts = ["config/type", "GLOBAL_UNICAST, not LINK_LOCAL_UNICAST"];
    assert!(parts.iter().all(|text| refused.message().contains(text)), "{}", refused.message());
}

#[tokio::test]
async fn the_speed_of_a_port_is_what_its_driver_says() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for (leaf, want) in [
        ("port-speed", json!("openconfig-if-ethernet:SPEED_10GB")),
        ("duplex-mode", json!("FULL")),
        ("auto-negotiate", json!(false)),
    ] {
        assert_eq!(client.read(&format!("{PORT}/ethernet/state/{leaf}")).await.unwrap(), want);
    }
    // Values that were not negotiated are absent, and so is the speed of a loopback.
    for path in [
        format!("{PORT}/ethernet/state/negotiated-port-speed"),
        "/interfaces/interface[name=lo]/ethernet/state/port-speed".to_owned(),
    ] {
        assert_eq!(client.read(&path).await.unwrap_err().code(), Code::NotFound, "{path}");
    }
}
