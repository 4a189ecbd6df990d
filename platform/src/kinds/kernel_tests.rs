//! Codecs against the kernel of this machine: what is encoded is accepted, and what the kernel then
//! shows decodes to a value that satisfies what was asked. Needs root; says so where it is not.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_scheduler::{
    Action, Key, ObjectValue, OpId, Operation, Registry, SharedValue, TransportId, TxnId,
};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;

use super::codec::Request;
use super::links::LinkIndex;
use super::{decode, encode, registry};
use crate::kernel_tests::kernel_defaults;
use crate::values::*;

/// A network namespace that lives as long as the thread of the test.
struct Kernel {
    socket: Socket,
    links: LinkIndex,
    registry: Registry,
}

impl Kernel {
    fn enter() -> Option<Self> {
        if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            eprintln!("skipped: a network namespace of its own needs root ({error})");
            return None;
        }
        kernel_defaults::restore();
        let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
        socket.bind_auto().unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        let mut kernel = Self { socket, links: LinkIndex::new(), registry: registry() };
        kernel.look();
        Some(kernel)
    }

    fn create(&mut self, new: impl ObjectValue) {
        self.run(Action::Create, None, Some(Arc::new(new)));
    }

    fn adopt(&mut self, old: impl ObjectValue, new: impl ObjectValue) {
        self.run(Action::Adopt, Some(Arc::new(old)), Some(Arc::new(new)));
    }

    fn update(&mut self, old: impl ObjectValue, new: impl ObjectValue) {
        self.run(Action::Update, Some(Arc::new(old)), Some(Arc::new(new)));
    }

    fn delete(&mut self, old: impl ObjectValue) {
        let old: SharedValue = Arc::new(old);
        let key = self.key(&*old);
        self.run(Action::Delete, Some(old), None);
        assert!(!self.look().contains_key(&key), "{key} is still there");
    }

    fn release(&mut self, old: impl ObjectValue, restore: impl ObjectValue) {
        self.run(Action::Release, Some(Arc::new(old)), Some(Arc::new(restore)));
    }

    /// Carries an operation out and checks that the kernel shows the requested value.
    #[track_caller]
    fn run(&mut self, action: Action, old: Option<SharedValue>, new: Option<SharedValue>) {
        let value = new.clone().or_else(|| old.clone()).unwrap();
        let key = self.key(&*value);
        let id = OpId(1);
        let txn = TxnId(1);
        let transport = TransportId(1);
        let operation = Operation { id, txn, action, key: key.clone(), old, new, transport };
        let requests = encode(&operation, &mut self.links).unwrap();
        for request in requests {
            let Request::Netlink { message, flags, forgiven } = request else {
                panic!("not for the kernel: {request:?}")
            };
            let errno = self.exchange(message.clone(), flags).1;
            assert!(errno.is_none_or(|errno| forgiven.contains(&errno)), "{errno:?}: {message:?}");
        }
        let Some(expected) = operation.new else { return };
        let observed = self.look();
        let observed = observed.get(&key).unwrap_or_else(|| panic!("{key} is not shown"));
        let descriptor = self.registry.descriptor(key.kind()).unwrap();
        let satisfied = descriptor.satisfied_by(&*expected, &**observed);
        assert!(satisfied, "{action}: asked {expected:?}, got {observed:?}");
    }

    /// `errno` by which the kernel refuses to create a value, as far as it gets.
    fn refusal(&mut self, value: impl ObjectValue) -> Option<Errno> {
        let value: SharedValue = Arc::new(value);
        let key = self.key(&*value);
        let link = value.as_any().downcast_ref::<Link>().map(|link| link.name.clone());
        let id = OpId(1);
        let txn = TxnId(1);
        let transport = TransportId(1);
        let action = Action::Create;
        let old = None;
        let new = Some(value);
        let operation = Operation { id, txn, action, key, old, new, transport };
        let requests = encode(&operation, &mut self.links).unwrap();
        let refused = requests.into_iter().find_map(|request| match request {
            Request::Netlink { message, flags, .. } => self.exchange(message, flags).1,
            Request::Sysctl { path, value } => {
                let written = std::fs::write(format!("/proc/sys/{path}"), value);
                written.err().and_then(|error| error.raw_os_error())
            }
            other => panic!("not for the kernel: {other:?}"),
        });
        if let Some(link) = link.filter(|_| refused.is_some()) {
            self.links.forget_name(&link); // its reservation
        }
        self.look();
        refused.map(Errno::from_raw)
    }

    fn key(&self, value: &dyn ObjectValue) -> Key {
        let is = |kind| value.as_any().type_id() == kind;
        let kind = match () {
            () if is(std::any::TypeId::of::<Link>()) => super::LINK,
            () if is(std::any::TypeId::of::<LinkMaster>()) => super::LINK_MASTER,
            () if is(std::any::TypeId::of::<LinkMtu>()) => super::LINK_MTU,
            () if is(std::any::TypeId::of::<Address>()) => super::ADDRESS,
            () if is(std::any::TypeId::of::<Neighbor>()) => super::NEIGHBOR,
            () if is(std::any::TypeId::of::<LinkSetting>()) => super::FORWARDING,
            () => super::ROUTE,
        };
        self.registry.descriptor(kind).unwrap().key(value)
    }

    /// All objects that the kernel shows.
    fn look(&mut self) -> BTreeMap<Key, SharedValue> {
        let mut observed = BTreeMap::new();
        // Two passes, so that a link can refer to another in any order.
        for question in [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
            RouteNetlinkMessage::GetRoute(RouteMessage::default()),
        ] {
            for message in self.exchange(question, NLM_F_REQUEST | NLM_F_DUMP).0 {
                for (key, value) in decode(&message, 0, 1, &mut self.links) {
                    observed.extend(value.map(|value| (key, value)));
                }
            }
        }
        observed
    }

    fn observed<V: ObjectValue + Clone>(&mut self, value: &V) -> V {
        let key = self.key(value);
        let objects = self.look();
        objects[&key].as_any().downcast_ref::<V>().unwrap().clone()
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> (Vec<RouteNetlinkMessage>, Option<i32>) {
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = flags;
        packet.finalize();
        let mut octets = vec![0; packet.buffer_len()];
        packet.serialize(&mut octets);
        self.socket.send(&octets, 0).unwrap();
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full().unwrap();
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).unwrap();
                let length = answer.header.length as usize;
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Error(error) => {
                        return (answers, error.code.map(|code| -code.get()));
                    }
                    NetlinkPayload::Done(_) => return (answers, None),
                    _ => {}
                }
                rest = &rest[(length.next_multiple_of(4)).min(rest.len())..];
            }
        }
    }
}

