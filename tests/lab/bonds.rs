//! Bonds: LACP with another box, and every field of a bond changed and read back, on the kernel of a guest.

use std::time::Duration;

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async, eventually_within};
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::in_lab;
use holdfast_tests::netns::{Link, Netns};
use serde_json::{Value, json};

/// Time limit for both ends to agree on the members. The kernel needs half of it.
const AGREEMENT: Duration = Duration::from_secs(5);
/// Packets a second of a ping that counts what is lost.
const PINGS_PER_SECOND: u32 = 10;
/// Packets that may be lost when a member is cut: those of less than a second.
const MOST_LOST: u32 = PINGS_PER_SECOND - 1;

/// Speed of each cable, Mbit/s: the kernel gives it to each veth link.
const CABLE_MBPS: u32 = 10_000;

const LACP: &str = "/lacp/interfaces/interface[name=bond0]";

/// Two boxes with two cables. The other one has its end of the bond by hand.
fn two_boxes() -> (Netns, Netns) {
    let net = Netns::enter();
    let other = Netns::detached();
    other.ip("link add bond0 type bond mode 802.3ad miimon 100 lacp_rate fast");
    for cable in [1, 2] {
        net.add_cable(&format!("eth{cable}"), &other, &format!("peer{cable}"));
        other.ip(&format!("link set peer{cable} master bond0"));
    }
    other.ip("link set bond0 up");
    other.ip("address add 192.0.2.2/24 dev bond0");
    (net, other)
}

fn member(name: &str) -> Value {
    json!({
        "name": name,
        "config": {"name": name, "type": "iana-if-type:ethernetCsmacd"},
        "openconfig-if-ethernet:ethernet": {"config": {"openconfig-if-aggregate:aggregate-id": "bond0"}},
    })
}

fn bond(lag_type: &str) -> Value {
    let addresses =
        json!([{"ip": "192.0.2.1", "config": {"ip": "192.0.2.1", "prefix-length": 24}}]);
    let ipv4 = json!({"addresses": {"address": addresses}});
    let subinterface = json!({"index": 0, "config": {"index": 0}, "openconfig-if-ip:ipv4": ipv4});
    json!({
        "name": "bond0",
        "config": {"name": "bond0", "type": "iana-if-type:ieee8023adLag"},
        "openconfig-if-aggregate:aggregation": {"config": {"lag-type": lag_type, "min-links": 1}},
        "subinterfaces": {"subinterface": [subinterface]},
    })
}

/// One batch as clients send it: LACP before its bond, and the members at once.
fn whole() -> Value {
    let lacp = json!({"name": "bond0", "config": {"name": "bond0", "interval": "FAST"}});
    let interfaces = json!([bond("LACP"), member("eth1"), member("eth2")]);
    json!({
        "openconfig-lacp:lacp": {"interfaces": {"interface": [lacp]}},
        "openconfig-interfaces:interfaces": {"interface": interfaces},
    })
}

/// True when both ends use a member.
async fn is_agreed(client: &GnmiClient, link: &str) -> bool {
    let path = format!("{LACP}/members/member[interface={link}]/state");
    let Ok(state) = client.read(&path).await else { return false };
    let is = |leaf: &str| {
        let qualified = state.get(format!("openconfig-lacp:{leaf}"));
        qualified.or_else(|| state.get(leaf)) == Some(&json!(true))
    };
    is("collecting") && is("distributing")
}

async fn are_agreed(client: &GnmiClient) -> bool {
    is_agreed(client, "eth1").await && is_agreed(client, "eth2").await
}

/// The details of a port in the file of its bond: those of this end (`actor`), or of the other one (`partner`).
fn port_in_file(net: &Netns, link: &str, end: &str, field: &str) -> u64 {
    let text = net.shell("cat /proc/net/bonding/bond0");
    let (_, of_member) = text.split_once(&format!("Slave Interface: {link}\n")).unwrap();
    let (_, of_end) = of_member.split_once(&format!("details {end} lacp pdu:")).unwrap();
    let (_, value) = of_end.split_once(&format!("{field}: ")).unwrap();
    value.lines().next().unwrap().parse().unwrap()
}

