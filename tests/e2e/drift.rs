//! Foreign changes of the kernel: our objects are repaired, others are left alone.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{
    STATIC_ROUTES, addresses, agent_with_port, config_of, port, port_with_route, route,
};
use crate::routes::OURS;

#[tokio::test]
async fn removed_objects_are_repaired() {
    let (net, _agent, client) = agent_with_port().await;
    client.update(&config_of("eth0"), json!({"mtu": 1414})).await.unwrap();
    client
        .update(STATIC_ROUTES, json!({"static": [route("198.51.100.0/24", "192.0.2.2")]}))
        .await
        .unwrap();
    let route_is_there =
        || net.routes(OURS) == ["198.51.100.0/24 via 192.0.2.2 dev eth0 metric 20"];
    assert!(route_is_there());

    net.ip("address del 192.0.2.1/24 dev eth0");
    eventually("address and route are back", || {
        net.addresses("eth0") == ["192.0.2.1/24"] && route_is_there()
    })
    .await;
    net.ip("route del 198.51.100.0/24");
    eventually("the route is back", route_is_there).await;
    net.ip("link set eth0 mtu 1300");
    eventually("the MTU is back", || net.link("eth0").mtu == 1400).await;
    net.ip("link set eth0 down");
    eventually("the port is up, and its route back", || net.link("eth0").up && route_is_there())
        .await;
}

/// An object that is changed again and again does not fill the log.
#[tokio::test]
async fn repeated_repairs_of_an_object_leave_one_line_a_minute() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ports = json!({"interface": [port("eth0", &["192.0.2.1/24"])]});
    client.update("/interfaces", ports).await.unwrap();
    let lines = |agent: &AgentProcess| -> Vec<String> {
        let log = agent.log();
        let repairs = log.lines().filter(|line| line.contains("repaired what had changed"));
        repairs.map(ToOwned::to_owned).collect()
    };
    // A repair is over when it is listed. An address that goes earlier would be a failure of its repair.
    let transactions = |agent: &AgentProcess| {
        agent.show("transactions").lines().filter(|line| line.starts_with('#')).count()
    };
    for _ in 0..4 {
        let before = transactions(&agent);
        net.ip("address del 192.0.2.1/24 dev eth0");
        eventually("the address is back", || net.addresses("eth0") == ["192.0.2.1/24"]).await;
        eventually("its repair is over", || transactions(&agent) > before).await;
    }
    let told = lines(&agent);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("192.0.2.1") && told[0].contains("repairs=1"), "{told:?}");
    // The others are not lost, not even at the end.
    agent.terminate().await;
    let told = lines(&agent);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("repairs=3"), "{told:?}");
}

// proves kv.T9
#[tokio::test]
async fn foreign_objects_are_left_alone() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    for end in ["eth0", "peer0", "eth1", "peer1"] {
        net.ip(&format!("link set {end} up"));
    }
    net.ip("address add 203.0.113.1/24 dev eth1");
    net.ip("route add 198.51.100.0/24 via 203.0.113.2 metric 77");
    net.ip("route add 10.0.0.0/8 via 203.0.113.2 proto bird");
    let foreign = |net: &Netns| {
        (net.link("eth1"), net.addresses("eth1"), net.routes("boot"), net.routes("bird"))
    };
    let before = foreign(&net);

    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    // The same prefix as a foreign route, at another metric.
    port_with_route(&client, "eth0").await;
    assert_eq!(net.routes(OURS), ["198.51.100.0/24 via 192.0.2.2 dev eth0 metric 20"]);
    assert_eq!(foreign(&net), before);

    agent.restart().await;
    assert_eq!(foreign(&net), before);
    agent.gnmi().await.replace("/", json!({})).await.unwrap();
    assert_eq!(net.routes(OURS), [""; 0]);
    assert_eq!(foreign(&net), before);
}