fn veth(name: &str, peer: &str) -> Link {
    Link::new(name, MadeLink::new(&VETH).with("peer", peer).into())
}

fn address(link: &str, prefix: &str) -> Address {
    let net: ipnet::IpNet = prefix.parse().unwrap();
    Address::new(link, net.addr(), net.prefix_len())
}

fn route(prefix: &str, metric: Option<u32>, hops: &[(Option<&str>, Option<&str>)]) -> KernelRoute {
    let prefix = prefix.parse().unwrap();
    let hop = |(gateway, link): &(Option<&str>, Option<&str>)| Hop {
        gateway: gateway.map(|ip| ip.parse().unwrap()),
        link: link.map(Into::into),
    };
    let target = match hops {
        [] => RouteTarget::Blackhole,
        hops => RouteTarget::Hops(hops.iter().map(hop).collect()),
    };
    let metric = KernelRoute::kernel_metric(prefix, metric);
    KernelRoute::new(MAIN_TABLE, prefix, metric, target)
}

#[test]
fn links_are_made_changed_and_deleted() {
    let Some(mut kernel) = Kernel::enter() else { return };
    let mac = |text: &str| Some(text.parse().unwrap());
    let bridge = |params: MadeLink| Link::new("br0", params.into());
    let first = Link { mtu: Some(1400), description: Some("to the lab".into()), ..veth("a", "b") };
    kernel.create(first.clone());
    assert!(kernel.observed(&first).is_ours());
    assert!(!kernel.observed(&veth("b", "a")).is_ours(), "no one asked for the far end");
    let second = Link { mtu: Some(1300), mac: mac("02:00:00:00:00:01"), ..veth("a", "b") };
    let bare = Link { description: Some("".into()), ..second.clone() };
    kernel.update(first, bare);
    assert_eq!(kernel.observed(&second).description, None);
    kernel.update(second, Link { enabled: false, ..veth("a", "b") });

    // Not every kernel is built with VLAN filtering.
    let params = MadeLink::new(&BRIDGE).with("stp", true).with("ageing-time", 60);
    kernel.create(bridge(MadeLink::new(&BRIDGE)));
    kernel.update(bridge(MadeLink::new(&BRIDGE)), bridge(params.clone()));
    let port = |master: Option<&str>| LinkMaster {
        link: "a".into(),
        master: master.map(Into::into),
        kind: master.map(|_| "bridge".into()),
        on_our_link: false,
    };
    kernel.create(port(Some("br0")));
    kernel.run(Action::Delete, Some(Arc::new(port(Some("br0")))), None);
    assert_eq!(kernel.observed(&port(None)).master, None);

    let tunnel = MadeLink::new(&VXLAN).with("vni", 77).with("device", "a").with("learning", false);
    let tunnel = tunnel.with("local", IpAddr::from([192, 0, 2, 1]));
    let tunnel = tunnel.with("remote", IpAddr::from([192, 0, 2, 2]));
    kernel.create(Link::new("vx0", tunnel.clone().into()));
    kernel.delete(Link::new("vx0", tunnel.into()));
    let macvlan = |mode: &str| {
        let made = MadeLink::new(&MACVLAN).with("device", "a").with("mode", mode);
        Link::new("m0", made.into())
    };
    kernel.create(macvlan("private"));
    kernel.update(macvlan("private"), macvlan("bridge"));
    kernel.delete(macvlan("bridge"));
    kernel.delete(bridge(params));
    kernel.delete(veth("a", "b"));
    assert_eq!(kernel.links.index("b"), None);
}

