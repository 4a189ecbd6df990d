//! The kinds of values as the transports see them: encoding, and reading back.

use std::sync::Arc;

use holdfast_scheduler::{Key, KindId, Operation, Segment, SharedValue};
use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use smol_str::SmolStr;

use super::files;
use crate::kinds::codec::{EncodeError, Observation, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::{self, link_setting, system};
use crate::values::{Content, Family, Hostname, LinkSysctl, TextFile};

/// Encoding and decoding by [`kinds`]; tests substitute their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codecs {
    pub(crate) encode: fn(&Operation, &mut LinkIndex) -> Result<Requests, EncodeError>,
    pub(crate) decode: fn(&RouteNetlinkMessage, u16, u64, &mut LinkIndex) -> Vec<Observation>,
}

impl Default for Codecs {
    fn default() -> Self {
        Self { encode: kinds::encode, decode: kinds::decode }
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
    /// The sysctl of a setting of a link.
    Setting(LinkSysctl, SmolStr, Family),
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
    Settings,
    Addresses,
    Neighbors,
    Routes,
}

impl ObjectClass {
    /// Everything that the rtnetlink transport watches.
    pub(crate) const ALL: [Self; 5] =
        [Self::Links, Self::Settings, Self::Addresses, Self::Neighbors, Self::Routes];

    /// Kinds of values that a list of this class covers completely.
    pub(crate) fn kinds(self) -> &'static [KindId] {
        match self {
            Self::Links => {
                &[kinds::PORT, kinds::LINK, kinds::LINK_MASTER, kinds::LINK_MTU, kinds::ETHERNET]
            }
            Self::Settings => &[kinds::FORWARDING, kinds::IGNORE_LINKDOWN],
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
            (kinds::ETHERNET, Some(Segment::Str(link))) => Self::Ethernet(link.into()),
            (kinds::ADDRESS, Some(Segment::Str(link))) => Self::Addresses(link.into()),
            (kinds::NEIGHBOR, Some(Segment::Str(link))) => Self::Neighbors(link.into()),
            (kinds::ROUTE, _) => match segments.next() {
                Some(Segment::Prefix(prefix)) => Self::Route(prefix),
                _ => Self::Nothing,
            },
            (kind, Some(Segment::Str(link))) => {
                match (link_setting::of_kind(kind), segments.next()) {
                    (Some(sysctl), Some(Segment::Int(4))) => {
                        Self::Setting(sysctl, link.into(), Family::V4)
                    }
                    (Some(sysctl), _) => Self::Setting(sysctl, link.into(), Family::V6),
                    (None, _) => Self::Nothing,
                }
            }
            _ => Self::Nothing,
        }
    }

    /// True when the transport of files and host name answers the query.
    pub(crate) fn is_file_transport(&self) -> bool {
        match self {
            Self::File(_) | Self::Hostname | Self::Program(_) | Self::Account(_) => true,
            Self::CredentialFile(_) | Self::SshServer | Self::Password(_) => true,
            Self::Link(_) | Self::Addresses(_) | Self::Neighbors(_) | Self::Route(_) => false,
            Self::Setting(..) | Self::Ethernet(_) | Self::Nothing => false,
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

/// A setting of a link as a fact.
pub(crate) fn link_setting(
    sysctl: LinkSysctl,
    link: &str,
    family: Family,
    text: &str,
    links: &LinkIndex,
) -> Option<Observation> {
    let value = link_setting::observed(sysctl, link, family, text, links.is_ours(link))?;
    Some((link_setting::key(sysctl, link, family), Some(Arc::new(value))))
}
