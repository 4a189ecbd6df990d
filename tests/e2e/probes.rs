//! Probes of next hops: alarms of gateways that are gone while their links are up, and traffic that goes another way.

use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{no_plans, packed, update};
use serde_json::{Value, json};

use crate::alarms::{NATIVE, leaf, wait_until_open, wait_until_over};
use crate::documents::{STATIC_ROUTES, port};
use crate::impact::{add_route, route, status, wait_for};
use crate::ping_traceroute::{System, collect_ping, ping};

const LINK: &str = "link-down@interface:eth0";
const GATEWAY: &str = "next-hop-unreachable@next-hop:10.0.0.2";

/// A box with eth0 and eth1, and the routers that they lead to.
struct Neighbourhood {
    net: Netns,
    routers: [Netns; 2],
    agent: AgentProcess,
    client: GnmiClient,
}

impl Neighbourhood {
    async fn new(arguments: &[&str]) -> Self {
        let net = Netns::enter();
        let routers = [Netns::detached(), Netns::detached()];
        for (number, router) in routers.iter().enumerate() {
            net.add_cable(&format!("eth{number}"), router, "p0");
            net.shell(&format!("sysctl -qw net.ipv6.conf.eth{number}.accept_dad=0"));
            router.shell("sysctl -qw net.ipv6.conf.p0.accept_dad=0");
            router.ip("link set p0 up");
            router.ip("link set lo up");
            router.ip(&format!("address add 10.0.{number}.2/24 dev p0"));
            router.ip(&format!("address add 2001:db8:{number}::2/64 dev p0"));
        }
        let agent = AgentProcess::start_with(&net, arguments).await;
        let client = agent.gnmi().await;
        let mut ports = [port("eth0", &["10.0.0.1/24"]), port("eth1", &["10.0.1.1/24"])];
        for entry in &mut ports {
            entry["config"]["enabled"] = json!(true);
        }
        client.update("/interfaces", json!({"interface": ports})).await.unwrap();
        Self { net, routers, agent, client }
    }

    /// The router of eth0 answers, or does not, while the cable stays.
    fn set_gateway(&self, is_there: bool) {
        let action = if is_there { "add" } else { "del" };
        self.routers[0].ip(&format!("address {action} 10.0.0.2/24 dev p0"));
    }

    async fn add_probe(&self, name: &str, probe: Value) {
        let path = format!("holdfast_native:/fault-management/probe[name={name}]");
        self.client.update(&path, probe).await.unwrap();
    }

    async fn cause(&self) -> Option<Value> {
        leaf(&self.client, NATIVE, GATEWAY, "cause").await
    }
}

/// A probe of the router of eth0 that is quick.
fn quick() -> Value {
    json!({"next-hop": "10.0.0.2", "interface": "eth0", "interval": 100})
}