#[test]
fn a_released_port_gets_its_attributes_back() {
    let Some(mut kernel) = Kernel::enter() else { return };
    kernel.create(veth("a", "b"));
    let before = kernel.observed(&veth("b", "a"));
    let expected = Link {
        mtu: Some(1400),
        description: Some("uplink".into()),
        mac: Some("02:00:00:00:00:02".parse().unwrap()),
        ..Link::new("b", LinkKind::Physical)
    };
    kernel.adopt(before.clone(), expected.clone());
    assert!(!kernel.observed(&expected).is_ours());
    kernel.release(expected.clone(), before.clone());
    let after = kernel.observed(&before);
    assert_eq!((after.mtu, after.mac, after.description), (before.mtu, before.mac, None));
    assert!(!after.enabled);
    // Without an earlier value the link is reset, never deleted.
    kernel.adopt(before, expected.clone());
    kernel.run(Action::Delete, Some(Arc::new(expected.clone())), None);
    let after = kernel.observed(&expected);
    assert_eq!((after.mtu, after.description, after.enabled), (Some(1500), None, false));
}

#[test]
fn both_ends_of_a_pair_may_be_configured() {
    let Some(mut kernel) = Kernel::enter() else { return };
    kernel.create(veth("a", "b"));
    let far = Link { mtu: Some(1400), ..veth("b", "a") };
    kernel.create(far.clone());
    assert!(kernel.observed(&far).is_ours(), "either end stands for the pair");
    kernel.delete(far);
    kernel.run(Action::Delete, Some(Arc::new(veth("a", "b"))), None);
}

