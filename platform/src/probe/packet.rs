//! Encoding of ICMP probes, and decoding of the answers. Pure.

use std::net::IpAddr;

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Slice, Icmpv4Type, Icmpv6Header, Icmpv6Slice, Icmpv6Type,
    LaxIpSlice, ip_number,
};

/// Bytes of an echo message before its payload.
pub(super) const ECHO_HEADER: usize = 8;
/// Bytes of a transport header that every ICMP error quotes (RFC 792).
const QUOTED: usize = 8;

/// Identification by which an answer is matched to its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeId {
    Echo {
        identifier: u16,
        sequence: u16,
    },
    /// Ports of TCP or UDP.
    Ports {
        protocol: u8,
        from: u16,
        to: u16,
    },
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// A router dropped the probe because its hop limit was used up.
    Expired,
    /// The destination answered.
    Reached,
    /// A host on the way reports that the probe cannot go further.
    Unreachable(UnreachableReason),
    /// No answer arrived in time.
    NoAnswer,
}

/// Reason for an unreachable destination, as in RFC 792, 1812 and 4443.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the names of the ICMP codes")]
pub enum UnreachableReason {
    Network,
    Host,
    Protocol,
    SourceRoute,
    TooLong,
    Prohibited,
    PrecedenceViolation,
    PrecedenceCutoff,
    Other,
}

/// A decoded ICMP message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IcmpAnswer<'a> {
    pub mark: ProbeId,
    /// Destination of the probe, if the message quotes it.
    pub about: Option<IpAddr>,
    pub outcome: ProbeOutcome,
    pub code: u8,
    /// Payload of an echo reply.
    pub payload: &'a [u8],
}

/// Encodes an echo request. The kernel completes the checksum of ICMPv6.
pub(super) fn echo(to: IpAddr, identifier: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let header = IcmpEchoHeader { id: identifier, seq: sequence };
    let mut octets = Vec::with_capacity(ECHO_HEADER + payload.len());
    match to {
        IpAddr::V4(_) => {
            let header = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(header), payload);
            octets.extend(header.to_bytes());
        }
        IpAddr::V6(_) => {
            octets.extend(Icmpv6Header::new(Icmpv6Type::EchoRequest(header)).to_bytes());
        }
    }
    octets.extend(payload);
    octets
}

/// Decodes an ICMP message; `None` when it does not answer a probe.
pub(super) fn icmpv4(message: &[u8]) -> Option<IcmpAnswer<'_>> {
    let message = Icmpv4Slice::from_slice(message).ok()?;
    let code = message.code_u8();
    if let Icmpv4Type::EchoReply(header) = message.icmp_type() {
        return Some(reply(header, message.payload()));
    }
    let outcome = match (message.type_u8(), code) {
        (11, _) => ProbeOutcome::Expired,
        (3, 3) => ProbeOutcome::Reached, // port unreachable: the host is there
        (3, code) => ProbeOutcome::Unreachable(match code {
            0 | 6 | 11 => UnreachableReason::Network,
            1 | 7 | 8 | 12 => UnreachableReason::Host,
            2 => UnreachableReason::Protocol,
            4 => UnreachableReason::TooLong,
            5 => UnreachableReason::SourceRoute,
            9 | 10 | 13 => UnreachableReason::Prohibited,
            14 => UnreachableReason::PrecedenceViolation,
            15 => UnreachableReason::PrecedenceCutoff,
            _ => UnreachableReason::Other,
        }),
        _ => return None,
    };
    decode_icmp_error(message.payload(), outcome, code)
}

