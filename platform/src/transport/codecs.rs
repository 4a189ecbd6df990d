//! The kinds of values as the transports see them: encoding, and reading back.

use std::sync::Arc;

use holdfast_scheduler::{Key, KindId, Operation, Segment, SharedValue};
use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use smol_str::SmolStr;

use super::files;
use crate::codec::{EncodeError, Observation, Requests};
use crate::descriptors::{self, forwarding, kinds, system};
use crate::links::LinkIndex;
use crate::values::{Content, Family, Hostname, TextFile};

/// Encoding and decoding by [`descriptors`]; tests substitute their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codecs {
    pub(crate) encode: fn(&Operation, &mut LinkIndex) -> Result<Requests, EncodeError>,
    pub(crate) decode: fn(&RouteNetlinkMessage, u16, u64, &mut LinkIndex) -> Vec<Observation>,
}

impl Default for Codecs {
    fn default() -> Self {
        Self { encode: descriptors::encode, decode: descriptors::decode }
    }
}

/// Way to read an object back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReadQuery {
    /// `RTM_GETLINK` by name.
    Link(SmolStr),
    /// The addresses of a link.
    Addresses(SmolStr),
    /// The neighbours of a link.
    Neighbors(SmolStr),
    /// A route of ours to this destination, with any metric.
    Route(IpNet),
    /// Speed and duplex of a link, by ethtool.
    Ethernet(SmolStr),
    /// The sysctl of a link's forwarding.
    Forwarding(SmolStr, Family),
    /// A file below the root.
    File(SmolStr),
    /// The name in the UTS namespace.
    Hostname,
    /// Presence of an installed program.
    Program(SmolStr),
    /// Presence of an account of the box.
    Account(SmolStr),
    /// A file in the folder of credentials.
    CredentialFile(SmolStr),
    /// Our part of the configuration of the SSH server.
    SshServer,
    /// The hash of an account in the shadow file.
    Password(SmolStr),
    /// The object cannot be read.
    Nothing,
}

/// A group of objects that the kernel lists together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObjectClass {
    Links,
    Forwarding,
    Addresses,
    Neighbors,
    Routes,
}

impl ObjectClass {
    /// Everything that the rtnetlink transport watches.
    pub(crate) const ALL: [Self; 5] =
        [Self::Links, Self::Forwarding, Self::Addresses, Self::Neighbors, Self::Routes];

    /// Kinds of values that a list of this class covers completely.
    pub(crate) fn kinds(self) -> &'static [KindId] {
        match self {
            Self::Links => {
                &[kinds::PORT, kinds::LINK, kinds::LINK_MASTER, kinds::LINK_MTU, kinds::ETHERNET]
            }
            Self::Forwarding => &[kinds::FORWARDING],
            Self::Addresses => &[kinds::ADDRESS],
            Self::Neighbors => &[kinds::NEIGHBOR],
            Self::Routes => &[kinds::ROUTE],
        }
    }
}

impl ReadQuery {
    /// The query for the object of this key.
    pub(crate) fn of(key: &Key) -> Self {
        let mut segments = key.segments();
        let first = segments.next();
        match (key.kind(), first) {
            (kinds::HOSTNAME, _) => Self::Hostname,
            (kinds::SSH_SERVER, _) => Self::SshServer,
            (kinds::PROGRAM, Some(Segment::Str(path))) => Self::Program(path.into()),
            (kinds::ACCOUNT, Some(Segment::Str(name))) => Self::Account(name.into()),
            (kinds::PASSWORD, Some(Segment::Str(name))) => Self::Password(name.into()),
            (kinds::CREDENTIAL_FILE, Some(Segment::Str(path))) => Self::CredentialFile(path.into()),
            (kinds::TEXT_FILE, Some(Segment::Str(path))) => Self::File(path.into()),
            (
                kinds::PORT | kinds::LINK | kinds::LINK_MASTER | kinds::LINK_MTU,
                Some(Segment::Str(name)),
            ) => Self::Link(name.into()),
            (kinds::FORWARDING, Some(Segment::Str(name))) => match segments.next() {
                Some(Segment::Int(4)) => Self::Forwarding(name.into(), Family::V4),
                _ => Self::Forwarding(name.into(), Family::V6),
            },
            (kinds::ETHERNET, Some(Segment::Str(link))) => Self::Ethernet(link.into()),
            (kinds::ADDRESS, Some(Segment::Str(link))) => Self::Addresses(link.into()),
            (kinds::NEIGHBOR, Some(Segment::Str(link))) => Self::Neighbors(link.into()),
            (kinds::ROUTE, _) => match segments.next() {
                Some(Segment::Prefix(prefix)) => Self::Route(prefix),
                _ => Self::Nothing,
            },
            _ => Self::Nothing,
        }
    }

    /// True when the transport of files and host name answers the query.
    pub(crate) fn is_file_transport(&self) -> bool {
        match self {
            Self::File(_) | Self::Hostname | Self::Program(_) | Self::Account(_) => true,
            Self::CredentialFile(_) | Self::SshServer | Self::Password(_) => true,
            Self::Link(_) | Self::Addresses(_) | Self::Neighbors(_) | Self::Route(_) => false,
            Self::Forwarding(..) | Self::Ethernet(_) | Self::Nothing => false,
        }
    }
}

/// Keys of the files and the host name, which a complete report reads in addition to rtnetlink.
pub(crate) fn texts() -> Vec<Key> {
    let files = system::FILES.iter().map(|(path, _)| system::file_key(path));
    files.chain([system::hostname_key()]).collect()
}

/// True when only a block of this file is ours, so that the file is never removed.
pub(crate) fn is_shared_file(path: &str) -> bool {
    system::FILES.contains(&(path, false))
}

/// Value of a file from its text; `link` is the target of a symbolic link at its path, `hostname` the name of the box where
/// the file is the hosts file.
pub(crate) fn text_file(
    path: &SmolStr,
    text: Option<&str>,
    link: Option<String>,
    hostname: Option<&str>,
) -> SharedValue {
    let content = match (text, link) {
        (Some(text), _) if is_shared_file(path) => {
            files::block(text).map_or(Content::Absent, |lines| Content::Block(lines.to_owned()))
        }
        (text, Some(target)) if !is_shared_file(path) => {
            Content::Link { target, text: text.unwrap_or_default().to_owned() }
        }
        (Some(text), _) => Content::Whole(text.to_owned()),
        (None, _) => Content::Absent,
    };
    let content = match hostname {
        Some(hostname) => system::observed_hosts(content, hostname),
        None => content,
    };
    Arc::new(TextFile { path: path.clone(), content })
}

/// The name of the host as a value.
pub(crate) fn hostname(name: &str) -> SharedValue {
    Arc::new(Hostname { name: name.into() })
}

/// A link's forwarding as a fact.
pub(crate) fn forwarding(
    link: &str,
    family: Family,
    text: &str,
    links: &LinkIndex,
) -> Option<Observation> {
    let value = forwarding::observed(link, family, text, links.is_ours(link))?;
    Some((forwarding::key(link, family), Some(Arc::new(value))))
}
