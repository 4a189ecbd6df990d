//! Routes of the kernel.

pub(crate) mod native;
mod value;

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_scheduler::{
    Cascade, Dependency, Descriptor, Effect, ErrorClass, Facet, Key, KindId, Offer, OperationError,
    Segment, SharedValue, Space, Target,
};
use ipnet::IpNet;
use netlink_packet_core::{Emitable as _, NLM_F_REPLACE, Parseable as _};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::format_smolstr;

use crate::kinds::codec::{EncodeError, Op, Request, Requests};
use crate::kinds::difference::difference;
use crate::kinds::link;
use crate::kinds::links::LinkIndex;
use crate::kinds::native::Bind;
use crate::kinds::reading::{ClassList, ClassRow, Query, RTM_DELROUTE, RTM_NEWROUTE, Read};
use crate::kinds::row::{Encode, Kind, PreImageForm, PreImageRow, Shown};
use crate::kinds::types::{MAIN_TABLE, OUR_PROTOCOL};
use crate::listed_route::{HopFault, ListedHop, ListedRoute};
use crate::transport_id;

pub use value::{
    Destination, ForeignRoute, Hop, IPV4_METRIC, IPV6_METRIC, KernelRoute, NextHop, NextHopTarget,
    RouteSource, RouteTarget,
};

/// A route of the kernel.
pub const ROUTE: KindId = KindId(33);

/// Routes of the kernel.
#[derive(Debug, Default)]
pub struct RouteDescriptor;

/// Key of a kernel route: table, prefix and metric, by which the kernel identifies routes.
pub fn key(table: u32, prefix: IpNet, metric: u32) -> Key {
    Key::of(ROUTE).u32(table).prefix(prefix).u32(metric)
}

/// Facet of routes through a single link, which the kernel drops when the link goes down.
pub(super) fn via_facet(link: &str) -> Facet {
    Facet::of(ROUTE, "via").str(link)
}

impl Kind for RouteDescriptor {
    const NATIVE: Option<Bind> = Some(native::NativeRoute::bind);
    const READ: Read = Read::Kernel {
        class: &ROUTES,
        one: |key| match key.segments().nth(1) {
            Some(Segment::Prefix(prefix)) => Some(Query::Route(prefix)),
            _ => None,
        },
    };
    const ENCODE: Option<Encode<KernelRoute>> = Some(encode);
    const SHOWN: Shown = Shown::AsApplied;
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, RouteRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> = Some(|link| Cascade::Of(via_facet(link)));
}

impl Descriptor for RouteDescriptor {
    type Value = KernelRoute;

    fn kind(&self) -> KindId {
        ROUTE
    }

