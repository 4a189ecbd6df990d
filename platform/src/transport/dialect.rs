//! What the transports ask of the codecs: the one place where both meet.

use holdfast_scheduler::{Key, KindId, Operation, SharedValue};
use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use smol_str::SmolStr;

use crate::codec::{EncodeError, Requests};
use crate::links::LinkIndex;
use crate::values::Family;

/// A key and what is observed of it; `None`: it is not there.
pub(crate) type Observation = (Key, Option<SharedValue>);

/// How an object is read back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// `RTM_GETLINK` by name.
    Link(SmolStr),
    /// The addresses of a link.
    Addresses(SmolStr),
    /// The neighbours of a link.
    Neighbors(SmolStr),
    /// The route of ours to this destination (of whatever metric).
    Route(IpNet),
    /// A kernel variable below `/proc/sys`.
    Sysctl(String),
    /// A file below the root.
    File(SmolStr),
    /// The name in the UTS namespace.
    Hostname,
    /// It cannot be read.
    Nothing,
}

/// A group of objects that the kernel lists together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Links,
    Addresses,
    Neighbors,
    Routes,
    Forwarding,
}

/// Everything the rtnetlink transport watches.
pub(crate) const ALL_CLASSES: [Class; 5] =
    [Class::Links, Class::Addresses, Class::Neighbors, Class::Routes, Class::Forwarding];

/// The codecs of all kinds.
pub(crate) trait Dialect: Send + Sync + 'static {
    /// The requests that carry out an operation.
    fn encode(&self, operation: &Operation, links: &mut LinkIndex)
    -> Result<Requests, EncodeError>;

    /// What a message tells, links noted in `links`.
    fn decode(
        &self,
        message: &RouteNetlinkMessage,
        links: &mut LinkIndex,
        time_ns: u64,
    ) -> Vec<Observation>;

    /// How the object of this key is read back.
    fn query(&self, key: &Key) -> Query;

    /// The kinds whose values a class of messages tells all about.
    fn kinds(&self, class: Class) -> Vec<KindId>;

    /// The value behind a text that was read back; `None`: nothing is there.
    fn from_text(&self, key: &Key, text: Option<&str>) -> Option<SharedValue>;

    /// A link's forwarding, as `RTM_NEWNETCONF` tells.
    fn forwarding(&self, link: &str, family: Family, enabled: bool) -> (Key, SharedValue);

    /// Text-like objects that exist in any case, for a complete retrieve.
    fn texts(&self) -> Vec<Key>;
}
