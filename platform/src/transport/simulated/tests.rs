use std::sync::Arc;

use holdfast_scheduler::{
    Failure, ImpactWalk, Key, OperationResult, RecordedOperation, SharedValue, TransactionOutcome,
    ValueState,
};

use super::harness::SimulatedBox;
use super::*;
use crate::failure;
use crate::objects::{ObjectValues, System};
use crate::values::*;

type Change = Vec<(Key, Option<SharedValue>)>;

/// Parses a configuration, one value for each line:
///
/// `port eth0 up|down [mtu N] [alias X] [master X|aggregate X] [v4-forwarding]
/// [proxy-arp]`, `veth a b`, `bridge br0`,
/// `bond b0 [mode X] [min-links N]`, `lacp b0 [fast] [passive] [priority N]`,
/// `vxlan vx 7 dev a`, `dummy d0`, `vlan PORT.ID [down] [called m]`, `address eth0 192.0.2.1/24`, `neighbor eth0 192.0.2.7 MAC`,
/// `route PREFIX [metric N] via GATEWAY|dev LINK|drop ...`, `hostname X`, `motd X`.
pub(crate) fn values(text: &str) -> Vec<(Key, SharedValue)> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(object).collect()
}

/// Values of one line.
fn object(line: &str) -> ObjectValues {
    let words: Vec<&str> = line.split_whitespace().collect();
    let value: (holdfast_scheduler::KindId, SharedValue) = match words[0] {
        "address" => {
            let net: ipnet::IpNet = words[2].parse().unwrap();
            let link = words[1];
            let ip = net.addr();
            let prefix_len = net.prefix_len();
            let secondary = words.contains(&"secondary");
            (kinds::ADDRESS, Arc::new(Address { secondary, ..Address::new(link, ip, prefix_len) }))
        }
        "neighbor" => {
            let link = words[1].into();
            let ip = words[2].parse().unwrap();
            let mac = Some(words[3].parse().unwrap());
            (kinds::NEIGHBOR, Arc::new(Neighbor { link, ip, mac, facts: None }))
        }
        "route" => return routes(&words),
        "hostname" => {
            let hostname = Some(words[1].into());
            return System { hostname, ..System::default() }.values();
        }
        "motd" => {
            let motd_banner = Some(words[1].into());
            return System { motd_banner, ..System::default() }.values();
        }
        "lacp" => {
            let bond = words[1].into();
            let is_fast = words.contains(&"fast");
            let is_active = !words.contains(&"passive");
            let at = words.iter().position(|word| *word == "priority");
            let priority = at.map_or(65_535, |at| words[at + 1].parse().unwrap());
            let system = Some(LacpSystem { mac: None, priority });
            let lacp = Lacp { bond, is_fast, is_active, system, on_our_link: false };
            (kinds::LACP, Arc::new(lacp))
        }
        _ => (kinds::LINK, Arc::new(link(&words))),
    };
    let registry = kinds::registry();
    let key = registry.descriptor(value.0).unwrap().key(&*value.1);
    [(key, value.1)].into()
}

fn link(words: &[&str]) -> Link {
    let after = |word: &str| {
        let at = words.iter().position(|other| *other == word)?;
        words.get(at + 1).copied()
    };
    let kind = match words[0] {
        "port" => LinkKind::Physical,
        "veth" => MadeLink::new(&VETH).with("peer", words[2]).into(),
        "bridge" => MadeLink::new(&BRIDGE).with("stp", words.contains(&"stp")).into(),
        "vxlan" => {
            let tunnel = MadeLink::new(&VXLAN).with("vni", words[2].parse::<u32>().unwrap());
            after("dev").map_or(tunnel.clone(), |device| tunnel.with("device", device)).into()
        }
        "dummy" => LinkKind::from(&DUMMY),
        "vlan" => {
            let (port, index) = words[1].split_once('.').unwrap();
            let id = index.parse::<u32>().unwrap();
            let vlan = MadeLink::new(&VLAN).with("vlan-id", id).with("device", port);
            after("called").map_or(vlan.clone(), |name| vlan.with("link-name", name)).into()
        }
        "bond" => {
            let bond = MadeLink::new(&BOND).with("mode", after("mode").unwrap_or("802.3ad"));
            let least = after("min-links").map_or(0, |least| least.parse::<u32>().unwrap());
            bond.with("min-links", least).into()
        }
        other => panic!("{other}"),
    };
    Link {
        enabled: !words.contains(&"down"),
        mtu: after("mtu").map(|mtu| mtu.parse().unwrap()),
        description: after("alias").map(Into::into),
        master: after("master").or(after("aggregate")).map(Into::into),
        master_kind: after("master")
            .map(|_| "bridge".into())
            .or(after("aggregate").map(|_| "bond".into())),
        ipv4_enabled: words.contains(&"no-ipv4").then_some(false),
        ipv6_enabled: match () {
            () if words.contains(&"ipv6") => Some(true),
            () => words.contains(&"no-ipv6").then_some(false),
        },
        settings: settings(words),
        ..Link::new(words[1], kind)
    }
}

fn settings(words: &[&str]) -> Vec<WantedSetting> {
    let settings = [
        ("v4-forwarding", LinkSysctl::Forwarding, vec![1]),
        ("proxy-arp", LinkSysctl::ProxyArp, vec![1, 1]),
    ];
    let wanted = settings.into_iter().filter(|(word, ..)| words.contains(word));
    wanted.map(|(_, sysctl, values)| WantedSetting { sysctl, family: Family::V4, values }).collect()
}