/// Each number is that of the file, and the two members have different ones.
async fn assert_numbers_of_ports(net: &Netns, client: &GnmiClient) {
    let mut own = Vec::new();
    for link in ["eth1", "eth2"] {
        let state = format!("{LACP}/members/member[interface={link}]/state");
        for (leaf, end, field) in [
            ("port-num", "actor", "port number"),
            ("port-priority", "actor", "port priority"),
            ("partner-port-num", "partner", "port number"),
            ("partner-port-priority", "partner", "port priority"),
        ] {
            let shown = client.read(&format!("{state}/{leaf}")).await.unwrap();
            assert_eq!(shown, json!(port_in_file(net, link, end, field)), "{link} {leaf}");
        }
        own.push(client.read(&format!("{state}/port-num")).await.unwrap());
    }
    assert_ne!(own[0], own[1]);
}

/// The counters of both directions go up by one LACPDU a second, which is the interval FAST. Counters that the
/// kernel does not have are absent.
async fn assert_lacpdus_are_counted(client: &GnmiClient) {
    const WATCHED: Duration = Duration::from_secs(4);
    let counters = format!("{LACP}/members/member[interface=eth1]/state/counters");
    let read = async |leaf: &str| -> u64 {
        let value = client.read(&format!("{counters}/{leaf}")).await.unwrap();
        value.as_str().unwrap().parse().unwrap()
    };
    let all = async || (read("lacp-in-pkts").await, read("lacp-out-pkts").await);
    let (received, sent) = all().await;
    tokio::time::sleep(WATCHED).await;
    let (then_received, then_sent) = all().await;
    let seconds = WATCHED.as_secs();
    for (before, after) in [(received, then_received), (sent, then_sent)] {
        let rise = after - before;
        assert!(before >= 1 && (seconds - 1..=seconds + 3).contains(&rise), "{before} to {after}");
    }
    for leaf in ["lacp-unknown-errors", "lacp-errors"] {
        assert_eq!(read(leaf).await, 0, "{leaf}");
    }
    let shown = client.read(&counters).await.unwrap();
    assert_eq!(shown.as_object().unwrap().len(), 4, "{shown}");
}

/// The ports, to be compared with those before the agent.
fn ports(net: &Netns) -> Vec<Link> {
    ["eth1", "eth2"].map(|port| net.link(port)).to_vec()
}

/// An attribute of the bond, as `ip` shows it.
fn attribute(net: &Netns, name: &str) -> Value {
    let link = net.ip_json("link show bond0").remove(0);
    link["linkinfo"]["info_data"][name].clone()
}

