//! Kernel notifications of all changes in the managed namespace.
//!
//! Our own changes are received too, on purpose: the notification proves that the change happened. Some
//! notifications carry the port number of the sender and some do not (measured on kernel 6.18), so it is not used.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{SockFilter, SockRef};

use super::frame::{Frame, frames};
use super::socket::{ReceiveResult, RouteSocket};
use crate::kinds::CLASSES;
use crate::kinds::reading::{RTM_DELROUTE, RTM_NEWROUTE};
use crate::kinds::route::WATCHED_PROTOCOLS;
use crate::values::{MAIN_TABLE, OUR_PROTOCOL};

/// Most datagrams received at a time, so that commands get their turn.
const MAX_DATAGRAMS: usize = 4096;

/// Flag of a route notification: the route replaced another one of the same key.
pub(crate) const NLM_F_REPLACE: u16 = 0x100;

/// A socket that is subscribed to all relevant multicast groups.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: RouteSocket,
}

/// Result of one round of receiving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainStatus {
    /// Messages were lost, so the known state of the namespace may be outdated.
    pub overrun: bool,
    /// More messages may be waiting.
    pub more: bool,
}

impl Listener {
    /// Subscribes; notifications wait in the receive buffer after that.
    pub(crate) fn open(receive_buffer: Option<usize>) -> io::Result<Self> {
        let groups = CLASSES.into_iter().flat_map(|class| class.groups);
        let socket = RouteSocket::for_groups(groups, receive_buffer)?;
        SockRef::from(&socket).attach_filter(&without_foreign_routes())?;
        Ok(Self { socket })
    }

    pub(crate) fn receive_buffer(&self) -> usize {
        self.socket.receive_buffer()
    }

    /// Passes waiting messages to `each`, in the order of the kernel.
    pub(crate) fn drain(
        &self,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Frame<'_>),
    ) -> io::Result<DrainStatus> {
        let mut status = DrainStatus::default();
        for _ in 0..MAX_DATAGRAMS {
            match self.socket.receive(buffer)? {
                ReceiveResult::Datagram(length) => frames(&buffer[..length]).for_each(&mut *each),
                ReceiveResult::Overrun => status.overrun = true,
                ReceiveResult::Nothing => return Ok(status),
            }
        }
        status.more = true;
        Ok(status)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket filter in the kernel that keeps a routing daemon's million routes from us. Of routes, only those of table
/// main pass that are ours, or foreign and watched, and any that replaced another, which may have been one of these.
///
/// Offsets: `struct nlmsghdr` (16 bytes, type at 4, flags at 6), then `struct rtmsg` (table at 4,
/// protocol at 5). Types and flags are in the byte order of the host.
fn without_foreign_routes() -> Vec<SockFilter> {
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const IF_SET: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const LITTLE: bool = cfg!(target_endian = "little");
    const TYPE_LOW: u32 = if LITTLE { 4 } else { 5 };
    const FLAGS_HIGH: u32 = if LITTLE { 7 } else { 6 };
    /// Instructions after the comparisons of the protocol, and the last but one accepts.
    const TAIL: u8 = 6;
    let load = |offset| SockFilter::new(LOAD_BYTE, 0, 0, offset);
    // Jumps count the instructions to skip: when true, when false.
    let equal = |value: u32, yes, no| SockFilter::new(IF_EQUAL, yes, no, value);
    let protocols: Vec<u8> =
        WATCHED_PROTOCOLS.into_iter().map(u8::from).chain([OUR_PROTOCOL]).collect();
    let compared = u8::try_from(protocols.len()).expect("a few protocols");
    let accept = TAIL - 2;
    let mut filter = vec![
        load(TYPE_LOW),
        equal(RTM_NEWROUTE.into(), 1, 0),
        equal(RTM_DELROUTE.into(), 0, 3 + compared + accept), // not a route: accept
        load(20),
        equal(MAIN_TABLE, 0, 1 + compared + accept + 1), // other table: drop
        load(21),
    ];
    for (protocol, after) in protocols.into_iter().zip((0..compared).rev()) {
        filter.push(equal(protocol.into(), after + accept, 0)); // ours or watched: accept
    }
    filter.extend([
        load(TYPE_LOW),
        equal(RTM_NEWROUTE.into(), 0, 3), // deletion of another one: drop
        load(FLAGS_HIGH),
        SockFilter::new(IF_SET, 0, 1, u32::from(NLM_F_REPLACE >> 8)),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]);
    filter
}