fn routes(words: &[&str]) -> ObjectValues {
    let mut next_hops: Vec<NextHop> = Vec::new();
    let mut metric = None;
    let mut words = words[1..].iter();
    let prefix = words.next().unwrap().parse().unwrap();
    while let Some(word) = words.next() {
        let mut hop = |target, link: Option<&str>| {
            let index = next_hops.len().to_string().into();
            next_hops.push(NextHop { index, target, link: link.map(Into::into), metric });
        };
        match *word {
            "metric" => metric = Some(words.next().unwrap().parse().unwrap()),
            "via" => hop(NextHopTarget::Gateway(words.next().unwrap().parse().unwrap()), None),
            "dev" => hop(NextHopTarget::OnLink, Some(words.next().unwrap())),
            "drop" => hop(NextHopTarget::Drop, None),
            other => panic!("{other}"),
        }
    }
    let routes = KernelRoute::of_entry(&"DEFAULT".into(), &"s".into(), prefix, &next_hops);
    let value = |route: KernelRoute| {
        let key = kinds::route::key(route.table, route.prefix, route.metric);
        (key, Arc::new(route) as SharedValue)
    };
    routes.into_iter().map(value).collect()
}

/// Changes from one configuration to another.
pub(crate) fn change(from: &str, to: &str) -> Change {
    let old = values(from);
    let new = values(to);
    let removed = old.iter().filter(|(key, _)| !new.iter().any(|(other, _)| other == key));
    let mut change: Change = removed.map(|(key, _)| (key.clone(), None)).collect();
    let same = |key: &Key, value: &SharedValue| {
        old.iter().any(|(other, old)| other == key && old.same(&**value))
    };
    change.extend(
        new.iter()
            .filter(|(key, value)| !same(key, value))
            .map(|(k, v)| (k.clone(), Some(v.clone()))),
    );
    change
}

pub(super) fn commit(agent: &mut SimulatedBox, from: &str, to: &str) {
    let outcome = agent.commit(change(from, to));
    assert!(matches!(outcome, TransactionOutcome::Done { .. }), "{to}: {outcome:?}");
}

const NOTHING: &str = "";

#[track_caller]
pub(super) fn assert_same(after: &[String], before: &[String], what: &str) {
    let only = |these: &[String], others: &[String]| {
        these.iter().filter(|line| !others.contains(line)).cloned().collect::<Vec<_>>().join("\n")
    };
    let removed = only(before, after);
    let added = only(after, before);
    assert!(removed.is_empty() && added.is_empty(), "{what}\ngone:\n{removed}\ncome:\n{added}");
}

#[test]
fn plans_are_ordered_by_dependencies() {
    let check = |from: &str, to: &str, want: &str| {
        let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
        commit(&mut agent, NOTHING, from);
        assert_eq!(agent.plan(change(from, to)).unwrap(), want, "{from} => {to}");
        commit(&mut agent, from, to);
        assert_eq!(agent.plan(change(NOTHING, to)).unwrap(), "", "again: {to}");
    };
    check("", "port eth0 mtu 1400", "adopt link eth0");
    check("port eth0 mtu 1400", "port eth0 mtu 1300", "update link eth0");
    check("port eth0 mtu 1400", "", "release link eth0");
    check(
        "",
        "route 10.0.0.0/8 via 192.0.2.2
         address eth0 192.0.2.1/24
         port eth0",
        "adopt link eth0; create address 192.0.2.1/24 of eth0; \
         create prefix 192.0.2.0/24 of 192.0.2.1 on eth0; create route 10.0.0.0/8 metric 20",
    );
    // The length of the prefix names another address in the kernel.
    check(
        "port eth0
         address eth0 192.0.2.1/24",
        "port eth0
         address eth0 192.0.2.1/25",
        "delete address 192.0.2.1/24 of eth0; create address 192.0.2.1/25 of eth0; \
         create prefix 192.0.2.0/25 of 192.0.2.1 on eth0",
    );
    // Everything on a link that we made goes with it, at the price of one operation.
    check(
        "bridge br0
         address br0 192.0.2.1/24
         neighbor br0 192.0.2.7 02:00:00:00:00:07",
        "",
        "delete link br0",
    );
    // A tunnel waits for the link that carries it; a pair is made at once.
    check(
        "",
        "vxlan vx 7 dev v0
         veth v0 v1",
        "create link v0; create link vx; create MTU of vx",
    );
    check(
        "",
        "port eth0 master br0
         bridge br0",
        "adopt link eth0; create link br0; adopt port eth0 of bridge br0; create MTU of br0",
    );
    // LACP waits for its bond, and is set before anything stands on that: it puts the bond down.
    check(
        "",
        "lacp b0 fast
         port eth0 aggregate b0
         port eth1 aggregate b0 down
         address b0 192.0.2.1/24
         bond b0",
        "adopt link eth0; create link b0; adopt member eth0 of bond b0; \
         adopt member eth1 of bond b0; create LACP of b0; create address 192.0.2.1/24 of b0; \
         create prefix 192.0.2.0/24 of 192.0.2.1 on b0",
    );
    check(
        "bond b0\nlacp b0",
        "bond b0 min-links 2\nlacp b0 fast",
        "update LACP of b0; update link b0",
    );
    // Another mode is another bond, without LACP.
    check(
        "bond b0\nlacp b0 fast\nport eth0 aggregate b0",
        "bond b0 mode balance-xor\nlacp b0 fast\nport eth0 aggregate b0",
        "release port eth0 of no bridge or bond; delete link b0; create link b0; adopt member eth0 of bond b0",
    );
    check(
        "bond b0\nport eth0 aggregate b0\nbridge br0",
        "bond b0\nport eth0 master br0\nbridge br0",
        "update port eth0 of bridge br0",
    );
    check("bridge br0", "bridge br0 stp", "update link br0");
    check("vxlan vx 7", "vxlan vx 8", "delete link vx; create link vx");
    // Addresses are freed before they are used again.
    check(
        "port eth0
         port eth1
         address eth0 192.0.2.1/24
         address eth1 192.0.2.2/24",
        "port eth0
         port eth1
         address eth0 192.0.2.2/24
         address eth1 192.0.2.1/24",
        "delete address 192.0.2.1/24 of eth0; delete address 192.0.2.2/24 of eth1; \
         create address 192.0.2.2/24 of eth0; create address 192.0.2.1/24 of eth1; \
         create prefix 192.0.2.0/24 of 192.0.2.2 on eth0; \
         create prefix 192.0.2.0/24 of 192.0.2.1 on eth1",
    );
    // In place where the kernel can; another metric is another route.
    check(
        "route 10.0.0.0/8 drop",
        "route 10.0.0.0/8 metric 5 drop",
        "create route 10.0.0.0/8 metric 5; delete route 10.0.0.0/8 metric 20",
    );
}