/// Decodes an ICMPv6 message; `None` when it does not answer a probe.
pub(super) fn icmpv6(message: &[u8]) -> Option<IcmpAnswer<'_>> {
    let message = Icmpv6Slice::from_slice(message).ok()?;
    let code = message.code_u8();
    if let Icmpv6Type::EchoReply(header) = message.icmp_type() {
        return Some(reply(header, message.payload()));
    }
    let outcome = match (message.type_u8(), code) {
        (3, _) => ProbeOutcome::Expired,
        (1, 4) => ProbeOutcome::Reached,
        (1, code) => ProbeOutcome::Unreachable(match code {
            0 => UnreachableReason::Network,
            3 => UnreachableReason::Host,
            1 | 5 | 6 => UnreachableReason::Prohibited,
            _ => UnreachableReason::Other,
        }),
        (2, _) => ProbeOutcome::Unreachable(UnreachableReason::TooLong),
        (4, 1) => ProbeOutcome::Unreachable(UnreachableReason::Protocol), // no such next header
        _ => return None,
    };
    decode_icmp_error(message.payload(), outcome, code)
}

/// Hop limit and payload of a whole IPv4 packet.
pub(super) fn open_ipv4(packet: &[u8]) -> Option<(u8, &[u8])> {
    let (slice, _) = LaxIpSlice::from_slice(packet).ok()?;
    let hops = slice.ipv4()?.header().ttl();
    Some((hops, slice.payload().payload))
}

fn reply(header: IcmpEchoHeader, payload: &[u8]) -> IcmpAnswer<'_> {
    let mark = ProbeId::Echo { identifier: header.id, sequence: header.seq };
    IcmpAnswer { mark, about: None, outcome: ProbeOutcome::Reached, code: 0, payload }
}

/// Decodes an error by the packet that it quotes in part.
fn decode_icmp_error(quoted: &[u8], outcome: ProbeOutcome, code: u8) -> Option<IcmpAnswer<'_>> {
    let (packet, _) = LaxIpSlice::from_slice(quoted).ok()?;
    let first: &[u8; QUOTED] = packet.payload().payload.first_chunk()?;
    let number = |at: usize| u16::from_be_bytes([first[at], first[at + 1]]);
    let protocol = packet.payload_ip_number();
    let mark = match protocol {
        ip_number::ICMP | ip_number::IPV6_ICMP => {
            ProbeId::Echo { identifier: number(4), sequence: number(6) }
        }
        ip_number::TCP | ip_number::UDP => {
            ProbeId::Ports { protocol: protocol.0, from: number(0), to: number(2) }
        }
        _ => return None,
    };
    let about = Some(packet.destination_addr());
    Some(IcmpAnswer { mark, about, outcome, code, payload: &[] })
}