#[test]
fn addresses_neighbours_and_routes_are_made_changed_and_deleted() {
    let Some(mut kernel) = Kernel::enter() else { return };
    kernel.create(veth("a", "b"));
    kernel.create(veth("b", "a"));
    for prefix in ["192.0.2.1/24", "2001:db8::1/64", "192.0.2.9/32", "127.9.9.9/8"] {
        kernel.create(address("a", prefix));
        assert_eq!(
            kernel.observed(&address("a", prefix)).facts.map(|facts| facts.ours),
            Some(true)
        );
    }
    let neighbor = |ip: &str, mac: &str| Neighbor {
        link: "a".into(),
        ip: ip.parse().unwrap(),
        mac: Some(mac.parse().unwrap()),
        facts: None,
    };
    for ip in ["192.0.2.7", "2001:db8::7"] {
        kernel.create(neighbor(ip, "02:00:00:00:00:07"));
        let new = neighbor(ip, "02:00:00:00:00:08");
        kernel.update(neighbor(ip, "02:00:00:00:00:07"), new.clone());
        assert_eq!(kernel.observed(&new).facts.map(|facts| facts.ours), Some(true));
        kernel.delete(new);
    }
    for (prefix, gateway, other) in [
        ("198.51.100.0/24", "192.0.2.2", "192.0.2.3"),
        ("2001:db8:1::/48", "2001:db8::2", "2001:db8::3"),
    ] {
        let shapes = [
            route(prefix, None, &[(Some(gateway), None)]),
            route(prefix, None, &[(Some(other), Some("a"))]),
            route(prefix, None, &[(Some(other), Some("a")), (Some(gateway), None)]),
            route(prefix, None, &[(None, Some("a"))]),
            route(prefix, None, &[]),
            route(prefix, None, &[(Some(gateway), None)]),
        ];
        kernel.create(shapes[0].clone());
        for pair in shapes.windows(2) {
            kernel.update(pair[0].clone(), pair[1].clone());
        }
        kernel.create(route(prefix, Some(5), &[(Some(gateway), None)]));
        kernel.delete(route(prefix, Some(5), &[(Some(gateway), None)]));
        kernel.observed(&shapes[0]);
        kernel.delete(shapes[0].clone());
    }
    let across = route("203.0.113.0/24", Some(7), &[(Some("2001:db8::2"), Some("a"))]);
    kernel.create(across.clone());
    kernel.delete(across);
    kernel.create(route("0.0.0.0/0", None, &[(Some("192.0.2.2"), None)]));
    kernel.create(route("::/0", None, &[(Some("2001:db8::2"), None)]));
    kernel.delete(address("a", "192.0.2.1/24"));
    kernel.delete(address("a", "2001:db8::1/64"));
}

/// The table in the documentation of this module: what the kernel refuses because of another object.
#[test]
fn the_kernel_refuses_what_the_table_says() {
    let Some(mut kernel) = Kernel::enter() else { return };
    let port =
        |name: &str, mtu: u32| Link { mtu: Some(mtu), ..Link::new(name, LinkKind::Physical) };
    let neighbor = |ip: &str| Neighbor {
        link: "a".into(),
        ip: ip.parse().unwrap(),
        mac: Some("02:00:00:00:00:07".parse().unwrap()),
        facts: None,
    };
    let tunnel = |name: &str, vni: u32, local: &str| {
        let tunnel = MadeLink::new(&VXLAN).with("vni", vni).with("device", "a");
        let local: Option<IpAddr> = local.parse().ok();
        Link::new(name, local.map_or(tunnel.clone(), |it| tunnel.with("local", it)).into())
    };
    let member = |link: &str, master: &str| {
        let link = link.into();
        let master = Some(master.into());
        LinkMaster { link, master, kind: Some("bridge".into()), on_our_link: false }
    };
    let forwarding = || LinkSetting::new(LinkSysctl::Forwarding, "a", Family::V6, &[1]);
    let on_a = |prefix: &str| route(prefix, None, &[(None, Some("a"))]);
    let switch_ipv6 = |off: &str| {
        std::fs::write("/proc/sys/net/ipv6/conf/a/disable_ipv6", off).unwrap();
    };
    kernel.create(veth("a", "b"));
    kernel.create(Link::new("br0", LinkKind::from(&BRIDGE)));
    kernel.create(Link::new("br1", LinkKind::from(&BRIDGE)));

    // IPv6 switched off on the link
    switch_ipv6("1");
    assert_eq!(kernel.refusal(address("a", "2001:db8::1/64")), Some(Errno::EACCES));
    assert_eq!(kernel.refusal(neighbor("2001:db8::7")), Some(Errno::EINVAL));
    assert_eq!(kernel.refusal(on_a("2001:db8:1::/48")), Some(Errno::EACCES));
    assert_eq!(kernel.refusal(tunnel("vx6", 6, "2001:db8::1")), Some(Errno::EPERM));
    switch_ipv6("0");
    assert_eq!(kernel.refusal(tunnel("vx6", 6, "2001:db8::1")), None);
    // The MTU of the link too small for IPv6
    kernel.update(port("a", 1500), port("a", 1279));
    assert_eq!(kernel.refusal(address("a", "2001:db8::1/64")), Some(Errno::EINVAL));
    assert_eq!(kernel.refusal(neighbor("2001:db8::7")), Some(Errno::EINVAL));
    assert_eq!(kernel.refusal(on_a("2001:db8:1::/48")), Some(Errno::ENODEV));
    assert_eq!(kernel.refusal(forwarding()), Some(Errno::ENOENT));
    kernel.update(port("a", 1279), port("a", 1280));
    for accepted in [kernel.refusal(address("a", "2001:db8::1/64")), kernel.refusal(forwarding())] {
        assert_eq!(accepted, None);
    }
    // The link down
    kernel.update(port("a", 1280), Link { enabled: false, ..port("a", 1280) });
    assert_eq!(kernel.refusal(on_a("10.0.0.0/8")), Some(Errno::ENETDOWN));
    assert_eq!(kernel.refusal(on_a("2001:db8:1::/48")), Some(Errno::ENETDOWN));
    kernel.update(Link { enabled: false, ..port("a", 1280) }, port("a", 1280));
    // No prefix that covers a gateway
    let via = |prefix, gateway| route(prefix, None, &[(Some(gateway), None)]);
    assert_eq!(kernel.refusal(via("10.0.0.0/8", "192.0.2.9")), Some(Errno::ENETUNREACH));
    assert_eq!(kernel.refusal(via("2001:db8:1::/48", "2001:db8:9::9")), Some(Errno::EHOSTUNREACH));
    // A tunnel that does not fit its device, and one of an identity that is taken
    kernel.create(tunnel("vx4", 4, ""));
    let mtu = |mtu| LinkMtu {
        link: "vx4".into(),
        mtu: Some(mtu),
        device: Some("a".into()),
        limit: None,
        on_our_link: true,
    };
    assert_eq!(kernel.refusal(mtu(1231)), Some(Errno::EINVAL));
    assert_eq!(kernel.refusal(mtu(1230)), None);
    assert_eq!(kernel.refusal(tunnel("vx5", 4, "")), Some(Errno::EEXIST));
    // A master that is not a bridge, or a bridge as a port
    assert_eq!(kernel.refusal(member("b", "vx4")), Some(Errno::EOPNOTSUPP));
    assert_eq!(kernel.refusal(member("br1", "br0")), Some(Errno::ELOOP));
    assert_eq!(kernel.refusal(member("lo", "br0")), Some(Errno::EINVAL));
    // Attributes that are not taken back
    let lo = |mac: &str| Link { mac: mac.parse().ok(), ..Link::new("lo", LinkKind::Loopback) };
    assert_eq!(kernel.refusal(lo("02:00:00:00:00:01")), None);
    assert_eq!(kernel.refusal(lo("00:00:00:00:00:00")), Some(Errno::EADDRNOTAVAIL));
}