// proves kv.T1, kv.T3
#[test]
fn committed_objects_are_in_the_kernel() {
    let check = |to: &str, want: &[&str]| {
        let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
        commit(&mut agent, NOTHING, to);
        let mut want: Vec<String> = want.iter().map(ToString::to_string).collect();
        want.extend(["lo", "eth0", "eth1"].map(|name| format!("link {name}")));
        want.sort();
        assert_eq!(agent.kernel.describe(), want, "{to}");
        // A restarted agent finds everything in place and makes no request.
        let intent = values(to);
        let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
        let before = agent.kernel.requests();
        let again = SimulatedBox::restarted(agent.kernel.clone(), intent.clone(), restores);
        assert_eq!(again.kernel.requests(), before, "{to}");
        for (key, _) in intent {
            assert_eq!(again.state(&key), ValueState::Configured, "{key} of {to}");
        }
    };
    check(
        "port eth0 mtu 1400 alias uplink v4-forwarding
         address eth0 192.0.2.1/24
         address eth0 2001:db8::1/64
         neighbor eth0 192.0.2.7 02:00:00:00:00:07
         route 10.0.0.0/8 via 192.0.2.2 via 192.0.2.3
         route 2001:db8:1::/48 via 2001:db8::2
         route 198.51.100.0/24 dev eth0
         route 203.0.113.0/24 drop",
        &[
            "address 192.0.2.1/24 of eth0",
            "address 2001:db8::1/64 of eth0",
            "neighbor 192.0.2.7 of eth0",
            "route 10.0.0.0/8 metric 20",
            "route 198.51.100.0/24 metric 20",
            "route 2001:db8:1::/48 metric 1024",
            "route 203.0.113.0/24 metric 20",
        ],
    );
    check(
        "bridge br0
         veth v0 v1 master br0
         vxlan vx 7 dev v0
         dummy d0",
        &["link br0", "link d0", "link v0", "link v1", "link vx"],
    );
    check(
        "veth v0 v1 mtu 1400
         veth v1 v0 mtu 1300",
        &["link v0", "link v1"],
    );
    check("hostname box", &[]);
    check("motd welcome", &[]);
}

/// A route over two links, named after the links of its next hops.
const UPLINKS: &str = "port eth0\naddress eth0 192.0.2.1/24\naddress eth0 2001:db8:a::1/64\n\
     port eth1\naddress eth1 198.51.100.1/24\naddress eth1 2001:db8:b::1/64\n\
     route 10.0.0.0/8 via 192.0.2.2 via 198.51.100.2\n\
     route 2001:db8:1::/48 via 2001:db8:a::2 via 2001:db8:b::2";

/// Outgoing links of the routes over both uplinks in the kernel.
fn uplinks(agent: &SimulatedBox) -> String {
    let routes = [("10.0.0.0/8", 20), ("2001:db8:1::/48", 1024)];
    let texts = routes.map(|(prefix, metric)| {
        let key = kinds::route::key(MAIN_TABLE, prefix.parse().unwrap(), metric);
        let observed = agent.kernel.observed(&key)?;
        let route: &KernelRoute = observed.as_any().downcast_ref().unwrap();
        let RouteTarget::Hops(hops) = &route.target else { return None };
        let links: Vec<&str> = hops.iter().filter_map(|hop| hop.link.as_deref()).collect();
        Some(links.join(" "))
    });
    texts.map(|links| links.unwrap_or_else(|| "none".to_owned())).join(", ")
}

#[test]
fn a_multipath_route_uses_reachable_next_hops() {
    let down = UPLINKS.replace("port eth1", "port eth1 down");
    let without =
        UPLINKS.replace("address eth1 198.51.100.1/24\naddress eth1 2001:db8:b::1/64\n", "");
    let both_down = down.replace("port eth0", "port eth0 down");
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    let mut last = NOTHING.to_owned();
    for (to, want) in [
        (&down, "eth0, eth0"),
        (&UPLINKS.to_owned(), "eth0 eth1, eth0 eth1"),
        (&down, "eth0, eth0"),
        (&both_down, "none, none"),
        (&without, "eth0, eth0"),
        (&UPLINKS.to_owned(), "eth0 eth1, eth0 eth1"),
    ] {
        commit(&mut agent, &last, to);
        assert_eq!(uplinks(&agent), want, "{to}");
        let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
        let before = agent.kernel.requests();
        agent = SimulatedBox::restarted(agent.kernel.clone(), values(to), restores);
        assert_eq!(agent.kernel.requests(), before, "a start finds all in place: {to}");
        last.clone_from(to);
    }
    assert_eq!(
        agent.plan(change(UPLINKS, &down)).unwrap(),
        "update route 2001:db8:1::/48 metric 1024; delete prefix 2001:db8:b::/64 of 2001:db8:b::1 on eth1; \
         update route 10.0.0.0/8 metric 20; delete prefix 198.51.100.0/24 of 198.51.100.1 on eth1; \
         update link eth1",
        "the routes let go of the link first, in place"
    );
}