    fn name(&self) -> &'static str {
        "route"
    }

    fn key(&self, route: &KernelRoute) -> Key {
        key(route.table, route.prefix, route.metric)
    }

    fn label(&self, route: &KernelRoute) -> String {
        format!("route {} metric {}", route.prefix, route.metric)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    /// The kernel refuses a route whose link is down or whose gateway is not on-link.
    fn dependencies(&self, route: &KernelRoute) -> Vec<Dependency> {
        let RouteTarget::Hops(hops) = &route.target else { return Vec::new() };
        let count = |hop: &Hop| {
            2 * usize::from(hop.link.is_some()) + usize::from(reached_gateway(hop).is_some())
        };
        let mut needed: Vec<Dependency> = Vec::with_capacity(hops.iter().map(count).sum());
        for hop in hops {
            for dependency in hop_needs(route, hop) {
                if !needed.contains(&dependency) {
                    needed.push(dependency);
                }
            }
        }
        needed
    }

    /// A route may be installed with the next hops that are reachable, which then carry all of its traffic.
    fn is_reducible(&self, route: &KernelRoute) -> bool {
        matches!(&route.target, RouteTarget::Hops(hops) if hops.len() > 1)
    }

    fn reduce(&self, route: &KernelRoute, lacking: &[Target]) -> Option<KernelRoute> {
        let RouteTarget::Hops(hops) = &route.target else { return None };
        let reached = |hop: &&Hop| {
            hop_needs(route, hop).all(|need| lacking.binary_search(&need.target).is_err())
        };
        let hops: Vec<Hop> = hops.iter().filter(reached).cloned().collect();
        let target = (!hops.is_empty()).then_some(RouteTarget::Hops(hops))?;
        Some(KernelRoute { target, ..route.clone() })
    }

    fn provides(&self, route: &KernelRoute) -> Vec<Offer> {
        match &route.target {
            RouteTarget::Hops(hops) => match hops.as_slice() {
                [Hop { link: Some(link), .. }] => vec![via_facet(link).into()],
                _ => Vec::new(),
            },
            RouteTarget::Blackhole => Vec::new(),
        }
    }

    fn difference(&self, expected: &KernelRoute, observed: &KernelRoute) -> String {
        difference(expected, observed)
    }

    /// A route of another program satisfies none of ours, also where it leads the same way: it has to be taken over.
    fn satisfied_by(&self, expected: &KernelRoute, observed: &KernelRoute) -> bool {
        let protocol = |route: &KernelRoute| route.foreign.as_ref().map(|foreign| foreign.protocol);
        protocol(expected) == protocol(observed) && leads_the_same_way(expected, observed)
    }

    /// In IPv6 another program can append next hops to a route of ours, and only it may take them away. The kernel names
    /// no program for each next hop.
    fn tolerates(&self, applied: &KernelRoute, observed: &KernelRoute) -> bool {
        let (RouteTarget::Hops(ours), RouteTarget::Hops(all)) = (&applied.target, &observed.target)
        else {
            return false;
        };
        applied.prefix.addr().is_ipv6() && ours.len() < all.len() && left_over(ours, all).is_some()
    }

    /// The old route to a prefix carries traffic until the new one is there.
    fn removed_last(&self) -> bool {
        true
    }

    /// A route is on each link of its next hops. The kernel names the link of every one.
    fn is_on(&self, observed: &KernelRoute, object: &Key) -> bool {
        is_on_link(observed, object)
    }

    /// A route to a link that others have taken IPv6 from waits: EACCES where it is switched off, ENODEV where the link is too small.
    fn classify(&self, error: &OperationError) -> ErrorClass {
        match error.errno.map(Errno::from_raw) {
            Some(Errno::EACCES | Errno::ENODEV) => ErrorClass::Unmet,
            _ => error.class(),
        }
    }

    fn owned(&self, observed: &KernelRoute) -> bool {
        observed.foreign.is_none()
    }

    fn restore(&self, observed: &KernelRoute) -> Option<KernelRoute> {
        observed.foreign.is_some().then(|| observed.clone())
    }
}

/// A route of another program that ours took the place of.
#[derive(Serialize, Deserialize)]
struct RouteRow {
    prefix: IpNet,
    /// Metric of ours; that of the other route is in `message`.
    metric: u32,
    /// Next hops; `None` for a route that drops packets.
    hops: Option<Vec<Hop>>,
    /// `rtm_protocol`.
    protocol: u8,
    /// `RTM_NEWROUTE` as the kernel showed it.
    message: Vec<u8>,
}

impl PreImageRow<RouteDescriptor> for RouteRow {
    const TAG: &'static str = "route";

    fn of(route: &KernelRoute) -> Option<Self> {
        let ForeignRoute { protocol, message } = (**route.foreign.as_ref()?).clone();
        let hops = match &route.target {
            RouteTarget::Hops(hops) => Some(hops.clone()),
            RouteTarget::Blackhole => None,
        };
        Some(Self { prefix: route.prefix, metric: route.metric, hops, protocol, message })
    }

    fn value(self) -> KernelRoute {
        let Self { prefix, metric, hops, protocol, message } = self;
        let target = hops.map_or(RouteTarget::Blackhole, RouteTarget::Hops);
        let foreign = Some(Box::new(ForeignRoute { protocol, message }));
        KernelRoute { foreign, ..KernelRoute::new(MAIN_TABLE, prefix, metric, target) }
    }
}

