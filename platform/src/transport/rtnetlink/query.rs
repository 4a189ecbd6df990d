//! Queries to the kernel: requests, and collecting their answers.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol,
};

use super::frame::{Frame, FrameAnswer, HEADER_LEN, frames};
use super::socket::{ReceiveResult, RouteSocket};
use super::window::{put_header, put_message, wait_readable};
use crate::kinds::types::address_family;
use crate::values::{Family, MAIN_TABLE};

/// The objects changed while the kernel listed them, so some may be missing from the list.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Attempts at a listing that is interrupted. A burst of changes may interrupt every one of them; the changes
/// themselves are announced in any case.
const ATTEMPTS: usize = 20;

/// Input of a listing's callback.
#[derive(Debug)]
pub(crate) enum Listing<'a> {
    /// The listing starts, or starts again: earlier objects are void.
    Begin,
    /// One object.
    Object(Frame<'a>),
}

/// Reason why a query failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    /// The kernel refused; `ENODEV` and similar mean that there is no such object.
    #[error("the kernel refused: {}", .words.as_deref().map_or_else(|| io::Error::from_raw_os_error(*.errno).to_string(), str::to_owned))]
    Refused { errno: i32, words: Option<String> },
    /// Every attempt was interrupted by changes.
    #[error("changes interrupted the reading {ATTEMPTS} times in a row")]
    Interrupted,
    #[error("the kernel did not answer")]
    NoAnswer,
    #[error("the netlink socket failed")]
    Socket(#[from] io::Error),
}

/// Socket for queries, with its buffers and sequence number.
#[derive(Debug)]
pub(crate) struct QuerySocket {
    socket: RouteSocket,
    octets: Vec<u8>,
    sequence: u32,
}

/// End of a listing.
enum ListingEnd {
    Complete,
    Interrupted,
}

impl QuerySocket {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { socket: RouteSocket::for_requests()?, octets: Vec::new(), sequence: 0 })
    }

    /// Opens a socket for families of generic netlink.
    pub(super) fn generic() -> io::Result<Self> {
        Ok(Self { socket: RouteSocket::for_generic()?, octets: Vec::new(), sequence: 0 })
    }

    /// Lists objects, restarting when changes interrupt the listing.
    ///
    /// # Errors
    /// When the kernel refuses the query or does not answer. The objects given to `each` are void then.
    pub(crate) fn list(
        &mut self,
        question: &RouteNetlinkMessage,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Listing<'_>),
    ) -> Result<(), QueryError> {
        self.repeat(buffer, each, |octets, sequence| {
            put_message(octets, question, NLM_F_REQUEST | NLM_F_DUMP, sequence);
        })
    }

    /// Queries one object.
    ///
    /// # Errors
    /// [`QueryError::Refused`] also when the object does not exist.
    pub(crate) fn get(
        &mut self,
        question: &RouteNetlinkMessage,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Listing<'_>),
    ) -> Result<(), QueryError> {
        // The acknowledgement marks the end of the answer.
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        self.query(buffer, each, |octets, sequence| put_message(octets, question, flags, sequence))
    }

    /// Sends a query that ends with one acknowledgement, with or without objects before it.
    pub(crate) fn query(
        &mut self,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Listing<'_>),
        question: impl Fn(&mut Vec<u8>, u32),
    ) -> Result<(), QueryError> {
        self.send(question)?;
        self.receive_answer(buffer, false, each).map(|_| ())
    }

    /// Lists the settings of links of one family (`RTM_GETNETCONF`), which our netlink library does not
    /// support.
    ///
    /// # Errors
    /// The errors of [`QuerySocket::list`].
    pub(crate) fn list_settings(
        &mut self,
        family: Family,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Listing<'_>),
    ) -> Result<(), QueryError> {
        const RTM_GETNETCONF: u16 = 82;
        let header = [u8::from(address_family(family)), 0, 0, 0]; // `struct netconfmsg`, padded
        self.repeat(buffer, each, |octets, sequence| {
            let flags = NLM_F_REQUEST | NLM_F_DUMP;
            put_header(octets, HEADER_LEN + header.len(), RTM_GETNETCONF, flags, sequence);
            octets.extend(header);
        })
    }

    /// Sends a query that is answered by a listing, restarting when changes interrupt it.
    pub(super) fn repeat(
        &mut self,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Listing<'_>),
        question: impl Fn(&mut Vec<u8>, u32),
    ) -> Result<(), QueryError> {
        for _ in 0..ATTEMPTS {
            each(Listing::Begin);
            self.send(&question)?;
            if let ListingEnd::Complete = self.receive_answer(buffer, true, each)? {
                return Ok(());
            }
        }
        Err(QueryError::Interrupted)
    }

    fn send(&mut self, question: impl Fn(&mut Vec<u8>, u32)) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.octets.clear();
        question(&mut self.octets, self.sequence);
        self.socket.send(&self.octets)
    }

    fn receive_answer(
        &mut self,
        buffer: &mut [u8],
        dump: bool,
        each: &mut dyn FnMut(Listing<'_>),
    ) -> Result<ListingEnd, QueryError> {
        let mut interrupted = false;
        loop {
            match self.socket.receive(buffer)? {
                ReceiveResult::Datagram(length) => {
                    for frame in frames(&buffer[..length]) {
                        if frame.sequence != self.sequence {
                            continue; // belongs to an abandoned query
                        }
                        interrupted |= dump && frame.flags & NLM_F_DUMP_INTR != 0;
                        match frame.answer() {
                            FrameAnswer::Object => each(Listing::Object(frame)),
                            FrameAnswer::Refused(refusal) => {
                                let errno = refusal.errno;
                                let words = refusal.message;
                                return Err(QueryError::Refused { errno, words });
                            }
                            FrameAnswer::Done if interrupted => return Ok(ListingEnd::Interrupted),
                            FrameAnswer::Done => return Ok(ListingEnd::Complete),
                        }
                    }
                }
                ReceiveResult::Overrun => interrupted = true,
                ReceiveResult::Nothing => {
                    if !wait_readable(&self.socket)? {
                        return Err(QueryError::NoAnswer);
                    }
                }
            }
        }
    }
}