#[test]
fn a_multipath_route_follows_foreign_changes() {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    commit(&mut agent, NOTHING, UPLINKS);
    agent.kernel.unplug("eth1");
    agent.run_until_idle();
    assert_eq!(uplinks(&agent), "eth0, eth0");
    agent.kernel.plug("eth1");
    agent.run_until_idle();
    assert_eq!(uplinks(&agent), "eth0 eth1, eth0 eth1");
    // Our objects are restored; the routes have used the other link meanwhile.
    agent.kernel.delete_address("eth1", [198, 51, 100, 1].into(), 24);
    agent.run_until_idle();
    assert_eq!(uplinks(&agent), "eth0 eth1, eth0 eth1");
    agent.kernel.set_up("eth1", false);
    agent.run_until_idle();
    assert_eq!(uplinks(&agent), "eth0 eth1, eth0 eth1");
    agent.kernel.delete_route("10.0.0.0/8".parse().unwrap());
    agent.run_until_idle();
    assert_eq!(uplinks(&agent), "eth0 eth1, eth0 eth1");
    agent.engine.audit().unwrap();
}

// proves kv.T10
#[test]
fn dummy_links_are_created_disabled_restored_and_deleted() {
    const OTHERS: &str = "port eth0 mtu 1400\naddress eth0 192.0.2.1/24";
    let with = |more: &str| format!("{OTHERS}\n{more}");
    let up =
        with("dummy d0\ndummy d1\naddress d0 198.51.100.1/24\nroute 10.0.0.0/8 via 198.51.100.2");
    let down = up.replace("dummy d0", "dummy d0 down");
    let mut agent = SimulatedBox::new(&["eth0"]);
    commit(&mut agent, NOTHING, OTHERS);
    let others = agent.contents();
    commit(&mut agent, OTHERS, &up);
    let whole = agent.contents();
    commit(&mut agent, &up, &down);
    let without = agent.contents();
    assert!(whole.iter().any(|it| it.contains("10.0.0.0/8")));
    assert!(!without.iter().any(|it| it.contains("10.0.0.0/8")), "a route needs a link that is up");
    commit(&mut agent, &down, &up);
    assert_same(&agent.contents(), &whole, "switched on again");
    // As after a reboot, created links are gone.
    agent.kernel.unplug("d0");
    agent.kernel.unplug("d1");
    agent.run_until_idle();
    assert_same(&agent.contents(), &whole, "what vanished is made again");
    commit(&mut agent, &up, OTHERS);
    assert_same(&agent.contents(), &others, "gone");
}

/// Everything of IPv6 on a link waits while the link cannot carry it, whoever is the reason, and in any order.
#[test]
fn all_of_ipv6_waits_for_a_link_that_carries_it() {
    const ON: &str = "port eth0
        address eth0 2001:db8::1/64
        neighbor eth0 2001:db8::7 02:00:00:00:00:07
        route 2001:db8:1::/48 dev eth0";
    let check = |agent: &SimulatedBox, want: ValueState| {
        for (key, _) in values(ON).into_iter().filter(|(key, _)| key.kind() != kinds::LINK) {
            assert_eq!(agent.state(&key), want, "{key}");
        }
        agent.engine.audit().unwrap();
    };
    for off in ["port eth0 no-ipv6", "port eth0 mtu 1200", "port eth0 mtu 1200 no-ipv6"] {
        let without = ON.replacen("port eth0", off, 1);
        let mut agent = SimulatedBox::new(&["eth0"]);
        commit(&mut agent, NOTHING, &without);
        check(&agent, ValueState::Pending);
        for _ in 0..2 {
            commit(&mut agent, &without, ON);
            check(&agent, ValueState::Configured);
            commit(&mut agent, ON, &without);
            check(&agent, ValueState::Pending);
        }
        commit(&mut agent, &without, NOTHING);
    }
    let mut agent = SimulatedBox::new(&["eth0"]);
    agent.kernel.set_mtu("eth0", 1200);
    agent.run_until_idle();
    let outcome = agent.commit(change(NOTHING, ON));
    assert!(matches!(outcome, TransactionOutcome::Done { .. }), "{outcome:?}");
    agent.kernel.set_mtu("eth0", 1500);
    agent.run_until_idle();
    check(&agent, ValueState::Configured);
}

/// The MTU of a tunnel is as large as its device allows, in any order.
#[test]
fn the_mtu_of_a_tunnel_follows_its_device() {
    let mtu = |agent: &SimulatedBox, link: &str| {
        let observed = agent.kernel.observed(&kinds::link::mtu_key(link)).unwrap();
        observed.as_any().downcast_ref::<LinkMtu>().unwrap().mtu
    };
    let mut agent = SimulatedBox::new(&["eth0"]);
    let [small, large] = [1400, 1600].map(|mtu| {
        format!("port eth0 mtu {mtu}\nvxlan vx 7 dev eth0 mtu 1500\nvxlan vy 8 dev eth0")
    });
    for _ in 0..2 {
        commit(&mut agent, NOTHING, &small);
        assert_eq!((mtu(&agent, "vx"), mtu(&agent, "vy")), (Some(1350), Some(1350)));
        commit(&mut agent, &small, &large);
        agent.run_until_idle();
        assert_eq!((mtu(&agent, "vx"), mtu(&agent, "vy")), (Some(1500), Some(1550)));
        commit(&mut agent, &large, &small);
        agent.run_until_idle();
        assert_eq!((mtu(&agent, "vx"), mtu(&agent, "vy")), (Some(1350), Some(1350)));
        commit(&mut agent, &small, NOTHING);
        agent.engine.audit().unwrap();
    }
}