/// True when a next hop of the route is on the link with this key.
pub(crate) fn is_on_link(route: &KernelRoute, link: &Key) -> bool {
    let RouteTarget::Hops(hops) = &route.target else { return false };
    hops.iter().filter_map(|hop| hop.link.as_ref()).any(|name| link::key(name) == *link)
}

/// True when a route of ours takes over one of another program: it leads the same way, and a person or an installer may
/// have made it.
pub(crate) fn is_equal_and_adoptable(ours: &KernelRoute, theirs: &KernelRoute) -> bool {
    let foreign = theirs.foreign.as_ref();
    leads_the_same_way(ours, theirs) && foreign.is_some_and(|it| is_adoptable(it.protocol))
}

/// True when both routes send packets the same way.
fn leads_the_same_way(expected: &KernelRoute, observed: &KernelRoute) -> bool {
    match (&expected.target, &observed.target) {
        (RouteTarget::Hops(expected), RouteTarget::Hops(observed)) => same_hops(expected, observed),
        (expected, observed) => expected == observed,
    }
}

/// Compares next hops in any order. The kernel fills in the link where `expected` has none.
fn same_hops(expected: &[Hop], observed: &[Hop]) -> bool {
    left_over(expected, observed).is_some_and(|left| left.is_empty())
}

/// Observed next hops beside the expected ones, in any order; `None` when an expected one is not among them.
fn left_over<'h>(expected: &[Hop], observed: &'h [Hop]) -> Option<Vec<&'h Hop>> {
    let matches = |expected: &Hop, observed: &Hop| {
        expected.gateway == observed.gateway
            && (expected.link.is_none() || expected.link == observed.link)
    };
    let mut left: Vec<&Hop> = observed.iter().collect();
    for hop in expected {
        let found = left.iter().position(|observed| matches(hop, observed))?;
        left.swap_remove(found);
    }
    Some(left)
}

/// Dependencies of a next hop: its link up and with IPv6 where the hop is of that family, and a prefix that covers its
/// gateway. The kernel looks for a gateway on the link of its next hop alone, where that has one.
fn hop_needs(route: &KernelRoute, hop: &Hop) -> impl Iterator<Item = Dependency> {
    let table = route.table;
    let is_ipv6 = hop.gateway.unwrap_or(route.prefix.addr()).is_ipv6();
    let link = hop
        .link
        .as_ref()
        .map(|link| Dependency::exact(format_smolstr!("link {link} up"), link::up_key(link)));
    let ipv6 = hop.link.as_ref().filter(|_| is_ipv6).map(|link| link::carries_ipv6(link));
    let gateway = reached_gateway(hop).map(|gateway| match &hop.link {
        Some(link) => {
            let label = format_smolstr!("gateway {gateway} on link {link}");
            Dependency::covering(label, Space::link(link), gateway)
        }
        None => {
            let label = format_smolstr!("gateway {gateway}");
            Dependency::covering(label, Space::table(table), gateway)
        }
    });
    link.into_iter().chain(ipv6).chain(gateway)
}

/// The gateway of a next hop, if a prefix has to cover it.
fn reached_gateway(hop: &Hop) -> Option<IpAddr> {
    hop.gateway.filter(|gateway| !is_link_local(*gateway))
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Routes of ours, and foreign ones that are watched.
pub(crate) static ROUTES: ClassRow = ClassRow {
    name: "Routes",
    groups: &[7, 11], // `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_ROUTE`
    messages: &[RTM_NEWROUTE, RTM_DELROUTE],
    is_on_links: false,
    list: ClassList::Routes,
    decode: |message, flags, _, links| {
        let found = match message {
            RouteNetlinkMessage::NewRoute(message) => decode(message, flags, false, links),
            RouteNetlinkMessage::DelRoute(message) => decode(message, flags, true, links),
            _ => None,
        };
        let observed = |route| Arc::new(route) as SharedValue;
        found.into_iter().map(|(key, route)| (key, route.map(observed))).collect()
    },
};

fn encode(op: Op<'_, KernelRoute>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    match op {
        // Never replaces a route of the same key, which would be a foreign one.
        Op::Create(new) => {
            let message = message(new, links)?;
            Ok(smallvec![Request::create(RouteNetlinkMessage::NewRoute(message))])
        }
        Op::Adopt { old, new } => {
            require_adoptable(old, leads_the_same_way(new, old))?;
            let Some(theirs) = under_another_metric(old)? else {
                return replace(message(new, links)?);
            };
            // Ours is there before theirs goes: no packet is lost.
            let ours = Request::create(RouteNetlinkMessage::NewRoute(message(new, links)?));
            let theirs = Request::delete(RouteNetlinkMessage::DelRoute(theirs));
            Ok(smallvec![ours, theirs])
        }
        Op::Update { old, new } => {
            // Another program may have put a route of its own in the place of ours.
            require_adoptable(old, leads_the_same_way(new, old))?;
            if old.foreign.is_none() && old.target == new.target {
                return Ok(Requests::new());
            }
            replace(message(new, links)?)
        }
        Op::Release { old, restore } => {
            let ours = Request::delete(RouteNetlinkMessage::DelRoute(deletion(old, links)));
            Ok(given_back(restore, links)?.into_iter().chain([ours]).collect())
        }
        Op::Delete(old) => {
            let message = deletion(old, links);
            Ok(smallvec![Request::delete(RouteNetlinkMessage::DelRoute(message))])
        }
    }
}

