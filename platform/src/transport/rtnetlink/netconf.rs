//! Settings of links, as `RTM_NEWNETCONF` announces and lists it.
//!
//! Writing the sysctl gives no notification of the file itself; this message announces it.

use holdfast_scheduler::Fact;
use smol_str::SmolStr;

use super::frame::{Frame, u32_at};
use crate::kinds::links::LinkIndex;
use crate::transport::codecs;
use crate::values::{Family, LinkSetting, LinkSysctl};

/// `struct netconfmsg` is one byte, padded.
const HEADER_LEN: usize = 4;
const NETCONFA_IFINDEX: u16 = 1;
/// Index that stands for all links (`NETCONFA_IFINDEX_ALL`, -1).
const ALL_LINKS: u32 = u32::MAX;
/// An attribute of four bytes: length and type, then the value.
const ATTRIBUTE_LEN: usize = 8;

/// The facts in a message: none for the pseudo interfaces `all` and `default` (negative indices), and for messages about
/// other variables. A list has all settings of a link in one message, an announcement the one that was written.
pub(super) fn facts<'a>(
    frame: &Frame<'a>,
    links: &'a LinkIndex,
    time_ns: u64,
) -> impl Iterator<Item = Fact> + 'a {
    let payload = frame.payload;
    let link = attribute(payload, NETCONFA_IFINDEX).and_then(|index| links.name(index));
    mentioned(frame).filter(|(sysctl, ..)| sysctl.is_announced()).filter_map(
        move |(sysctl, family, value)| {
            let on_our_link = links.is_ours(link?);
            let setting = LinkSetting::new(sysctl, link?.clone(), family, &[value]);
            let (key, value) = codecs::link_setting(LinkSetting { on_our_link, ..setting });
            Some(Fact { key, value, time_ns })
        },
    )
}

/// Settings that have to be read, because an announcement does not have all of them.
pub(super) enum Unsaid {
    /// Settings of a link.
    Of(SmolStr, Vec<(LinkSysctl, Family)>),
    /// Settings of all links.
    OfAll,
}

/// Settings that an announcement has in part. A new link is announced with all its settings: those of links of ours are
/// there once they are configured, and those of others are read with the link.
pub(super) fn unsaid(frame: &Frame<'_>, links: &LinkIndex) -> Option<Unsaid> {
    if mentioned(frame).nth(1).is_some() {
        return None;
    }
    let settings: Vec<(LinkSysctl, Family)> = mentioned(frame)
        .filter(|(sysctl, ..)| !sysctl.is_announced())
        .map(|(sysctl, family, _)| (sysctl, family))
        .collect();
    match attribute(frame.payload, NETCONFA_IFINDEX)? {
        _ if settings.is_empty() => None,
        ALL_LINKS => {
            settings.iter().any(|(sysctl, _)| sysctl.row().has_least).then_some(Unsaid::OfAll)
        }
        index => Some(Unsaid::Of(links.name(index)?.clone(), settings)),
    }
}

/// Settings whose first file is in a message.
fn mentioned<'a>(frame: &Frame<'a>) -> impl Iterator<Item = (LinkSysctl, Family, u32)> + 'a {
    let payload = frame.payload;
    let family = payload.first().and_then(|family| match i32::from(*family) {
        nix::libc::AF_INET => Some(Family::V4),
        nix::libc::AF_INET6 => Some(Family::V6),
        _ => None,
    });
    LinkSysctl::of_families().filter_map(move |(sysctl, of)| {
        let value = attribute(payload, sysctl.row().netconf?)?;
        (family == Some(of)).then_some((sysctl, of, value))
    })
}

/// The value of an attribute. All attributes of this message are four bytes long.
fn attribute(payload: &[u8], kind: u16) -> Option<u32> {
    let mut attributes = payload.get(HEADER_LEN..)?.chunks_exact(ATTRIBUTE_LEN);
    let found = attributes.find(|attribute| attribute[2..4] == kind.to_ne_bytes())?;
    u32_at(found, 4)
}
