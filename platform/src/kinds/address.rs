//! Addresses of links, and the prefixes they make reachable.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_config::{NodeId, Schema, Value};
use holdfast_scheduler::{
    Cascade, ChangeMethod, Claim, Dependency, Descriptor, Effect, ErrorClass, Facet, Key, KindId,
    ObjectValue, Offer, OperationError, Part, SharedValue, Space,
};
use ipnet::IpNet;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::{SmolStr, format_smolstr};

use super::codec::{EncodeError, Op, Request, Requests};
use super::difference::difference;
use super::entry::{Entry, ObjectError, ObjectValues, ip_text, link_and_ip, not_of_a_host};
use super::link;
use super::links::LinkIndex;
use super::native::{
    self, Adoption, Bind, EntryShare, ForLinks, InterfaceNodes, ModelError, NativeKind,
    StatusNodes, ValueEntry, nodes,
};
use super::reading::{
    ClassList, ClassRow, Query, RTM_DELADDR, RTM_NEWADDR, Read, first_text, observation,
};
use super::row::{Encode, Kind, PreImageForm, PreImageRow, Shown};
use super::state::{Leaves, Planes, StateEntry, enum_value};
use super::types::{Family, MAIN_TABLE, OUR_PROTOCOL, address_family};
use crate::transport_id;

/// An address of a link.
pub const ADDRESS: KindId = KindId(20);

/// A prefix is on-link by an address.
pub const CONNECTED: KindId = KindId(21);

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The link it belongs to.
    pub link: SmolStr,
    /// The address.
    pub ip: IpAddr,
    /// Length of the on-link prefix, in bits.
    pub prefix_len: u8,
    /// Intended only: the address comes from a DHCP lease and from no other configuration. The kernel does not
    /// know.
    #[serde(default)]
    pub leased: bool,
    /// IPv4: another address of this prefix on the link came first (`IFA_F_SECONDARY`).
    #[serde(default)]
    pub secondary: bool,
    /// Facts that only the kernel knows; `None` in an intended value.
    pub facts: Option<AddressFacts>,
}

impl Address {
    /// A configured address.
    pub fn new(link: impl Into<SmolStr>, ip: IpAddr, prefix_len: u8) -> Self {
        Self { link: link.into(), ip, prefix_len, leased: false, secondary: false, facts: None }
    }

    /// True for an address that another host on the link has.
    pub fn is_duplicate(&self) -> bool {
        let status = self.facts.as_ref().and_then(|facts| facts.status);
        status == Some(AddressStatus::Duplicate)
    }

    /// The prefix that is on-link by this address, host bits cleared.
    pub fn on_link_prefix(&self) -> Option<IpNet> {
        IpNet::new(self.ip, self.prefix_len).ok().map(|net| net.trunc())
    }
}

/// Observed properties of an address that cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFacts {
    /// The address carries our protocol number (`IFA_PROTO`): we created it and may delete it.
    pub ours: bool,
    /// Origin of the address.
    pub origin: AddressOrigin,
    /// IPv6 only: status of the address on its link.
    #[serde(default)]
    pub status: Option<AddressStatus>,
}

/// Status of an address: `ip-address-status` of RFC 8344, as OpenConfig spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AddressStatus {
    /// May be used.
    Preferred,
    /// Valid, and not to be used for new connections.
    Deprecated,
    /// The kernel is asking whether another host on the link has it.
    Tentative,
    /// Another host on the link has it (`IFA_F_DADFAILED`).
    Duplicate,
    /// Used while the kernel is asking.
    Optimistic,
}

// The enum name of OpenConfig's `status`.
holdfast_config::enum_names!(AddressStatus {
    Preferred = "PREFERRED",
    Deprecated = "DEPRECATED",
    Tentative = "TENTATIVE",
    Duplicate = "DUPLICATE",
    Optimistic = "OPTIMISTIC",
});

/// Origin of an address: `ip-address-origin` of RFC 8344, as OpenConfig spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AddressOrigin {
    /// Configured, by us or by hand.
    Static,
    /// Leased from a DHCP server by this agent.
    Dhcp,
    /// Made by the kernel from the link-layer address.
    LinkLayer,
    /// Made by the kernel at random, or so that the link cannot be derived from it (RFC 8981, RFC 7217).
    Random,
    /// Made by the kernel for other reasons (loopback), or unknown.
    Other,
}