/// For every kind of value, a change whose nth request fails, for each n.
/// VLANs go up and down with their port; one that is shut stays down when its port comes up, although the kernel raises it.
#[test]
fn a_vlan_is_up_with_its_port() {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    let vlans = "vlan eth0.5
                 vlan eth0.6 down
                 address eth0.5 192.0.2.1/24
                 route 10.0.0.0/8 via 192.0.2.2\n";
    let up = |agent: &SimulatedBox| {
        let is_up = |name: &&str| {
            let observed = agent.kernel.observed(&kinds::link::key(name)).unwrap();
            observed.as_any().downcast_ref::<Link>().unwrap().enabled
        };
        ["eth0", "eth0.5", "eth0.6"].into_iter().filter(is_up).collect::<Vec<_>>().join(" ")
    };
    let states = |port: &str| format!("{port}\n{vlans}");
    commit(&mut agent, NOTHING, &states("port eth0"));
    assert_eq!(up(&agent), "eth0 eth0.5");
    commit(&mut agent, &states("port eth0"), &states("port eth0 down"));
    assert_eq!(up(&agent), "");
    commit(&mut agent, &states("port eth0 down"), &states("port eth0"));
    assert_eq!(up(&agent), "eth0 eth0.5", "the kernel raised eth0.6 with its port");
    // Somebody else shuts the port: it is raised again, and its VLANs as they are configured.
    agent.kernel.set_up("eth0", false);
    agent.run_until_idle();
    assert_eq!(up(&agent), "eth0 eth0.5");
    // Or raises one that is shut.
    agent.kernel.set_up("eth0.6", true);
    agent.run_until_idle();
    assert_eq!(up(&agent), "eth0 eth0.5");
    // Another identifier means another link.
    let other = states("port eth0").replace("vlan eth0.6 down", "vlan eth0.7");
    commit(&mut agent, &states("port eth0"), &other);
    assert_eq!(agent.plan(change(NOTHING, &other)).unwrap(), "");
    commit(&mut agent, &other, NOTHING);
    assert!(agent.kernel.observed(&kinds::link::key("eth0.5")).is_none());
}

/// VLANs with names of their own in the kernel.
const CALLED: &str = "port eth0
    vlan eth0.5 called mgmt v4-forwarding
    vlan eth0.6 called data
    address eth0.5 192.0.2.1/24
    route 10.0.0.0/8 via 192.0.2.2";

/// A VLAN is known as PORT.INDEX, whatever its link is called. Another name makes another link, and all that stands on it
/// follows.
#[test]
fn a_vlan_has_the_name_in_the_kernel_that_it_is_given() {
    let mut agent = SimulatedBox::new(&["eth0"]);
    let untouched = agent.contents();
    let is_called = |agent: &SimulatedBox, vlan: &str, name: &str| {
        let observed = agent.kernel.observed(&kinds::link::key(vlan)).unwrap();
        let link = observed.as_any().downcast_ref::<Link>().unwrap();
        assert_eq!((link.own_name().as_str(), link.enabled), (name, true), "{vlan}");
        assert!(agent.kernel.is_marked(name), "{name}");
    };
    commit(&mut agent, NOTHING, CALLED);
    is_called(&agent, "eth0.5", "mgmt");
    let whole = agent.contents();
    assert!(whole.iter().any(|it| it.contains("10.0.0.0/8")), "{whole:?}");

    // A restarted agent knows the links by their marks, and asks for nothing.
    let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
    let before = agent.kernel.requests();
    let mut again = SimulatedBox::restarted(agent.kernel.clone(), values(CALLED), restores);
    again.run_until_idle();
    assert_eq!(agent.kernel.requests(), before);

    // Both links swap their names.
    let swapped =
        CALLED.replace("mgmt", "x").replace("data", "mgmt").replace("called x", "called data");
    let plan = again.plan(change(CALLED, &swapped)).unwrap();
    for step in ["delete link eth0.5 called mgmt", "create link eth0.5 called data", "10.0.0.0/8"] {
        assert!(plan.contains(step), "{step} in {plan}");
    }
    commit(&mut again, CALLED, &swapped);
    is_called(&again, "eth0.5", "data");
    is_called(&again, "eth0.6", "mgmt");

    // The name without configuration, and back.
    let plain = CALLED.replace(" called mgmt", "").replace(" called data", "");
    commit(&mut again, &swapped, &plain);
    is_called(&again, "eth0.5", "eth0.5");
    commit(&mut again, &plain, CALLED);
    assert_same(&again.contents(), &whole, "there and back");

    // The link vanishes, and is made again by its name.
    again.kernel.unplug("mgmt");
    again.run_until_idle();
    assert_same(&again.contents(), &whole, "made again");
    commit(&mut again, CALLED, NOTHING);
    assert_same(&again.contents(), &untouched, "gone");
}

/// Two links cannot have one name in the kernel, whichever of them comes first. When both change, one gives its name to the
/// other.
#[test]
fn names_of_links_in_the_kernel_exclude_each_other() {
    const VLAN: &str = "port eth0\nvlan eth0.5 called m";
    for other in ["dummy m", "vlan eth0.6 called m"] {
        let other = format!("port eth0\n{other}");
        for (first, second) in [(VLAN, other.as_str()), (other.as_str(), VLAN)] {
            let mut agent = SimulatedBox::new(&["eth0"]);
            commit(&mut agent, NOTHING, first);
            let second = second.replacen("port eth0\n", "", 1);
            let refused = agent.plan(change(NOTHING, &second)).unwrap_err().to_string();
            for part in ["link eth0.5 called m", "conflicts with", "only one of them can exist"] {
                assert!(refused.contains(part), "{part} in {refused}");
            }
        }
    }
    let mut agent = SimulatedBox::new(&["eth0"]);
    commit(&mut agent, NOTHING, VLAN);
    let given = "port eth0\nvlan eth0.5 called n\ndummy m";
    commit(&mut agent, VLAN, given);
    commit(&mut agent, given, VLAN);
}

