//! Speed and duplex of links, by the ethtool family of generic netlink.
//!
//! There is no information from a kernel without the family, or about a link without speed: a loopback, a bridge
//! without ports, a port without carrier.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};

use super::frame::{ATTRIBUTE_HEADER_LEN, Frame, HEADER_LEN, aligned, attributes, u32_at};
use super::query::{Listing, QueryError, QuerySocket};
use super::window::put_header;
use crate::values::{Duplex, Ethernet};

/// Message type of the controller family, which maps family names to numbers (`GENL_ID_CTRL`).
const CONTROLLER: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const FAMILY_NAME: &[u8] = b"ethtool\0";

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_A_LINKMODES_HEADER: u16 = 1;
const ETHTOOL_A_LINKMODES_AUTONEG: u16 = 2;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_LINKMODES_DUPLEX: u16 = 6;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
/// `ETHTOOL_FLAG_COMPACT_BITSETS`: link modes, which are not used here, come as bits instead of names.
const COMPACT: u32 = 1;
const DUPLEX_HALF: u8 = 0;
const DUPLEX_FULL: u8 = 1;
/// `SPEED_UNKNOWN`; a link without speed reports 0, too.
const UNKNOWN: u32 = u32::MAX;

/// `struct genlmsghdr`: command u8, version u8, reserved u16.
const GENERIC_HEADER_LEN: usize = 4;
/// Version of both families; there is only one.
const VERSION: u8 = 1;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// The ethtool family, with a socket for queries to it.
#[derive(Debug)]
pub(super) struct Ethtool {
    socket: QuerySocket,
    family: u16,
}

impl Ethtool {
    /// Looks the family up.
    ///
    /// # Errors
    /// When the kernel lacks the family.
    pub(super) fn open(buffer: &mut [u8]) -> Result<Self, QueryError> {
        let mut asker = QuerySocket::generic()?;
        let mut family = None;
        let name = attribute(CTRL_ATTR_FAMILY_NAME, FAMILY_NAME);
        asker.query(
            buffer,
            &mut |listing| {
                let Listing::Object(frame) = listing else { return };
                let id = attributes(body(&frame)).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
                family = family.or(id.and_then(|(_, value)| value.try_into().ok()));
            },
            |octets, sequence| {
                put(octets, CONTROLLER, CTRL_CMD_GETFAMILY, NLM_F_ACK, sequence, &name)
            },
        )?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no ethtool family");
        Ok(Self { socket: asker, family: family.map(u16::from_ne_bytes).ok_or_else(missing)? })
    }

    /// Settings of one link; `None` when the link is gone or has no such settings.
    pub(super) fn link(&mut self, index: u32, buffer: &mut [u8]) -> Option<Ethernet> {
        let header = header(&attribute(ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes()));
        let family = self.family;
        let mut found = None;
        let answer = self.socket.query(
            buffer,
            &mut |listing| {
                if let Listing::Object(frame) = listing {
                    found = ethernet(&frame);
                }
            },
            |octets, sequence| {
                put(octets, family, ETHTOOL_MSG_LINKMODES_GET, NLM_F_ACK, sequence, &header);
            },
        );
        answer.ok().and(found)
    }

    /// Settings of all links that have any.
    ///
    /// # Errors
    /// The errors of a listing.
    pub(super) fn links(&mut self, buffer: &mut [u8]) -> Result<Vec<Ethernet>, QueryError> {
        let family = self.family;
        let header = header(&[]);
        let mut found = Vec::new();
        self.socket.repeat(
            buffer,
            &mut |listing| match listing {
                Listing::Begin => found.clear(),
                Listing::Object(frame) => found.extend(ethernet(&frame)),
            },
            |octets, sequence| {
                put(octets, family, ETHTOOL_MSG_LINKMODES_GET, NLM_F_DUMP, sequence, &header);
            },
        )?;
        Ok(found)
    }
}