#[cfg(test)]
mod tests {
    use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header};

    use super::*;

    const V4: &str = "192.0.2.1";
    const V6: &str = "2001:db8::1";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// An ICMP error that quotes the first bytes, `first`, of a packet to `to`.
    fn error(to: &str, kind: u8, code: u8, protocol: IpNumber, first: &[u8]) -> Vec<u8> {
        let mut octets = vec![kind, code, 0, 0, 0, 0, 0, 0];
        match address(to) {
            IpAddr::V4(to) => {
                // The length exceeds the quoted part, as in messages of routers.
                let header = Ipv4Header::new(500, 1, protocol, [10, 0, 0, 1], to.octets());
                octets.extend(header.unwrap().to_bytes());
            }
            IpAddr::V6(to) => {
                let header = Ipv6Header {
                    traffic_class: 0,
                    flow_label: Ipv6FlowLabel::ZERO,
                    payload_length: 500,
                    next_header: protocol,
                    hop_limit: 1,
                    source: [1; 16],
                    destination: to.octets(),
                };
                octets.extend(header.to_bytes());
            }
        }
        octets.extend(first);
        octets
    }

    fn read<'a>(to: &str, message: &'a [u8]) -> Option<IcmpAnswer<'a>> {
        if address(to).is_ipv4() { icmpv4(message) } else { icmpv6(message) }
    }

    #[test]
    fn an_echo_is_matched_by_its_reply_and_by_errors_that_quote_it() {
        for (to, reply, protocol, expired) in
            [(V4, 0, ip_number::ICMP, 11), (V6, 129, ip_number::IPV6_ICMP, 3)]
        {
            let mut message = echo(address(to), 7, 9, b"octets");
            assert_eq!(message.len(), ECHO_HEADER + 6);
            assert_eq!(read(to, &message), None, "a request is not an answer");
            let about = error(to, expired, 0, protocol, &message);
            message[0] = reply;
            let mark = ProbeId::Echo { identifier: 7, sequence: 9 };
            let answer = read(to, &message).unwrap();
            assert_eq!(
                (answer.mark, answer.outcome, answer.payload),
                (mark, ProbeOutcome::Reached, &b"octets"[..])
            );
            let answer = read(to, &about).unwrap();
            assert_eq!((answer.mark, answer.outcome), (mark, ProbeOutcome::Expired));
            assert_eq!(answer.about, Some(address(to)));
        }
    }

    #[test]
    fn icmp_codes_map_to_unreachable_reasons() {
        use ProbeOutcome::{Reached, Unreachable};
        for (to, kind, code, want) in [
            (V4, 3, 0, Some(Unreachable(UnreachableReason::Network))),
            (V4, 3, 1, Some(Unreachable(UnreachableReason::Host))),
            (V4, 3, 2, Some(Unreachable(UnreachableReason::Protocol))),
            (V4, 3, 3, Some(Reached)),
            (V4, 3, 4, Some(Unreachable(UnreachableReason::TooLong))),
            (V4, 3, 5, Some(Unreachable(UnreachableReason::SourceRoute))),
            (V4, 3, 13, Some(Unreachable(UnreachableReason::Prohibited))),
            (V4, 3, 14, Some(Unreachable(UnreachableReason::PrecedenceViolation))),
            (V4, 3, 15, Some(Unreachable(UnreachableReason::PrecedenceCutoff))),
            (V4, 3, 99, Some(Unreachable(UnreachableReason::Other))),
            (V4, 5, 0, None), // a redirect
            (V6, 1, 0, Some(Unreachable(UnreachableReason::Network))),
            (V6, 1, 1, Some(Unreachable(UnreachableReason::Prohibited))),
            (V6, 1, 2, Some(Unreachable(UnreachableReason::Other))),
            (V6, 1, 3, Some(Unreachable(UnreachableReason::Host))),
            (V6, 1, 4, Some(Reached)),
            (V6, 2, 0, Some(Unreachable(UnreachableReason::TooLong))),
            (V6, 4, 1, Some(Unreachable(UnreachableReason::Protocol))),
            (V6, 135, 0, None), // a neighbour solicitation
        ] {
            let message =
                error(to, kind, code, ip_number::UDP, &[0x82, 0x9a, 0x82, 0x9b, 0, 9, 0, 0]);
            let answer = read(to, &message);
            assert_eq!(answer.as_ref().map(|answer| answer.outcome), want, "{to} {kind} {code}");
            let mark = ProbeId::Ports { protocol: 17, from: 33_434, to: 33_435 };
            assert!(answer.is_none_or(|answer| (answer.mark, answer.code) == (mark, code)));
        }
    }

    #[test]
    fn truncated_icmp_messages_are_ignored() {
        for (to, protocol) in [(V4, ip_number::TCP), (V6, ip_number::TCP)] {
            let whole = error(to, 3, 1, protocol, &[1; QUOTED]);
            for length in 0..whole.len() {
                assert_eq!(read(to, &whole[..length]), None, "{length}");
            }
        }
        assert_eq!(open_ipv4(&[0x45, 0]), None);
    }

    #[test]
    fn the_ipv4_header_is_split_off() {
        let message = echo(address(V4), 1, 2, b"x");
        let length = u16::try_from(message.len()).unwrap();
        let header = Ipv4Header::new(length, 61, ip_number::ICMP, [1; 4], [2; 4]).unwrap();
        let packet: Vec<u8> = header.to_bytes().into_iter().chain(message.clone()).collect();
        assert_eq!(open_ipv4(&packet), Some((61, &message[..])));
    }
}
