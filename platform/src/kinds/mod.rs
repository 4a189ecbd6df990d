//! Kinds of values, one module for each or for a few that belong together: the type, its descriptor and its codec. Pure.
//!
//! Start at [`registry`] for the descriptors that the engine gets, at [`encode`] and [`decode`] for the codecs
//! that the transports call.
//!
//! What the kernel refuses because of another object is a declared dependency or claim of the value, so that the order of
//! changes does not matter. `kernel_tests` tries each row on the kernel.
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
//! | tunnel | another one of its identity | EEXIST | a claim |
//! | bridge port | its master is no bridge, or not there | EOPNOTSUPP, ENODEV | the facet of bridges |
//! | bridge port | it is a bridge, or the loopback link | ELOOP, EINVAL | refused before, by [`objects`](crate::objects) |
//! | neighbour | an address of ours on its link: accepted, and useless | none | a claim |
//! | link-layer address of the loopback link | given back | EADDRNOTAVAIL | refused before |
//!
//! Others may change a link without an announcement. Errors of that kind are [`ErrorClass::Unmet`]: the value waits as for a
//! dependency.
//!
//! [`ErrorClass::Unmet`]: holdfast_scheduler::ErrorClass::Unmet

use holdfast_scheduler::{Effect, Operation, Registry, SharedValue, TransportId};
use netlink_packet_route::RouteNetlinkMessage;
use std::sync::Arc;

pub mod address;
pub mod codec;
pub mod credential;
pub mod ethernet;
#[cfg(test)]
mod kernel_tests;
pub mod link;
pub mod link_setting;
pub mod links;
mod mtu_limits;
pub mod neighbor;
pub mod route;
pub mod system;
pub mod types;

use codec::{Codec, EncodeError, Observation, Op, Requests};
use link_setting::{LinkSettingDescriptor, LinkSysctl};
use links::LinkIndex;

pub use address::{ADDRESS, CONNECTED};
pub use credential::{ACCOUNT, CREDENTIAL_FILE, GLOME_LOGIN, PASSWORD, PROGRAM, SSH_SERVER};
pub use ethernet::{ETHERNET, ETHERNET_CONFIG};
pub use link::{LINK, LINK_MASTER, LINK_MTU, LINK_UP, PORT};
pub use link_setting::{FORWARDING, IGNORE_LINKDOWN};
pub use neighbor::NEIGHBOR;
pub use route::ROUTE;
pub use system::{HOSTNAME, TEXT_FILE};

/// Effect of kinds that the kernel does not know: their parts carry them out, or they only wait for what the kernel shows.
const NO_REQUEST: Effect = Effect::Operation(TransportId::NONE);

/// All kinds of values of this platform.
///
/// # Panics
/// When two kinds share a number or a name, which no configuration can bring about.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    let registered = [
        registry.register(system::HostnameDescriptor),
        registry.register(system::TextFileDescriptor),
        registry.register(credential::ProgramDescriptor),
        registry.register(credential::AccountDescriptor),
        registry.register(credential::CredentialFileDescriptor),
        registry.register(credential::SshServerDescriptor),
        registry.register(credential::GlomeLoginDescriptor),
        registry.register(credential::PasswordDescriptor),
        registry.register(link::PortDescriptor),
        registry.register(link::LinkDescriptor),
        registry.register(link::LinkUpDescriptor),
        registry.register(link::LinkMasterDescriptor),
        registry.register(link::LinkMtuDescriptor),
        registry.register(ethernet::EthernetDescriptor),
        registry.register(ethernet::EthernetConfigDescriptor),
        registry.register(address::AddressDescriptor),
        registry.register(address::ConnectedPrefixDescriptor),
        registry.register(neighbor::NeighborDescriptor),
        registry.register(route::RouteDescriptor),
    ];
    let settings = LinkSysctl::ALL.map(|sysctl| registry.register(LinkSettingDescriptor(sysctl)));
    for result in registered.into_iter().chain(settings) {
        result.expect("numbers and names of kinds are distinct");
    }
    registry
}