#[tokio::test]
async fn a_bond_agrees_with_another_box_and_survives_a_cut() {
    in_lab!({
        let (net, other) = two_boxes();
        net.ip("link set eth1 up");
        net.ip("link set eth2 mtu 1400");
        let before = ports(&net);
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;

        let entries = vec![update("/", whole())];
        client.set(SetRequest { union_replace: entries, ..Default::default() }).await.unwrap();
        eventually_within(AGREEMENT, "both ends agree", || are_agreed(&client)).await;
        assert_eq!(attribute(&net, "ad_lacp_rate"), json!("fast"));
        assert_eq!(attribute(&net, "miimon"), json!(100));
        let state = client.read(&format!("{LACP}/members/member[interface=eth1]/state")).await;
        let state = state.unwrap();
        let partner = other.link("bond0").mac;
        assert!(state.to_string().contains(&partner), "{partner} in {state}");
        let members = client.read("/interfaces/interface[name=bond0]/aggregation/state/member");
        assert_eq!(members.await.unwrap(), json!(["eth1", "eth2"]));

        assert_numbers_of_ports(&net, &client).await;
        assert_lacpdus_are_counted(&client).await;
        let lag_speed = "/interfaces/interface[name=bond0]/aggregation/state/lag-speed";
        let speed = || async { client.read(lag_speed).await.ok() };
        assert_eq!(speed().await, Some(json!(2 * CABLE_MBPS)));

        // One member is cut.
        let count = 3 * PINGS_PER_SECOND;
        let ping = agent
            .command("ping")
            .args(["-i", "0.1", "-W", "1", "-c", &count.to_string(), "192.0.2.2"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.ip("link set peer1 down");
        let output = ping.wait_with_output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let received = output.split(", ").find_map(|part| part.strip_suffix(" received"));
        let received: u32 = received.unwrap().parse().unwrap();
        assert!(count - received <= MOST_LOST, "{output}");
        eventually_async("the cut member is not used", || async {
            !is_agreed(&client, "eth1").await
        })
        .await;
        eventually_async("the bond is half as fast", || async {
            speed().await == Some(json!(CABLE_MBPS))
        })
        .await;
        other.ip("link set peer2 down");
        eventually_async("no member is used", || async { speed().await.is_none() }).await;
        other.ip("link set peer1 up");
        other.ip("link set peer2 up");
        eventually_async("both are used again", || are_agreed(&client)).await;

        // Changes that others make to a member are repaired.
        net.ip("link set eth1 down");
        eventually("it is up again", || net.link("eth1").up).await;
        net.ip("link set eth1 nomaster");
        eventually("it is a member again", || {
            let link = net.link("eth1");
            link.master.as_deref() == Some("bond0") && link.up
        })
        .await;
        net.ip("link del bond0");
        eventually_async("the bond is made again", || are_agreed(&client)).await;
        eventually("its address is back", || {
            net.addresses("bond0").contains(&"192.0.2.1/24".into())
        })
        .await;

        // Everything goes, and the ports are as they were.
        client.delete("/lacp/interfaces").await.unwrap();
        eventually("the interval is the kernel's", || {
            attribute(&net, "ad_lacp_rate") == json!("slow")
        })
        .await;
        client.delete("/interfaces").await.unwrap();
        assert_eq!(net.find_link("bond0"), None);
        assert_eq!(ports(&net), before);
    });
}

#[tokio::test]
async fn every_field_of_a_bond_is_changed_and_read_back() {
    in_lab!({
        let (net, _other) = two_boxes();
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let box_of_bond = json!({
            "holdfast:lacp": {"interface": [{"name": "bond0", "interval": "FAST"}]},
            "holdfast:interfaces": {"interface": [
                {"name": "bond0", "type": "bond"},
                {"name": "eth1", "aggregate": "bond0"},
                {"name": "eth2", "aggregate": "bond0"},
            ]},
        });
        client.update("holdfast_native:/", box_of_bond).await.unwrap();
        let index = net.link("bond0").index;
        let native = "holdfast_native:/interfaces/interface[name=bond0]";
        let lacp = "holdfast_native:/lacp/interface[name=bond0]";
        // The kernel changes the interval only while the bond is down, and a plan says so.
        let plan = |words: &[&str]| {
            let output = agent.command("config").args(["set", "--dry-run"]).args(words).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let interval = plan(&["lacp", "interface", "bond0", "interval", "SLOW"]);
        assert!(interval.contains("LACP of bond0  (takes its link down"), "{interval}");
        let priority = plan(&["lacp", "interface", "bond0", "system-priority", "7"]);
        assert!(priority.contains("LACP of bond0\n"), "{priority}");
        // In place.
        for (path, value, name, shown) in [
            (format!("{native}/bond/min-links"), json!(2), "min_links", json!(2)),
            (format!("{native}/bond/miimon"), json!(50), "miimon", json!(50)),
            (
                format!("{native}/bond/xmit-hash-policy"),
                json!("layer3+4"),
                "xmit_hash_policy",
                json!("layer3+4"),
            ),
            (format!("{lacp}/interval"), json!("SLOW"), "ad_lacp_rate", json!("slow")),
            (format!("{lacp}/active"), json!(false), "ad_lacp_active", json!("off")),
            (format!("{lacp}/system-priority"), json!(7), "ad_actor_sys_prio", json!(7)),
            (
                format!("{lacp}/system-mac"),
                json!("02:00:00:00:00:07"),
                "ad_actor_system",
                json!("02:00:00:00:00:07"),
            ),
        ] {
            client.update(&path, value.clone()).await.unwrap();
            assert_eq!(attribute(&net, name), shown, "{path}");
            let (above, leaf) = path.rsplit_once('/').unwrap();
            let state = match above.strip_suffix("/bond") {
                Some(link) => format!("{link}/state/bond/{leaf}"),
                None => format!("{above}/state/{leaf}"),
            };
            eventually_async(&state, || async {
                client.read(&state).await.is_ok_and(|read| read == value)
            })
            .await;
            assert!(net.link("bond0").up, "{path}");
        }
        // The priority of all bonds counts for a bond without its own.
        client.update("/lacp/config/system-priority", json!(500)).await.unwrap();
        assert_eq!(attribute(&net, "ad_actor_sys_prio"), json!(7));
        for leaf in ["system-mac", "system-priority", "active", "interval"] {
            client.delete(&format!("{lacp}/{leaf}")).await.unwrap();
        }
        assert_eq!(attribute(&net, "ad_actor_sys_prio"), json!(500));
        client.update("/lacp/config/system-priority", json!(501)).await.unwrap();
        assert_eq!(attribute(&net, "ad_actor_sys_prio"), json!(501));
        assert_eq!(client.read("/lacp/state/system-priority").await.unwrap(), json!(501));
        client.delete("/lacp/config/system-priority").await.unwrap();
        assert_eq!(attribute(&net, "ad_actor_sys_prio"), json!(65_535));
        assert_eq!(attribute(&net, "ad_lacp_active"), json!("on"));
        assert_eq!(net.link("bond0").index, index);
        // The bond gives its MTU and address to the members.
        client.update(&format!("{native}/mtu"), json!(1300)).await.unwrap();
        client.update(&format!("{native}/mac-address"), json!("02:00:00:00:00:09")).await.unwrap();
        for port in ports(&net) {
            assert_eq!((port.mtu, port.mac.as_str()), (1300, "02:00:00:00:00:09"));
        }
        // A shut member stays a member.
        client
            .update("holdfast_native:/interfaces/interface[name=eth2]/enabled", json!(false))
            .await
            .unwrap();
        let shut = net.link("eth2");
        assert_eq!((shut.up, shut.master.as_deref()), (false, Some("bond0")));
        // Another mode is another bond, with the same members.
        let mode = format!("{native}/bond/mode");
        let refused = client.update(&mode, json!("balance-xor")).await.unwrap_err();
        assert!(refused.message().contains("min-links"), "{refused}");
        client.update(&format!("{native}/bond/min-links"), json!(1)).await.unwrap();
        client.update(&mode, json!("balance-xor")).await.unwrap();
        assert_eq!(attribute(&net, "mode"), json!("balance-xor"));
        assert_ne!(net.link("bond0").index, index);
        eventually("the members are back", || {
            ports(&net).iter().all(|port| port.master.as_deref() == Some("bond0"))
        })
        .await;
        assert!(net.link("eth1").up && !net.link("eth2").up);
        // From the bond into a bridge.
        let bridge = json!({"interface": [
            {"name": "br0", "type": "bridge"},
            {"name": "eth1", "master": "br0"},
        ]});
        client.delete("holdfast_native:/interfaces/interface[name=eth1]/aggregate").await.unwrap();
        client.update("holdfast_native:/interfaces", bridge).await.unwrap();
        let moved = net.link("eth1");
        assert_eq!((moved.up, moved.master.as_deref()), (true, Some("br0")));
    });
}

/// Two bonds exchange their only members in one request. Each gets the link-layer address of its new member.
#[tokio::test]
async fn bonds_that_exchange_their_members_have_addresses_of_their_own() {
    in_lab!({
        let net = Netns::enter();
        for number in [1, 2] {
            net.ip(&format!("link add eth{number} type veth peer name peer{number}"));
        }
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let of = |members: [(&str, &str); 2]| {
            let bonds = members.map(|(bond, _)| json!({"name": bond, "type": "bond"}));
            let ports = members.map(|(bond, port)| json!({"name": port, "aggregate": bond}));
            let interfaces = [bonds, ports].concat();
            json!({"interface": interfaces})
        };
        for members in [
            [("bond0", "eth1"), ("bond1", "eth2")],
            [("bond0", "eth2"), ("bond1", "eth1")],
            [("bond0", "eth1"), ("bond1", "eth2")],
        ] {
            client.update("holdfast_native:/interfaces", of(members)).await.unwrap();
            assert_eq!(agent.show("pending"), "");
            for (bond, port) in members {
                let port = net.link(port);
                assert_eq!(port.master.as_deref(), Some(bond));
                assert_eq!(port.mac, net.link(bond).mac, "{members:?}");
            }
            assert_ne!(net.link("bond0").mac, net.link("bond1").mac, "{members:?}");
        }
    });
}