// The enum name of OpenConfig's `origin`.
holdfast_config::enum_names!(AddressOrigin {
    Static = "STATIC",
    Dhcp = "DHCP",
    LinkLayer = "LINK_LAYER",
    Random = "RANDOM",
    Other = "OTHER",
});

/// Part of an address: while its link is up, gateways within the prefix are reachable. The kernel maintains this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedPrefix {
    /// The link.
    pub link: SmolStr,
    /// Address that makes the prefix on-link.
    pub ip: IpAddr,
    /// The on-link prefix, host bits cleared.
    pub prefix: IpNet,
    /// Routing table into which the kernel puts the prefix.
    pub table: u32,
}

/// Addresses of links.
#[derive(Debug, Default)]
pub struct AddressDescriptor;

/// Prefixes that an address makes on-link.
#[derive(Debug, Default)]
pub struct ConnectedPrefixDescriptor;

/// The key of an address.
///
/// The prefix length is not part of it, because one entry of the native model is one address.
pub fn key(link: &str, ip: IpAddr) -> Key {
    link_prefix(link).ip(ip)
}

/// Common prefix of the keys of a link's addresses.
pub fn link_prefix(link: &str) -> Key {
    Key::of(ADDRESS).str(link)
}

/// Checks that an address is secondary where the configuration asks for it. An address that is not ours is
/// accepted as it is.
fn is_as_expected(expected: &Address, observed: &Address) -> bool {
    let theirs = observed.facts.as_ref().is_some_and(|facts| !facts.ours);
    !expected.secondary || observed.secondary || theirs
}

/// Facet of an IPv4 address that is not secondary: a secondary one of its prefix needs it.
fn primary_facet(link: &str, prefix: IpNet) -> Facet {
    Facet::of(ADDRESS, "primary").str(link).prefix(prefix)
}

/// Offers of a prefix that is on-link: its table reaches the addresses in it, and so does the link itself.
fn reached(link: &str, table: u32, prefix: IpNet) -> [Offer; 2] {
    [Space::table(table), Space::link(link)].map(|space| Offer::prefix(space, prefix))
}

/// Claim of a host's identity, by an address of the box or by a neighbour. The kernel never asks a neighbour for an address that the
/// box has on any link; several links may have a neighbour with one address, and an address may wait on one link while another has it. A
/// link-local address is another host on each link.
pub(super) fn host_identity(link: &str, ip: IpAddr, side: &'static str) -> Claim {
    let identity = Facet::of(ADDRESS, "host");
    let identity = if is_link_local(ip) { identity.str(link) } else { identity };
    Claim::with_side(identity.ip(ip), side)
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Key of the prefix that an address makes on-link.
fn connected_key(link: &str, ip: IpAddr) -> Key {
    Key::of(CONNECTED).str(link).ip(ip)
}

impl Kind for AddressDescriptor {
    const NATIVE: Option<Bind> = Some(NativeAddress::bind);
    const READ: Read = Read::Kernel {
        class: &ADDRESSES,
        one: |key| Some(Query::OnLink(&ADDRESSES, first_text(key)?)),
    };
    const ENCODE: Option<Encode<Address>> = Some(encode);
    const SHOWN: Shown = Shown::AsEntry;
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, AddressRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(link_prefix(link)));
}

impl Descriptor for AddressDescriptor {
    type Value = Address;

    fn kind(&self) -> KindId {
        ADDRESS
    }

