//! The forwarding tables: routes of all programs with their next hops, as a collector reads them.

use std::fmt::Write as _;
use std::fs;

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use serde_json::{Value, json};
use tonic::Code;

const AFTS: &str = "/network-instances/network-instance[name=DEFAULT]/afts";
/// Routes of a large table.
const MANY: usize = 100_000;
/// Memory that reading a large table may take, at its peak: the tables, and what the client has not taken yet.
const MEMORY_OF_MANY: u64 = 160 << 20;

fn entry(family: &str, prefix: &str) -> String {
    format!("{AFTS}/ipv{family}-unicast/ipv{family}-entry[prefix={prefix}]/state")
}

fn cable() -> Netns {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    for line in [
        "link set eth0 up",
        "link set peer0 up",
        "link set eth1 up",
        "link set peer1 up",
        "address add 192.0.2.1/24 dev eth0",
        "address add 198.51.100.1/24 dev eth1",
        "-6 address add 2001:db8::1/64 dev eth0 nodad",
    ] {
        net.ip(line);
    }
    net
}

#[tokio::test]
async fn routes_of_every_program_are_shown_with_their_next_hops() {
    let net = cable();
    for line in [
        "route add 10.0.0.0/8 proto bgp metric 20 nexthop via 192.0.2.2 weight 3 nexthop via 198.51.100.2",
        "route add 10.1.0.0/16 proto bgp metric 20 nexthop via 198.51.100.2 nexthop via 192.0.2.2 weight 3",
        "route add 10.0.0.0/8 via 192.0.2.9 metric 30",
        "route add blackhole 10.2.0.0/16 proto zebra",
        "route add 10.3.0.0/16 via 192.0.2.2 table 77",
        "-6 route add 2001:db8:1::/48 via 2001:db8::2 proto ospf",
    ] {
        net.ip(line);
    }
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    let bgp = client.read(&entry("4", "10.0.0.0/8")).await.unwrap();
    assert_eq!(
        bgp["openconfig-network-instance:origin-protocol"],
        json!("openconfig-policy-types:BGP"),
        "{bgp}"
    );
    let group = bgp["openconfig-aft-network-instance:next-hop-group"].as_str().unwrap().to_owned();
    let other = client.read(&entry("4", "10.1.0.0/16")).await.unwrap();
    assert_eq!(other["openconfig-aft-network-instance:next-hop-group"], json!(group), "one set");
    let dropped = client.read(&entry("4", "10.2.0.0/16")).await.unwrap();
    assert_eq!(dropped, json!({"openconfig-network-instance:prefix": "10.2.0.0/16"}));
    let elsewhere = client.read(&entry("4", "10.3.0.0/16")).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::NotFound);
    let local = client.read(&entry("4", "192.0.2.1/32")).await.unwrap_err();
    assert_eq!(local.code(), Code::NotFound, "an address of the box is not a route");
    let subnet = client.read(&entry("4", "192.0.2.0/24")).await.unwrap();
    assert!(subnet.to_string().contains("DIRECTLY_CONNECTED"), "{subnet}");
    let ospf = client.read(&entry("6", "2001:db8:1::/48")).await.unwrap();
    assert!(ospf.to_string().contains("openconfig-policy-types:OSPF3"), "{ospf}");

    let at = format!("{AFTS}/next-hop-groups/next-hop-group[id={group}]/next-hops");
    let members = client.read(&at).await.unwrap();
    let mut hops = Vec::new();
    for member in members["openconfig-network-instance:next-hop"].as_array().unwrap() {
        let index = member["index"].as_str().unwrap();
        let hop = client.read(&format!("{AFTS}/next-hops/next-hop[index={index}]")).await.unwrap();
        let weight = &member["state"]["weight"];
        let address = &hop["openconfig-network-instance:state"]["ip-address"];
        let link = &hop["openconfig-network-instance:interface-ref"]["state"];
        hops.push(format!("{weight} {address} {link}"));
    }
    hops.sort();
    assert_eq!(
        hops,
        [
            r#""1" "198.51.100.2" {"interface":"eth1","subinterface":0}"#,
            r#""3" "192.0.2.2" {"interface":"eth0","subinterface":0}"#,
        ]
    );
    let native = "holdfast_native:/network-instances/network-instance[name=DEFAULT]/afts";
    let native = client.read(&format!("{native}/ipv4-entry[prefix=10.2.0.0/16]/state")).await;
    assert_eq!(native.unwrap(), json!({"holdfast:prefix": "10.2.0.0/16"}));
}