#[test]
fn a_failed_change_of_any_kind_is_undone() {
    const PORT: &str = "port eth0 mtu 1400 v4-forwarding proxy-arp\naddress eth0 192.0.2.1/24";
    let changes = [
        (PORT, "port eth0 mtu 1300 alias x\naddress eth0 192.0.2.9/24"),
        (PORT, ""),
        ("", PORT),
        ("", "bridge br0 mtu 1400 alias x\nport eth0 master br0\nport eth1 master br0"),
        ("bridge br0\nport eth0 master br0", "port eth1 mtu 1400"),
        ("", "veth v0 v1 mtu 1400 alias x\nveth v1 v0 alias y\nvxlan vx 7 dev v0"),
        ("veth v0 v1\nvxlan vx 7 dev v0", "vxlan vx 8\ndummy d0 alias x"),
        (PORT, "port eth0\nneighbor eth0 192.0.2.7 02:00:00:00:00:07\nroute 10.0.0.0/8 drop"),
        (
            "port eth0\naddress eth0 192.0.2.1/24\nroute 10.0.0.0/8 via 192.0.2.2\nroute 11.0.0.0/8 drop",
            "port eth0\naddress eth0 192.0.2.1/24\nroute 10.0.0.0/8 via 192.0.2.3\nroute 12.0.0.0/8 drop",
        ),
        (
            UPLINKS,
            "port eth0\naddress eth0 192.0.2.1/24\nroute 10.0.0.0/8 via 192.0.2.2 via 198.51.100.2",
        ),
        ("", CALLED),
        (CALLED, "port eth0\nvlan eth0.5 called data\naddress eth0.5 192.0.2.1/24"),
        ("", "hostname box\nport eth0 mtu 1400"),
        ("motd a", "motd b\nport eth0 mtu 1400"),
        ("", BONDED),
        (BONDED, ""),
        (BONDED, "bond b0 mode balance-xor\nport eth1 aggregate b0\nport eth0 mtu 1400"),
        (BONDED, "bond b0\nlacp b0 passive\nport eth0 aggregate b0 down\nport eth1 aggregate b0"),
        (BONDED, "bond b0\nport eth0 aggregate b0\nbridge br0\nport eth1 master br0"),
    ];
    for (from, to) in changes {
        for fault in [Fault::Fail(22), Fault::Panic] {
            let mut nth = 1;
            while fails_and_is_undone(from, to, nth, fault) {
                nth += 1;
            }
            assert!(nth > 1, "{from} => {to} makes no request");
        }
    }
}

/// A bond with two members. One member is shut.
const BONDED: &str = "bond b0 min-links 1 mtu 1400\nlacp b0 fast priority 7
    port eth0 aggregate b0\nport eth1 aggregate b0 down\naddress b0 192.0.2.1/24";

#[test]
fn members_of_a_bond_come_and_go_as_they_were() {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    let untouched = agent.contents();
    commit(&mut agent, NOTHING, BONDED);
    let lacp = agent.kernel.observed(&kinds::lacp::key("b0")).unwrap();
    let lacp: &Lacp = lacp.as_any().downcast_ref().unwrap();
    assert!(lacp.is_fast && lacp.is_active, "{lacp:?}");
    assert_eq!(lacp.system.as_ref().map(|system| system.priority), Some(7));
    let members = agent.kernel.observed(&kinds::bond_members::key("b0")).unwrap();
    let members: &BondMembers = members.as_any().downcast_ref().unwrap();
    assert_eq!(members.members, ["eth0", "eth1"]);
    let link = |agent: &SimulatedBox, name: &str| {
        let observed = agent.kernel.observed(&kinds::link::key(name)).unwrap();
        observed.as_any().downcast_ref::<Link>().unwrap().clone()
    };
    for (name, enabled) in [("eth0", true), ("eth1", false)] {
        let member = link(&agent, name);
        assert_eq!((member.enabled, member.mtu), (enabled, Some(1400)), "{name}");
        assert_eq!(member.mac, link(&agent, "b0").mac, "{name}");
    }
    let bonded = agent.contents();
    // Whatever others do to it.
    let acts: [&dyn Fn(&SimulatedKernel); 4] = [
        &|kernel| kernel.set_up("eth0", false),
        &|kernel| kernel.leave_master("eth0"),
        &|kernel| kernel.leave_master("eth1"),
        &|kernel| kernel.unplug("b0"),
    ];
    for act in acts {
        act(&agent.kernel);
        agent.run_until_idle();
        assert_same(&agent.contents(), &bonded, "repaired");
    }
    // The address and MTU that the bond gave to its members are not taken for those that others want.
    let ports = "port eth0 mtu 1300\nport eth1 down";
    commit(&mut agent, BONDED, ports);
    assert_eq!(link(&agent, "eth0").mtu, Some(1300));
    commit(&mut agent, ports, BONDED);
    assert_same(&agent.contents(), &bonded, "again");
    commit(&mut agent, BONDED, NOTHING);
    assert_same(&agent.contents(), &untouched, "gone");
    agent.engine.audit().unwrap();
}

/// True for a change that is done except for values that wait.
fn has_waiting_values(outcome: &TransactionOutcome) -> bool {
    matches!(outcome, TransactionOutcome::Done { failed, .. } if !failed.is_empty())
}

