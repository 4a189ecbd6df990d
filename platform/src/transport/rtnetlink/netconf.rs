//! Forwarding per interface, as `RTM_NEWNETCONF` announces and lists it.
//!
//! Writing the sysctl gives no notification of the file itself; this message announces it.

use holdfast_scheduler::Fact;

use super::frame::{Frame, u32_at};
use crate::links::LinkIndex;
use crate::transport::codecs;
use crate::values::Family;

/// `struct netconfmsg` is one octet, padded.
const HEADER_LEN: usize = 4;
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
/// An attribute of four octets: length and type, then the value.
const ATTRIBUTE_LEN: usize = 8;

/// The fact in a message; `None` for the pseudo interfaces `all` and `default` (negative indices), and for
/// messages about other variables.
pub(super) fn fact(frame: &Frame<'_>, links: &LinkIndex, time_ns: u64) -> Option<Fact> {
    let family = match i32::from(*frame.payload.first()?) {
        nix::libc::AF_INET => Family::V4,
        nix::libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    let link = links.name(attribute(frame.payload, NETCONFA_IFINDEX)?)?;
    let text = attribute(frame.payload, NETCONFA_FORWARDING)?.to_string();
    let (key, value) = codecs::forwarding(link, family, &text, links)?;
    Some(Fact { key, value, time_ns })
}

/// The value of an attribute. All attributes of this message are four octets long.
fn attribute(payload: &[u8], kind: u16) -> Option<u32> {
    let mut attributes = payload.get(HEADER_LEN..)?.chunks_exact(ATTRIBUTE_LEN);
    let found = attributes.find(|attribute| attribute[2..4] == kind.to_ne_bytes())?;
    u32_at(found, 4)
}
