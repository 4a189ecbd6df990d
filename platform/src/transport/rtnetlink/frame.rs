//! The messages of one netlink datagram, not yet decoded.
//!
//! Acknowledgements and the end of a dump are interpreted here. Other messages are decoded only when their first
//! bytes show that they matter.

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::RouteNetlinkMessage;

use crate::kinds::reading::{RTM_DELLINK, RTM_NEWLINK};

/// `struct nlmsghdr`: length u32, type u16, flags u16, sequence u32, port u32.
pub(crate) const HEADER_LEN: usize = 16;
/// Messages and attributes start at multiples of this.
const ALIGNMENT: usize = 4;
/// `struct nlattr`: length u16, type u16.
pub(super) const ATTRIBUTE_HEADER_LEN: usize = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The acknowledgement does not repeat the payload of the request (`NETLINK_CAP_ACK`).
const NLM_F_CAPPED: u16 = 0x100;
/// Attributes follow in the acknowledgement (`NETLINK_EXT_ACK`).
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// The upper two bits of an attribute's type are flags (nested, network byte order).
const NLA_TYPE_MASK: u16 = 0x3fff;

/// `struct ifinfomsg`.
const LINK_HEADER_LEN: usize = 16;
const IFLA_IFALIAS: u16 = 20;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// `RTM_*` or `NLMSG_*`.
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub payload: &'a [u8],
}

/// Refusal of a request by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelRefusal {
    pub errno: i32,
    /// Error message of the kernel, if it sent one.
    pub message: Option<String>,
}

/// Meaning of a message as an answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameAnswer {
    /// `NLMSG_ERROR` with code 0.
    Done,
    Refused(KernelRefusal),
    /// An object.
    Object,
}

/// Splits a datagram into messages; a truncated one at the end is dropped.
pub(crate) fn frames(mut datagram: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(datagram, 0)? as usize;
        if length < HEADER_LEN || length > datagram.len() {
            return None;
        }
        let frame = Frame {
            kind: u16_at(datagram, 4)?,
            flags: u16_at(datagram, 6)?,
            sequence: u32_at(datagram, 8)?,
            payload: &datagram[HEADER_LEN..length],
        };
        datagram = &datagram[aligned(length).min(datagram.len())..];
        Some(frame)
    })
}

impl Frame<'_> {
    /// Interprets the message as an answer.
    pub(crate) fn answer(&self) -> FrameAnswer {
        if self.kind != NLMSG_ERROR && self.kind != NLMSG_DONE {
            return FrameAnswer::Object;
        }
        match u32_at(self.payload, 0).map(u32::cast_signed) {
            None | Some(0) => FrameAnswer::Done,
            // Old kernels may end a dump with a positive count: only negative codes are errors.
            Some(code) if code > 0 => FrameAnswer::Done,
            Some(code) => {
                FrameAnswer::Refused(KernelRefusal { errno: -code, message: self.words() })
            }
        }
    }

    /// Decodes the message. A link's alias and alternative names may have arbitrary bytes; those that are not
    /// UTF-8 become question marks, since the decoder would otherwise refuse the whole link.
    ///
    /// # Errors
    /// When the message is malformed, or of a type that the decoder does not know.
    pub(crate) fn decode(&self) -> Result<RouteNetlinkMessage, DecodeError> {
        let mut header = NetlinkHeader::default();
        header.message_type = self.kind;
        let decoded = RouteNetlinkMessage::deserialize(&header, self.payload);
        if decoded.is_ok() || !matches!(self.kind, RTM_NEWLINK | RTM_DELLINK) {
            return decoded;
        }
        let mut readable = self.payload.to_vec();
        make_readable(readable.get_mut(LINK_HEADER_LEN..).unwrap_or_default());
        RouteNetlinkMessage::deserialize(&header, &readable)
    }

    /// Text of an extended acknowledgement.
    fn words(&self) -> Option<String> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        let attributes = match self.kind {
            NLMSG_DONE => 4,
            _ if self.flags & NLM_F_CAPPED != 0 => 4 + HEADER_LEN,
            _ => 4 + aligned(u32_at(self.payload, 4)? as usize),
        };
        let mut rest = self.payload.get(attributes..)?;
        while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
            let length = usize::from(length);
            let value = rest.get(ATTRIBUTE_HEADER_LEN..length)?;
            if kind & NLA_TYPE_MASK == NLMSGERR_ATTR_MSG {
                let text = value.split(|byte| *byte == 0).next()?;
                return Some(String::from_utf8_lossy(text).into_owned());
            }
            rest = rest.get(aligned(length)..)?;
        }
        None
    }
}