    fn name(&self) -> &'static str {
        "address"
    }

    fn key(&self, address: &Address) -> Key {
        key(&address.link, address.ip)
    }

    fn label(&self, address: &Address) -> String {
        format!("address {}/{} of {}", address.ip, address.prefix_len, address.link)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    fn dependencies(&self, address: &Address) -> Vec<Dependency> {
        let link = &address.link;
        let mut needs = vec![Dependency::exact(format_smolstr!("link {link}"), link::key(link))];
        needs.push(match Family::of(address.ip) {
            Family::V4 => link::carries_ipv4(link),
            Family::V6 => link::carries_ipv6(link),
        });
        if let Some(prefix) = address.on_link_prefix().filter(|_| address.secondary) {
            let label = format_smolstr!("a primary address of {prefix} on link {link}");
            needs.push(Dependency::any_of(label, primary_facet(link, prefix)));
        }
        needs
    }

    /// Offers the primary facet, unless the address is secondary, and the prefix of a foreign address. The prefix
    /// of our own is a part, which has the routing table.
    fn provides(&self, address: &Address) -> Vec<Offer> {
        let prefix = address.on_link_prefix();
        let observed = prefix.filter(|_| address.facts.is_some());
        let primary = prefix.filter(|prefix| prefix.addr().is_ipv4() && !address.secondary);
        let primary = primary.map(|prefix| primary_facet(&address.link, prefix).into());
        let reached = observed.map(|prefix| reached(&address.link, MAIN_TABLE, prefix));
        reached.into_iter().flatten().chain(primary).collect()
    }

    fn parts(&self, address: &Address) -> Vec<Part> {
        let Some(prefix) = address.on_link_prefix() else { return Vec::new() };
        let link = address.link.clone();
        let ip = address.ip;
        let part = ConnectedPrefix { link, ip, prefix, table: MAIN_TABLE };
        vec![(ConnectedPrefixDescriptor.key(&part), Arc::new(part))]
    }

    fn cascades(&self, address: &Address) -> Vec<Cascade> {
        vec![Cascade::Under(connected_key(&address.link, address.ip))]
    }

    /// The kernel identifies an address by its prefix too, so another length means another address. Whether an
    /// address is the first of its prefix is decided at creation.
    fn change(&self, old: &Address, new: &Address) -> ChangeMethod {
        let same = old.prefix_len == new.prefix_len && is_as_expected(new, old);
        if same { ChangeMethod::InPlace } else { ChangeMethod::Recreate }
    }

    fn difference(&self, expected: &Address, observed: &Address) -> String {
        difference(expected, observed)
    }

    /// An address of ours that another host on the link has cannot be used: it is tried again.
    fn satisfied_by(&self, expected: &Address, observed: &Address) -> bool {
        let unusable = observed.is_duplicate() && self.owned(observed);
        expected.prefix_len == observed.prefix_len
            && is_as_expected(expected, observed)
            && !unusable
    }

    fn drift(&self, _: &Address, observed: &Address) -> Option<String> {
        let text = "another host on the link has this address (duplicate address detection failed)";
        observed.is_duplicate().then(|| text.to_owned())
    }

    fn owned(&self, observed: &Address) -> bool {
        observed.facts.as_ref().is_some_and(|facts| facts.ours)
    }

    /// An address of the box cannot be a neighbour's.
    fn claims(&self, address: &Address) -> Vec<Claim> {
        vec![host_identity(&address.link, address.ip, "box")]
    }

    fn classify(&self, error: &OperationError) -> ErrorClass {
        link::classify_on_link(error)
    }

    fn restore(&self, observed: &Address) -> Option<Address> {
        (!self.owned(observed)).then(|| observed.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct AddressRow {
    link: SmolStr,
    ip: IpAddr,
    prefix_len: u8,
}

impl PreImageRow<AddressDescriptor> for AddressRow {
    const TAG: &'static str = "address";

    fn of(address: &Address) -> Option<Self> {
        let link = address.link.clone();
        Some(Self { link, ip: address.ip, prefix_len: address.prefix_len })
    }

    fn value(self) -> Address {
        Address::new(self.link, self.ip, self.prefix_len)
    }
}

fn encode(op: Op<'_, Address>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let add = |new: &Address| {
        let message = message(new, links)?;
        Ok(smallvec![Request::create(RouteNetlinkMessage::NewAddress(message))])
    };
    match op {
        Op::Create(new) => add(new),
        // The kernel looks for the address on the link once more when it is new.
        Op::Update { old, new } if old.is_duplicate() => {
            let mut requests = delete(old, links)?;
            requests.extend(add(new)?);
            Ok(requests)
        }
        // A foreign address is used as it is, and stays foreign.
        Op::Adopt { old, new } | Op::Update { old, new } => {
            if old.prefix_len == new.prefix_len {
                Ok(Requests::new())
            } else {
                add(new)
            }
        }
        Op::Delete(old) => delete(old, links),
        Op::Release { old, restore } if old.prefix_len == restore.prefix_len => Ok(Requests::new()),
        Op::Release { old, .. } => delete(old, links),
    }
}

fn delete(old: &Address, links: &LinkIndex) -> Result<Requests, EncodeError> {
    if links.index(&old.link).is_none() {
        return Ok(Requests::new()); // the kernel removed it with its link
    }
    let message = message(old, links)?;
    Ok(smallvec![Request::delete(RouteNetlinkMessage::DelAddress(message))])
}

fn message(address: &Address, links: &LinkIndex) -> Result<AddressMessage, EncodeError> {
    let link = &address.link;
    let mut message = AddressMessage::default();
    message.header.index =
        links.index(link).ok_or_else(|| EncodeError::LinkNotFound(link.clone()))?;
    message.header.family =
        if address.ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = address.prefix_len;
    if address.ip.is_loopback() {
        message.header.scope = AddressScope::Host;
    }
    message.attributes = vec![
        AddressAttribute::Local(address.ip),
        AddressAttribute::Address(address.ip),
        AddressAttribute::Protocol(AddressProtocol::Other(OUR_PROTOCOL)),
    ];
    Ok(message)
}

/// Addresses of links.
pub(crate) static ADDRESSES: ClassRow = ClassRow {
    name: "Addresses",
    groups: &[5, 9], // `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`
    messages: &[RTM_NEWADDR, RTM_DELADDR],
    is_on_links: true,
    list: ClassList::Families(list),
    decode: |message, _, _, links| {
        let (message, is_present) = match message {
            RouteNetlinkMessage::NewAddress(message) => (message, true),
            RouteNetlinkMessage::DelAddress(message) => (message, false),
            _ => return Vec::new(),
        };
        observation(decode(message, links), |it| key(&it.link, it.ip), is_present)
    },
};

/// The addresses of one family, of one link or of all (`link` 0).
pub(crate) fn list(family: Family, link: u32) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = address_family(family);
    message.header.index = link;
    RouteNetlinkMessage::GetAddress(message)
}

/// The address that an `RTM_NEWADDR` or `RTM_DELADDR` describes.
pub(crate) fn decode(message: &AddressMessage, links: &LinkIndex) -> Option<Address> {
    let link = links.name(message.header.index)?.clone();
    let mut flags = AddressFlags::empty();
    let mut proto = None;
    let mut local = None;
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link, IFA_ADDRESS is the address of the peer.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Protocol(protocol) => proto = Some(*protocol),
            AddressAttribute::Flags(bits) => flags = *bits,
            _ => {}
        }
    }
    let ip = local.or(address)?;
    let ours = proto == Some(AddressProtocol::Other(OUR_PROTOCOL));
    let origin = origin(ip, proto, flags);
    let facts = Some(AddressFacts { ours, origin, status: status(ip, flags) });
    let secondary = ip.is_ipv4() && flags.contains(AddressFlags::Secondary);
    Some(Address { secondary, facts, ..Address::new(link, ip, message.header.prefix_len) })
}

