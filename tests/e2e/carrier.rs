//! Traffic leaves links that have lost their carrier.

use std::path::Path;
use std::time::Duration;

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::mounts::{self, mount};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use holdfast_tests::tap;
use serde_json::{Value, json};
use tonic::Code;

use crate::documents::{STATIC_ROUTES, addresses, ipv4_of, ipv6_of, port};
use crate::foreign_routes::{entry, ports, set_routes};
use crate::routes::OURS;

/// The native leaf of a port.
fn leaf_of(link: &str) -> String {
    format!("holdfast_native:/interfaces/interface[name={link}]/ignore-routes-with-linkdown")
}

/// The settings of both families of a link.
fn settings(net: &Netns, link: &str) -> [String; 2] {
    ["ipv4", "ipv6"]
        .map(|family| net.sysctl(&format!("{family}/conf/{link}/ignore_routes_with_linkdown")))
}

/// The link by which a destination is reached, as the kernel decides.
fn link_to(net: &Netns, destination: &str) -> String {
    let found = net.ip_json(&format!("route get {destination}"));
    found[0]["dev"].as_str().unwrap_or_default().to_owned()
}

/// Links by which some destinations of a prefix are reached.
fn links_to(net: &Netns, prefix: &str) -> Vec<String> {
    let mut links: Vec<String> =
        (1..60).map(|at| link_to(net, &format!("{prefix}{at:x}"))).collect();
    links.sort();
    links.dedup();
    links
}

/// Gives ports an address of both families each: 10.0.N.1/24 and 2001:db8:N::1/64.
async fn address_ports(client: &GnmiClient, names: &[&str]) {
    for (at, name) in names.iter().enumerate() {
        let ports = json!({"interface": [port(name, &[&format!("10.0.{at}.1/24")])]});
        client.update("/interfaces", ports).await.unwrap();
        let ipv6 = addresses(&[&format!("2001:db8:{at}::1/64")]);
        client.update(&format!("{}/addresses", ipv6_of(name)), ipv6).await.unwrap();
    }
}

#[tokio::test]
async fn flows_and_floating_routes_leave_a_link_without_a_carrier() {
    let net = ports(&["eth0", "eth1"]);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    address_ports(&client, &["eth0", "eth1"]).await;
    let routes = [
        entry("198.51.100.0/24", &[("10.0.0.2", "", ""), ("10.0.1.2", "", "")]),
        entry("203.0.113.0/24", &[("10.0.0.2", "", "1"), ("10.0.1.2", "", "50")]),
        entry("2001:db8:100::/48", &[("2001:db8:0::2", "", ""), ("2001:db8:1::2", "", "")]),
        entry("2001:db8:200::/48", &[("2001:db8:0::2", "", "1"), ("2001:db8:1::2", "", "50")]),
    ];
    set_routes(&client, &routes).await.unwrap();
    let by = |prefix: &str, links: &[&str]| links_to(&net, prefix) == *links;
    assert!(by("2001:db8:100::", &["eth0", "eth1"]), "{:?}", links_to(&net, "2001:db8:100::"));
    assert_eq!(link_to(&net, "203.0.113.9"), "eth0");
    assert_eq!(link_to(&net, "2001:db8:200::9"), "eth0");
    let before = net.routes(OURS);

    for _ in 0..2 {
        net.ip("link set p0 down");
        eventually("all of it leaves by the other link", || {
            link_to(&net, "203.0.113.9") == "eth1"
                && link_to(&net, "2001:db8:200::9") == "eth1"
                && by("2001:db8:100::", &["eth1"])
                && (1..60).all(|at| link_to(&net, &format!("198.51.100.{at}")) == "eth1")
        })
        .await;
        let says = |agent: &AgentProcess, line: &str| agent.show("pending").contains(line);
        eventually("it is told", || {
            says(&agent, "next hop `via 10.0.0.2 dev eth0` unusable: its link has no carrier")
                && says(&agent, "next hop `via 2001:db8::2 dev eth0` unusable")
                && agent.show("pending").lines().count() == routes.len()
        })
        .await;
        let unusable = unusable_leaf("198.51.100.0/24", "0");
        eventually_async("state tells", async || {
            client.read(&unusable).await.is_ok_and(|value| value == json!(true))
        })
        .await;
        let used = client.read(&unusable_leaf("198.51.100.0/24", "1")).await;
        assert_eq!(used.unwrap_err().code(), Code::NotFound);
        let hop =
            format!("{STATIC_ROUTES}/static[prefix=198.51.100.0/24]/next-hops/next-hop[index=0]");
        assert_eq!(client.read(&format!("{hop}/state/next-hop")).await.unwrap(), json!("10.0.0.2"));
        net.ip("link set p0 up");
        eventually("the way is back", || {
            link_to(&net, "203.0.113.9") == "eth0"
                && link_to(&net, "2001:db8:200::9") == "eth0"
                && by("2001:db8:100::", &["eth0", "eth1"])
        })
        .await;
        eventually("nothing is told", || agent.show("pending").is_empty()).await;
        eventually_async("state tells nothing", async || {
            client.read(&unusable).await.is_err_and(|status| status.code() == Code::NotFound)
        })
        .await;
        assert_eq!(net.routes(OURS), before);
    }
    assert!(!agent.log().contains("repaired"), "nothing was repaired:\n{}", agent.log());
}