/// Requests that carry out an operation, in order; none when there is nothing to change.
///
/// # Errors
/// When a named link neither exists nor is being created, or the kind has no encoding.
pub fn encode(operation: &Operation, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    match operation.key.kind() {
        LINK => with(&link::LinkDescriptor, operation, links),
        LINK_MASTER => with(&link::LinkMasterDescriptor, operation, links),
        LINK_MTU => with(&link::LinkMtuDescriptor, operation, links),
        ADDRESS => with(&address::AddressDescriptor, operation, links),
        NEIGHBOR => with(&neighbor::NeighborDescriptor, operation, links),
        ROUTE => with(&route::RouteDescriptor, operation, links),
        HOSTNAME => with(&system::HostnameDescriptor, operation, links),
        TEXT_FILE => with(&system::TextFileDescriptor, operation, links),
        CREDENTIAL_FILE => with(&credential::CredentialFileDescriptor, operation, links),
        SSH_SERVER => with(&credential::SshServerDescriptor, operation, links),
        PASSWORD => with(&credential::PasswordDescriptor, operation, links),
        // The kernel creates and removes these by itself.
        CONNECTED => Ok(Requests::new()),
        kind => match link_setting::of_kind(kind) {
            Some(sysctl) => with(&LinkSettingDescriptor(sysctl), operation, links),
            None => Err(no_codec(operation)),
        },
    }
}

/// Reason for which the kernel refused an operation, where it has no words for it.
pub fn why_refused(operation: &Operation, links: &LinkIndex) -> Option<String> {
    match operation.key.kind() {
        LINK_MTU => {
            let part = operation.new.as_ref()?.as_any().downcast_ref()?;
            link::why_refused(part, links)
        }
        _ => None,
    }
}

fn with<C: Codec>(
    codec: &C,
    operation: &Operation,
    links: &mut LinkIndex,
) -> Result<Requests, EncodeError> {
    let op = Op::of(operation).ok_or_else(|| no_codec(operation))?;
    codec.encode(op, links)
}

fn no_codec(operation: &Operation) -> EncodeError {
    EncodeError::NoCodec(format!("{} {}", operation.action, operation.key))
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
    match message {
        RouteNetlinkMessage::NewLink(message) => match link::decode(message, links) {
            Some(link) => new_link(link, time_ns, links),
            None => Vec::new(),
        },
        RouteNetlinkMessage::DelLink(message) => match link::decode(message, links) {
            Some(link) => gone_link(link, links),
            None => Vec::new(),
        },
        RouteNetlinkMessage::NewAddress(message) => {
            one(address::decode(message, links), |it| address::key(&it.link, it.ip), true)
        }
        RouteNetlinkMessage::DelAddress(message) => {
            one(address::decode(message, links), |it| address::key(&it.link, it.ip), false)
        }
        RouteNetlinkMessage::NewNeighbour(message) => {
            one(neighbor::decode(message, links), |it| neighbor::key(&it.link, it.ip), true)
        }
        RouteNetlinkMessage::DelNeighbour(message) => {
            one(neighbor::decode(message, links), |it| neighbor::key(&it.link, it.ip), false)
        }
        RouteNetlinkMessage::NewRoute(message) => {
            routes(route::decode(message, flags, false, links))
        }
        RouteNetlinkMessage::DelRoute(message) => {
            routes(route::decode(message, flags, true, links))
        }
        _ => Vec::new(),
    }
}

fn new_link(mut link: link::Link, time_ns: u64, links: &mut LinkIndex) -> Vec<Observation> {
    let renamed = links.observe(&mut link, time_ns);
    let mut all = Vec::new();
    if let Some(old) = renamed {
        let old = link::Link::new(old, link.kind.clone());
        all.extend(link::observations(old, true));
    }
    all.extend(mtus(links.observe_mtu(&link)));
    all.extend(link::observations(link, false));
    all
}

/// MTUs of links that other links limit. One link that changes may change the limits of others.
fn mtus(parts: Vec<link::LinkMtu>) -> impl Iterator<Item = Observation> {
    parts.into_iter().map(|part| (link::mtu_key(&part.link), Some(Arc::new(part) as SharedValue)))
}

fn gone_link(link: link::Link, links: &mut LinkIndex) -> Vec<Observation> {
    let index = link.facts.as_ref().map_or(0, |facts| facts.index);
    // A new link of this name has another index.
    let successor = links.index(&link.name).is_some_and(|current| current != index);
    links.forget(index);
    let mut all = if successor { Vec::new() } else { link::observations(link, true) };
    all.extend(mtus(links.forget_mtu(index)));
    all
}

fn one<V: holdfast_scheduler::ObjectValue>(
    value: Option<V>,
    key: impl Fn(&V) -> holdfast_scheduler::Key,
    present: bool,
) -> Vec<Observation> {
    value.into_iter().map(|it| (key(&it), present.then(|| Arc::new(it) as SharedValue))).collect()
}

fn routes(
    found: Option<(holdfast_scheduler::Key, Option<route::KernelRoute>)>,
) -> Vec<Observation> {
    let found = found.map(|(key, route)| (key, route.map(|route| Arc::new(route) as SharedValue)));
    found.into_iter().collect()
}
