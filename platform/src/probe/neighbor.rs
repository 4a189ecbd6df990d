//! The kernel's own knowledge of neighbours.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteAttribute;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use smol_str::SmolStr;

use super::{ProbeError, Probes};
use crate::kinds::types::address_family;
use crate::transport::rtnetlink::query::{self, Listing, QueryError, QuerySocket};
use crate::transport::rtnetlink::socket::DATAGRAM_SIZE;
use crate::transport::rtnetlink::window::put_message;
use crate::values::Family;

impl Probes {
    /// True while the kernel has no reason to doubt that a neighbour answers. It is asked to solicit the neighbour if it has not
    /// done so lately, so the answer of the next time is a fresh one. Without a link, it is the one of the route to the address.
    ///
    /// # Errors
    /// When the link is not there, there is no route to the address, or the kernel refuses.
    pub async fn neighbor(
        &self,
        address: IpAddr,
        link: Option<SmolStr>,
    ) -> Result<bool, ProbeError> {
        self.inside(move || Neighbors::open(address)?.ask(link)).await
    }
}

/// A look at one neighbour.
struct Neighbors {
    queries: QuerySocket,
    buffer: Vec<u8>,
    address: IpAddr,
}

impl Neighbors {
    fn open(address: IpAddr) -> Result<Self, ProbeError> {
        let queries = QuerySocket::new().map_err(ProbeError::Open)?;
        Ok(Self { queries, buffer: vec![0; DATAGRAM_SIZE], address })
    }

    fn ask(mut self, link: Option<SmolStr>) -> Result<bool, ProbeError> {
        let index = match link {
            Some(name) => if_nametoindex(name.as_str())
                .map_err(|errno| ProbeError::Link { link: name, source: errno.into() })?,
            None => self.link_of_route()?,
        };
        let state = self.state(index)?;
        match state {
            // The operator's word stands, and soliciting would make it the kernel's again.
            Some(NeighbourState::Permanent | NeighbourState::Noarp) => return Ok(true),
            Some(NeighbourState::Reachable) => return Ok(true),
            _ => self.solicit(index)?,
        }
        use NeighbourState::{Delay, Probe, Stale};
        Ok(matches!(state, Some(Stale | Delay | Probe)))
    }

    /// The link of the route that the kernel would use.
    fn link_of_route(&mut self) -> Result<u32, ProbeError> {
        let mut found = None;
        let asked = self.get(&query::best_route(self.address), &mut |message| {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                found = route.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                });
            }
        });
        let no_route = || io::Error::from(Errno::ENETUNREACH);
        asked.map_err(|error| self.failed(error))?;
        found.ok_or_else(|| ProbeError::Send { destination: self.address, source: no_route() })
    }

    /// The kernel's state of the neighbour; `None` while it has no entry.
    fn state(&mut self, index: u32) -> Result<Option<NeighbourState>, ProbeError> {
        let mut found = None;
        let asked = self.get(&self.entry(index), &mut |message| {
            if let RouteNetlinkMessage::NewNeighbour(neighbor) = message {
                found = Some(neighbor.header.state);
            }
        });
        match asked {
            Err(QueryError::Refused { errno, .. }) if errno == Errno::ENOENT as i32 => Ok(None),
            Err(error) => Err(self.failed(error)),
            Ok(()) => Ok(found),
        }
    }

    /// Has the kernel act as if it had a packet for the neighbour (`NTF_USE`).
    fn solicit(&mut self, index: u32) -> Result<(), ProbeError> {
        let mut entry = self.entry(index);
        if let RouteNetlinkMessage::GetNeighbour(message) = &mut entry {
            message.header.flags = NeighbourFlags::Use;
            entry = RouteNetlinkMessage::NewNeighbour(message.clone());
        }
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
        let asked = self.queries.query(&mut self.buffer, &mut |_| {}, |octets, sequence| {
            put_message(octets, &entry, flags, sequence);
        });
        asked.map_err(|error| self.failed(error))
    }

    fn entry(&self, index: u32) -> RouteNetlinkMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = address_family(Family::of(self.address));
        message.header.ifindex = index;
        let address = match self.address {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        message.attributes.push(NeighbourAttribute::Destination(address));
        RouteNetlinkMessage::GetNeighbour(message)
    }

    fn get(
        &mut self,
        question: &RouteNetlinkMessage,
        each: &mut dyn FnMut(RouteNetlinkMessage),
    ) -> Result<(), QueryError> {
        self.queries.get(question, &mut self.buffer, &mut |listing| {
            if let Listing::Object(frame) = listing
                && let Ok(message) = frame.decode()
            {
                each(message);
            }
        })
    }

    fn failed(&self, error: QueryError) -> ProbeError {
        ProbeError::Send { destination: self.address, source: io::Error::other(error) }
    }
}