/// Runs a change with a fault at its nth request; false when it has fewer requests.
fn fails_and_is_undone(from: &str, to: &str, nth: u64, fault: Fault) -> bool {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    commit(&mut agent, NOTHING, from);
    let before = agent.contents();
    agent.kernel.fault_at(nth, fault);
    let outcome = agent.commit(change(from, to));
    let (undone, label, error) = match outcome {
        TransactionOutcome::Failed { undone, label, error, .. } => (undone, label, error),
        _ if agent.kernel.has_fault() => return false,
        // A value that waits, or is not taken back, does not fail a change.
        outcome => {
            let record = agent.engine.history().record(outcome.txn()).unwrap();
            let is_left =
                |it: &RecordedOperation| matches!(it.result, OperationResult::NotGivenBack(_));
            let is_left = fault == Fault::Fail(22) && record.operations.iter().any(is_left);
            // The last request for a member of a bond says once more that the link is up.
            let is_done = |it: &RecordedOperation| matches!(it.result, OperationResult::Verified);
            let is_whole = record.operations.iter().all(is_done)
                && agent.plan(change(NOTHING, to)).unwrap().is_empty();
            assert!(
                has_waiting_values(&outcome) || is_left || is_whole,
                "{from} => {to}: {outcome:?}"
            );
            return true;
        }
    };
    let what = format!("request {nth} of {from} => {to}, {label}: {error}");
    assert!(undone, "{what}\n{:#?}", agent.contents());
    assert_same(&agent.contents(), &before, &what);
    assert_eq!(agent.plan(change(NOTHING, from)).unwrap(), "", "{what}");
    commit(&mut agent, from, to);
    true
}

// proves kv.T11
#[test]
fn a_port_that_is_missing_is_waited_for() {
    let config = "port eth9 mtu 1400\naddress eth9 192.0.2.1/24\nroute 10.0.0.0/8 via 192.0.2.2";
    let mut agent = SimulatedBox::new(&["eth0"]);
    let outcome = agent.commit(change(NOTHING, config));
    assert!(
        matches!(&outcome, TransactionOutcome::Done { pending, .. } if !pending.is_empty()),
        "{outcome:?}"
    );
    let keys: Vec<Key> = values(config).into_iter().map(|(key, _)| key).collect();
    assert_eq!(agent.state(&keys[0]), ValueState::Pending);
    agent.kernel.plug("eth9");
    agent.run_until_idle();
    assert_eq!(
        keys.iter().map(|key| agent.state(key)).collect::<Vec<_>>(),
        [ValueState::Configured; 3]
    );
    agent.kernel.unplug("eth9");
    agent.run_until_idle();
    assert_eq!(agent.state(&keys[0]), ValueState::Pending);
    assert_eq!(agent.kernel.describe(), ["link eth0", "link lo"]);
    agent.kernel.plug("eth9");
    agent.run_until_idle();
    assert_eq!(agent.kernel.describe().len(), 5, "{:?}", agent.kernel.describe());
}

#[test]
fn a_port_gets_back_what_it_had_before_us() {
    let config =
        "port eth0 mtu 1400 alias x v4-forwarding proxy-arp master br0\nbridge br0\nhostname box";
    let check = |restart: bool| {
        let mut agent = SimulatedBox::new(&["eth0"]);
        agent.kernel.set_mtu("eth0", 1450);
        agent.run_until_idle();
        let before = agent.contents();
        commit(&mut agent, NOTHING, config);
        if restart {
            let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
            agent = SimulatedBox::restarted(agent.kernel.clone(), values(config), restores);
        }
        commit(&mut agent, config, NOTHING);
        assert_same(&agent.contents(), &before, &format!("restart {restart}"));
    };
    check(false);
    check(true);
}

/// The kernel does not announce an alias on a link that is down. A restored alias therefore has to be read back:
/// otherwise the engine would take the old one for the port's original alias.
#[test]
fn a_restored_alias_is_read_back() {
    for (before, down) in [("", true), ("theirs", true), ("", false), ("theirs", false)] {
        let kernel = SimulatedKernel::new(&["eth0"]);
        kernel.set_alias("eth0", before);
        kernel.set_up("eth0", !down);
        let mut agent = SimulatedBox::on(kernel);
        let contents = agent.contents();
        let config = if down { "port eth0 down alias x" } else { "port eth0 alias x" };
        let open = config.trim_end_matches(" alias x");
        for ways in [&[config][..], &[config], &[open, config, open], &[config, open]] {
            let mut from = NOTHING;
            for to in ways.iter().chain([&NOTHING]) {
                let what = format!("{from} => {to} of {ways:?} after `{before}`");
                commit(&mut agent, from, to);
                let key = kinds::link::key("eth0");
                let observed = agent.engine.planes(&key)[2].cloned().unwrap();
                assert!(
                    observed.same(&*agent.kernel.observed(&key).unwrap()),
                    "{what}: {observed:?}"
                );
                from = to;
            }
            assert_same(&agent.contents(), &contents, &format!("{ways:?} after `{before}`"));
        }
    }
}

/// Attributes that the configuration never set are not compared.
#[test]
fn a_release_keeps_foreign_changes_to_open_attributes() {
    let mut agent = SimulatedBox::new(&["eth0"]);
    commit(&mut agent, NOTHING, "port eth0 mtu 1400");
    agent.kernel.set_alias("eth0", "theirs");
    agent.run_until_idle();
    commit(&mut agent, "port eth0 mtu 1400", NOTHING);
    let contents = agent.contents().join("\n");
    assert!(contents.contains("theirs") && !contents.contains("1400"), "{contents}");
}

