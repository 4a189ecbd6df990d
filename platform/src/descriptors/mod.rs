//! What the engine must know of each kind of value, and how each is encoded and decoded: one file
//! for each kind. All of it is pure.
//!
//! Start at [`registry`] for what the engine is given, at [`encode`] and [`decode`] for what the
//! transports call.

use holdfast_scheduler::{Effect, Operation, Registry, SharedValue, TransportId};
use netlink_packet_route::RouteNetlinkMessage;
use std::sync::Arc;

pub mod access;
pub mod address;
pub mod credential;
pub mod ethernet;
pub mod forwarding;
#[cfg(test)]
mod kernel_tests;
pub mod kinds;
pub mod link;
pub mod neighbor;
pub mod reconciliation;
pub mod route;
pub mod system;

use crate::codec::{Codec, EncodeError, Observation, Op, Requests};
use crate::links::LinkIndex;

/// Of kinds that the kernel knows nothing of: what there is to do is done by their parts, or by the agent.
const NO_REQUEST: Effect = Effect::Operation(TransportId::NONE);

/// All kinds of values of this platform.
///
/// # Panics
/// When two kinds share a number or a name, which no configuration can bring about.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    let registered = [
        registry.register(system::SystemDescriptor),
        registry.register(system::HostnameDescriptor),
        registry.register(system::TextFileDescriptor),
        registry.register(access::UserDescriptor),
        registry.register(access::GrpcServerDescriptor),
        registry.register(reconciliation::ReconciliationDescriptor),
        registry.register(reconciliation::DriftRuleDescriptor),
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
        registry.register(forwarding::ForwardingDescriptor),
        registry.register(address::AddressDescriptor),
        registry.register(address::ConnectedDescriptor),
        registry.register(neighbor::NeighborDescriptor),
        registry.register(route::NetworkInstanceDescriptor),
        registry.register(route::StaticProtocolDescriptor),
        registry.register(route::StaticRouteDescriptor),
        registry.register(route::RouteDescriptor),
    ];
    for result in registered {
        result.expect("numbers and names of kinds are distinct");
    }
    registry
}

/// The requests that carry out an operation, in order; none when nothing differs.
///
/// # Errors
/// When it names a link that is neither there nor on its way, or is of a kind without encoding.
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
        // The kernel itself makes and removes these.
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

/// What a message of the kernel says about the objects we know of; nothing when it is about others.
///
/// Takes note of links in `links`, so messages about links must come in their order, and before
/// those about what is on them. `flags` are those of the message's header, `time_ns` is when it
/// came, nanoseconds since 1970.
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
    // A link of the same name may have been made since: its index is another one.
    let successor = links.index(&link.name).is_some_and(|current| current != index);
    links.forget(index);
    if successor { Vec::new() } else { link::observations(link, true) }
}

fn one<V: holdfast_scheduler::Value>(
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
