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
    /// Intended only: the address comes from a DHCP lease and from no other configuration. The kernel does not
    /// know.
    #[serde(default)]
    pub leased: bool,
    /// IPv4: another address of this prefix on the link came first (`IFA_F_SECONDARY`).
    #[serde(default)]
    pub secondary: bool,
    /// Facts that only the kernel knows; `None` in an intended value.
    pub facts: Option<AddressFacts>,
}

impl Address {
    /// A configured address.
    pub fn new(link: impl Into<SmolStr>, ip: IpAddr, prefix_len: u8) -> Self {
        Self { link: link.into(), ip, prefix_len, leased: false, secondary: false, facts: None }
    }

    /// True for an address that another host on the link has.
    pub fn is_duplicate(&self) -> bool {
        let status = self.facts.as_ref().and_then(|facts| facts.status);
        status == Some(AddressStatus::Duplicate)
    }

    /// The prefix that is on-link by this address, host bits cleared.
    pub fn on_link_prefix(&self) -> Option<IpNet> {
        IpNet::new(self.ip, self.prefix_len).ok().map(|net| net.trunc())
    }
}

/// Observed properties of an address that cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFacts {
    /// The address carries our protocol number (`IFA_PROTO`): we created it and may delete it.
    pub ours: bool,
    /// Origin of the address.
    pub origin: AddressOrigin,
    /// IPv6 only: status of the address on its link.
    #[serde(default)]
    pub status: Option<AddressStatus>,
}

/// Status of an address: `ip-address-status` of RFC 8344, as OpenConfig spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AddressStatus {
    /// May be used.
    Preferred,
    /// Valid, and not to be used for new connections.
    Deprecated,
    /// The kernel is asking whether another host on the link has it.
    Tentative,
    /// Another host on the link has it (`IFA_F_DADFAILED`).
    Duplicate,
    /// Used while the kernel is asking.
    Optimistic,
}

impl AddressStatus {
    /// The enum name of OpenConfig's `status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preferred => "PREFERRED",
            Self::Deprecated => "DEPRECATED",
            Self::Tentative => "TENTATIVE",
            Self::Duplicate => "DUPLICATE",
            Self::Optimistic => "OPTIMISTIC",
        }
    }
}

/// Origin of an address: `ip-address-origin` of RFC 8344, as OpenConfig spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AddressOrigin {
    /// Configured, by us or by hand.
    Static,
    /// Leased from a DHCP server by this agent.
    Dhcp,
    /// Made by the kernel from the link-layer address.
    LinkLayer,
    /// Made by the kernel at random, or so that the link cannot be derived from it (RFC 8981, RFC 7217).
    Random,
    /// Made by the kernel for other reasons (loopback), or unknown.
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

/// Part of an address: while its link is up, gateways within the prefix are reachable. The kernel maintains this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedPrefix {
    /// The link.
    pub link: SmolStr,
    /// Address that makes the prefix on-link.
    pub ip: IpAddr,
    /// The on-link prefix, host bits cleared.
    pub prefix: IpNet,
    /// Routing table into which the kernel puts the prefix.
    pub table: u32,
}
