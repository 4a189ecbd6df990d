//! Links whose carrier the benchmark takes and gives, and what the kernel says of it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use holdfast_tests::mounts::{self, mount};
use holdfast_tests::netns::Netns;
use holdfast_tests::tap;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::net::if_::if_nametoindex;

use super::yardstick::acknowledged;

/// From linux/rtnetlink.h, linux/netlink.h and linux/if.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const IFLA_IFALIAS: u16 = 20;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const IFF_UP: u32 = 1;
/// The link has carrier and is up.
const IFF_RUNNING: u32 = 0x40;
const AF_INET: u8 = 2;
/// Multicast group of links, as a bit of the socket's address.
pub(crate) const RTMGRP_LINK: u32 = 1;
/// Bytes of the header of a message, of a link's, and of a route's.
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
const ROUTE_HEADER: usize = 12;

/// A link whose carrier comes and goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CarrierLink {
    /// One end of a virtual cable: its carrier goes with its peer. The kernel announces that at once.
    Veth,
    /// A tap: its carrier goes with the process that holds it. The kernel announces that up to a second late, as of a port.
    Tap,
}

impl CarrierLink {
    pub(crate) const ALL: [Self; 2] = [Self::Veth, Self::Tap];

    /// Name of the kind, in the table.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Tap => "tap",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Veth => "eth1",
            Self::Tap => "tap1",
        }
    }

    /// Operational status without carrier. A tap has no lower layer.
    pub(crate) fn status_without_carrier(self) -> &'static str {
        match self {
            Self::Veth => "LOWER_LAYER_DOWN",
            Self::Tap => "DOWN",
        }
    }

    /// Makes the link, without carrier.
    fn add(self, net: &Netns) {
        match self {
            Self::Veth => net.ip("link add eth1 type veth peer name peer1"),
            Self::Tap => net.ip("tuntap add dev tap1 mode tap"),
        };
        net.ip(&format!("link set {} up", self.name()));
    }

    /// The means to give and take its carrier, in the namespace of this thread.
    pub(crate) fn switch(self) -> Result<CarrierSwitch> {
        Ok(match self {
            Self::Veth => {
                CarrierSwitch::Peer { socket: kernel_socket()?, index: if_nametoindex("peer1")? }
            }
            Self::Tap => CarrierSwitch::Holder { name: self.name(), file: None },
        })
    }
}

/// Another tap, whose carrier comes and goes ahead of a loss. The kernel then delays its work on the carrier that is lost.
const ELSEWHERE: &str = "tap2";

/// Makes the links with which carriers are lost, and shows them below `/sys`, as on a box: the agent looks at their carriers there.
pub(crate) fn add_links(net: &Netns) -> Result<()> {
    CarrierLink::ALL.into_iter().for_each(|link| link.add(net));
    net.ip(&format!("tuntap add dev {ELSEWHERE} mode tap"));
    net.ip(&format!("link set {ELSEWHERE} up"));
    show_links()
}

/// Has `/sys` show the namespace of this thread.
pub(crate) fn show_links() -> Result<()> {
    mounts::enter_own()?;
    mount(&["-t", "sysfs", "sysfs"], Path::new("/sys"))
}

/// The carrier of another link.
pub(crate) fn elsewhere() -> CarrierSwitch {
    CarrierSwitch::Holder { name: ELSEWHERE, file: None }
}

/// Tap that gives a link its carrier and takes it, without the start of a process.
#[derive(Debug)]
pub(crate) enum CarrierSwitch {
    Peer { socket: Socket, index: u32 },
    Holder { name: &'static str, file: Option<File> },
}

impl CarrierSwitch {
    pub(crate) fn give(&mut self) -> Result<()> {
        match self {
            Self::Peer { socket, index } => set_up(socket, *index, IFF_UP),
            Self::Holder { name, file } => {
                *file = Some(tap::hold(name)?);
                Ok(())
            }
        }
    }

    pub(crate) fn take(&mut self) -> Result<()> {
        match self {
            Self::Peer { socket, index } => set_up(socket, *index, 0),
            Self::Holder { file, .. } => {
                *file = None;
                Ok(())
            }
        }
    }
}

/// A socket for requests to the kernel.
pub(crate) fn kernel_socket() -> Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE).context("a netlink socket")?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends one message: its kind, its flags and what follows the header.
fn send(socket: &Socket, kind: u16, flags: u16, body: &[u8]) -> Result<()> {
    let mut message = Vec::new();
    message.extend(u32::try_from(HEADER + body.len())?.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend([0; 8]); // sequence, port
    message.extend(body);
    socket.send(&message, 0).context("a request to the kernel")?;
    Ok(())
}

/// Sets a link up or down: `flags` is `IFF_UP` or 0.
fn set_up(socket: &Socket, index: u32, flags: u32) -> Result<()> {
    let mut link = vec![0; 4]; // family, type
    for field in [index, flags, IFF_UP] {
        link.extend(field.to_ne_bytes());
    }
    send(socket, RTM_NEWLINK, NLM_F_ACK, &link)?;
    acknowledged(socket)
}

/// Sets the alias of a link, which is a small change that the kernel tells everything that stands on the link.
pub(crate) fn set_alias(socket: &Socket, index: u32, alias: &str) -> Result<()> {
    let mut link = vec![0; 4]; // family, type
    for field in [index, 0, 0] {
        link.extend(field.to_ne_bytes());
    }
    let length = u16::try_from(ATTRIBUTE_HEADER + alias.len())?;
    link.extend(length.to_ne_bytes());
    link.extend(IFLA_IFALIAS.to_ne_bytes());
    link.extend(alias.bytes());
    send(socket, RTM_NEWLINK, NLM_F_ACK, &link)?;
    acknowledged(socket)
}

/// A question to the kernel: by which link does it send to a destination?
#[derive(Debug)]
pub(crate) struct RouteLookup {
    socket: Socket,
    request: Vec<u8>,
}

impl RouteLookup {
    pub(crate) fn of(destination: Ipv4Addr) -> Result<Self> {
        let mut request = vec![AF_INET, 32];
        request.resize(ROUTE_HEADER, 0);
        request.extend(8u16.to_ne_bytes());
        request.extend(RTA_DST.to_ne_bytes());
        request.extend(destination.octets());
        Ok(Self { socket: kernel_socket()?, request })
    }

    /// Index of the link.
    pub(crate) fn link(&self) -> Result<u32> {
        send(&self.socket, RTM_GETROUTE, 0, &self.request)?;
        let (answer, _) = self.socket.recv_from_full().context("the kernel's answer")?;
        if number(&answer, 4) != Some(RTM_NEWROUTE) {
            bail!("the kernel has no route: {answer:?}");
        }
        let mut at = HEADER + ROUTE_HEADER;
        while let (Some(length), Some(kind)) = (number(&answer, at), number(&answer, at + 2)) {
            if kind == RTA_OIF
                && let Some(index) = answer.get(at + 4..at + 8)
            {
                return Ok(u32::from_ne_bytes(index.try_into()?));
            }
            at += usize::from(length).max(1).next_multiple_of(4);
        }
        bail!("the kernel's route has no link");
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

/// True, or false, when a message says that the link has carrier, or has none; `None` for other messages.
pub(crate) fn has_carrier(message: &[u8], index: u32) -> Option<bool> {
    let link = u32::from_ne_bytes(message.get(20..24)?.try_into().ok()?);
    let flags = u32::from_ne_bytes(message.get(24..28)?.try_into().ok()?);
    (number(message, 4) == Some(RTM_NEWLINK) && link == index).then_some(flags & IFF_RUNNING != 0)
}
