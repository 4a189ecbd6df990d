//! Settings of links, as `RTM_NEWNETCONF` announces and lists it.
//!
//! Writing the sysctl gives no notification of the file itself; this message announces it.

use holdfast_scheduler::Fact;

use super::frame::{Frame, u32_at};
use crate::kinds::links::LinkIndex;
use crate::transport::codecs;
use crate::values::{Family, LinkSysctl};

/// `struct netconfmsg` is one byte, padded.
const HEADER_LEN: usize = 4;
const NETCONFA_IFINDEX: u16 = 1;
/// Attributes of the settings.
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
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
    let family = payload.first().and_then(|family| match i32::from(*family) {
        nix::libc::AF_INET => Some(Family::V4),
        nix::libc::AF_INET6 => Some(Family::V6),
        _ => None,
    });
    let link = attribute(payload, NETCONFA_IFINDEX).and_then(|index| links.name(index));
    LinkSysctl::ALL.into_iter().filter_map(move |sysctl| {
        let text = attribute(payload, attribute_of(sysctl))?.to_string();
        let (key, value) = codecs::link_setting(sysctl, link?, family?, &text, links)?;
        Some(Fact { key, value, time_ns })
    })
}

/// The attribute of a setting.
fn attribute_of(sysctl: LinkSysctl) -> u16 {
    match sysctl {
        LinkSysctl::Forwarding => NETCONFA_FORWARDING,
        LinkSysctl::IgnoreRoutesWithLinkdown => NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN,
    }
}

/// The value of an attribute. All attributes of this message are four bytes long.
fn attribute(payload: &[u8], kind: u16) -> Option<u32> {
    let mut attributes = payload.get(HEADER_LEN..)?.chunks_exact(ATTRIBUTE_LEN);
    let found = attributes.find(|attribute| attribute[2..4] == kind.to_ne_bytes())?;
    u32_at(found, 4)
}
