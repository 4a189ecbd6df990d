//! The configuration that asks for what the kernel has.

use crate::kernel_trial::{GROUND, required};
use crate::kinds::{address, link, neighbor};
use crate::listed_route::{ListedHop, ListedRoute};
use crate::values::{KernelRoute, LINK_ROWS, Neighbor, NeighborFacts, NeighborState};

use super::*;

/// Lines of the entry of an observed object, or the reason for which it has none.
fn adopted(model: &Model, key: &Key, observed: &dyn ObjectValue) -> Option<Result<String, String>> {
    Some(match model.registry.adoption(key, observed)? {
        Adoption::Entry(entry) => Ok(model.lines(&entry)),
        Adoption::LeftOut(reason) => Err(reason),
    })
}

fn observed_link(name: &str, kind: LinkKind) -> Link {
    Link { facts: Some(LinkFacts::default()), ..Link::new(name, kind) }
}

#[test]
fn the_entry_of_a_link_asks_for_the_same_link() {
    let model = Model::new();
    for row in LINK_ROWS {
        let name = if row.is_type { "a0".to_owned() } else { format!("{GROUND}.7") };
        let observed = Link {
            enabled: false,
            description: Some("to the core".into()),
            ..observed_link(&name, required(row, "far").into())
        };
        let Some(Adoption::Entry(entry)) = model.registry.adoption(&link::key(&name), &observed)
        else {
            panic!("{} has no entry", row.name);
        };
        let (key, value) =
            model.value(&model.path_text(&entry.path), &model.lines(&entry)).unwrap();
        let asked: &Link = value.as_any().downcast_ref().unwrap();
        assert_eq!(key, link::key(&name));
        assert_eq!(asked.kind, observed.kind, "{}", row.name);
        assert_eq!((asked.enabled, &asked.description), (false, &observed.description));
    }
}

#[test]
fn what_a_link_has_without_configuration_is_left_out() {
    let model = Model::new();
    let check = |link: Link, want: Result<&str, &str>| {
        let found = adopted(&model, &link::key(&link.name), &link).unwrap();
        let found = found.as_ref().map(String::as_str).map_err(String::as_str);
        assert_eq!(found, want);
    };
    let port = "/interfaces/interface[name=eth0]";
    let eth0 = |mtu| Link { mtu: Some(mtu), ..observed_link("eth0", LinkKind::Physical) };
    check(eth0(1500), Ok(&format!("{port}/enabled = true")));
    check(eth0(1400), Ok(&format!("{port}/enabled = true\n{port}/mtu = 1400")));
    let member =
        Link { master: Some("bond0".into()), master_kind: Some("bond".into()), ..eth0(9000) };
    check(member.clone(), Ok(&format!("{port}/enabled = true\n{port}/aggregate = bond0")));
    let of_others = Link { master_kind: Some("vrf".into()), ..member };
    check(of_others, Err("link eth0: it is a port of bond0, whose type vrf is not modelled"));
    let tunnel = observed_link("tun0", LinkKind::Other("gre".into()));
    check(tunnel, Err("link tun0: links of type gre are not modelled"));
    let vlan = required(&VLAN, "far");
    let vlan = observed_link("blue", vlan.into());
    check(vlan, Err("link blue: a VLAN is modelled by the name of its port, a dot and a number"));
    // The other end of the pair is in another namespace.
    let half = observed_link("eth0", MadeLink::new(&VETH).into());
    check(half, Ok(&format!("{port}/enabled = true")));
    let lo = observed_link("lo", LinkKind::Loopback);
    assert_eq!(adopted(&model, &link::key("lo"), &lo), None);
}

