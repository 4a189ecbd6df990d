//! Entries of the native model that a fault touches: which one shows a value, and where it is marked.

use std::net::IpAddr;

use holdfast_config::{Branch, InstancePath, LeafMeta, NodeId};
use holdfast_scheduler::{Key, Segment};
use smol_str::SmolStr;

use super::Registry;
use super::state::Planes;
use crate::kinds;
use crate::kinds::link::link_of;
use crate::values::{Family, Link};

/// Where the entries of one list have their effective status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusNodes {
    /// The list.
    pub list: NodeId,
    /// Its container of state.
    pub container: NodeId,
    /// The leaf in it.
    pub leaf: NodeId,
}

/// The entry that shows a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueEntry {
    /// Path of the entry.
    pub path: InstancePath,
    /// What of the entry the value is.
    pub share: EntryShare,
}

/// What one value is of the entry that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryShare {
    /// The entry stands for this value: without it, nothing of the entry works.
    Whole,
    /// An attribute of the entry with operations of its own.
    Attribute,
    /// One of several values that the entry stands for: [`Registry::keys`] has the others.
    OneOfSeveral,
}

impl Registry {
    /// Where the entries that are objects of the engine have their effective status.
    pub fn status_nodes(&self) -> [StatusNodes; 6] {
        let (link, route) = (&self.nodes.link, &self.nodes.route);
        let of = |list, container, leaf| StatusNodes { list, container, leaf };
        let [v4, v6] = [&self.nodes.v4, &self.nodes.v6];
        [
            of(link.entry, link.state, link.state_effective_status),
            of(v4.address, v4.address_state, v4.address_state_effective_status),
            of(v4.neighbor, v4.neighbor_state, v4.neighbor_state_effective_status),
            of(v6.address, v6.address_state, v6.address_state_effective_status),
            of(v6.neighbor, v6.neighbor_state, v6.neighbor_state_effective_status),
            of(route.route, route.route_state, route.route_state_effective_status),
        ]
    }

    /// The entry that shows a value; `None` for a value that no list shows, and for a link that is administratively down,
    /// which is no fault.
    pub fn value_entry(&self, key: &Key, planes: Planes<'_>) -> Option<ValueEntry> {
        use EntryShare::{Attribute, OneOfSeveral, Whole};
        let (path, share) = match key.kind() {
            kinds::LINK => {
                let links = [planes.intended::<Link>(), planes.observed::<Link>()];
                let is_shut = links.into_iter().flatten().any(|link| !link.enabled);
                let name = link_of(key).filter(|_| !is_shut)?;
                (self.link_path(&name), Whole)
            }
            kinds::LINK_MASTER
            | kinds::LINK_MTU
            | kinds::ETHERNET
            | kinds::ETHERNET_CONFIG
            | kinds::FORWARDING
            | kinds::IGNORE_LINKDOWN => (self.link_path(&link_of(key)?), Attribute),
            kinds::ADDRESS | kinds::NEIGHBOR => {
                let (link, ip) = on_link(key)?;
                let nodes = self.nodes.family(Family::of(ip));
                let is_address = key.kind() == kinds::ADDRESS;
                let list = if is_address { nodes.address } else { nodes.neighbor };
                (self.family_path(&link, nodes.container, list, ip), Whole)
            }
            kinds::ROUTE => {
                let value = planes.applied.or(planes.intended)?;
                (self.applied_entry(value)?, OneOfSeveral)
            }
            _ => return None,
        };
        Some(ValueEntry { path, share })
    }

    /// Keys of the other values that the entry of a value stands for. `branch` is the entry of the configuration.
    pub fn keys_beside<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: &Branch<M>,
        keys: &[Key],
    ) -> Vec<Key> {
        let all = self.keys(path, branch).unwrap_or_default();
        all.into_iter().filter(|key| !keys.contains(key)).collect()
    }
}

/// Link and address that the key of an address or a neighbour consists of.
fn on_link(key: &Key) -> Option<(SmolStr, IpAddr)> {
    let mut segments = key.segments();
    match (segments.next()?, segments.next()?) {
        (Segment::Str(link), Segment::Ip(ip)) => Some((link.into(), ip)),
        _ => None,
    }
}