fn replace(message: RouteMessage) -> Result<Requests, EncodeError> {
    Ok(smallvec![Request::replace(RouteNetlinkMessage::NewRoute(message))])
}

/// Refuses to replace a route of another program, unless a person or an installer may have made it and it leads the
/// same way as ours.
fn require_adoptable(observed: &KernelRoute, leads_the_same_way: bool) -> Result<(), EncodeError> {
    match &observed.foreign {
        Some(foreign) if !(leads_the_same_way && is_adoptable(foreign.protocol)) => {
            Err(EncodeError::OthersRoute(route_text(observed)))
        }
        _ => Ok(()),
    }
}

/// Puts a route of another program back; nothing when a link of it is gone, for it would have gone with that.
fn given_back(theirs: &KernelRoute, links: &LinkIndex) -> Result<Option<Request>, EncodeError> {
    let Some(foreign) = &theirs.foreign else { return Ok(None) };
    let message = match message_of_others(foreign, theirs, links) {
        Err(EncodeError::LinkNotFound(_)) => return Ok(None),
        message => RouteNetlinkMessage::NewRoute(message?),
    };
    let in_place = under_another_metric(theirs)?.is_none();
    Ok(Some(Request::restore(message, in_place)))
}

/// Message that deletes a route of another program which is adopted under another metric than its own; `None` for one
/// that ours replaces in place.
fn under_another_metric(theirs: &KernelRoute) -> Result<Option<RouteMessage>, EncodeError> {
    let Some(foreign) = &theirs.foreign else { return Ok(None) };
    let mut message = parsed(foreign, theirs)?;
    let priority = |it: &RouteAttribute| match it {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    };
    let metric = message.attributes.iter().find_map(priority).unwrap_or(0);
    message.header.flags = RouteFlags::empty();
    message.attributes.retain(|it| !matches!(it, RouteAttribute::CacheInfo(_)));
    Ok((metric != theirs.metric).then_some(message))
}

fn parsed(foreign: &ForeignRoute, route: &KernelRoute) -> Result<RouteMessage, EncodeError> {
    let unreadable = |_| EncodeError::UnreadableRoute(route_text(route));
    RouteMessage::parse(&foreign.message).map_err(unreadable)
}

/// True for the protocols of routes that a person or an installer enters: `ip route` and ifupdown write `boot`, network
/// managers `static`. Routes of the kernel, of router advertisements, of DHCP clients and of routing daemons belong to
/// programs that look after them.
pub(crate) fn is_adoptable(protocol: u8) -> bool {
    [RouteProtocol::Boot, RouteProtocol::Static].map(u8::from).contains(&protocol)
}

/// Protocols of foreign routes that are watched: those of adoptable routes, and those whose routes are few and may win
/// over ours. A routing daemon may have a million of them.
pub(crate) const WATCHED_PROTOCOLS: [RouteProtocol; 4] =
    [RouteProtocol::Boot, RouteProtocol::Static, RouteProtocol::Ra, RouteProtocol::Dhcp];

