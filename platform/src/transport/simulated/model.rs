//! The model: links, addresses, neighbours, routes, sysctls, files, and the rules among them.
//!
//! Requests are the same messages as the kernel's, and so are the errors, where they matter for ordering.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteScope,
    RouteType, RouteVia,
};
use nix::errno::Errno;
use smol_str::SmolStr;

use super::links::{SimLink, SimLinkKind, disable_ipv6_path};
use crate::kinds::codec::Request;
use crate::values::{Content, Family, MAIN_TABLE};

/// Refusal of a request: errno, and the kernel's message if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SimulatedRefusal {
    pub(super) errno: Errno,
    pub(super) words: Option<&'static str>,
}

impl From<Errno> for SimulatedRefusal {
    fn from(errno: Errno) -> Self {
        Self { errno, words: None }
    }
}

pub(super) type ModelResult<T> = Result<T, SimulatedRefusal>;

/// A notification: message and header flags.
pub(super) type KernelNotification = (RouteNetlinkMessage, u16);

/// Identity of a kernel route: table, prefix, metric.
pub(super) type RouteKey = (u32, IpNet, u32);

/// State of the whole box.
#[derive(Debug, Default)]
pub(super) struct KernelModel {
    /// Links by index.
    pub(super) links: BTreeMap<u32, SimLink>,
    /// Addresses and neighbours by link index, family first as the kernel lists them.
    pub(super) addresses: BTreeMap<(u32, IpAddr), AddressMessage>,
    pub(super) neighbors: BTreeMap<(u32, IpAddr), NeighbourMessage>,
    pub(super) routes: BTreeMap<RouteKey, RouteMessage>,
    /// Sysctls by path below `/proc/sys`.
    pub(super) sysctls: BTreeMap<String, String>,
    /// Files by path below the root.
    pub(super) files: BTreeMap<SmolStr, Content>,
    pub(super) hostname: SmolStr,
    pub(super) credentials: super::credentials::SimulatedCredentials,
    /// Notifications that were not fetched yet.
    pub(super) notes: Vec<KernelNotification>,
    /// Links whose IPv4 routes were dropped without notification, so that they have to be read again.
    pub(super) links_without_routes: BTreeSet<u32>,
    /// IPv4 routes through a link that is gone were dropped without notification, so all have to be read again.
    pub(super) routes_dropped_silently: bool,
    pub(super) last_index: u32,
}

impl KernelModel {
    pub(super) fn request(&mut self, request: &Request) -> ModelResult<()> {
        match request {
            Request::Netlink { message, flags, forgiven } => match self.netlink(message, *flags) {
                Err(refusal) if forgiven.contains(&(refusal.errno as i32)) => Ok(()),
                other => other,
            },
            Request::Sysctl { path, value } => match self.sysctls.get_mut(path) {
                Some(existing) => {
                    existing.clone_from(value);
                    self.ipv6_switched(path, value);
                    Ok(())
                }
                None => Err(Errno::ENOENT.into()),
            },
            Request::File { path, content } => {
                self.files.insert(path.clone(), content.clone());
                Ok(())
            }
            Request::Hostname(name) => {
                self.hostname = name.clone();
                Ok(())
            }
            Request::CredentialFile { .. } | Request::SshServer(_) | Request::Password { .. } => {
                self.credentials.request(request)
            }
        }
    }

