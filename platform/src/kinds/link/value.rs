//! Links: ports that exist before us, and links that we create.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::kinds::ethernet::Ethernet;
use crate::kinds::link_setting::LinkSysctl;
use crate::kinds::types::{Family, MacAddr};

/// A network device.
///
/// Units: `mtu` in bytes of layer-3 payload, as the kernel counts; OpenConfig's `mtu` leaf also
/// counts the 14-byte Ethernet header, which the map between the models takes care of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Interface name, 1 to 15 bytes (`IFNAMSIZ`).
    pub name: SmolStr,
    /// Kind of device, with the parameters of that kind.
    pub kind: LinkKind,
    /// Administrative state (`IFF_UP`).
    pub enabled: bool,
    /// `IFLA_IFALIAS`. Intended: `None` leaves it alone. Observed: `None` is an empty alias.
    pub description: Option<SmolStr>,
    /// `IFLA_MTU`. Intended: `None` leaves it alone. Of a link that others limit ([`LinkKind::has_limited_mtu`]), carried out
    /// as a [`LinkMtu`] part.
    pub mtu: Option<u32>,
    /// `IFLA_ADDRESS`. Intended: `None` leaves it alone. Observed: `None` on links without one.
    pub mac: Option<MacAddr>,
    /// Speed and duplex that the port is to have. Intended only: a part that waits until the driver says the same.
    #[serde(default)]
    pub ethernet: Option<Ethernet>,
    /// Name of the bridge that the link is a port of (`IFLA_MASTER`); carried out as a [`LinkMaster`] part.
    pub master: Option<SmolStr>,
    /// Description of the subinterface. Intended only: the kernel has one alias, which is `description`.
    pub subinterface_description: Option<SmolStr>,
    /// `Some(false)` holds back the IPv4 addresses of the configuration. Intended only: the kernel has no such
    /// switch.
    pub ipv4_enabled: Option<bool>,
    /// True when the kernel has IPv6 on the link (`disable_ipv6`). Observed: `None` when the kernel has no IPv6.
    pub ipv6_enabled: Option<bool>,
    /// IPv4 forwarding of this interface; carried out as a [`LinkSetting`] part.
    pub ipv4_forwarding: Option<bool>,
    /// IPv6 forwarding of this interface; carried out as a [`LinkSetting`] part.
    pub ipv6_forwarding: Option<bool>,
    /// Whether IPv4 leaves out next hops over this link without a carrier; carried out as a [`LinkSetting`] part.
    #[serde(default)]
    pub ipv4_ignore_linkdown: Option<bool>,
    /// Whether IPv6 leaves out next hops over this link without a carrier; carried out as a [`LinkSetting`] part.
    #[serde(default)]
    pub ipv6_ignore_linkdown: Option<bool>,
    /// Facts that only the kernel knows; `None` in an intended value.
    pub facts: Option<LinkFacts>,
}

impl Link {
    /// This link, with the attributes of another one that it leaves alone: what is ours where the system has one of both. Attributes
    /// without a pre-image stay as they are.
    #[must_use]
    pub fn or_attributes_of(&self, other: &Self) -> Self {
        Self {
            description: self.description.clone().or_else(|| other.description.clone()),
            mtu: self.mtu.or(other.mtu),
            mac: self.mac.or(other.mac),
            ipv6_enabled: self.ipv6_enabled.or(other.ipv6_enabled),
            ..self.clone()
        }
    }

    /// A link of this name and kind with everything else left alone.
    pub fn new(name: impl Into<SmolStr>, kind: LinkKind) -> Self {
        Self {
            name: name.into(),
            kind,
            enabled: true,
            description: None,
            mtu: None,
            mac: None,
            ethernet: None,
            master: None,
            subinterface_description: None,
            ipv4_enabled: None,
            ipv6_enabled: None,
            ipv4_forwarding: None,
            ipv6_forwarding: None,
            ipv4_ignore_linkdown: None,
            ipv6_ignore_linkdown: None,
            facts: None,
        }
    }

