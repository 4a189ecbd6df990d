//! IPv4 and IPv6 addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The link it belongs to.
    pub link: SmolStr,
    /// The address.
    pub ip: IpAddr,
    /// Length of the on-link prefix, in bits.
    pub prefix_len: u8,
    /// Intended only: a DHCP server gave it, and nobody else asks for it. The kernel does not tell.
    #[serde(default)]
    pub leased: bool,
    /// Of IPv4: it stands beside another one of its prefix, which came first (`IFA_F_SECONDARY`).
    #[serde(default)]
    pub secondary: bool,
    /// What only the kernel knows; `None` in an intended value.
    pub facts: Option<AddressFacts>,
}

impl Address {
    /// An address that is configured.
    pub fn new(link: impl Into<SmolStr>, ip: IpAddr, prefix_len: u8) -> Self {
        Self { link: link.into(), ip, prefix_len, leased: false, secondary: false, facts: None }
    }

    /// The prefix that is on-link by this address, host bits cleared.
    pub fn on_link_prefix(&self) -> Option<IpNet> {
        IpNet::new(self.ip, self.prefix_len).ok().map(|net| net.trunc())
    }
}

/// What the kernel shows of an address beyond what can be configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFacts {
    /// It carries our protocol number (`IFA_PROTO`): we made it and may delete it.
    pub ours: bool,
    /// Where it comes from.
    pub origin: AddressOrigin,
}

/// Where an address comes from: `ip-address-origin` of RFC 8344, as OpenConfig spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AddressOrigin {
    /// Configured, by us or by hand.
    Static,
    /// Leased from a DHCP server by this agent.
    Dhcp,
    /// Made by the kernel from the link-layer address.
    LinkLayer,
    /// Made by the kernel by chance, or so that it tells nothing of the link (RFC 8981, RFC 7217).
    Random,
    /// Made by the kernel for other reasons (loopback), or not known.
    Other,
}

impl AddressOrigin {
    /// The enum name of OpenConfig's `origin`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "STATIC",
            Self::Dhcp => "DHCP",
            Self::LinkLayer => "LINK_LAYER",
            Self::Random => "RANDOM",
            Self::Other => "OTHER",
        }
    }
}

/// Part of an address: while its link is up, gateways inside the prefix can be reached. The kernel
/// brings it about by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// The link.
    pub link: SmolStr,
    /// The address that brings it.
    pub ip: IpAddr,
    /// The on-link prefix, host bits cleared.
    pub prefix: IpNet,
    /// Routing table in which the kernel puts the prefix.
    pub table: u32,
}