/// True for a route of a program whose routes are not watched, because it may have a million: a routing daemon.
pub(crate) fn is_of_daemon(route: &KernelRoute) -> bool {
    let protocol = route.foreign.as_ref().map_or(OUR_PROTOCOL, |foreign| foreign.protocol);
    let others = [RouteProtocol::Kernel, RouteProtocol::IcmpRedirect];
    let known = WATCHED_PROTOCOLS.into_iter().chain(others).map(u8::from);
    protocol != OUR_PROTOCOL && !known.into_iter().any(|other| other == protocol)
}

/// A route as `ip route` writes it.
pub fn route_text(route: &KernelRoute) -> String {
    let mut text = route.prefix.to_string();
    match &route.target {
        RouteTarget::Blackhole => text.insert_str(0, "blackhole "),
        RouteTarget::Hops(hops) => {
            for hop in hops {
                text.push(' ');
                text.push_str(&hop_text(hop));
            }
        }
    }
    let protocol = route.foreign.as_ref().map_or(OUR_PROTOCOL, |foreign| foreign.protocol);
    format!("{text} proto {} metric {}", protocol_name(protocol), route.metric)
}

/// A next hop as `ip route` writes it.
pub fn hop_text(hop: &Hop) -> String {
    let via = hop.gateway.map(|ip| format!("via {ip}"));
    let dev = hop.link.as_ref().map(|link| format!("dev {link}"));
    via.into_iter().chain(dev).collect::<Vec<_>>().join(" ")
}

/// Name of a protocol in iproute2's `rt_protos`; the number of one that has none there.
fn protocol_name(protocol: u8) -> String {
    let name = match RouteProtocol::from(protocol) {
        RouteProtocol::Unspec => "unspec",
        RouteProtocol::IcmpRedirect => "redirect",
        RouteProtocol::Kernel => "kernel",
        RouteProtocol::Boot => "boot",
        RouteProtocol::Static => "static",
        RouteProtocol::Gated => "gated",
        RouteProtocol::Ra => "ra",
        RouteProtocol::Mrt => "mrt",
        RouteProtocol::Zebra => "zebra",
        RouteProtocol::Bird => "bird",
        RouteProtocol::DnRouted => "dnrouted",
        RouteProtocol::Xorp => "xorp",
        RouteProtocol::Ntk => "ntk",
        RouteProtocol::Dhcp => "dhcp",
        RouteProtocol::Mrouted => "mrouted",
        RouteProtocol::KeepAlived => "keepalived",
        RouteProtocol::Babel => "babel",
        RouteProtocol::Bgp => "bgp",
        RouteProtocol::Isis => "isis",
        RouteProtocol::Ospf => "ospf",
        RouteProtocol::Rip => "rip",
        RouteProtocol::Eigrp => "eigrp",
        _ if protocol == OUR_PROTOCOL => "holdfast",
        _ => return protocol.to_string(),
    };
    name.to_owned()
}

/// Message that deletes a route. In IPv6 it names the next hops, because the kernel would delete those that another
/// program appended with them otherwise.
fn deletion(route: &KernelRoute, links: &LinkIndex) -> RouteMessage {
    let mut message = header(route);
    if let (RouteTarget::Hops(hops), IpNet::V6(_)) = (&route.target, route.prefix)
        && hops.iter().all(|hop| hop.gateway.is_some())
        && let Ok(named) = with_hops(message.clone(), hops, route.prefix, links)
    {
        message = named;
    }
    message
}