    /// True when the kernel showed that this agent made the link.
    pub fn is_ours(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.ours)
    }

    /// True when our alternative name has to be set again.
    pub fn lacks_mark(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.mark_lost)
    }

    /// True for a bridge that ages addresses faster than configured, during a topology change.
    pub fn ages_faster(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.ages_faster)
    }

    /// The MTU of a link that no other link limits.
    pub fn own_mtu(&self) -> Option<u32> {
        self.mtu.filter(|_| !self.kind.has_limited_mtu())
    }

    /// The part that holds the MTU of a link that other links limit.
    pub fn limited_mtu(&self) -> Option<LinkMtu> {
        let device = match &self.kind {
            LinkKind::Vxlan(params) => params.device.clone(),
            _ => None,
        };
        let part = LinkMtu {
            link: self.name.clone(),
            mtu: self.mtu,
            device,
            limit: None,
            on_our_link: self.is_ours(),
        };
        self.kind.has_limited_mtu().then_some(part)
    }

    /// The intended value of a setting of one family.
    pub fn setting(&self, sysctl: LinkSysctl, family: Family) -> Option<bool> {
        match (sysctl, family) {
            (LinkSysctl::Forwarding, Family::V4) => self.ipv4_forwarding,
            (LinkSysctl::Forwarding, Family::V6) => self.ipv6_forwarding,
            (LinkSysctl::IgnoreRoutesWithLinkdown, Family::V4) => self.ipv4_ignore_linkdown,
            (LinkSysctl::IgnoreRoutesWithLinkdown, Family::V6) => self.ipv6_ignore_linkdown,
        }
    }
}

/// The kind of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// A port that exists before the agent, which sets its attributes and never deletes it.
    Physical,
    /// The loopback device, which exists in every namespace.
    Loopback,
    /// One end of a pair; both ends come and go together.
    Veth {
        /// Name of the other end. Observed: `None` when it is in another namespace.
        peer: Option<SmolStr>,
    },
    /// A bridge.
    Bridge(BridgeParams),
    /// A VXLAN tunnel end.
    Vxlan(VxlanParams),
    /// A device that drops what is sent to it.
    Dummy,
    /// Observed only: a kind that the native model has no name for (`IFLA_INFO_KIND`).
    Other(SmolStr),
}

impl LinkKind {
    /// Name of the kind in the native model, which is the kernel's `IFLA_INFO_KIND` for links that we create.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            _ => self.model_name(),
        }
    }

    /// Name of the kind in the native model, which treats kinds unknown to it as ports.
    pub fn model_name(&self) -> &'static str {
        match self {
            Self::Physical | Self::Other(_) => "physical",
            Self::Loopback => "loopback",
            Self::Veth { .. } => "veth",
            Self::Bridge(_) => "bridge",
            Self::Vxlan(_) => "vxlan",
            Self::Dummy => "dummy",
        }
    }

    /// True for kinds that the agent creates. Links of other kinds must exist.
    pub fn is_made_by_us(&self) -> bool {
        matches!(self, Self::Veth { .. } | Self::Bridge(_) | Self::Vxlan(_) | Self::Dummy)
    }

    /// True for a link whose MTU follows from that of other links: a bridge, and a tunnel on a link.
    pub fn has_limited_mtu(&self) -> bool {
        match self {
            Self::Bridge(_) => true,
            Self::Vxlan(params) => params.device.is_some(),
            _ => false,
        }
    }

    /// True when both are of one kind, with any parameters.
    pub fn same_kind(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Parameters of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeParams {
    /// Spanning tree in the kernel (`IFLA_BR_STP_STATE`).
    pub stp: bool,
    /// VLAN filtering (`IFLA_BR_VLAN_FILTERING`).
    pub vlan_filtering: bool,
    /// Age at which a learned address is forgotten, in seconds.
    pub ageing_time_s: u32,
}

impl Default for BridgeParams {
    /// The kernel's own defaults.
    fn default() -> Self {
        Self { stp: false, vlan_filtering: false, ageing_time_s: 300 }
    }
}

/// Parameters of a VXLAN tunnel end. None of them but `learning` can be changed in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VxlanParams {
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// Source address of the outer packet.
    pub local: Option<IpAddr>,
    /// Remote tunnel end, or the multicast group of all of them.
    pub remote: Option<IpAddr>,
    /// UDP destination port.
    pub port: u16,
    /// Link that carries the tunnel.
    pub device: Option<SmolStr>,
    /// Learn remote addresses from received packets.
    pub learning: bool,
}

impl VxlanParams {
    /// IANA's UDP port for VXLAN, the default of the native model.
    pub const IANA_PORT: u16 = 4789;