#[tokio::test]
async fn drift_policy_report_suppresses_repair() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let port = port("eth0", &["192.0.2.1/24", "198.51.100.1/24"]);
    client.update("/interfaces", json!({"interface": [port]})).await.unwrap();
    let policies = json!({"drift-policy": [
        {"object": "address/eth0", "action": "report"},
        {"object": "address/eth0/198.51.100.1", "action": "repair"}]});
    client.update("holdfast_native:/reconciliation", policies).await.unwrap();
    net.ip("address del 192.0.2.1/24 dev eth0");
    net.ip("address del 198.51.100.1/24 dev eth0");
    eventually("one is back, the other shown as missing", || {
        net.addresses("eth0") == ["198.51.100.1/24"] && agent.show("values").contains("MISSING")
    })
    .await;
    // The loss has the time at which the kernel told of it, whenever one asks.
    let timeline = |address: &str| {
        let key = format!("address/eth0/{address}");
        let output = agent.command("show").args(["timeline", &key]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let told = timeline("192.0.2.1");
    let state = |line: &&str| line.contains("MISSING") || line.contains("CONFIGURED");
    let states: Vec<&str> = told.lines().filter(state).collect();
    assert_eq!(states.len(), 2, "{told}");
    assert!(states[0].contains("CONFIGURED"), "{told}");
    assert!(states[1].contains(".. now  MISSING"), "{told}");
    assert!(states[1].contains("(left as it is, by its drift policy)"), "{told}");
    assert_eq!(timeline("192.0.2.1"), told, "no time is made up");

    client.delete("holdfast_native:/reconciliation").await.unwrap();
    eventually("both are back", || net.addresses("eth0").len() == 2).await;
    for address in ["192.0.2.1", "198.51.100.1"] {
        let has_all = || {
            let told = timeline(address);
            let states: Vec<&str> = told.lines().filter(state).collect();
            let words = ["CONFIGURED", "MISSING", "CONFIGURED"];
            states.len() == 3 && states.iter().zip(words).all(|(line, word)| line.contains(word))
        };
        eventually("the loss stays in the history", has_all).await;
        let gone = |line: &&str| line.contains("gone from the system") && line.contains(address);
        assert_eq!(agent.log().lines().filter(gone).count(), 1, "{}", agent.log());
    }
}

/// The kernel removes IPv6 from a link whose MTU is too small for it, and gives no reason when it refuses an address
/// there.
#[tokio::test]
async fn ipv6_addresses_wait_for_links_that_can_have_them() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ipv6 = "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/ipv6";
    client.update(&config_of("eth0"), json!({"enabled": true, "mtu": 1014})).await.unwrap();
    client.update(&format!("{ipv6}/addresses"), addresses(&["2001:db8::1/64"])).await.unwrap();
    let pending = agent.show("pending");
    assert!(pending.contains("an MTU of 1280 for IPv6 on link eth0"), "{pending}");
    let is_there = || net.addresses("eth0").contains(&"2001:db8::1/64".to_owned());
    client.update(&config_of("eth0"), json!({"mtu": 1514})).await.unwrap();
    eventually("the address is there", is_there).await;
    client.update(&config_of("eth0"), json!({"mtu": 1014})).await.unwrap();
    assert!(!is_there());
    client.delete(&format!("{}/mtu", config_of("eth0"))).await.unwrap();
    eventually("the address is back", is_there).await;

    net.shell("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1");
    eventually("it waits, and says why", || {
        let pending = agent.show("pending");
        pending.contains("PENDING") && pending.contains("IPv6 is disabled")
    })
    .await;
    net.shell("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0");
    eventually("the address is tried again", is_there).await;
}

#[tokio::test]
async fn foreign_link_of_the_same_name_is_left_alone() {
    let net = Netns::enter();
    net.ip("link add x0 type veth peer name y0");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let pair = json!({"type": "veth", "veth": {"peer": "z0"}});
    let refused = client.update("holdfast_native:/interfaces/interface[name=x0]", pair).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("others made it"), "{refused}");

    let bridge = json!({"type": "bridge", "enabled": true});
    client.update("holdfast_native:/interfaces/interface[name=br0]", bridge).await.unwrap();
    agent.kill();
    net.ip("link del br0");
    net.ip("link add br0 mtu 1300 type veth peer name brp");
    net.ip("link set br0 alias theirs");
    let theirs = net.link("br0");
    agent.restart().await;
    eventually("it says so", || agent.show("values").contains("others made it")).await;
    assert_eq!(net.link("br0"), theirs);
    net.ip("link del br0");
    eventually("the bridge is there", || {
        net.find_link("br0").is_some_and(|link| link.kind == "bridge")
    })
    .await;
    net.ip("link set br0 down");
    net.ip("link set br0 name theirs");
    eventually("it is made anew", || net.find_link("br0").is_some_and(|link| link.up)).await;
}
