//! Kinds of values, one module for each or for a few that belong together: the type, its descriptor and its codec. Pure.
//!
//! [`KINDS`] lists all kinds. [`row`] defines the questions that each kind answers. The transports call [`encode`] and
//! [`decode`].
//!
//! Every reason to refuse a value because of another object is a declared dependency or claim of the value, so that
//! the order of changes does not matter. `kernel_tests` tries each row on the kernel.
//!
//! | kind | refused because of | errno | covered by |
//! |---|---|---|---|
//! | address of IPv6 | IPv6 switched off on the link | EACCES | `link::carries_ipv6` |
//! | address of IPv6 | an MTU of the link below 1280 | EINVAL | `link::carries_ipv6` |
//! | neighbour of IPv6 | either of these | EINVAL | `link::carries_ipv6` |
//! | route of IPv6 to a link | IPv6 switched off | EACCES | `link::carries_ipv6` |
//! | route of IPv6 to a link | an MTU below 1280 | ENODEV | `link::carries_ipv6` |
//! | tunnel of IPv6 | IPv6 switched off on its device | EPERM | `link::carries_ipv6` |
//! | forwarding and other settings, switch of IPv6 | an MTU below 1280 (IPv4: 68) | ENOENT | `link::has_settings` |
//! | route to a link | the link is down | ENETDOWN | the property that the link is up |
//! | route | no prefix covers its gateway | ENETUNREACH, EHOSTUNREACH | a covering prefix |
//! | neighbour | the link is down: accepted, and dropped | none | the property that the link is up |
//! | MTU of a tunnel | the MTU of its device | EINVAL | `link::LinkMtuDescriptor`: the reason is only known to the kernel |
//! | MTU of a VLAN | the MTU of its port | ERANGE | the same |
//! | VLAN up | its port is down | ENETDOWN | the property that the port is up |
//! | tunnel, VLAN | another one of its identity | EEXIST | a claim |
//! | bridge port | the master is not a bridge, or does not exist | EOPNOTSUPP, ENODEV | the facet of bridges |
//! | bridge port | it is a bridge, or the loopback link | ELOOP, EINVAL | refused before, by [`objects`](crate::objects) |
//! | bond member | the master is not a bond, or does not exist | EOPNOTSUPP, ENODEV | the facet of bonds |
//! | bond member | it is up | EPERM | the request puts it down |
//! | bond member | it is a bond, a bridge, or the loopback link | EPERM, EINVAL | refused before, by [`objects`](crate::objects) |
//! | LACP | the bond is in another mode | EACCES | the facet of bonds with LACP |
//! | LACP | the bond is up | EPERM | the requests put it down and up |
//! | neighbour | an address of ours on its link: accepted, and useless | none | a claim |
//! | link-layer address of the loopback link | given back | EADDRNOTAVAIL | refused before |
//!
//! Others may change a link without an announcement. Errors of that kind are [`ErrorClass::Unmet`]: the value waits as for a
//! dependency.
//!
//! [`ErrorClass::Unmet`]: holdfast_scheduler::ErrorClass::Unmet

use holdfast_scheduler::{Effect, KindId, Operation, Registry, TransportId};
use netlink_packet_route::RouteNetlinkMessage;
use std::sync::LazyLock;

pub mod address;
pub mod bond_members;
pub mod codec;
pub mod credential;
mod difference;
pub mod entry;
pub mod ethernet;
#[cfg(test)]
mod kernel_tests;
pub mod lacp;
pub mod lacp_defaults;
#[cfg(test)]
mod leaf_table;
pub mod link;
pub mod link_setting;
pub mod links;
mod mtu_limits;
pub mod native;
pub mod neighbor;
pub mod reading;
pub mod relation;
pub mod route;
pub mod row;
pub mod state;
pub mod system;
#[cfg(test)]
mod tests;
pub mod types;

use codec::{EncodeError, Observation, Requests};
use links::LinkIndex;
use reading::ClassRow;
use row::{KindRow, Shown, row};

pub use address::{ADDRESS, CONNECTED};
pub use bond_members::{BOND_MEMBERS, LACP_MEMBER};
pub use credential::{ACCOUNT, CREDENTIAL_FILE, GLOME_LOGIN, PASSWORD, PROGRAM, SSH_SERVER};
pub use ethernet::{ETHERNET, ETHERNET_CONFIG};
pub use lacp::LACP;
pub use lacp_defaults::LACP_DEFAULTS;
pub use link::{LINK, LINK_ADMIN, LINK_MASTER, LINK_MTU, LINK_UP, PORT};
pub use link_setting::{FORWARDING, IGNORE_LINKDOWN};
pub use neighbor::NEIGHBOR;
pub use route::ROUTE;
pub use system::{HOSTNAME, TEXT_FILE};

