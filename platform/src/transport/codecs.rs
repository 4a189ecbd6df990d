//! The kinds of values as the transports see them: encoding, and reading back.

use std::sync::Arc;

use holdfast_scheduler::{Key, Operation, SharedValue};
use netlink_packet_route::RouteNetlinkMessage;
use smol_str::SmolStr;

use super::files;
use crate::kinds::codec::{EncodeError, Observation, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::{self, link_setting, system};
use crate::values::{Content, Hostname, LinkSetting, TextFile};

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
pub(crate) fn link_setting(setting: LinkSetting) -> Observation {
    let key = link_setting::key(setting.sysctl, &setting.link, setting.family);
    (key, Some(Arc::new(setting)))
}