    /// A tunnel end with IANA's port and the kernel's defaults.
    pub fn new(vni: u32) -> Self {
        let port = Self::IANA_PORT;
        Self { vni, local: None, remote: None, port, device: None, learning: true }
    }

    /// True when the outer packets are of IPv6. A tunnel without addresses is one of IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.local.or(self.remote).is_some_and(|ip| ip.is_ipv6())
    }

    /// Bytes that the tunnel adds to each packet: the outer headers of IP, UDP and VXLAN, and the inner Ethernet header
    /// (`VXLAN_HEADROOM` and `VXLAN6_HEADROOM`).
    pub fn overhead(&self) -> u32 {
        if self.is_ipv6() { 70 } else { 50 }
    }
}

/// Observed properties of a link that cannot be configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFacts {
    /// `ifindex`.
    pub index: u32,
    /// The link carries our alternative name: we created it and may delete it.
    pub ours: bool,
    /// Address that the device was manufactured with (`IFLA_PERM_ADDRESS`); virtual links have none.
    #[serde(default)]
    pub hardware_mac: Option<MacAddr>,
    /// Operational state, RFC 2863.
    pub oper: OperState,
    /// Time of the last change of `oper`, nanoseconds since 1970 (0: not known yet).
    pub last_change_ns: u64,
    /// Number of carrier changes (`IFLA_CARRIER_CHANGES`).
    pub carrier_changes: u32,
    /// The spanning tree of a bridge is changing (`IFLA_BR_TOPOLOGY_CHANGE`). Until it has settled, the kernel
    /// shows and uses a shorter ageing time than the configured one.
    pub ages_faster: bool,
    /// Our alternative name was removed after it was seen. The link is still known as ours by its index.
    #[serde(default)]
    pub mark_lost: bool,
}

/// Operational state of a link: `ifOperStatus` of RFC 2863, as OpenConfig spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperState {
    /// Ready to pass packets.
    Up,
    /// Not ready.
    Down,
    /// In a test mode.
    Testing,
    /// The kernel cannot tell (loopback and some virtual devices while they are up).
    #[default]
    Unknown,
    /// Waits for an external event.
    Dormant,
    /// A component is missing.
    NotPresent,
    /// Down because of the link below it.
    LowerLayerDown,
}

impl OperState {
    /// True for a link that its surroundings keep from working. A link whose state the kernel cannot tell counts as
    /// working.
    pub fn is_down(self) -> bool {
        matches!(self, Self::Down | Self::LowerLayerDown | Self::NotPresent)
    }

    /// The enum name of OpenConfig's `oper-status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "UP",
            Self::Down => "DOWN",
            Self::Testing => "TESTING",
            Self::Unknown => "UNKNOWN",
            Self::Dormant => "DORMANT",
            Self::NotPresent => "NOT_PRESENT",
            Self::LowerLayerDown => "LOWER_LAYER_DOWN",
        }
    }
}

/// How often a link lost its carrier while `carrier_changes` of [`LinkFacts`] grew by `changes`, which counts losses and
/// returns, and while its status went from one to another. Some links go down without a count.
pub fn carrier_losses(changes: u64, was_down: bool, is_down: bool) -> u64 {
    if is_down && !was_down { changes.div_ceil(2).max(1) } else { changes / 2 }
}

/// Property of a link: it exists and is administratively up. No operation of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUp {
    /// The link.
    pub link: SmolStr,
}

/// Presence of a link of this name, of any origin. Observed only; configured ports depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The link.
    pub link: SmolStr,
}

/// Part of a link: the bridge that it is a port of. Every link has this part, with `None` when it is not a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMaster {
    /// The port.
    pub link: SmolStr,
    /// The bridge. Observed: `None` for a link that is not a port. Intended: always set.
    pub master: Option<SmolStr>,
    /// Observed only: the link carries our mark, so there is no foreign setting to restore.
    pub on_our_link: bool,
}

/// Part of a link: the MTU of a tunnel, which the link below it limits, or of a bridge, which follows its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMtu {
    /// The tunnel or bridge.
    pub link: SmolStr,
    /// Bytes of layer 3. Intended: `None` is as much as the other links allow.
    pub mtu: Option<u32>,
    /// Link below a tunnel; `None` for a bridge.
    pub device: Option<SmolStr>,
    /// Observed only: MTU that the other links allow, where it is known.
    pub limit: Option<u32>,
    /// Observed only: the link carries our mark, so there is no foreign setting to restore.
    pub on_our_link: bool,
}