#[test]
fn drift_of_our_objects_is_repaired() {
    let config = "port eth0 mtu 1400
        address eth0 192.0.2.1/24
        address eth0 2001:db8::1/64
        route 10.0.0.0/8 via 192.0.2.2
        route 2001:db8:1::/48 via 2001:db8::2";
    let check = |act: &dyn Fn(&SimulatedKernel)| {
        let mut agent = SimulatedBox::new(&["eth0"]);
        commit(&mut agent, NOTHING, config);
        let before = agent.contents();
        act(&agent.kernel);
        agent.run_until_idle();
        assert_same(&agent.contents(), &before, "repaired");
    };
    let ip = [192, 0, 2, 1].into();
    check(&|kernel| kernel.delete_address("eth0", ip, 24));
    check(&|kernel| kernel.set_mtu("eth0", 1300));
    check(&|kernel| kernel.delete_route("10.0.0.0/8".parse().unwrap()));
    // The route is removed without notification.
    check(&|kernel| kernel.set_up("eth0", false));
    check(&|kernel| {
        kernel.set_up("eth0", false);
        kernel.set_up("eth0", true);
    });
}

// proves kv.T9
#[test]
fn foreign_objects_are_not_changed() {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    agent.kernel.add_foreign_route("10.0.0.0/8".parse().unwrap());
    agent.kernel.add_address("eth1", [198, 51, 100, 1].into(), 24);
    agent.kernel.add_address("eth0", [192, 0, 2, 1].into(), 24);
    agent.run_until_idle();
    let before = agent.contents();
    // An existing address is used as it is.
    let config = "port eth0 mtu 1400\naddress eth0 192.0.2.1/24\nroute 11.0.0.0/8 drop";
    commit(&mut agent, NOTHING, config);
    commit(&mut agent, config, NOTHING);
    assert_same(&agent.contents(), &before, "untouched");
    // An equal route is taken over, and given back.
    commit(&mut agent, NOTHING, "route 10.0.0.0/8 drop");
    commit(&mut agent, "route 10.0.0.0/8 drop", NOTHING);
    assert_same(&agent.contents(), &before, "given back");
    // Another route with that destination and metric is refused, and stays foreign.
    let outcome = agent.commit(change("", "port eth0\nroute 10.0.0.0/8 dev eth0"));
    let TransactionOutcome::Failed { error, undone, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((error.errno, undone), (Some(17), true));
    assert_same(&agent.contents(), &before, "untouched");
}

#[test]
fn marked_objects_without_intent_are_deleted_at_start() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let config = "bridge br0\naddress eth0 192.0.2.1/24\nport eth0\nroute 10.0.0.0/8 drop";
    let mut agent = SimulatedBox::on(kernel.clone());
    commit(&mut agent, NOTHING, config);
    assert!(kernel.is_marked("br0") && !kernel.is_marked("eth0"));
    let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
    // The store rolled back an unconfirmed change, so nothing is intended.
    SimulatedBox::restarted(kernel.clone(), Vec::new(), restores);
    assert_eq!(kernel.describe(), ["link eth0", "link lo"]);
}

#[test]
fn facts_flow_while_an_operation_hangs() {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    agent.kernel.fault_at(1, Fault::Hang);
    let txn = agent.begin(change(NOTHING, "port eth0 mtu 1400"));
    agent.kernel.set_mtu("eth1", 1300);
    let actual = agent.kernel.observed(&kinds::link::key("eth1")).unwrap();
    agent.take_in_one();
    let observed = agent.engine.planes(&kinds::link::key("eth1"))[2].cloned().unwrap();
    assert!(observed.same(&*actual));
    assert!(!agent.engine.is_idle());
    agent.kernel.resume();
    agent.run_until_idle();
    assert!(agent.outcomes.iter().any(|outcome| outcome.txn() == txn));
}

#[test]
fn an_interface_fails_with_all_that_is_on_it() {
    let mut agent = SimulatedBox::new(&["eth0", "eth1"]);
    agent.engine.index_kinds(&failure::INDEXED_KINDS);
    commit(
        &mut agent,
        NOTHING,
        "port eth0
         port eth1
         address eth0 192.0.2.1/24
         address eth1 198.51.100.1/24
         neighbor eth0 192.0.2.7 02:00:00:00:00:07
         vxlan vx 7 dev eth0
         route 10.0.0.0/8 via 192.0.2.2
         route 11.0.0.0/8 via 192.0.2.2 via 198.51.100.2
         route 12.0.0.0/8 dev eth1",
    );
    let impact = |agent: &SimulatedBox, failure: Failure| {
        let impact = ImpactWalk::new(failure).portion(&agent.engine, usize::MAX).unwrap();
        let label = |key: &Key| agent.engine.label(key);
        let labels = |keys: &[Key]| keys.iter().map(label).collect::<Vec<_>>().join("; ");
        [labels(&impact.down), labels(&impact.degraded)]
    };
    let eth0 = || failure::of_interface("eth0");
    assert_eq!(
        impact(&agent, eth0()),
        [
            "link eth0; link vx; address 192.0.2.1/24 of eth0; neighbor 192.0.2.7 of eth0; \
             route 10.0.0.0/8 metric 20",
            "route 11.0.0.0/8 metric 20",
        ]
    );
    let next_hop = failure::of_next_hop("198.51.100.2".parse().unwrap(), ["eth1"]);
    assert_eq!(impact(&agent, next_hop), ["", "route 11.0.0.0/8 metric 20"]);
    agent.kernel.add_address("eth0", "203.0.113.1".parse().unwrap(), 24);
    agent.run_until_idle();
    let [down, _] = impact(&agent, eth0());
    assert!(down.contains("address 203.0.113.1/24 of eth0"), "of others: {down}");
}