    fn netlink(&mut self, message: &RouteNetlinkMessage, flags: u16) -> ModelResult<()> {
        match message {
            RouteNetlinkMessage::NewLink(link) if flags & NLM_F_CREATE != 0 => {
                self.create_link(link)
            }
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::SetLink(link) => {
                self.change_link(link)
            }
            RouteNetlinkMessage::NewLinkProp(link) => self.name_link(link),
            RouteNetlinkMessage::DelLink(link) => self.delete_link(link.header.index),
            RouteNetlinkMessage::NewAddress(address) => self.new_address(address, flags),
            RouteNetlinkMessage::DelAddress(address) => self.delete_address(address),
            RouteNetlinkMessage::NewNeighbour(neighbor) => self.new_neighbor(neighbor),
            RouteNetlinkMessage::DelNeighbour(neighbor) => {
                let key = neighbor_key(neighbor).ok_or(Errno::EINVAL)?;
                let old = self.neighbors.remove(&key).ok_or(Errno::ENOENT)?;
                self.notes.push((RouteNetlinkMessage::DelNeighbour(old), 0));
                Ok(())
            }
            RouteNetlinkMessage::NewRoute(route) => self.new_route(route, flags),
            RouteNetlinkMessage::DelRoute(route) => self.delete_route(route),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    pub(super) fn link(&self, index: u32) -> ModelResult<&SimLink> {
        self.links.get(&index).ok_or_else(|| Errno::ENODEV.into())
    }

    pub(super) fn by_name(&self, name: &str) -> Option<u32> {
        self.links.values().find(|link| link.name == name).map(|link| link.index)
    }

    fn new_address(&mut self, message: &AddressMessage, flags: u16) -> ModelResult<()> {
        let index = message.header.index;
        let ip = address_ip(message).ok_or(Errno::EINVAL)?;
        self.require_family(index, ip, Errno::EINVAL, Errno::EACCES)?;
        let there = self.addresses.contains_key(&(index, ip));
        if there && flags & NLM_F_EXCL != 0 {
            return Err(Errno::EEXIST.into());
        }
        self.addresses.insert((index, ip), message.clone());
        self.notes.push((RouteNetlinkMessage::NewAddress(message.clone()), 0));
        Ok(())
    }

    /// Refuses an object of IPv6 on a link without it: with one errno where the link is too small, and with another where
    /// IPv6 is switched off.
    fn require_family(
        &self,
        index: u32,
        ip: IpAddr,
        too_small: Errno,
        off: Errno,
    ) -> ModelResult<()> {
        let switch = disable_ipv6_path(&self.link(index)?.name);
        match self.sysctls.get(&switch).map(String::as_str) {
            _ if ip.is_ipv4() => Ok(()),
            None => Err(too_small.into()),
            Some("0") => Ok(()),
            Some(_) => {
                let words = Some("IPv6 is disabled on this device");
                Err(SimulatedRefusal { errno: off, words })
            }
        }
    }

    fn delete_address(&mut self, message: &AddressMessage) -> ModelResult<()> {
        let ip = address_ip(message).ok_or(Errno::EINVAL)?;
        let key = (message.header.index, ip);
        let there = self
            .addresses
            .get(&key)
            .is_some_and(|existing| existing.header.prefix_len == message.header.prefix_len);
        if !there {
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        self.addresses.remove(&key).into_iter().for_each(|old| {
            self.notes.push((RouteNetlinkMessage::DelAddress(old), 0));
        });
        Ok(())
    }

    fn new_neighbor(&mut self, message: &NeighbourMessage) -> ModelResult<()> {
        self.link(message.header.ifindex)?;
        let key = neighbor_key(message).ok_or(Errno::EINVAL)?;
        self.require_family(key.0, key.1, Errno::EINVAL, Errno::EINVAL)?;
        // Setting an identical entry gives no message.
        if self.neighbors.insert(key, message.clone()).as_ref() != Some(message) {
            self.notes.push((RouteNetlinkMessage::NewNeighbour(message.clone()), 0));
        }
        Ok(())
    }

    fn new_route(&mut self, message: &RouteMessage, flags: u16) -> ModelResult<()> {
        let key = route_key(message).ok_or(Errno::EINVAL)?;
        if key.1 != key.1.trunc() {
            return Err(SimulatedRefusal {
                errno: Errno::EINVAL,
                words: Some("Invalid prefix for given prefix length"),
            });
        }
        let there = self.routes.contains_key(&key);
        if there && flags & NLM_F_EXCL != 0 {
            return Err(Errno::EEXIST.into());
        }
        let mut stored = message.clone();
        if message.header.kind != RouteType::BlackHole {
            self.resolve(&mut stored, key.1)?;
        }
        let replaced = if there { NLM_F_REPLACE } else { 0 };
        self.routes.insert(key, stored.clone());
        self.notes.push((RouteNetlinkMessage::NewRoute(stored), replaced));
        Ok(())
    }

    /// Looks up the link of each next hop, or refuses the route.
    fn resolve(&self, message: &mut RouteMessage, prefix: IpNet) -> ModelResult<()> {
        let single =
            !message.attributes.iter().any(|it| matches!(it, RouteAttribute::MultiPath(_)));
        if single {
            let mut hop = RouteNextHop::default();
            hop.interface_index = message
                .attributes
                .iter()
                .find_map(|it| match it {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                })
                .unwrap_or(0);
            let gateway = message.attributes.iter().filter(|it| gateway(it).is_some());
            hop.attributes = gateway.cloned().collect();
            self.resolve_hop(&mut hop, prefix)?;
            message.attributes.retain(|it| !matches!(it, RouteAttribute::Oif(_)));
            message.attributes.push(RouteAttribute::Oif(hop.interface_index));
            return Ok(());
        }
        for attribute in &mut message.attributes {
            if let RouteAttribute::MultiPath(hops) = attribute {
                for hop in hops {
                    self.resolve_hop(hop, prefix)?;
                }
            }
        }
        Ok(())
    }

    fn resolve_hop(&self, hop: &mut RouteNextHop, prefix: IpNet) -> ModelResult<()> {
        let gateway = hop.attributes.iter().find_map(gateway);
        if hop.interface_index != 0 && !self.link(hop.interface_index)?.up {
            return Err(Errno::ENETDOWN.into());
        }
        let family = gateway.unwrap_or(prefix.addr());
        if hop.interface_index != 0 {
            self.require_family(hop.interface_index, family, Errno::ENODEV, Errno::EACCES)?;
        }
        let Some(gateway) = gateway else {
            return if hop.interface_index == 0 { Err(Errno::ENODEV.into()) } else { Ok(()) };
        };
        let link_local = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if link_local && hop.interface_index != 0 {
            return Ok(());
        }
        let reachable = self
            .on_link(gateway)
            .find(|index| hop.interface_index == 0 || hop.interface_index == *index);
        hop.interface_index = reachable.ok_or(SimulatedRefusal {
            errno: Errno::ENETUNREACH,
            words: Some("Nexthop has invalid gateway"),
        })?;
        Ok(())
    }

    /// Links on which an address is reachable without a gateway.
    fn on_link(&self, ip: IpAddr) -> impl Iterator<Item = u32> + '_ {
        self.addresses.iter().filter_map(move |((index, own), message)| {
            let net = IpNet::new(*own, message.header.prefix_len).ok()?;
            let up = self.links.get(index)?.up;
            (up && net.contains(&ip)).then_some(*index)
        })
    }

    fn delete_route(&mut self, message: &RouteMessage) -> ModelResult<()> {
        let key = route_key(message).ok_or(Errno::EINVAL)?;
        let protocol = message.header.protocol;
        let ours = self.routes.get(&key).is_some_and(|stored| stored.header.protocol == protocol);
        if !ours {
            return Err(Errno::ESRCH.into());
        }
        self.routes.remove(&key).into_iter().for_each(|old| {
            self.notes.push((RouteNetlinkMessage::DelRoute(old), 0));
        });
        Ok(())
    }

    /// Treats the routes through a link that goes down, or away. Among several next hops, those on the link become
    /// dead, without notification. A route without any other next hop is removed, for IPv4 without notification.
    /// When the link goes away, an IPv4 route is removed as a whole, while an IPv6 route loses the next hop.
    pub(super) fn drop_routes(&mut self, index: u32, away: bool) {
        for key in self.through(index) {
            let Some(mut route) = self.routes.remove(&key) else { continue };
            let old = route.clone();
            let ipv4 = key.1.addr().is_ipv4();
            let stays = mark(&mut route, index, true) && !(away && ipv4);
            if ipv4 && !away {
                self.links_without_routes.insert(index);
            }
            self.routes_dropped_silently |= ipv4 && away;
            if !stays && !ipv4 {
                self.notes.push((RouteNetlinkMessage::DelRoute(old), 0));
            } else if stays && away {
                let only = split_off(&mut route, index);
                self.notes.push((RouteNetlinkMessage::DelRoute(only), 0));
            }
            if stays {
                self.routes.insert(key, route);
            }
        }
    }

    /// Removes all of IPv6 from a link: addresses, neighbours, and next hops.
    pub(super) fn drop_ipv6(&mut self, index: u32) {
        self.drop_ipv6_addresses(index);
        let of_link = |(link, ip): &&(u32, IpAddr)| *link == index && ip.is_ipv6();
        let neighbors: Vec<_> = self.neighbors.keys().filter(of_link).copied().collect();
        for key in neighbors {
            let old = self.neighbors.remove(&key);
            self.notes.extend(old.map(|old| (RouteNetlinkMessage::DelNeighbour(old), 0)));
        }
        let routes = self.through(index);
        for key in routes.into_iter().filter(|key| key.1.addr().is_ipv6()) {
            let Some(mut route) = self.routes.remove(&key) else { continue };
            let old = route.clone();
            if mark(&mut route, index, true) {
                let only = split_off(&mut route, index);
                self.notes.push((RouteNetlinkMessage::DelRoute(only), 0));
                self.routes.insert(key, route);
            } else {
                self.notes.push((RouteNetlinkMessage::DelRoute(old), 0));
            }
        }
    }

    /// Marks the next hops through a link that is up again as alive.
    pub(super) fn revive_routes(&mut self, index: u32) {
        for key in self.through(index) {
            if let Some(route) = self.routes.get_mut(&key) {
                mark(route, index, false);
            }
        }
    }

    fn through(&self, index: u32) -> Vec<RouteKey> {
        let through = self.routes.iter().filter(|(_, route)| hop_links(route).contains(&index));
        through.map(|(key, _)| *key).collect()
    }

    /// Removes the IPv6 addresses of a link that goes down, as the kernel does unless `keep_addr_on_down` is set.
    pub(super) fn drop_ipv6_addresses(&mut self, index: u32) {
        let addresses: Vec<_> = self
            .addresses
            .keys()
            .filter(|(link, ip)| *link == index && ip.is_ipv6())
            .copied()
            .collect();
        for key in addresses {
            let old = self.addresses.remove(&key);
            self.notes.extend(old.map(|old| (RouteNetlinkMessage::DelAddress(old), 0)));
        }
    }

    /// Removes everything on a link except routes.
    pub(super) fn drop_below(&mut self, index: u32, name: &str) {
        let addresses: Vec<_> =
            self.addresses.keys().filter(|(link, _)| *link == index).copied().collect();
        for key in addresses {
            let old = self.addresses.remove(&key);
            self.notes.extend(old.map(|old| (RouteNetlinkMessage::DelAddress(old), 0)));
        }
        let neighbors: Vec<_> =
            self.neighbors.keys().filter(|(link, _)| *link == index).copied().collect();
        for key in neighbors {
            let old = self.neighbors.remove(&key);
            self.notes.extend(old.map(|old| (RouteNetlinkMessage::DelNeighbour(old), 0)));
        }
        for family in [Family::V4, Family::V6] {
            let settings = super::new_settings(name, family);
            settings.for_each(|(path, _)| drop(self.sysctls.remove(&path)));
        }
        self.sysctls.remove(&disable_ipv6_path(name));
    }

    /// Messages for all objects, as the kernel lists them.
    pub(super) fn list(&self) -> Vec<RouteNetlinkMessage> {
        let mut all: Vec<RouteNetlinkMessage> =
            self.links.values().map(|link| RouteNetlinkMessage::NewLink(self.show(link))).collect();
        all.extend(self.addresses.values().cloned().map(RouteNetlinkMessage::NewAddress));
        all.extend(self.neighbors.values().cloned().map(RouteNetlinkMessage::NewNeighbour));
        all.extend(self.list_routes());
        all
    }

    pub(super) fn list_routes(&self) -> impl Iterator<Item = RouteNetlinkMessage> + '_ {
        self.routes.values().cloned().map(RouteNetlinkMessage::NewRoute)
    }

    pub(super) fn list_routes_through(
        &self,
        link: u32,
    ) -> impl Iterator<Item = RouteNetlinkMessage> + '_ {
        let routes = self.routes.values().filter(move |route| hop_links(route).contains(&link));
        routes.cloned().map(RouteNetlinkMessage::NewRoute)
    }

