//! Raw ICMP sockets, and socket options that the standard library lacks.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net;

use super::packet::{IcmpAnswer, icmpv4, icmpv6, open_ipv4};
use super::{ProbeError, Target};

/// Arbitrary port for a route lookup; no packet is sent to it.
const ANY_PORT: u16 = 9;

/// A socket that sends and receives ICMP. Tokio can wait for a raw socket as for a UDP one, since both carry
/// datagrams.
#[derive(Debug)]
pub(super) struct IcmpSocket<S = net::UdpSocket> {
    socket: S,
    is_v4: bool,
}

/// A received message, whose bytes are in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedMessage {
    length: usize,
    is_v4: bool,
    pub(super) from: IpAddr,
    pub(super) hops_left: Option<u8>,
}

impl IcmpSocket<Socket> {
    /// Opens a socket that receives from the destination only, in the namespace of the calling thread.
    pub(super) fn connected(target: &Target) -> Result<Self, ProbeError> {
        let this = Self::open(target)?;
        let connected = this.socket.connect(&SocketAddr::new(target.destination, 0).into());
        connected.map_err(|error| ProbeError::send_failed(target.destination, 0, error))?;
        Ok(this)
    }

    /// Opens a socket that receives from every host.
    pub(super) fn open(target: &Target) -> Result<Self, ProbeError> {
        let is_v4 = target.destination.is_ipv4();
        let (domain, protocol) =
            if is_v4 { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).map_err(ProbeError::Open)?;
        prepare(&socket, target)?;
        if let Some(link) = &target.link {
            let bound = socket.bind_device(Some(link.as_bytes()));
            bound.map_err(|source| ProbeError::Link { link: link.clone(), source })?;
        }
        if !is_v4 {
            socket.set_recv_hoplimit_v6(true).map_err(ProbeError::Open)?;
        }
        bind(&socket, target)?;
        Ok(Self { socket, is_v4 })
    }

    /// Registers the socket with the runtime.
    pub(super) fn watched(self) -> Result<IcmpSocket, ProbeError> {
        let socket = net::UdpSocket::from_std(self.socket.into()).map_err(ProbeError::Open)?;
        Ok(IcmpSocket { socket, is_v4: self.is_v4 })
    }
}

impl IcmpSocket {
    /// Sends to the connected destination.
    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        SockRef::from(&self.socket).send(message).map(drop)
    }

    pub(super) fn send_to(&self, message: &[u8], to: IpAddr) -> io::Result<()> {
        SockRef::from(&self.socket).send_to(message, &SocketAddr::new(to, 0).into()).map(drop)
    }

    pub(super) fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        set_hop_limit(&SockRef::from(&self.socket), self.is_v4, hops)
    }

    /// Waits for a message. Cancel-safe.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<ReceivedMessage> {
        let is_v4 = self.is_v4;
        self.socket.async_io(Interest::READABLE, || take(&self.socket, is_v4, buffer)).await
    }
}

impl ReceivedMessage {
    /// Decodes the message; `None` when it does not answer a probe.
    pub(super) fn icmp_answer<'b>(&self, buffer: &'b [u8]) -> Option<IcmpAnswer<'b>> {
        let octets = &buffer[..self.length];
        if self.is_v4 { icmpv4(open_ipv4(octets)?.1) } else { icmpv6(octets) }
    }
}

impl ProbeError {
    pub(super) fn send_failed(destination: IpAddr, octets: usize, source: io::Error) -> Self {
        match source.raw_os_error().map(nix::errno::Errno::from_raw) {
            Some(nix::errno::Errno::EMSGSIZE) => Self::TooLong { octets, destination },
            _ => Self::Send { destination, source },
        }
    }
}

fn take(socket: &impl AsRawFd, is_v4: bool, buffer: &mut [u8]) -> io::Result<ReceivedMessage> {
    let mut space = nix::cmsg_space!(i32);
    let (length, sender, hop_limit) = {
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        let hop_limit = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv6HopLimit(hops) => u8::try_from(hops).ok(),
            _ => None,
        });
        (message.bytes, message.address, hop_limit)
    };
    let v4 = sender.as_ref().and_then(SockaddrStorage::as_sockaddr_in).map(|it| it.ip().into());
    let v6 = sender.as_ref().and_then(SockaddrStorage::as_sockaddr_in6).map(|it| it.ip().into());
    let from = v4.or(v6).ok_or(ErrorKind::InvalidData)?;
    let hops_left =
        if is_v4 { open_ipv4(&buffer[..length]).map(|(hops, _)| hops) } else { hop_limit };
    Ok(ReceivedMessage { length, is_v4, from, hops_left })
}

/// Sets the options that all sockets for probes need.
pub(super) fn prepare(socket: &Socket, target: &Target) -> Result<(), ProbeError> {
    socket.set_nonblocking(true).map_err(ProbeError::Open)?;
    let prepared = match (target.destination, target.do_not_fragment) {
        (IpAddr::V4(_), true) => set_ip_mtu_discover(socket.as_fd(), Ipv4PathMtuDiscovery::DO),
        (IpAddr::V4(_), false) => set_ip_mtu_discover(socket.as_fd(), Ipv4PathMtuDiscovery::DONT),
        (IpAddr::V6(_), true) => set_ipv6_mtu_discover(socket.as_fd(), Ipv6PathMtuDiscovery::DO),
        (IpAddr::V6(_), false) => Ok(()), // routers never fragment it
    };
    prepared.map_err(|error| ProbeError::Open(error.into()))
}

/// Binds to the source address, or lets the kernel choose one.
pub(super) fn bind(socket: &Socket, target: &Target) -> Result<(), ProbeError> {
    let any = match target.destination {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let address = target.source.unwrap_or(any);
    socket.bind(&SocketAddr::new(address, 0).into()).map_err(|error| match error.kind() {
        ErrorKind::AddrNotAvailable => ProbeError::Source { address },
        _ => ProbeError::Open(error),
    })
}

pub(super) fn set_hop_limit(socket: &Socket, is_v4: bool, hops: u8) -> io::Result<()> {
    if is_v4 { socket.set_ttl_v4(hops.into()) } else { socket.set_unicast_hops_v6(hops.into()) }
}

/// Checks that the namespace of the calling thread has a route to the destination. Sends nothing.
pub(super) fn require_route(target: &Target) -> Result<(), ProbeError> {
    let domain = Domain::for_address((target.destination, ANY_PORT).into());
    let socket = Socket::new(domain, Type::DGRAM, None).map_err(ProbeError::Open)?;
    bind(&socket, target)?;
    let socket = UdpSocket::from(socket);
    let connected = socket.connect((target.destination, ANY_PORT));
    connected.map_err(|error| ProbeError::send_failed(target.destination, 0, error))
}