/// Message that puts a route of another program back, with the indices that its links have now.
fn message_of_others(
    foreign: &ForeignRoute,
    route: &KernelRoute,
    links: &LinkIndex,
) -> Result<RouteMessage, EncodeError> {
    let mut message = parsed(foreign, route)?;
    // The kernel accepts no flags that tell of the state of the links.
    message.header.flags &= RouteFlags::Onlink;
    message.attributes.retain(|it| !matches!(it, RouteAttribute::CacheInfo(_)));
    let RouteTarget::Hops(hops) = &route.target else { return Ok(message) };
    let mut indices = hops.iter().map(|hop| index(hop, links));
    for attribute in &mut message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => {
                if let Some(now) = indices.next().transpose()?.flatten() {
                    *oif = now;
                }
            }
            RouteAttribute::MultiPath(list) => {
                if list.len() != hops.len() {
                    // An earlier version has kept it with those that were dead.
                    list.retain(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                }
                for hop in list {
                    hop.flags &= RouteNextHopFlags::Onlink;
                    if let Some(now) = indices.next().transpose()?.flatten() {
                        hop.interface_index = now;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(message)
}

/// Identifies a route. Our protocol number is part of it, so that a deletion never matches a foreign route.
fn header(route: &KernelRoute) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = match route.prefix {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    header.destination_prefix_length = route.prefix.prefix_len();
    header.protocol = RouteProtocol::from(OUR_PROTOCOL);
    header.scope = RouteScope::NoWhere; // matches any scope in a deletion
    match u8::try_from(route.table) {
        Ok(table) => header.table = table,
        Err(_) => message.attributes.push(RouteAttribute::Table(route.table)),
    }
    if route.prefix.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(route.prefix.network().into()));
    }
    message.attributes.push(RouteAttribute::Priority(route.metric));
    message
}

fn message(route: &KernelRoute, links: &LinkIndex) -> Result<RouteMessage, EncodeError> {
    let mut message = header(route);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    match &route.target {
        RouteTarget::Blackhole => message.header.kind = RouteType::BlackHole,
        RouteTarget::Hops(hops) => {
            let on_link = hops.iter().all(|hop| hop.gateway.is_none());
            if on_link && matches!(route.prefix, IpNet::V4(_)) {
                message.header.scope = RouteScope::Link;
            }
            return with_hops(message, hops, route.prefix, links);
        }
    }
    Ok(message)
}

/// Adds next hops to a message.
fn with_hops(
    mut message: RouteMessage,
    hops: &[Hop],
    prefix: IpNet,
    links: &LinkIndex,
) -> Result<RouteMessage, EncodeError> {
    match hops {
        [hop] => {
            message.attributes.extend(gateway(hop, prefix));
            message.attributes.extend(index(hop, links)?.map(RouteAttribute::Oif));
        }
        hops => {
            let hops: Result<_, _> = hops.iter().map(|hop| next_hop(hop, prefix, links)).collect();
            message.attributes.push(RouteAttribute::MultiPath(hops?));
        }
    }
    Ok(message)
}

fn next_hop(hop: &Hop, prefix: IpNet, links: &LinkIndex) -> Result<RouteNextHop, EncodeError> {
    let mut next_hop = RouteNextHop::default();
    next_hop.interface_index = index(hop, links)?.unwrap_or(0);
    next_hop.attributes.extend(gateway(hop, prefix));
    Ok(next_hop)
}

fn index(hop: &Hop, links: &LinkIndex) -> Result<Option<u32>, EncodeError> {
    let Some(link) = &hop.link else { return Ok(None) };
    links.index(link).map(Some).ok_or_else(|| EncodeError::LinkNotFound(link.clone()))
}

/// A gateway of the other family needs its own attribute (RFC 8950).
fn gateway(hop: &Hop, prefix: IpNet) -> Option<RouteAttribute> {
    Some(match (hop.gateway?, prefix) {
        (IpAddr::V6(ip), IpNet::V4(_)) => RouteAttribute::Via(RouteVia::Inet6(ip)),
        (ip, _) => RouteAttribute::Gateway(RouteAddress::from(ip)),
    })
}

/// Decodes an `RTM_NEWROUTE` or `RTM_DELROUTE` about a route of ours, or about a foreign one that is watched.
///
/// The inner `None` means that the route is gone. Other foreign routes give no observation, unless one replaced what
/// was there (`NLM_F_REPLACE` in `flags`).
pub(crate) fn decode(
    message: &RouteMessage,
    flags: u16,
    deleted: bool,
    links: &LinkIndex,
) -> Option<(Key, Option<KernelRoute>)> {
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None; // a cache entry
    }
    let ours = u8::from(header.protocol) == OUR_PROTOCOL;
    // The kernel tells IPv4 routes for a type of service apart from ours, which are for all of them.
    let watched = WATCHED_PROTOCOLS.contains(&header.protocol) && header.tos == 0;
    let replaced = !deleted && flags & NLM_F_REPLACE != 0;
    if !ours && !watched && !replaced {
        return None;
    }
    let mut route = route(message, links)?;
    if !ours {
        route.foreign = Some(Box::new(ForeignRoute::of(message, links)));
    }
    let key = key(route.table, route.prefix, route.metric);
    Some((key, Some(route).filter(|_| (ours || watched) && !deleted)))
}

/// The route of another program that a message describes.
pub(crate) fn decode_any(message: &RouteMessage, links: &LinkIndex) -> Option<KernelRoute> {
    let foreign = Some(Box::new(ForeignRoute::of(message, links)));
    Some(KernelRoute { foreign, ..route(message, links)? })
}

/// The route of any program that a message of a list describes; `None` for entries of caches, and for those of families
/// that the agent does not manage.
pub(crate) fn decode_listed(
    message: &RouteNetlinkMessage,
    links: &LinkIndex,
) -> Option<ListedRoute> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let treatment = match header.kind {
        RouteType::Unicast => "unicast",
        RouteType::BlackHole => "blackhole",
        RouteType::Unreachable => "unreachable",
        RouteType::Prohibit => "prohibit",
        RouteType::Throw => "throw",
        RouteType::Local | RouteType::Anycast | RouteType::Broadcast | RouteType::Multicast => {
            return None;
        }
        _ => "other",
    };
    let KernelRoute { table, prefix, metric, .. } = route(message, links)?;
    let mut hops = Vec::new();
    let mut single = Hop { gateway: None, link: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::MultiPath(list) => hops.extend(list.iter().map(|hop| ListedHop {
                fault: hop_fault(
                    hop.flags.contains(RouteNextHopFlags::Dead),
                    hop.flags.contains(RouteNextHopFlags::Linkdown),
                    links.is_up(hop.interface_index),
                ),
                weight: u16::from(hop.hops) + 1, // `rtnh_hops` counts from 0
                ..listed_hop(observed_hop(hop, links))
            })),
            other => take_hop(&mut single, other, links),
        }
    }
    if hops.is_empty() && treatment == "unicast" {
        let is_up = single.link.as_ref().and_then(|link| links.index(link));
        let is_up = is_up.is_some_and(|index| links.is_up(index));
        let is_dead = header.flags.contains(RouteFlags::Dead);
        let fault = hop_fault(is_dead, header.flags.contains(RouteFlags::Linkdown), is_up);
        hops.push(ListedHop { fault, ..listed_hop(single) });
    }
    let protocol = u8::from(header.protocol);
    let is_ours = protocol == OUR_PROTOCOL;
    let protocol = protocol_name(protocol);
    let unmodelled = unmodelled(message);
    Some(ListedRoute { table, prefix, metric, protocol, is_ours, treatment, unmodelled, hops })
}

