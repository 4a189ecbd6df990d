//! Neighbours of links.

use std::net::IpAddr;

use holdfast_config::{NodeId, Schema};
use holdfast_scheduler::{
    Cascade, Claim, Dependency, Descriptor, Effect, ErrorClass, Key, KindId, ObjectValue,
    OperationError, SharedValue,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::{SmolStr, format_smolstr};
use std::sync::Arc;

use super::codec::{EncodeError, Op, Request, Requests};
use super::difference::difference;
use super::entry::{
    Entry, ObjectError, ObjectValues, ip_text, link_and_ip, not_of_a_host, not_of_one_host,
};
use super::links::LinkIndex;
use super::native::{
    Adoption, Bind, EntryShare, ForLinks, InterfaceNodes, ModelError, NativeKind, StatusNodes,
    ValueEntry, nodes,
};
use super::reading::{
    ClassList, ClassRow, Query, RTM_DELNEIGH, RTM_NEWNEIGH, Read, first_text, observation,
};
use super::row::{Encode, Kind, PreImageForm, PreImageRow, Shown};
use super::state::{Leaves, Planes, StateEntry, text_value};
use super::types::{Family, MacAddr, OUR_PROTOCOL, address_family};
use super::{address, link};
use crate::transport_id;

/// A neighbour of a link.
pub const NEIGHBOR: KindId = KindId(22);

/// A neighbour entry of a link. An intended one is permanent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// The link.
    pub link: SmolStr,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its link-layer address. Observed: `None` while it is not resolved.
    pub mac: Option<MacAddr>,
    /// Facts that only the kernel knows; `None` in an intended value.
    pub facts: Option<NeighborFacts>,
}

/// Observed properties of a neighbour that cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborFacts {
    /// The entry carries our protocol number (`NDA_PROTOCOL`): we created it and may delete it.
    pub ours: bool,
    /// State of the entry.
    pub state: NeighborState,
}

/// State of a neighbour entry (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NeighborState {
    /// Configured; never probed, never expires.
    Permanent,
    /// Probed, no answer yet.
    Incomplete,
    /// Confirmed recently.
    Reachable,
    /// Not confirmed recently.
    Stale,
    /// Used while stale; about to be probed again.
    Delay,
    /// Being probed again.
    Probe,
    /// Did not answer probes.
    Failed,
    /// The link needs no resolution.
    NoArp,
}

// The enum name of `neighbor-state` (RFC 8344 names plus the kernel's own).
holdfast_config::enum_names!(NeighborState {
    Permanent = "PERMANENT",
    Incomplete = "INCOMPLETE",
    Reachable = "REACHABLE",
    Stale = "STALE",
    Delay = "DELAY",
    Probe = "PROBE",
    Failed = "FAILED",
    NoArp = "NOARP",
});

/// Neighbours of links.
#[derive(Debug, Default)]
pub struct NeighborDescriptor;

/// The key of a neighbour.
pub fn key(link: &str, ip: IpAddr) -> Key {
    link_prefix(link).ip(ip)
}

/// Common prefix of the keys of a link's neighbours.
pub fn link_prefix(link: &str) -> Key {
    Key::of(NEIGHBOR).str(link)
}

fn is_permanent(neighbor: &Neighbor) -> bool {
    neighbor.facts.as_ref().is_none_or(|facts| facts.state == NeighborState::Permanent)
}

fn is_ours(neighbor: &Neighbor) -> bool {
    neighbor.facts.as_ref().is_some_and(|facts| facts.ours)
}

impl Kind for NeighborDescriptor {
    const NATIVE: Option<Bind> = Some(NativeNeighbor::bind);
    const READ: Read = Read::Kernel {
        class: &NEIGHBORS,
        one: |key| Some(Query::OnLink(&NEIGHBORS, first_text(key)?)),
    };
    const ENCODE: Option<Encode<Neighbor>> = Some(encode);
    const SHOWN: Shown = Shown::AsEntry;
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, NeighborRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(link_prefix(link)));
}