    pub(super) fn kind(&self, index: u32) -> Option<&SimLinkKind> {
        self.links.get(&index).map(|link| &link.kind)
    }
}

fn address_ip(message: &AddressMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    })
}

fn neighbor_key(message: &NeighbourMessage) -> Option<(u32, IpAddr)> {
    let ip = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    })?;
    Some((message.header.ifindex, ip))
}

fn route_key(message: &RouteMessage) -> Option<RouteKey> {
    let mut destination = None;
    let mut metric = 0;
    let mut table = u32::from(message.header.table);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => destination = Some((*ip).into()),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => {
                destination = Some((*ip).into())
            }
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    let any: IpAddr = match message.header.address_family {
        netlink_packet_route::AddressFamily::Inet => [0; 4].into(),
        _ => [0; 16].into(),
    };
    let length = message.header.destination_prefix_length;
    debug_assert!(table == MAIN_TABLE || table > 0, "a route names its table");
    debug_assert!(message.header.scope != RouteScope::Other(0), "a route has a scope");
    Some((table, IpNet::new(destination.unwrap_or(any), length).ok()?, metric))
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        RouteAttribute::Via(RouteVia::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

/// Next hops of a multipath route; `None` for a route with a single one in its own attributes.
fn next_hops(message: &mut RouteMessage) -> Option<&mut Vec<RouteNextHop>> {
    message.attributes.iter_mut().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    })
}

/// Marks the next hops on a link as dead or alive, and tells whether any is alive.
fn mark(message: &mut RouteMessage, index: u32, dead: bool) -> bool {
    let mut alive = false;
    for hop in next_hops(message).into_iter().flatten() {
        if hop.interface_index == index {
            hop.flags.set(RouteNextHopFlags::Dead, dead);
        }
        alive |= !hop.flags.contains(RouteNextHopFlags::Dead);
    }
    alive
}

/// Removes the next hops on a link from a route, and returns a route with only those.
fn split_off(message: &mut RouteMessage, index: u32) -> RouteMessage {
    let mut only = message.clone();
    for (message, on_it) in [(message, false), (&mut only, true)] {
        if let Some(hops) = next_hops(message) {
            hops.retain(|hop| (hop.interface_index == index) == on_it);
        }
    }
    only
}

fn hop_links(message: &RouteMessage) -> Vec<u32> {
    let mut links = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => links.push(*index),
            RouteAttribute::MultiPath(hops) => {
                links.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    links
}
