//! Failures of resources, as the engine walks them: see [`ImpactWalk`](holdfast_scheduler::ImpactWalk).
//!
//! The objects that fail with a link are those that the kernel would remove with it, so the lists are those of [`kinds`].

use std::net::IpAddr;

use holdfast_scheduler::{Failure, Key, KindId, Space, Target};

use crate::kinds::link::{self, LINK_ROWS};
use crate::kinds::{self, KINDS};
use crate::values::MAIN_TABLE;

/// Kinds whose values fail with their link even if they are not ours: the engine has to find them by their keys.
pub const INDEXED_KINDS: [KindId; 2] = [kinds::ADDRESS, kinds::NEIGHBOR];

/// Failure of an interface: the link and everything on it, of ours or not, and its ports.
pub fn of_interface(name: &str) -> Failure {
    let ports = LINK_ROWS.iter().filter(|row| row.ports.is_some());
    let ports = ports.map(|row| Target::AnyOf(link::master_facet(row.name, name)));
    Failure {
        targets: [Target::Exact(link::up_key(name))].into_iter().chain(ports).collect(),
        keys: vec![link::key(name)],
        below: link::below(&KINDS, name).collect(),
    }
}

/// Prefixes of the keys of an interface: of the link, of its properties, and of everything that the kernel would remove with it.
pub fn keys_of_interface(name: &str) -> Vec<Key> {
    let own = [link::key(name), link::up_key(name), Key::of(kinds::ETHERNET_CONFIG).str(name)];
    own.into_iter().chain(link::below(&KINDS, name)).collect()
}

/// True for a need that names an interface: that the link is there, or up.
pub fn names_interface(target: &Target, name: &str) -> bool {
    let keys = [link::key(name), link::up_key(name), link::port_key(name)];
    matches!(target, Target::Exact(key) if keys.contains(key))
}

/// Failure of a next hop. Routes may need it by whatever link leads there, or by one of these.
pub fn of_next_hop<'l>(address: IpAddr, links: impl IntoIterator<Item = &'l str>) -> Failure {
    let spaces = links.into_iter().map(Space::link);
    let spaces = [Space::table(MAIN_TABLE)].into_iter().chain(spaces);
    let targets = spaces.map(|space| Target::Covering { space, address }).collect();
    Failure { targets, ..Failure::default() }
}