/// The kernel tells of one of these losses or two, because it delays its work on carriers.
#[tokio::test]
async fn each_short_loss_of_a_carrier_is_told() {
    const LOSSES: usize = 20;
    const SHORT: Duration = Duration::from_millis(100);
    let net = Netns::enter();
    // A sysfs that shows the namespace of this thread, as a box has it.
    mounts::enter_own().unwrap();
    mount(&["-t", "sysfs", "sysfs"], Path::new("/sys")).unwrap();
    net.ip("tuntap add dev eth0 mode tap");
    net.ip("link set eth0 up");
    let mut cable = Some(tap::hold("eth0").unwrap());
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let status = "/interfaces/interface[name=eth0]/state/oper-status";
    let list = subscribe_to(Mode::Stream, &[(status, SubscriptionMode::OnChange)]);
    let mut told = client.subscribe(list).await.unwrap();
    told.until_sync().await;
    for _ in 0..LOSSES {
        drop(cable.take());
        tokio::time::sleep(SHORT).await;
        cable = Some(tap::hold("eth0").unwrap());
        tokio::time::sleep(SHORT).await;
    }
    let lines = told.updates_within(SHORT).await;
    let losses = lines.iter().filter(|line| line.contains("DOWN")).count();
    // A machine that is busy for longer than a loss may miss some.
    assert!(losses > LOSSES / 2, "{losses} of {LOSSES}: {lines:?}");
}

/// The leaf that says that a next hop is not used.
fn unusable_leaf(prefix: &str, index: &str) -> String {
    format!(
        "holdfast_native:/network-instances/network-instance[name=DEFAULT]/static[name=static]/route[prefix={prefix}]/next-hop[index={index}]/state/unusable"
    )
}

#[tokio::test]
async fn the_setting_follows_the_addresses_and_is_given_back() {
    let net = ports(&["eth0", "eth1"]);
    net.shell("sysctl -qw net.ipv6.conf.eth1.ignore_routes_with_linkdown=1");
    let off = || ["0", "0"].map(str::to_owned);
    let on = || ["1", "1"].map(str::to_owned);
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let without = json!({"interface": [port("eth0", &[]), port("eth1", &[])]});
    client.update("/interfaces", without).await.unwrap();
    assert_eq!(settings(&net, "eth0"), off(), "a link without addresses is left alone");
    // By the first address, of either family, until the last one goes.
    let v4 = format!("{}/addresses", ipv4_of("eth0"));
    let v6 = format!("{}/addresses", ipv6_of("eth0"));
    client.update(&v4, addresses(&["10.0.0.1/24"])).await.unwrap();
    assert_eq!(settings(&net, "eth0"), on());
    client.update(&v6, addresses(&["2001:db8::1/64"])).await.unwrap();
    client.delete(&v4).await.unwrap();
    assert_eq!(settings(&net, "eth0"), on());
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    client.delete(&v6).await.unwrap();
    assert_eq!(settings(&net, "eth0"), off());
    // The leaf decides, with and without addresses.
    client.update(&leaf_of("eth0"), json!(true)).await.unwrap();
    assert_eq!(settings(&net, "eth0"), on());
    client.update(&v4, addresses(&["10.0.0.1/24"])).await.unwrap();
    client.update(&leaf_of("eth0"), json!(false)).await.unwrap();
    assert_eq!(settings(&net, "eth0"), off());
    client.delete(&leaf_of("eth0")).await.unwrap();
    assert_eq!(settings(&net, "eth0"), on());
    let state = "holdfast_native:/interfaces/interface[name=eth0]/state";
    for family in ["ipv4", "ipv6"] {
        let leaf = format!("{state}/{family}-ignore-routes-with-linkdown");
        assert_eq!(client.read(&leaf).await.unwrap(), json!(true), "{leaf}");
    }
    // A change by others is repaired.
    net.shell("sysctl -qw net.ipv4.conf.eth0.ignore_routes_with_linkdown=0");
    eventually("it is on again", || settings(&net, "eth0") == on()).await;
    // A value that another program had set is put back.
    client
        .update(&format!("{}/addresses", ipv4_of("eth1")), addresses(&["10.0.1.1/24"]))
        .await
        .unwrap();
    assert_eq!(settings(&net, "eth1"), on());
    client.delete("/interfaces/interface[name=eth1]").await.unwrap();
    assert_eq!(settings(&net, "eth1"), ["0", "1"].map(str::to_owned));
    client.delete("/interfaces/interface[name=eth0]").await.unwrap();
    assert_eq!(settings(&net, "eth0"), off());
}

/// Two Sets at the same time that each take one of two addresses leave no setting behind, in whatever order they end.
#[tokio::test]
async fn the_last_address_may_go_by_two_changes_at_once() {
    let net = ports(&["eth0"]);
    let agent = AgentProcess::start(&net).await;
    let one = agent.gnmi().await;
    let other = agent.gnmi().await;
    let both: &[&str] = &["10.0.0.1/24", "10.0.1.1/24"];
    for _ in 0..10 {
        let ports: Value = json!({"interface": [port("eth0", both)]});
        one.update("/interfaces", ports).await.unwrap();
        assert_eq!(settings(&net, "eth0"), ["1", "1"].map(str::to_owned));
        let path = |ip: &str| format!("{}/addresses/address[ip={ip}]", ipv4_of("eth0"));
        let first = path("10.0.0.1");
        let second = path("10.0.1.1");
        let (first, second) = tokio::join!(one.delete(&first), other.delete(&second));
        first.unwrap();
        second.unwrap();
        assert_eq!(settings(&net, "eth0"), ["0", "0"].map(str::to_owned));
    }
}