/// Status of an address, as `IFA_FLAGS` tell. IPv4 has none: the kernel does not look for other hosts with the address.
fn status(ip: IpAddr, flags: AddressFlags) -> Option<AddressStatus> {
    let status = match flags {
        _ if ip.is_ipv4() => return None,
        _ if flags.contains(AddressFlags::Dadfailed) => AddressStatus::Duplicate,
        _ if flags.contains(AddressFlags::Optimistic) => AddressStatus::Optimistic,
        _ if flags.contains(AddressFlags::Tentative) => AddressStatus::Tentative,
        _ if flags.contains(AddressFlags::Deprecated) => AddressStatus::Deprecated,
        _ => AddressStatus::Preferred,
    };
    Some(status)
}

/// Origin of an address, as `IFA_PROTO` and `IFA_FLAGS` tell.
fn origin(ip: IpAddr, proto: Option<AddressProtocol>, flags: AddressFlags) -> AddressOrigin {
    let of_the_kernel = match proto {
        Some(AddressProtocol::LinkLocal | AddressProtocol::RouterAnnouncement) => true,
        // The kernel adds 127.0.0.1 to the loopback link without marking it.
        Some(AddressProtocol::Loopback) => return AddressOrigin::Other,
        None if ip.is_loopback() => return AddressOrigin::Other,
        _ => false,
    };
    // `IFA_F_TEMPORARY` is the meaning of `IFA_F_SECONDARY` for IPv6.
    let random = flags.intersects(AddressFlags::Secondary | AddressFlags::StablePrivacy);
    match of_the_kernel {
        true if random => AddressOrigin::Random,
        true => AddressOrigin::LinkLayer,
        false if flags.contains(AddressFlags::Permanent) => AddressOrigin::Static,
        false => AddressOrigin::Other,
    }
}

