//! Routes of the kernel.

use std::net::IpAddr;

use holdfast_scheduler::{
    Dependency, Descriptor, Effect, ErrorClass, Facet, Key, KindId, Offer, OperationError, Target,
};
use ipnet::IpNet;
use netlink_packet_core::NLM_F_REPLACE;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use smallvec::smallvec;
use smol_str::format_smolstr;

use super::{kinds, link};
use crate::codec::{Codec, EncodeError, Op, Request, Requests};
use crate::links::LinkIndex;
use crate::transport;
use crate::values::{Hop, KernelRoute, OUR_PROTOCOL, RouteTarget};

/// Routes of the kernel.
#[derive(Debug)]
pub struct RouteDescriptor;

/// Key of a kernel route: table, prefix and metric, by which the kernel identifies routes.
pub fn key(table: u32, prefix: IpNet, metric: u32) -> Key {
    Key::of(kinds::ROUTE).u32(table).prefix(prefix).u32(metric)
}

/// Facet of routes through a single link, which the kernel drops when the link goes down.
pub(super) fn via_facet(link: &str) -> Facet {
    Facet::of(kinds::ROUTE, "via").str(link)
}

impl Descriptor for RouteDescriptor {
    type Value = KernelRoute;

    fn kind(&self) -> KindId {
        kinds::ROUTE
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
        Effect::Operation(transport::RTNETLINK)
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
        let KernelRoute { table, prefix, metric, .. } = *route;
        Some(KernelRoute { table, prefix, metric, target, source: route.source.clone() })
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

    fn satisfied_by(&self, expected: &KernelRoute, observed: &KernelRoute) -> bool {
        match (&expected.target, &observed.target) {
            (RouteTarget::Hops(expected), RouteTarget::Hops(observed)) => {
                same_hops(expected, observed)
            }
            (expected, observed) => expected == observed,
        }
    }

    /// A route is on each link of its next hops. The kernel names the link of every one.
    fn is_on(&self, observed: &KernelRoute, object: &Key) -> bool {
        let RouteTarget::Hops(hops) = &observed.target else { return false };
        hops.iter().filter_map(|hop| hop.link.as_ref()).any(|name| link::key(name) == *object)
    }

    /// A route to a link that others have taken IPv6 from waits: EACCES where it is switched off, ENODEV where the link is too small.
    fn classify(&self, error: &OperationError) -> ErrorClass {
        match error.errno.map(Errno::from_raw) {
            Some(Errno::EACCES | Errno::ENODEV) => ErrorClass::Unmet,
            _ => error.class(),
        }
    }

    /// Always true, because only routes with our protocol number are observed.
    fn owned(&self, _: &KernelRoute) -> bool {
        true
    }
}

/// Compares next hops in any order. The kernel fills in the link where `expected` has none.
fn same_hops(expected: &[Hop], observed: &[Hop]) -> bool {
    let matches = |expected: &Hop, observed: &Hop| {
        expected.gateway == observed.gateway
            && (expected.link.is_none() || expected.link == observed.link)
    };
    let mut left: Vec<&Hop> = observed.iter().collect();
    expected.len() == observed.len()
        && expected.iter().all(|hop| {
            let found = left.iter().position(|observed| matches(hop, observed));
            found.map(|at| left.swap_remove(at)).is_some()
        })
}

/// Dependencies of a next hop: its link up and with IPv6 where the hop is of that family, and a prefix that covers its gateway.
fn hop_needs(route: &KernelRoute, hop: &Hop) -> impl Iterator<Item = Dependency> {
    let table = route.table;
    let is_ipv6 = hop.gateway.unwrap_or(route.prefix.addr()).is_ipv6();
    let link = hop
        .link
        .as_ref()
        .map(|link| Dependency::exact(format_smolstr!("link {link} up"), link::up_key(link)));
    let ipv6 = hop.link.as_ref().filter(|_| is_ipv6).map(|link| link::carries_ipv6(link));
    let gateway = reached_gateway(hop)
        .map(|gateway| Dependency::covering(format_smolstr!("gateway {gateway}"), table, gateway));
    link.into_iter().chain(ipv6).chain(gateway)
}

/// The gateway of a next hop, if a prefix has to cover it.
fn reached_gateway(hop: &Hop) -> Option<IpAddr> {
    hop.gateway.filter(|gateway| !is_link_local(*gateway))
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl Codec for RouteDescriptor {
    type Value = KernelRoute;

    fn encode(
        &self,
        op: Op<'_, KernelRoute>,
        links: &mut LinkIndex,
    ) -> Result<Requests, EncodeError> {
        match op {
            // Never replaces a route of the same key, which would be a foreign one.
            Op::Create(new) => {
                let message = message(new, links)?;
                Ok(smallvec![Request::create(RouteNetlinkMessage::NewRoute(message))])
            }
            Op::Update { old, new }
            | Op::Adopt { old, new }
            | Op::Release { old, restore: new } => {
                if old.target == new.target {
                    return Ok(Requests::new());
                }
                let message = message(new, links)?;
                Ok(smallvec![Request::replace(RouteNetlinkMessage::NewRoute(message))])
            }
            Op::Delete(old) => {
                let message = header(old);
                Ok(smallvec![Request::delete(RouteNetlinkMessage::DelRoute(message))])
            }
        }
    }
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
            match hops.as_slice() {
                [hop] => {
                    message.attributes.extend(gateway(hop, route.prefix));
                    message.attributes.extend(index(hop, links)?.map(RouteAttribute::Oif));
                }
                hops => {
                    let hops: Result<_, _> =
                        hops.iter().map(|hop| next_hop(hop, route.prefix, links)).collect();
                    message.attributes.push(RouteAttribute::MultiPath(hops?));
                }
            }
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

/// Decodes an `RTM_NEWROUTE` or `RTM_DELROUTE` about a route of ours.
///
/// The inner `None` means that the route is gone. Foreign routes give no observation, unless one replaced ours
/// (`NLM_F_REPLACE` in `flags`).
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
    if !ours && (deleted || flags & NLM_F_REPLACE == 0) {
        return None;
    }
    let route = route(message, links)?;
    let key = key(route.table, route.prefix, route.metric);
    Some((key, Some(route).filter(|_| ours && !deleted)))
}

fn route(message: &RouteMessage, links: &LinkIndex) -> Option<KernelRoute> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let mut destination = None;
    let mut metric = 0;
    let mut single = Hop { gateway: None, link: None };
    let mut hops = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::MultiPath(list) => {
                // The kernel keeps a next hop whose link is down or lost its addresses, but sends nothing to it.
                let alive = list.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead));
                hops = Some(alive.map(|hop| observed_hop(hop, links)).collect());
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
    let target = match header.kind {
        RouteType::BlackHole => RouteTarget::Blackhole,
        _ => RouteTarget::Hops(hops.unwrap_or_else(|| vec![single])),
    };
    Some(KernelRoute { table, prefix, metric, target, source: None })
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