impl Descriptor for NeighborDescriptor {
    type Value = Neighbor;

    fn kind(&self) -> KindId {
        NEIGHBOR
    }

    fn name(&self) -> &'static str {
        "neighbor"
    }

    fn key(&self, neighbor: &Neighbor) -> Key {
        key(&neighbor.link, neighbor.ip)
    }

    fn label(&self, neighbor: &Neighbor) -> String {
        format!("neighbor {} of {}", neighbor.ip, neighbor.link)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    /// Entries wait for their link to be up: the kernel drops the neighbours of a link that goes down, except
    /// permanent IPv4 ones while it keeps its carrier.
    fn dependencies(&self, neighbor: &Neighbor) -> Vec<Dependency> {
        let link = &neighbor.link;
        let up = Dependency::exact(format_smolstr!("link {link} up"), link::up_key(link));
        let family = match Family::of(neighbor.ip) {
            Family::V4 => link::has_settings(link, Family::V4),
            Family::V6 => link::carries_ipv6(link),
        };
        vec![up, family]
    }

    /// A neighbour cannot have an address of the box.
    fn claims(&self, neighbor: &Neighbor) -> Vec<Claim> {
        vec![address::host_identity(&neighbor.link, neighbor.ip, "neighbor")]
    }

    fn classify(&self, error: &OperationError) -> ErrorClass {
        link::classify_on_link(error)
    }

    fn difference(&self, expected: &Neighbor, observed: &Neighbor) -> String {
        difference(expected, observed)
    }

    fn satisfied_by(&self, expected: &Neighbor, observed: &Neighbor) -> bool {
        expected.mac == observed.mac && is_permanent(observed)
    }

    fn owned(&self, observed: &Neighbor) -> bool {
        is_ours(observed) && is_permanent(observed)
    }

    /// A permanent foreign entry is restored. Learned entries are not: the kernel learns them again.
    fn restore(&self, observed: &Neighbor) -> Option<Neighbor> {
        (is_permanent(observed) && !is_ours(observed)).then(|| observed.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct NeighborRow {
    link: SmolStr,
    ip: IpAddr,
    mac: Option<MacAddr>,
}

impl PreImageRow<NeighborDescriptor> for NeighborRow {
    const TAG: &'static str = "neighbor";

    fn of(neighbor: &Neighbor) -> Option<Self> {
        let link = neighbor.link.clone();
        Some(Self { link, ip: neighbor.ip, mac: neighbor.mac })
    }

    fn value(self) -> Neighbor {
        Neighbor { link: self.link, ip: self.ip, mac: self.mac, facts: None }
    }
}

fn encode(op: Op<'_, Neighbor>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let put = |neighbor: &Neighbor, protocol| {
        let message = message(neighbor, protocol, links)?;
        Ok(smallvec![Request::replace(RouteNetlinkMessage::NewNeighbour(message))])
    };
    match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => put(new, OUR_PROTOCOL),
        Op::Release { restore, .. } if links.index(&restore.link).is_some() => {
            put(restore, UNSPECIFIED)
        }
        Op::Delete(old) if links.index(&old.link).is_some() => {
            let message = message(old, OUR_PROTOCOL, links)?;
            Ok(smallvec![Request::delete(RouteNetlinkMessage::DelNeighbour(message))])
        }
        Op::Release { .. } | Op::Delete(_) => Ok(Requests::new()), // the kernel removed it with its link
    }
}

/// `RTPROT_UNSPEC`: set by no particular program.
const UNSPECIFIED: u8 = 0;

fn message(
    neighbor: &Neighbor,
    protocol: u8,
    links: &LinkIndex,
) -> Result<NeighbourMessage, EncodeError> {
    let link = &neighbor.link;
    let mut message = NeighbourMessage::default();
    message.header.ifindex =
        links.index(link).ok_or_else(|| EncodeError::LinkNotFound(link.clone()))?;
    message.header.state = NeighbourState::Permanent;
    message.header.family =
        if neighbor.ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let destination = match neighbor.ip {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    let mac = neighbor.mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
    message.attributes.extend(mac);
    message.attributes.push(NeighbourAttribute::Protocol(RouteProtocol::from(protocol)));
    Ok(message)
}

nodes!(
    /// Neighbours of one family.
    NeighborNodes {
        container: "",
        list: "/neighbor",
        mac: "/neighbor/link-layer-address",
        state: "/neighbor/state",
        state_ip: "/neighbor/state/ip",
        state_mac: "/neighbor/state/link-layer-address",
        state_origin: "/neighbor/state/origin",
        state_state: "/neighbor/state/neighbor-state",
        state_effective_status: "/neighbor/state/effective-status",
    }
);

/// `neighbor` in the native model.
#[derive(Debug)]
struct NativeNeighbor {
    interfaces: InterfaceNodes,
    v4: ForLinks<NeighborNodes>,
    v6: ForLinks<NeighborNodes>,
}

impl NativeNeighbor {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self {
            interfaces: InterfaceNodes::bind(schema)?,
            v4: ForLinks::find(|list| NeighborNodes::find(schema, &format!("{list}/ipv4")))?,
            v6: ForLinks::find(|list| NeighborNodes::find(schema, &format!("{list}/ipv6")))?,
        }))
    }

    fn family(&self, family: Family) -> &ForLinks<NeighborNodes> {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn neighbor(
        &self,
        link: &SmolStr,
        family: Family,
        entry: &Entry<'_>,
    ) -> Result<Neighbor, ObjectError> {
        let leaf = self.family(family).of_path(entry.path).mac;
        let mac: MacAddr = entry.parsed(leaf)?.ok_or_else(|| entry.incomplete(leaf))?;
        if let Some(reason) = not_of_one_host(mac) {
            return Err(entry.leaf_error(leaf, format!("{mac} is {reason}")));
        }
        let ip: IpAddr = entry.key_as()?;
        let fault =
            |why: &str| Err(entry.error(format!("{ip} cannot be a neighbor of {link}: {why}")));
        if let Some(what) = not_of_a_host(ip) {
            return fault(&format!("the address is {what}"));
        }
        if ip.is_loopback() {
            return fault("the address is a loopback address");
        }
        if link == "lo" {
            return fault("nothing is connected to the loopback link");
        }
        Ok(Neighbor { link: link.clone(), ip, mac: Some(mac), facts: None })
    }
}