nodes!(
    /// Addresses of one family.
    AddressNodes {
        container: "",
        list: "/address",
        prefix_len: "/address/prefix-length",
        kind: "/address/type",
        state: "/address/state",
        state_type: "/address/state/type",
        state_ip: "/address/state/ip",
        state_prefix_len: "/address/state/prefix-length",
        state_origin: "/address/state/origin",
        state_effective_status: "/address/state/effective-status",
    }
);

/// `address` in the native model.
#[derive(Debug)]
struct NativeAddress {
    interfaces: InterfaceNodes,
    v4: ForLinks<AddressNodes>,
    v6: ForLinks<AddressNodes>,
    /// `status` below the `state` of an IPv6 address; IPv4 has none.
    v6_status: ForLinks<NodeId>,
}

impl NativeAddress {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self {
            interfaces: InterfaceNodes::bind(schema)?,
            v4: ForLinks::find(|list| AddressNodes::find(schema, &format!("{list}/ipv4")))?,
            v6: ForLinks::find(|list| AddressNodes::find(schema, &format!("{list}/ipv6")))?,
            v6_status: ForLinks::find(|list| {
                native::find(schema, &format!("{list}/ipv6/address/state/status"))
            })?,
        }))
    }

    fn family(&self, family: Family) -> &ForLinks<AddressNodes> {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn address(
        &self,
        link: &SmolStr,
        family: Family,
        entry: &Entry<'_>,
    ) -> Result<Address, ObjectError> {
        let nodes = self.family(family).of_path(entry.path);
        let leaf = nodes.prefix_len;
        let prefix_len = entry.number(leaf).ok_or_else(|| entry.incomplete(leaf))?;
        let ip: IpAddr = entry.key_as()?;
        if let Some(what) = not_of_a_host(ip) {
            return Err(
                entry.error(format!("{ip} cannot be the address of a link: {ip} is {what}"))
            );
        }
        if ip.is_ipv6() && ip.is_loopback() && link != "lo" {
            return Err(entry.error(format!("only the loopback link can have the address {ip}")));
        }
        let stated = entry.text(nodes.kind);
        if let (Family::V6, Some(stated)) = (family, &stated)
            && stated != ipv6_type(ip)
        {
            let reason = format!("{ip} is an address of type {}, not {stated}", ipv6_type(ip));
            return Err(entry.leaf_error(nodes.kind, reason));
        }
        let secondary = stated.as_deref() == Some(SECONDARY);
        let leased = entry.branch.is_leased(leaf);
        Ok(Address { leased, secondary, ..Address::new(link.clone(), ip, prefix_len) })
    }
}

impl NativeKind for NativeAddress {
    fn lists(&self) -> Vec<NodeId> {
        let families = [&self.v4, &self.v6].into_iter();
        families.flat_map(ForLinks::all).map(|nodes| nodes.list).collect()
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        let is_v4 = entry.node() == Some(self.v4.of_path(entry.path).list);
        let family = if is_v4 { Family::V4 } else { Family::V6 };
        let address = self.address(&entry.link_name()?, family, entry)?;
        Ok(smallvec![(key(&address.link, address.ip), Arc::new(address) as SharedValue)])
    }

    fn own_key(&self, entry: &Entry<'_>) -> Result<Option<Key>, ObjectError> {
        Ok(Some(key(&entry.link_name()?, entry.key_as()?)))
    }