/// Appends a request.
fn put(octets: &mut Vec<u8>, family: u16, command: u8, flags: u16, sequence: u32, body: &[u8]) {
    let length = HEADER_LEN + GENERIC_HEADER_LEN + body.len();
    put_header(octets, length, family, NLM_F_REQUEST | flags, sequence);
    octets.extend([command, VERSION, 0, 0]);
    octets.extend(body);
}

/// Header of a request: the link, and the form of the answer.
fn header(link: &[u8]) -> Vec<u8> {
    let inner = [link, &attribute(ETHTOOL_A_HEADER_FLAGS, &COMPACT.to_ne_bytes())].concat();
    attribute(NESTED | ETHTOOL_A_LINKMODES_HEADER, &inner)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = ATTRIBUTE_HEADER_LEN + value.len();
    let mut octets = Vec::with_capacity(aligned(length));
    octets.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    octets.extend(kind.to_ne_bytes());
    octets.extend(value);
    octets.resize(aligned(length), 0);
    octets
}

/// Attributes of a generic netlink message.
fn body<'a>(frame: &Frame<'a>) -> &'a [u8] {
    frame.payload.get(GENERIC_HEADER_LEN..).unwrap_or_default()
}

/// Decodes the settings in an answer, with the link that it names.
fn ethernet(frame: &Frame<'_>) -> Option<Ethernet> {
    let mut found = Ethernet::default();
    for (kind, value) in attributes(body(frame)) {
        let octet = value.first();
        match kind {
            ETHTOOL_A_LINKMODES_HEADER => {
                let mut inner = attributes(value);
                let (_, name) = inner.find(|(kind, _)| *kind == ETHTOOL_A_HEADER_DEV_NAME)?;
                let name = name.strip_suffix(b"\0").unwrap_or(name);
                found.link = std::str::from_utf8(name).ok()?.into();
            }
            ETHTOOL_A_LINKMODES_AUTONEG => found.auto_negotiate = octet.map(|octet| *octet != 0),
            ETHTOOL_A_LINKMODES_SPEED => {
                found.speed_mbps = u32_at(value, 0).filter(|speed| ![0, UNKNOWN].contains(speed));
            }
            ETHTOOL_A_LINKMODES_DUPLEX => {
                found.duplex = match octet {
                    Some(&DUPLEX_HALF) => Some(Duplex::Half),
                    Some(&DUPLEX_FULL) => Some(Duplex::Full),
                    _ => None,
                }
            }
            _ => {}
        }
    }
    (!found.link.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethtool_answers_are_decoded_or_ignored() {
        let name = attribute(ETHTOOL_A_HEADER_DEV_NAME, b"eth0\0");
        let header = attribute(NESTED | ETHTOOL_A_LINKMODES_HEADER, &name);
        let speed = |speed: u32| attribute(ETHTOOL_A_LINKMODES_SPEED, &speed.to_ne_bytes());
        let duplex = |duplex: u8| attribute(ETHTOOL_A_LINKMODES_DUPLEX, &[duplex]);
        let autoneg = |on: u8| attribute(ETHTOOL_A_LINKMODES_AUTONEG, &[on]);
        let check =
            |parts: &[Vec<u8>], want: Option<(Option<u32>, Option<Duplex>, Option<bool>)>| {
                let payload = [vec![0; GENERIC_HEADER_LEN], parts.concat()].concat();
                let frame = Frame { kind: 20, flags: 0, sequence: 1, payload: &payload };
                let found = ethernet(&frame);
                assert_eq!(found.map(|it| (it.speed_mbps, it.duplex, it.auto_negotiate)), want);
            };
        let full = Some(Duplex::Full);
        check(
            &[header.clone(), autoneg(1), speed(1000), duplex(1)],
            Some((Some(1000), full, Some(true))),
        );
        check(
            &[header.clone(), autoneg(0), duplex(0)],
            Some((None, Some(Duplex::Half), Some(false))),
        );
        check(&[header.clone(), speed(UNKNOWN), duplex(0xff)], Some((None, None, None)));
        check(&[speed(1000)], None);
        check(&[header, vec![0xff, 0xff, 5, 0, 1]], Some((None, None, None)));
        check(&[vec![3, 0, 1, 0]], None);
    }
}