/// An attribute of a route that the model does not have.
fn unmodelled(message: &RouteMessage) -> Option<&'static str> {
    let header = &message.header;
    if header.tos != 0 {
        return Some("a type of service");
    }
    if header.source_prefix_length != 0 {
        return Some("a source prefix");
    }
    if header.flags.contains(RouteFlags::Onlink) {
        return Some(ONLINK);
    }
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::NhId(_) => Some("a next-hop object"),
        RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => Some("an encapsulation"),
        RouteAttribute::PrefSource(_) => Some("a source address"),
        RouteAttribute::Metrics(metrics) if !metrics.is_empty() => Some("metrics such as an MTU"),
        RouteAttribute::MultiPath(hops)
            if hops.iter().any(|hop| hop.flags.contains(RouteNextHopFlags::Onlink)) =>
        {
            Some(ONLINK)
        }
        _ => None,
    })
}

const ONLINK: &str = "the flag `onlink`";

fn listed_hop(hop: Hop) -> ListedHop {
    ListedHop { gateway: hop.gateway, link: hop.link, weight: 1, fault: None }
}

/// Reading of the flags of a next hop. They are the same where the link has no carrier and where it is down.
fn hop_fault(is_dead: bool, is_linkdown: bool, is_link_up: bool) -> Option<HopFault> {
    match (is_dead, is_linkdown) {
        (false, false) => None,
        (false, true) => Some(HopFault::SentWithoutCarrier),
        (true, true) if is_link_up => Some(HopFault::NoCarrier),
        (true, _) => Some(HopFault::Down),
    }
}