    /// Addresses that the kernel makes, and those of leases, come again without a configuration.
    fn adoption(&self, value: &dyn ObjectValue) -> Option<Adoption> {
        let address: &Address = value.as_any().downcast_ref()?;
        let Address { link, ip, prefix_len, .. } = address;
        let origin = address.facts.as_ref().map(|facts| facts.origin);
        let reason = match origin {
            _ if ip.is_loopback() => return None, // the kernel gives it to the loopback link
            Some(AddressOrigin::LinkLayer | AddressOrigin::Random) => "the kernel made it",
            Some(AddressOrigin::Dhcp | AddressOrigin::Other) => {
                "it has a lifetime, so it was leased or announced"
            }
            _ if is_link_local(*ip) => "it is link-local",
            _ => {
                let nodes = self.family(Family::of(*ip)).of_link(link);
                let path = self.interfaces.on_link(link, nodes.container, nodes.list, *ip);
                let mut leaves = Leaves::of_entry();
                leaves.put(nodes.prefix_len, Value::Uint((*prefix_len).into()));
                return Some(Adoption::Entry(leaves.entry(path)));
            }
        };
        Some(Adoption::LeftOut(format!("address {ip}/{prefix_len} of {link}: {reason}")))
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let intended: Option<&Address> = planes.intended();
        let leased = intended.is_some_and(|address| address.leased);
        let address: &Address = planes.observed()?;
        let nodes = self.family(Family::of(address.ip)).of_link(&address.link);
        let path = self.interfaces.on_link(&address.link, nodes.container, nodes.list, address.ip);
        let mut leaves = Leaves::of(nodes.state);
        leaves.put(nodes.state_ip, ip_text(address.ip));
        leaves.put(nodes.state_prefix_len, Value::Uint(address.prefix_len.into()));
        leaves.text_enum(nodes.state_type, address_type(address));
        let reported = address.facts.as_ref().map(|facts| facts.origin);
        let origin = reported.map(|reported| if leased { AddressOrigin::Dhcp } else { reported });
        let origin = origin.map(|origin| enum_value(origin.name()));
        leaves.optional(nodes.state_origin, origin);
        let status = address.facts.as_ref().and_then(|facts| facts.status);
        if address.ip.is_ipv6() {
            let leaf = *self.v6_status.of_link(&address.link);
            leaves.optional(leaf, status.map(|status| enum_value(status.name())));
        }
        Some(leaves.entry(path))
    }

    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        let (link, ip) = link_and_ip(key)?;
        let nodes = self.family(Family::of(ip)).of_link(&link);
        let path = self.interfaces.on_link(&link, nodes.container, nodes.list, ip);
        Some(ValueEntry { path, share: EntryShare::Whole })
    }

    fn status_nodes(&self) -> Vec<StatusNodes> {
        let of = |nodes: &AddressNodes| StatusNodes {
            list: nodes.list,
            container: nodes.state,
            leaf: nodes.state_effective_status,
        };
        let families = [&self.v4, &self.v6].into_iter();
        families.flat_map(ForLinks::all).map(of).collect()
    }
}

/// Type of an IPv4 address that is not the first of its prefix.
const SECONDARY: &str = "SECONDARY";

/// OpenConfig's type of an IPv6 address.
fn ipv6_type(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => "LINK_LOCAL_UNICAST",
        _ => "GLOBAL_UNICAST",
    }
}

/// OpenConfig's type of an observed address.
fn address_type(address: &Address) -> &'static str {
    match Family::of(address.ip) {
        Family::V4 if address.secondary => SECONDARY,
        Family::V4 => "PRIMARY",
        Family::V6 => ipv6_type(address.ip),
    }
}

impl Kind for ConnectedPrefixDescriptor {
    /// The kernel creates and removes these without a request.
    const ENCODE: Option<Encode<ConnectedPrefix>> = Some(|_, _| Ok(Requests::new()));
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(Key::of(CONNECTED).str(link)));
}

impl Descriptor for ConnectedPrefixDescriptor {
    type Value = ConnectedPrefix;

    fn kind(&self) -> KindId {
        CONNECTED
    }