/// All links, without their counters.
pub(crate) fn links() -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(message)
}

/// All links with their counters.
pub(crate) fn links_with_counters() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetLink(LinkMessage::default())
}

/// One link.
pub(crate) fn link(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    RouteNetlinkMessage::GetLink(message)
}

/// The routes of table main of one program, through one link or all (`link` 0).
///
/// The kernel filters: a million routes of other programs cost it one iteration, and us nothing.
pub(crate) fn routes_of(protocol: RouteProtocol, family: Family, link: u32) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    message.header.protocol = protocol;
    message.attributes.push(RouteAttribute::Table(MAIN_TABLE));
    if link != 0 {
        message.attributes.push(RouteAttribute::Oif(link));
    }
    RouteNetlinkMessage::GetRoute(message)
}

/// The routes of one family in all tables, of every program.
pub(crate) fn all_routes(family: Family) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    RouteNetlinkMessage::GetRoute(message)
}

/// The route that the kernel would use for an address, as it is in the table.
pub(crate) fn best_route(address: IpAddr) -> RouteNetlinkMessage {
    const RTM_F_FIB_MATCH: u32 = 0x2000;
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(Family::of(address));
    message.header.destination_prefix_length = IpNet::from(address).prefix_len();
    message.header.flags = RouteFlags::from_bits_retain(RTM_F_FIB_MATCH);
    let address = match address {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    };
    message.attributes.push(RouteAttribute::Destination(address));
    RouteNetlinkMessage::GetRoute(message)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::kernel_tests::fixture::{enter_fresh_namespaces, ip};
    use crate::transport::rtnetlink::socket::DATAGRAM_SIZE;

    /// Addresses that fill several datagrams of a listing.
    const COUNT: usize = 4_000;

    // proves kv.X22
    #[test]
    fn an_interrupted_listing_is_restarted() {
        enter_fresh_namespaces();
        let script = tempfile::NamedTempFile::new().unwrap();
        let mut lines = String::new();
        for n in 0..COUNT {
            writeln!(lines, "address add 10.1.{}.{}/32 dev lo", n / 250, n % 250 + 1).unwrap();
        }
        std::fs::write(script.path(), lines).unwrap();
        ip(&format!("-batch {}", script.path().display()));

        let mut asker = QuerySocket::new().unwrap();
        let mut begun = 0;
        let mut entries = 0;
        asker
            .list(
                &crate::kinds::address::list(Family::V4, 0),
                &mut vec![0; DATAGRAM_SIZE],
                &mut |listing| {
                    match listing {
                        Listing::Begin => (begun, entries) = (begun + 1, 0),
                        Listing::Object(_) => entries += 1,
                    }
                    if (begun, entries) == (1, 1) {
                        ip("address add 10.2.0.1/32 dev lo");
                    }
                },
            )
            .unwrap();
        assert_eq!((begun, entries), (2, COUNT + 2)); // 127.0.0.1 and the late one
    }
}