/// A route that goes is told as deleted, also by a subscription that leaves the mode to the agent.
#[tokio::test]
async fn a_sample_tells_of_routes_that_came_and_went() {
    let net = cable();
    net.ip("route add 10.0.0.0/8 via 192.0.2.2");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for mode in [SubscriptionMode::Sample, SubscriptionMode::TargetDefined] {
        let list = subscribe_to(Mode::Stream, &[("/network-instances", mode)]);
        let mut stream = client.subscribe(list).await.unwrap();
        let first = stream.until_sync().await.join("\n");
        assert!(first.contains("ipv4-entry[prefix=10.0.0.0/8]/state/next-hop-group"), "{first}");
        net.ip("route add 10.1.0.0/16 via 192.0.2.2");
        net.ip("route delete 10.0.0.0/8");
        stream.until("delete").await;
        stream.until("10.1.0.0/16").await;
        net.ip("route delete 10.1.0.0/16");
        net.ip("route add 10.0.0.0/8 via 192.0.2.2");
        eventually_async("a reading is shared for a second at most", async || {
            client.read(&entry("4", "10.0.0.0/8")).await.is_ok()
        })
        .await;
    }
    let on_change = subscribe_to(Mode::Stream, &[(AFTS, SubscriptionMode::OnChange)]);
    let mut refused = client.subscribe(on_change).await.unwrap();
    let refusal = refused.next().await.unwrap_err();
    assert!(refusal.message().contains("no change events"), "{refusal}");
}

#[tokio::test]
async fn a_large_table_is_read_within_bounded_memory() {
    let net = cable();
    let mut batch = String::new();
    for number in 0..MANY {
        let [_, high, middle, low] = u32::try_from(number).unwrap().to_be_bytes();
        let _ = writeln!(batch, "route add 10.{high}.{middle}.{low}/32 via 192.0.2.2 proto bgp");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes");
    fs::write(&file, batch).unwrap();
    net.ip(&format!("-batch {}", file.display()));
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.read("/system/state/hostname").await.unwrap();
    let before = agent.resident_bytes();

    let list = subscribe_to(Mode::Once, &[(AFTS, SubscriptionMode::TargetDefined)]);
    let mut stream = client.subscribe(list).await.unwrap();
    let lines = stream.until_sync().await;
    let routes = lines.iter().filter(|line| line.contains("/state/next-hop-group")).count();
    assert!(routes >= MANY, "{routes} of {MANY} routes were told");
    let groups = lines
        .iter()
        .filter(|line| line.contains("/next-hop-groups/") && line.contains("/state/id"));
    assert!(groups.count() < 10, "equal sets of next hops share a group");
    let taken = agent.peak_resident_bytes().saturating_sub(before);
    assert!(taken < MEMORY_OF_MANY, "a subscription took {} MiB", taken >> 20);

    let document = client.read(&format!("{AFTS}/ipv4-unicast")).await.unwrap();
    let entries = document["openconfig-network-instance:ipv4-entry"].as_array().map(Vec::len);
    assert!(entries >= Some(MANY), "{entries:?} entries in a document");
    let one = client.read(&entry("4", "10.1.134.159/32")).await.unwrap();
    assert_ne!(one, Value::Null);
}