#[test]
fn addresses_and_neighbours_that_come_by_themselves_are_left_out() {
    let model = Model::new();
    let check = |net: &str, origin, want: Option<Result<&str, &str>>| {
        let net: ipnet::IpNet = net.parse().unwrap();
        let facts = Some(AddressFacts { ours: false, origin, status: None });
        let observed = Address { facts, ..Address::new("eth0", net.addr(), net.prefix_len()) };
        let found = adopted(&model, &address::key("eth0", net.addr()), &observed);
        let want = want.map(|want| want.map(str::to_owned).map_err(str::to_owned));
        assert_eq!(found, want, "{net}");
    };
    let entry = "/interfaces/interface[name=eth0]/ipv4/address[ip=192.0.2.1]/prefix-length = 24";
    check("192.0.2.1/24", AddressOrigin::Static, Some(Ok(entry)));
    let reason = "address 192.0.2.1/24 of eth0: it has a lifetime, so it was leased or announced";
    check("192.0.2.1/24", AddressOrigin::Other, Some(Err(reason)));
    let reason = "address 2001:db8::1/64 of eth0: the kernel made it";
    check("2001:db8::1/64", AddressOrigin::Random, Some(Err(reason)));
    let reason = "address fe80::1/64 of eth0: it is link-local";
    check("fe80::1/64", AddressOrigin::Static, Some(Err(reason)));
    check("127.0.0.1/8", AddressOrigin::Other, None);

    let ip = [192, 0, 2, 9].into();
    let mac: MacAddr = "02:00:00:00:00:09".parse().unwrap();
    let neighbor = |state| {
        let facts = Some(NeighborFacts { ours: false, state });
        Neighbor { link: "eth0".into(), ip, mac: Some(mac), facts }
    };
    let key = neighbor::key("eth0", ip);
    let found = adopted(&model, &key, &neighbor(NeighborState::Permanent));
    let entry = "/interfaces/interface[name=eth0]/ipv4/neighbor[ip=192.0.2.9]/link-layer-address = 02:00:00:00:00:09";
    assert_eq!(found, Some(Ok(entry.to_owned())));
    assert_eq!(adopted(&model, &key, &neighbor(NeighborState::Reachable)), None);
}

#[test]
fn routes_of_people_are_taken_and_those_of_programs_are_not() {
    let model = Model::new();
    let hop = |gateway: &str, link: &str| ListedHop {
        gateway: (!gateway.is_empty()).then(|| gateway.parse().unwrap()),
        link: Some(link.into()),
        weight: 1,
        fault: None,
    };
    let route = |prefix: &str, metric, hops: &[ListedHop]| ListedRoute {
        table: 254,
        prefix: prefix.parse().unwrap(),
        metric,
        protocol: "boot".to_owned(),
        is_ours: false,
        treatment: "unicast",
        unmodelled: None,
        hops: hops.to_vec(),
    };
    let several = [hop("10.0.0.1", "eth0"), hop("10.0.1.1", "eth1")];
    let drops = ListedRoute { treatment: "blackhole", ..route("192.0.2.0/24", 0, &[]) };
    for taken in [
        route("0.0.0.0/0", 20, &[hop("10.0.0.254", "eth0")]),
        route("10.9.0.0/16", 70, &several),
        route("10.8.0.0/16", 20, &[hop("", "eth0")]),
        route("2001:db8::/32", 1024, &[hop("fe80::1", "eth0")]),
        drops,
    ] {
        let Adoption::Entry(entry) = model.registry.route_adoption(&taken, 0) else {
            panic!("{taken:?} is left out");
        };
        let (_, value) = model.value(&model.path_text(&entry.path), &model.lines(&entry)).unwrap();
        let asked: &KernelRoute = value.as_any().downcast_ref().unwrap();
        let metric = if taken.metric == 0 { 20 } else { taken.metric };
        assert_eq!((asked.prefix, asked.metric), (taken.prefix, metric));
        let crate::values::RouteTarget::Hops(hops) = &asked.target else {
            assert_eq!(taken.treatment, "blackhole");
            continue;
        };
        let gateways = |hops: &[ListedHop]| hops.iter().map(|hop| hop.gateway).collect::<Vec<_>>();
        assert_eq!(hops.iter().map(|hop| hop.gateway).collect::<Vec<_>>(), gateways(&taken.hops));
    }
    let check = |route: ListedRoute, word: &str| match model.registry.route_adoption(&route, 0) {
        Adoption::LeftOut(reason) => assert!(reason.contains(word), "{reason}"),
        Adoption::Entry(entry) => panic!("{entry:?}"),
    };
    let plain = || route("10.9.0.0/16", 0, &[hop("10.0.0.1", "eth0")]);
    for protocol in ["kernel", "ra", "dhcp", "redirect", "zebra", "bird"] {
        check(ListedRoute { protocol: protocol.to_owned(), ..plain() }, protocol);
    }
    check(ListedRoute { table: 77, ..plain() }, "table 77");
    check(ListedRoute { unmodelled: Some("a next-hop object"), ..plain() }, "a next-hop object");
    check(ListedRoute { treatment: "prohibit", ..plain() }, "prohibit");
    let heavier = ListedHop { weight: 3, ..hop("10.0.1.1", "eth1") };
    check(route("10.9.0.0/16", 0, &[hop("10.0.0.1", "eth0"), heavier]), "weights");
}