impl NativeKind for NativeNeighbor {
    fn lists(&self) -> Vec<NodeId> {
        let families = [&self.v4, &self.v6].into_iter();
        families.flat_map(ForLinks::all).map(|nodes| nodes.list).collect()
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        let is_v4 = entry.node() == Some(self.v4.of_path(entry.path).list);
        let family = if is_v4 { Family::V4 } else { Family::V6 };
        let neighbor = self.neighbor(&entry.link_name()?, family, entry)?;
        Ok(smallvec![(key(&neighbor.link, neighbor.ip), Arc::new(neighbor) as SharedValue)])
    }

    fn own_key(&self, entry: &Entry<'_>) -> Result<Option<Key>, ObjectError> {
        Ok(Some(key(&entry.link_name()?, entry.key_as()?)))
    }

    /// Learned neighbours are learned again.
    fn adoption(&self, value: &dyn ObjectValue) -> Option<Adoption> {
        let neighbor: &Neighbor = value.as_any().downcast_ref()?;
        let mac = neighbor.mac.filter(|_| is_permanent(neighbor))?;
        let nodes = self.family(Family::of(neighbor.ip)).of_link(&neighbor.link);
        let path =
            self.interfaces.on_link(&neighbor.link, nodes.container, nodes.list, neighbor.ip);
        let mut leaves = Leaves::of_entry();
        leaves.put(nodes.mac, text_value(&mac.to_string()));
        Some(Adoption::Entry(leaves.entry(path)))
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let neighbor: &Neighbor = planes.observed()?;
        let nodes = self.family(Family::of(neighbor.ip)).of_link(&neighbor.link);
        let path =
            self.interfaces.on_link(&neighbor.link, nodes.container, nodes.list, neighbor.ip);
        let mut leaves = Leaves::of(nodes.state);
        leaves.put(nodes.state_ip, ip_text(neighbor.ip));
        let mac = neighbor.mac.map(|mac| text_value(&mac.to_string()));
        leaves.optional(nodes.state_mac, mac);
        if let Some(facts) = &neighbor.facts {
            let permanent = facts.state == NeighborState::Permanent;
            let origin = if permanent { "STATIC" } else { "DYNAMIC" };
            leaves.text_enum(nodes.state_origin, origin);
            leaves.text_enum(nodes.state_state, facts.state.name());
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
        let of = |nodes: &NeighborNodes| StatusNodes {
            list: nodes.list,
            container: nodes.state,
            leaf: nodes.state_effective_status,
        };
        let families = [&self.v4, &self.v6].into_iter();
        families.flat_map(ForLinks::all).map(of).collect()
    }
}

/// Neighbours of links.
pub(super) static NEIGHBORS: ClassRow = ClassRow {
    name: "Neighbors",
    groups: &[3], // `RTNLGRP_NEIGH`
    messages: &[RTM_NEWNEIGH, RTM_DELNEIGH],
    is_on_links: true,
    list: ClassList::Families(list),
    decode: |message, _, _, links| {
        let (message, is_present) = match message {
            RouteNetlinkMessage::NewNeighbour(message) => (message, true),
            RouteNetlinkMessage::DelNeighbour(message) => (message, false),
            _ => return Vec::new(),
        };
        observation(decode(message, links), |it| key(&it.link, it.ip), is_present)
    },
};

/// The neighbours of one family, of one link or of all (`link` 0).
fn list(family: Family, link: u32) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = address_family(family);
    if link != 0 {
        message.attributes.push(NeighbourAttribute::IfIndex(link));
    }
    RouteNetlinkMessage::GetNeighbour(message)
}

