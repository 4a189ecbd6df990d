//! One rtnetlink socket of the managed namespace: options, sending, receiving.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};

/// Receive buffer requested with `SO_RCVBUFFORCE`, in bytes: a burst of 20 000 foreign notifications fits. The
/// memory is used only while messages wait.
pub(crate) const FORCED_RECEIVE_BUFFER: usize = 32 << 20;

/// Longest datagram received: the kernel builds dump answers of up to 32 KiB for a reader with such a buffer, and
/// a single message about a complex link may be longer.
pub(crate) const DATAGRAM_SIZE: usize = 64 << 10;

/// Result of an attempt to receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceiveResult {
    /// A datagram of this length is in the buffer.
    Datagram(usize),
    /// Nothing is waiting.
    Nothing,
    /// The kernel dropped messages because the receive buffer was full (`ENOBUFS`).
    Overrun,
}

/// A non-blocking rtnetlink socket, bound and connected to the kernel, so that other processes cannot send to it.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: Socket,
    receive_buffer: usize,
}

impl RouteSocket {
    /// Opens a socket for requests and dumps, with extended and capped acknowledgements and with strict checking
    /// of dump filters: the kernel either filters, or says that it cannot.
    pub(crate) fn for_requests() -> io::Result<Self> {
        let socket = Self::open(NETLINK_ROUTE, None)?;
        socket.socket.set_cap_ack(true)?;
        socket.socket.set_ext_ack(true)?;
        socket.socket.set_netlink_get_strict_chk(true)?;
        Ok(socket)
    }

    /// Opens a socket that receives these multicast groups.
    ///
    /// `receive_buffer` lets tests cause an overrun; otherwise the buffer is the largest possible.
    pub(crate) fn for_groups<'g>(
        groups: impl Iterator<Item = &'g u32>,
        receive_buffer: Option<usize>,
    ) -> io::Result<Self> {
        let socket = Self::open(NETLINK_ROUTE, receive_buffer)?;
        for group in groups {
            socket.socket.add_membership(*group)?;
        }
        Ok(socket)
    }

    /// Opens a socket for families of generic netlink.
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

    /// Size of the receive buffer in bytes of kernel memory, as `SO_RCVBUF` reports it.
    pub(crate) fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Sends one datagram of any number of messages. The kernel carries them out before this returns, and the
    /// answers are then waiting.
    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives the next datagram.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<ReceiveResult> {
        loop {
            match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => return Ok(ReceiveResult::Datagram(length)),
                Err(Errno::EAGAIN) => return Ok(ReceiveResult::Nothing),
                Err(Errno::ENOBUFS) => return Ok(ReceiveResult::Overrun),
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

/// Sets the receive buffer: forced where permitted (not in a user namespace), else up to `net.core.rmem_max`. A
/// small buffer costs speed (smaller windows, re-reading), not correctness.
fn size_receive_buffer(socket: &Socket, octets: Option<usize>) {
    if let Some(octets) = octets {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &octets);
    } else if setsockopt(&socket, sockopt::RcvBufForce, &FORCED_RECEIVE_BUFFER).is_err() {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &FORCED_RECEIVE_BUFFER);
    }
}