impl ForeignRoute {
    /// Without the next hops that are dead.
    fn of(message: &RouteMessage, links: &LinkIndex) -> Self {
        let mut message = message.clone();
        for attribute in &mut message.attributes {
            if let RouteAttribute::MultiPath(list) = attribute {
                list.retain(|hop| treatment(hop, links) != Treatment::Dead);
            }
        }
        let mut octets = vec![0; message.buffer_len()];
        message.emit(&mut octets);
        Self { protocol: message.header.protocol.into(), message: octets }
    }
}

fn route(message: &RouteMessage, links: &LinkIndex) -> Option<KernelRoute> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let mut destination = None;
    let mut metric = 0;
    let mut single = Hop { gateway: None, link: None };
    let mut hops = None;
    let mut unusable: Vec<Hop> = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::MultiPath(list) => {
                let there = list.iter().filter(|hop| treatment(hop, links) != Treatment::Dead);
                hops = Some(there.map(|hop| observed_hop(hop, links)).collect());
                let unused = list.iter().filter(|hop| treatment(hop, links) == Treatment::Unused);
                unusable = unused.map(|hop| observed_hop(hop, links)).collect();
            }
            other => take_hop(&mut single, other, links),
        }
    }
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => [0; 4].into(),
        AddressFamily::Inet6 => [0; 16].into(),
        _ => return None,
    };
    let prefix = IpNet::new(destination.unwrap_or(any), header.destination_prefix_length).ok()?;
    let target = match (header.kind, hops) {
        (RouteType::BlackHole, _) => RouteTarget::Blackhole,
        (_, Some(hops)) => RouteTarget::Hops(hops),
        (_, None) => {
            if header.flags.contains(RouteFlags::Dead) {
                unusable = vec![single.clone()];
            }
            RouteTarget::Hops(vec![single])
        }
    };
    let unusable = (!unusable.is_empty()).then(|| unusable.into_boxed_slice());
    Some(KernelRoute { unusable, ..KernelRoute::new(table, prefix, metric, target) })
}

/// Flags of the kernel for one of several next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Used,
    /// It is left out until its link has a carrier again.
    Unused,
    /// Its link is down or has lost its addresses. The kernel keeps it, and sends nothing to it any more.
    Dead,
}

/// The flags are the same where the link has no carrier and where it is down.
fn treatment(hop: &RouteNextHop, links: &LinkIndex) -> Treatment {
    if !hop.flags.contains(RouteNextHopFlags::Dead) {
        Treatment::Used
    } else if hop.flags.contains(RouteNextHopFlags::Linkdown) && links.is_up(hop.interface_index) {
        Treatment::Unused
    } else {
        Treatment::Dead
    }
}

fn observed_hop(next_hop: &RouteNextHop, links: &LinkIndex) -> Hop {
    let mut hop = Hop { gateway: None, link: links.name(next_hop.interface_index).cloned() };
    next_hop.attributes.iter().for_each(|attribute| take_hop(&mut hop, attribute, links));
    hop
}

fn take_hop(hop: &mut Hop, attribute: &RouteAttribute, links: &LinkIndex) {
    match attribute {
        RouteAttribute::Gateway(address) => hop.gateway = ip(address),
        RouteAttribute::Via(RouteVia::Inet(ip)) => hop.gateway = Some(IpAddr::V4(*ip)),
        RouteAttribute::Via(RouteVia::Inet6(ip)) => hop.gateway = Some(IpAddr::V6(*ip)),
        RouteAttribute::Oif(index) => hop.link = links.name(*index).cloned(),
        _ => {}
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}