/// Decodes an `RTM_NEWNEIGH` or `RTM_DELNEIGH`; `None` for entries of other tables (a bridge's forwarding table)
/// and for multicast and broadcast ones.
pub(crate) fn decode(message: &NeighbourMessage, links: &LinkIndex) -> Option<Neighbor> {
    let link = links.name(message.header.ifindex)?.clone();
    let mut neighbor = None;
    let mut mac = None;
    let mut ours = false;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => {
                neighbor = Some(IpAddr::V4(*ip));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => {
                neighbor = Some(IpAddr::V6(*ip));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = MacAddr::from_slice(bytes),
            NeighbourAttribute::Protocol(protocol) => ours = u8::from(*protocol) == OUR_PROTOCOL,
            _ => {}
        }
    }
    let ip = neighbor.filter(|ip| !ip.is_multicast())?;
    let facts = NeighborFacts { ours, state: state(message.header.state)? };
    Some(Neighbor { link, ip, mac, facts: Some(facts) })
}

fn state(state: NeighbourState) -> Option<NeighborState> {
    Some(match state {
        NeighbourState::Permanent => NeighborState::Permanent,
        NeighbourState::Incomplete => NeighborState::Incomplete,
        NeighbourState::Reachable => NeighborState::Reachable,
        NeighbourState::Stale => NeighborState::Stale,
        NeighbourState::Delay => NeighborState::Delay,
        NeighbourState::Probe => NeighborState::Probe,
        NeighbourState::Failed => NeighborState::Failed,
        // The kernel adds such entries for broadcast and loopback addresses; they carry no information.
        NeighbourState::Noarp | NeighbourState::None => return None,
        _ => return None,
    })
}