// proves sv.C50
#[tokio::test]
async fn a_gateway_that_is_gone_is_an_alarm_which_a_cut_cable_causes() {
    let here = Neighbourhood::new(&[]).await;
    let client = &here.client;
    add_route(client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    add_route(client, "203.0.113.0/24", &[("10.0.0.2", None), ("10.0.1.2", Some(500))]).await;
    here.add_probe("gateway", quick()).await;
    here.set_gateway(false);
    wait_until_open(client, GATEWAY).await;
    wait_for(client, &route("198.51.100.0/24"), "DOWN").await;
    wait_for(client, &route("203.0.113.0/24"), "DEGRADED").await;
    for (name, value) in [
        ("text", json!("10.0.0.2 does not answer by eth0")),
        ("severity", json!("MAJOR")),
        ("source", json!(["probes"])),
    ] {
        assert_eq!(leaf(client, NATIVE, GATEWAY, name).await, Some(value), "{name}");
    }
    assert_eq!(here.cause().await, None);

    here.routers[0].ip("link set p0 down");
    wait_until_open(client, LINK).await;
    eventually_async("the link is the cause", async || here.cause().await == Some(json!(LINK)))
        .await;

    here.routers[0].ip("link set p0 up");
    wait_until_over(client, LINK).await;
    eventually_async("the gateway has no cause", async || here.cause().await.is_none()).await;
    assert!(leaf(client, NATIVE, GATEWAY, "severity").await.is_some(), "it is still gone");
    wait_for(client, &route("198.51.100.0/24"), "DOWN").await;

    here.set_gateway(true);
    wait_until_over(client, GATEWAY).await;
    wait_for(client, &route("198.51.100.0/24"), "UP").await;
    assert_eq!(status(client, &route("203.0.113.0/24")).await, "UP");
}

#[tokio::test]
async fn probes_of_both_families_and_modes_outlast_a_restart_and_go_with_their_entries() {
    let mut here = Neighbourhood::new(&[]).await;
    let addresses = json!({"address": [{"ip": "2001:db8:0::1", "prefix-length": 64}]});
    let ipv6 = "holdfast_native:/interfaces/interface[name=eth0]/ipv6";
    here.client.update(ipv6, addresses).await.unwrap();
    let six = json!({"next-hop": "2001:db8::2", "interval": 100});
    here.add_probe("six", six).await;
    let both = json!({
        "next-hop": "10.0.0.2",
        "target": ["10.0.0.2", "10.0.1.2"],
        "interval": 100,
        "require": "all",
    });
    here.add_probe("both", both).await;
    let kernel = json!({"next-hop": "10.0.0.2", "mode": "neighbor", "interval": 100});
    here.add_probe("kernel", kernel).await;
    let all = "next-hop-unreachable.both@next-hop:10.0.0.2";
    let neighbor = "next-hop-unreachable.kernel@next-hop:10.0.0.2";
    let six = "next-hop-unreachable@next-hop:2001:db8::2";
    here.routers[1].ip("address del 10.0.1.2/24 dev p0");
    wait_until_open(&here.client, all).await;
    here.routers[0].ip("address del 2001:db8::2/64 dev p0");
    wait_until_open(&here.client, six).await;

    // A target that the kernel has never heard of is told at once, by the kernel's own word.
    here.set_gateway(false);
    here.net.ip("neigh flush dev eth0");
    wait_until_open(&here.client, neighbor).await;
    let created = leaf(&here.client, NATIVE, six, "time-created").await;

    here.agent.kill();
    here.agent.restart().await;
    here.client = here.agent.gnmi().await;
    wait_until_open(&here.client, six).await;
    assert_eq!(leaf(&here.client, NATIVE, six, "time-created").await, created);
    here.set_gateway(true);
    wait_until_over(&here.client, neighbor).await;
    let probe = "holdfast_native:/fault-management/probe";
    here.client.delete(&format!("{probe}[name=six]")).await.unwrap();
    wait_until_over(&here.client, six).await;
    here.client.delete(&format!("{probe}[name=both]")).await.unwrap();
    wait_until_over(&here.client, all).await;
}

const SETTING: &str = "holdfast_native:/fault-management/settings/probe-next-hops";

#[tokio::test]
async fn next_hops_of_routes_are_probed_without_entries_where_the_settings_say_so() {
    let here = Neighbourhood::new(&[]).await;
    let client = &here.client;
    let other = "next-hop-unreachable@next-hop:10.0.1.2";
    add_route(client, "0.0.0.0/0", &[("10.0.0.2", None)]).await;
    add_route(client, "203.0.113.0/24", &[("10.0.1.2", None)]).await;
    client.update(SETTING, json!("default-routes")).await.unwrap();
    here.routers[1].ip("address del 10.0.1.2/24 dev p0");
    here.net.ip("neigh flush dev eth1");
    here.set_gateway(false);
    here.net.ip("neigh flush dev eth0");
    wait_until_open(client, GATEWAY).await;
    wait_for(client, &route("0.0.0.0/0"), "DOWN").await;
    assert_eq!(leaf(client, NATIVE, other, "severity").await, None, "it is not a default route");

    client.update(SETTING, json!("all")).await.unwrap();
    wait_until_open(client, other).await;
    wait_for(client, &route("203.0.113.0/24"), "DOWN").await;
    // The alarm goes with the last route that names the next hop.
    client.delete(&format!("{STATIC_ROUTES}/static[prefix=203.0.113.0/24]")).await.unwrap();
    wait_until_over(client, other).await;
    here.set_gateway(true);
    wait_until_over(client, GATEWAY).await;
    client.delete(SETTING).await.unwrap();
    here.set_gateway(false);
    here.net.ip("neigh flush dev eth0");
    // An entry for the next hop asks as it says, and its alarm has the same name.
    here.add_probe("gateway", quick()).await;
    wait_until_open(client, GATEWAY).await;
    let text = leaf(client, NATIVE, GATEWAY, "text").await;
    assert_eq!(text, Some(json!("10.0.0.2 does not answer by eth0")), "the entry alone asks");
}

/// How many of five packets the host answers.
async fn received(system: &mut System) -> i32 {
    collect_ping(system, ping(HOST)).await.unwrap().1.received
}

const PAIR: &str = "holdfast_native:/services/dual-uplink[name=internet]";
const HOST: &str = "198.51.100.7";

// proves sv.J10
#[tokio::test]
async fn traffic_takes_the_second_uplink_while_the_first_one_has_an_alarm() {
    let packages = packed("dual-uplink");
    let folder = packages.path().to_str().unwrap();
    let here = Neighbourhood::new(&["--services", folder]).await;
    for router in &here.routers {
        router.ip(&format!("address add {HOST}/32 dev lo"));
    }
    let gnmic = Gnmic::for_admin(&here.agent);
    here.add_probe("first", quick()).await;
    let pair = r#"{"primary": "10.0.0.2", "backup": "10.0.1.2", "prefix": ["0.0.0.0/0"]}"#;
    update(&gnmic, PAIR, pair).await;
    let way = || here.net.ip(&format!("route get {HOST}"));
    let goes_by = |router: &str| way().contains(&format!("via {router} "));
    let mut system =
        SystemClient::with_interceptor(here.agent.channel().await, here.agent.credentials());
    eventually("the first uplink has the traffic", || goes_by("10.0.0.2")).await;
    assert_eq!(received(&mut system).await, 5);
    for _ in 0..2 {
        here.set_gateway(false);
        here.routers[0].ip(&format!("address del {HOST}/32 dev lo"));
        wait_until_open(&here.client, GATEWAY).await;
        eventually("the second uplink has the traffic", || goes_by("10.0.1.2")).await;
        assert!(here.net.ip("link show eth0").contains("LOWER_UP"), "the link has not failed");
        assert_eq!(received(&mut system).await, 5);

        here.routers[0].ip(&format!("address add {HOST}/32 dev lo"));
        here.set_gateway(true);
        wait_until_over(&here.client, GATEWAY).await;
        eventually("the first uplink has it again", || goes_by("10.0.0.2")).await;
        assert_eq!(received(&mut system).await, 5);
    }
    gnmic.run(&["set", "--delete", PAIR]).await;
    no_plans(&gnmic).await;
    assert!(!here.net.ip("route show").contains("default"), "nothing is left");
}
