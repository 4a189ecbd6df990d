//! Descriptors and codecs, one file for each kind of value. Pure.
//!
//! Start at [`registry`] for the descriptors that the engine gets, at [`encode`] and [`decode`] for the codecs
//! that the transports call.

use holdfast_scheduler::{Effect, Operation, Registry, SharedValue, TransportId};
use netlink_packet_route::RouteNetlinkMessage;
use std::sync::Arc;

pub mod address;
pub mod credential;
pub mod ethernet;
pub mod forwarding;
#[cfg(test)]
mod kernel_tests;
pub mod kinds;
pub mod link;
pub mod neighbor;
pub mod route;
pub mod system;

use crate::codec::{Codec, EncodeError, Observation, Op, Requests};
use crate::links::LinkIndex;

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
        registry.register(ethernet::EthernetDescriptor),
        registry.register(ethernet::EthernetConfigDescriptor),
        registry.register(forwarding::ForwardingDescriptor),
        registry.register(address::AddressDescriptor),
        registry.register(address::ConnectedPrefixDescriptor),
        registry.register(neighbor::NeighborDescriptor),
        registry.register(route::RouteDescriptor),
    ];
    for result in registered {
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
        kinds::LINK => with(&link::LinkDescriptor, operation, links),
        kinds::LINK_MASTER => with(&link::LinkMasterDescriptor, operation, links),
        kinds::FORWARDING => with(&forwarding::ForwardingDescriptor, operation, links),
        kinds::ADDRESS => with(&address::AddressDescriptor, operation, links),
        kinds::NEIGHBOR => with(&neighbor::NeighborDescriptor, operation, links),
        kinds::ROUTE => with(&route::RouteDescriptor, operation, links),
        kinds::HOSTNAME => with(&system::HostnameDescriptor, operation, links),
        kinds::TEXT_FILE => with(&system::TextFileDescriptor, operation, links),
        kinds::CREDENTIAL_FILE => with(&credential::CredentialFileDescriptor, operation, links),
        kinds::SSH_SERVER => with(&credential::SshServerDescriptor, operation, links),
        kinds::PASSWORD => with(&credential::PasswordDescriptor, operation, links),
        // The kernel creates and removes these by itself.
        kinds::CONNECTED => Ok(Requests::new()),
        _ => Err(no_codec(operation)),
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

fn new_link(
    mut link: crate::values::Link,
    time_ns: u64,
    links: &mut LinkIndex,
) -> Vec<Observation> {
    let renamed = links.observe(&mut link, time_ns);
    let mut all = Vec::new();
    if let Some(old) = renamed {
        let old = crate::values::Link::new(old, link.kind.clone());
        all.extend(link::observations(old, true));
    }
    all.extend(link::observations(link, false));
    all
}

fn gone_link(link: crate::values::Link, links: &mut LinkIndex) -> Vec<Observation> {
    let index = link.facts.as_ref().map_or(0, |facts| facts.index);
    // A new link of this name has another index.
    let successor = links.index(&link.name).is_some_and(|current| current != index);
    links.forget(index);
    if successor { Vec::new() } else { link::observations(link, true) }
}

fn one<V: holdfast_scheduler::ObjectValue>(
    value: Option<V>,
    key: impl Fn(&V) -> holdfast_scheduler::Key,
    present: bool,
) -> Vec<Observation> {
    value.into_iter().map(|it| (key(&it), present.then(|| Arc::new(it) as SharedValue))).collect()
}

fn routes(
    found: Option<(holdfast_scheduler::Key, Option<crate::values::KernelRoute>)>,
) -> Vec<Observation> {
    let found = found.map(|(key, route)| (key, route.map(|route| Arc::new(route) as SharedValue)));
    found.into_iter().collect()
}