/// MTUs that the kernel chooses for a bridge and a tunnel, and does not give back.
#[test]
fn links_that_follow_others_have_what_others_allow() {
    let Some(mut kernel) = Kernel::enter() else { return };
    kernel.create(veth("a", "b"));
    let bridge = Link::new("br0", LinkKind::from(&BRIDGE));
    let tunnel = MadeLink::new(&VXLAN).with("vni", 7).with("device", "a");
    let tunnel = Link::new("vx", tunnel.into());
    kernel.create(bridge.clone());
    kernel.create(tunnel.clone());
    let of_bridge = bridge.limited_mtu().unwrap();
    let of_tunnel = tunnel.limited_mtu().unwrap();
    let fixed = |part: &LinkMtu, mtu| LinkMtu { mtu: Some(mtu), ..part.clone() };
    kernel.create(of_bridge.clone());
    kernel.create(of_tunnel.clone());
    kernel.update(of_bridge.clone(), fixed(&of_bridge, 1200));
    kernel.update(of_tunnel.clone(), fixed(&of_tunnel, 1300));
    let kind = Some("bridge".into());
    let master =
        LinkMaster { link: "b".into(), master: Some("br0".into()), kind, on_our_link: false };
    kernel.create(master);
    let far = Link { enabled: false, ..Link::new("b", LinkKind::Physical) };
    kernel.update(far.clone(), Link { mtu: Some(1400), ..far });
    let port = Link { mtu: Some(1400), ..Link::new("a", LinkKind::Physical) };
    kernel.update(Link::new("a", LinkKind::Physical), port);
    kernel.update(fixed(&of_bridge, 1200), of_bridge.clone());
    kernel.update(fixed(&of_tunnel, 1300), of_tunnel.clone());
    assert_eq!(kernel.observed(&of_bridge).mtu, Some(1400));
    assert_eq!(kernel.observed(&of_tunnel).mtu, Some(1350));
}