/// Iterates over the types and values of attributes, up to the first malformed one.
pub(super) fn attributes(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(octets, 0)?);
        let kind = u16_at(octets, 2)?;
        let value = octets.get(ATTRIBUTE_HEADER_LEN..length)?;
        octets = octets.get(aligned(length)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// Replaces bytes that are not UTF-8 by question marks in texts that any program may write, including nested
/// attributes.
fn make_readable(mut attributes: &mut [u8]) {
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length);
        let Some(value) = attributes.get_mut(ATTRIBUTE_HEADER_LEN..length) else { return };
        match kind & NLA_TYPE_MASK {
            IFLA_IFALIAS | IFLA_ALT_IFNAME => {
                while let Err(error) = std::str::from_utf8(value) {
                    let bad = &mut value[error.valid_up_to()..];
                    let end = error.error_len().unwrap_or(bad.len());
                    bad[..end].fill(b'?');
                }
            }
            IFLA_PROP_LIST => make_readable(value),
            _ => {}
        }
        attributes = attributes.get_mut(aligned(length)..).unwrap_or_default();
    }
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

/// The next multiple of [`ALIGNMENT`].
pub(crate) fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(HEADER_LEN + payload.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    #[test]
    fn a_link_with_invalid_utf8_is_decoded() {
        fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
            let length = u16::try_from(ATTRIBUTE_HEADER_LEN + value.len()).unwrap();
            let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(aligned(bytes.len()), 0);
            bytes
        }
        let names = [attribute(53, b"\xffa\0"), attribute(53, b"holdfast:x\0")].concat();
        let payload = [
            vec![0; LINK_HEADER_LEN],
            attribute(3, b"eth0\0"),
            attribute(20, b"caf\xe9 \xc3\xa9\xe2\x82\0"),
            attribute(52 | 0x8000, &names),
        ]
        .concat();
        let bytes = message(RTM_NEWLINK, 0, 1, &payload);
        let decoded = frames(&bytes).next().unwrap().decode().unwrap();
        let debug_text = format!("{decoded:?}");
        for text in ["\"eth0\"", "\"caf? \u{e9}??\"", "\"?a\"", "\"holdfast:x\""] {
            assert!(debug_text.contains(text), "{text}: {debug_text}");
        }
    }

    fn refusal(errno: i32, text: &str) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend([0; HEADER_LEN]);
        let length = u16::try_from(ATTRIBUTE_HEADER_LEN + text.len() + 1).unwrap();
        payload.extend(length.to_ne_bytes());
        payload.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        payload.extend(text.as_bytes());
        payload.push(0);
        payload
    }

    #[test]
    fn a_datagram_is_split_and_each_answer_read() {
        let mut datagram = message(NLMSG_ERROR, NLM_F_CAPPED, 1, &[0; 20]);
        let flags = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        datagram.extend(message(NLMSG_ERROR, flags, 2, &refusal(17, "already")));
        datagram.extend(message(16, 0, 3, &[1, 2, 3]));
        datagram.extend(message(NLMSG_DONE, 0, 4, &[0; 4]));
        let got: Vec<_> = frames(&datagram).map(|frame| (frame.sequence, frame.answer())).collect();
        let refused = KernelRefusal { errno: 17, message: Some("already".into()) };
        assert_eq!(
            got,
            [
                (1, FrameAnswer::Done),
                (2, FrameAnswer::Refused(refused)),
                (3, FrameAnswer::Object),
                (4, FrameAnswer::Done)
            ]
        );
    }

    #[test]
    fn malformed_datagrams_end_early_and_never_panic() {
        let whole = message(NLMSG_ERROR, NLM_F_ACK_TLVS, 9, &refusal(1, "no"));
        for length in 0..whole.len() {
            assert!(frames(&whole[..length]).all(|frame| frame.payload.len() < length));
        }
        let mut lying = whole.clone();
        lying[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!(frames(&lying).count(), 0);
        for length in 0..24 {
            let cut = message(NLMSG_ERROR, NLM_F_ACK_TLVS, 9, &refusal(1, "no")[..length]);
            frames(&cut).for_each(|frame| drop(frame.answer()));
        }
    }
}