/// Effect of kinds that the kernel does not know: their parts carry them out, or they only wait for what the kernel shows.
const NO_REQUEST: Effect = Effect::Operation(TransportId::NONE);

/// All kinds of values of this platform.
pub static KINDS: LazyLock<Vec<KindRow>> = LazyLock::new(|| {
    vec![
        row::<system::HostnameDescriptor>(),
        row::<system::TextFileDescriptor>(),
        row::<credential::ProgramDescriptor>(),
        row::<credential::AccountDescriptor>(),
        row::<credential::CredentialFileDescriptor>(),
        row::<credential::SshServerDescriptor>(),
        row::<credential::GlomeLoginDescriptor>(),
        row::<credential::PasswordDescriptor>(),
        row::<link::PortDescriptor>(),
        row::<link::LinkDescriptor>(),
        row::<link::LinkUpDescriptor>(),
        row::<ethernet::EthernetDescriptor>(),
        row::<ethernet::EthernetConfigDescriptor>(),
        row::<address::AddressDescriptor>(),
        row::<address::ConnectedPrefixDescriptor>(),
        row::<neighbor::NeighborDescriptor>(),
        row::<lacp::LacpDescriptor>(),
        row::<lacp_defaults::LacpDefaultsDescriptor>(),
        row::<bond_members::BondMembersDescriptor>(),
        row::<bond_members::LacpMemberDescriptor>(),
        row::<link::LinkMasterDescriptor>(),
        row::<link::LinkMtuDescriptor>(),
        row::<link::LinkAdminDescriptor>(),
        row::<route::RouteDescriptor>(),
        row::<link_setting::LinkSettingDescriptor<0>>(),
        row::<link_setting::LinkSettingDescriptor<1>>(),
        row::<link_setting::LinkSettingDescriptor<2>>(),
        row::<link_setting::LinkSettingDescriptor<3>>(),
        row::<link_setting::LinkSettingDescriptor<4>>(),
        row::<link_setting::LinkSettingDescriptor<5>>(),
    ]
});

/// Classes of objects that rtnetlink announces and lists, in the order in which everything is read.
pub(crate) static CLASSES: [&ClassRow; 5] = [
    &link::LINKS,
    &link_setting::SETTINGS,
    &address::ADDRESSES,
    &neighbor::NEIGHBORS,
    &route::ROUTES,
];

/// The class of the objects that messages of a type (`RTM_*`) are about.
pub(crate) fn class_of(message: u16) -> Option<&'static ClassRow> {
    CLASSES.into_iter().find(|class| class.messages.contains(&message))
}

/// The row of a kind; `None` for a number that no kind has.
pub fn row_of(kind: KindId) -> Option<&'static KindRow> {
    KINDS.iter().find(|row| row.id == kind)
}

/// Where the state of a kind is shown.
pub fn shown(kind: KindId) -> Shown {
    row_of(kind).map_or(Shown::AsLeaves, |row| row.shown)
}

/// Descriptors of all kinds, for the engine.
///
/// # Panics
/// When two kinds share a number or a name, which no configuration can bring about.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    for row in KINDS.iter() {
        (row.register)(&mut registry, &KINDS).expect("numbers and names of kinds are distinct");
    }
    registry
}

/// Requests that carry out an operation, in order; none when there is nothing to change.
///
/// # Errors
/// When a named link neither exists nor is being created, or the kind has no encoding.
pub fn encode(operation: &Operation, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let encode = row_of(operation.key.kind()).and_then(|row| row.encode);
    encode.ok_or_else(|| row::no_codec(operation))?(operation, links)
}

/// Reason for which the kernel refused an operation, where it has no words for it.
pub fn why_refused(operation: &Operation, links: &LinkIndex) -> Option<String> {
    (row_of(operation.key.kind())?.why_refused)(operation, links)
}

/// Decodes a kernel message about an object of a known kind; empty for all other messages.
///
/// Records links in `links`, so messages about links must come in their order, and before those about objects on
/// them. `flags` are those of the message header, `time_ns` is the time of receipt, nanoseconds since 1970.
pub fn decode(
    message: &RouteNetlinkMessage,
    flags: u16,
    time_ns: u64,
    links: &mut LinkIndex,
) -> Vec<Observation> {
    let class = class_of(message.message_type());
    class.map_or_else(Vec::new, |class| (class.decode)(message, flags, time_ns, links))
}