    fn name(&self) -> &'static str {
        "connected"
    }

    fn key(&self, part: &ConnectedPrefix) -> Key {
        connected_key(&part.link, part.ip)
    }

    fn label(&self, part: &ConnectedPrefix) -> String {
        format!("prefix {} of {} on {}", part.prefix, part.ip, part.link)
    }

    /// Makes no request. Unlike a property, an operation can wait for its dependencies.
    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    fn observable(&self) -> bool {
        false
    }

    fn change(&self, _: &ConnectedPrefix, _: &ConnectedPrefix) -> ChangeMethod {
        ChangeMethod::Recreate
    }

    /// The kernel has the on-link route only while the link is up.
    fn dependencies(&self, part: &ConnectedPrefix) -> Vec<Dependency> {
        vec![Dependency::exact(format_smolstr!("link {} up", part.link), link::up_key(&part.link))]
    }

    /// Makes an address that moves leave its old link first, so that the routes through it are created again and
    /// do not stay on the old link.
    fn claims(&self, part: &ConnectedPrefix) -> Vec<Claim> {
        if is_link_local(part.ip) {
            Vec::new()
        } else {
            vec![Claim::alone(Facet::of(CONNECTED, "ip").ip(part.ip))]
        }
    }

    fn provides(&self, part: &ConnectedPrefix) -> Vec<Offer> {
        reached(&part.link, part.table, part.prefix).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_status_follows_the_flags_of_ipv6() {
        let check = |ip: &str, flags, want: Option<AddressStatus>| {
            assert_eq!(status(ip.parse().unwrap(), flags), want, "{ip} {flags:?}");
        };
        let set = AddressFlags::Permanent;
        let tentative = AddressFlags::Tentative;
        check("192.0.2.1", set, None);
        check("2001:db8::1", set, Some(AddressStatus::Preferred));
        check("2001:db8::1", set | tentative, Some(AddressStatus::Tentative));
        let failed = set | tentative | AddressFlags::Dadfailed;
        check("2001:db8::1", failed, Some(AddressStatus::Duplicate));
        let optimistic = tentative | AddressFlags::Optimistic;
        check("2001:db8::1", optimistic, Some(AddressStatus::Optimistic));
        check("2001:db8::1", AddressFlags::Deprecated, Some(AddressStatus::Deprecated));
    }

    #[test]
    fn address_origin_follows_protocol_and_flags() {
        let set = AddressFlags::Permanent;
        let temporary = AddressFlags::Secondary;
        let check = |ip: &str, proto, flags, want: AddressOrigin| {
            assert_eq!(origin(ip.parse().unwrap(), proto, flags), want, "{ip} {proto:?} {flags:?}");
        };
        check("192.0.2.1", Some(AddressProtocol::Other(OUR_PROTOCOL)), set, AddressOrigin::Static);
        check("192.0.2.1", None, set, AddressOrigin::Static);
        check("192.0.2.1", None, set | AddressFlags::Secondary, AddressOrigin::Static);
        check("192.0.2.1", None, AddressFlags::empty(), AddressOrigin::Other); // a limited lifetime of unknown origin
        check("127.0.0.1", None, set, AddressOrigin::Other);
        check("127.0.0.2", Some(AddressProtocol::Other(OUR_PROTOCOL)), set, AddressOrigin::Static);
        check("::1", Some(AddressProtocol::Loopback), set, AddressOrigin::Other);
        check("fe80::1", Some(AddressProtocol::LinkLocal), set, AddressOrigin::LinkLayer);
        check(
            "fe80::1",
            Some(AddressProtocol::LinkLocal),
            set | AddressFlags::StablePrivacy,
            AddressOrigin::Random,
        );
        check(
            "2001:db8::1",
            Some(AddressProtocol::RouterAnnouncement),
            AddressFlags::empty(),
            AddressOrigin::LinkLayer,
        );
        check(
            "2001:db8::1",
            Some(AddressProtocol::RouterAnnouncement),
            AddressFlags::StablePrivacy,
            AddressOrigin::Random,
        );
        check(
            "2001:db8::1",
            Some(AddressProtocol::RouterAnnouncement),
            temporary,
            AddressOrigin::Random,
        );
    }
}
