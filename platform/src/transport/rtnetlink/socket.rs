//! One rtnetlink socket of the managed namespace: options, sending, receiving.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};

/// Octets asked for with `SO_RCVBUFFORCE`: a burst of 20 000 notifications of foreign origin fits.
/// The memory is only used while messages wait.
const FORCED_RECEIVE_BUFFER: usize = 32 << 20;

/// Longest datagram taken in: the kernel builds dump answers of up to 32 KiB for a reader that
/// offers as much, and a single message about a link with many parts may be longer.
pub(crate) const DATAGRAM_SIZE: usize = 64 << 10;

/// What became of an attempt to receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram of this length is in the buffer.
    Datagram(usize),
    /// Nothing is waiting.
    Nothing,
    /// The kernel dropped messages because the receive buffer was full (`ENOBUFS`).
    Overrun,
}

/// A non-blocking rtnetlink socket, bound, connected to the kernel (so nobody else can send to it).
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: Socket,
    receive_buffer: usize,
}

impl RouteSocket {
    /// A socket for requests and dumps: extended and short acknowledgements, strict checking of
    /// dump filters, so that the kernel does the filtering or says that it cannot.
    pub(crate) fn for_requests() -> io::Result<Self> {
        let socket = Self::open(NETLINK_ROUTE, None)?;
        socket.socket.set_cap_ack(true)?;
        socket.socket.set_ext_ack(true)?;
        socket.socket.set_netlink_get_strict_chk(true)?;
        Ok(socket)
    }

    /// A socket that hears these multicast groups.
    ///
    /// `receive_buffer` is for tests that want an overrun; else the largest to be had.
    pub(crate) fn for_groups(groups: &[u32], receive_buffer: Option<usize>) -> io::Result<Self> {
        let socket = Self::open(NETLINK_ROUTE, receive_buffer)?;
        for group in groups {
            socket.socket.add_membership(*group)?;
        }
        Ok(socket)
    }

    /// A socket for questions to families of generic netlink.
    pub(crate) fn for_generic() -> io::Result<Self> {
        let socket = Self::open(NETLINK_GENERIC, None)?;
        socket.socket.set_cap_ack(true)?;
        socket.socket.set_ext_ack(true)?;
        Ok(socket)
    }

    fn open(protocol: isize, receive_buffer: Option<usize>) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        size_receive_buffer(&socket, receive_buffer);
        let receive_buffer = socket.get_rx_buf_sz()?;
        Ok(Self { socket, receive_buffer })
    }

    /// Octets of kernel memory that waiting messages may take, as `SO_RCVBUF` tells.
    pub(crate) fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Sends one datagram of any number of messages. The kernel carries them out before this
    /// returns, and their answers are waiting then.
    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the next datagram in.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => return Ok(Received::Datagram(length)),
                Err(Errno::EAGAIN) => return Ok(Received::Nothing),
                Err(Errno::ENOBUFS) => return Ok(Received::Overrun),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for RouteSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Forced where that is permitted (not in a user namespace), else as far as `net.core.rmem_max`
/// lets us go; a small buffer costs speed (smaller windows, re-reading), not correctness.
fn size_receive_buffer(socket: &Socket, wanted: Option<usize>) {
    if let Some(wanted) = wanted {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &wanted);
    } else if setsockopt(&socket, sockopt::RcvBufForce, &FORCED_RECEIVE_BUFFER).is_err() {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &FORCED_RECEIVE_BUFFER);
    }
}
