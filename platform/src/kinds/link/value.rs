//! Links: ports that exist before us, and links that we create.

use holdfast_scheduler::SharedValue;
use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;
use smol_str::SmolStr;

use super::row::{LinkRow, MadeLink, Param, ParamType, PortRule};
use super::rows::{port_rule, row_named};
use crate::kinds::ethernet::Ethernet;
use crate::kinds::link_setting::WantedSetting;
use crate::kinds::types::MacAddr;

/// A network device.
///
/// Units: `mtu` in bytes of layer-3 payload, as the kernel counts; OpenConfig's `mtu` leaf also
/// counts the 14-byte Ethernet header, which the map between the models takes care of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Name by which the agent knows the link: `PORT.INDEX` for a VLAN. It is that of the kernel, of 1 to 15 bytes (`IFNAMSIZ`),
    /// unless the kind has another one ([`Link::own_name`]).
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
    /// Name of the bridge or bond that the link is a port of (`IFLA_MASTER`); carried out as a [`LinkMaster`] part.
    pub master: Option<SmolStr>,
    /// Kind of `master`. Intended: the one whose leaf names it. Observed: `IFLA_INFO_SLAVE_KIND`, and that of the bond that
    /// a link is about to join.
    #[serde(default)]
    pub master_kind: Option<SmolStr>,
    /// Description of the subinterface. Intended only: the kernel has one alias, which is `description`.
    pub subinterface_description: Option<SmolStr>,
    /// `Some(false)` holds back the IPv4 addresses of the configuration. Intended only: the kernel has no such
    /// switch.
    pub ipv4_enabled: Option<bool>,
    /// True when the kernel has IPv6 on the link (`disable_ipv6`). Observed: `None` when the kernel has no IPv6.
    pub ipv6_enabled: Option<bool>,
    /// Settings of its families. Intended only: each is carried out as a [`LinkSetting`](crate::values::LinkSetting) part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<WantedSetting>,
    /// Facts that only the kernel knows; `None` in an intended value.
    pub facts: Option<LinkFacts>,
}

/// The link that a value is.
pub(super) fn link_of(value: &SharedValue) -> Option<&Link> {
    value.as_any().downcast_ref()
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
            master_kind: None,
            subinterface_description: None,
            ipv4_enabled: None,
            ipv6_enabled: None,
            settings: Vec::new(),
            facts: None,
        }
    }

    /// Name of the link in the kernel: that of a VLAN may be another one than `PORT.INDEX`, by which the agent knows it.
    pub fn own_name(&self) -> SmolStr {
        self.kind.made().and_then(MadeLink::own_name).unwrap_or_else(|| self.name.clone())
    }

    /// True when the kernel showed that this agent made the link.
    pub fn is_ours(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.ours)
    }

    /// True when our alternative name has to be set again.
    pub fn lacks_mark(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.mark_lost)
    }

    /// The part that a link which goes down with the one below is up; `None` for other links, and for one that is shut.
    pub(crate) fn admin(&self) -> Option<LinkAdmin> {
        let made = self.kind.made().filter(|made| made.row().goes_down_with_below)?;
        let admin =
            LinkAdmin { link: self.name.clone(), below: made.below(), on_our_link: self.is_ours() };
        self.enabled.then_some(admin)
    }

    /// True for a link that the kernel takes down with the link below.
    pub(crate) fn goes_down_with_below(&self) -> bool {
        self.kind.made().is_some_and(|made| made.row().goes_down_with_below)
    }

    /// True for a link whose link-layer address and MTU are those of its bond.
    pub fn has_those_of_master(&self) -> bool {
        self.master_kind.as_deref().and_then(port_rule).is_some_and(|rule| rule.gives_mac_and_mtu)
    }

    /// The MTU of a link that no other link limits.
    pub fn own_mtu(&self) -> Option<u32> {
        self.mtu.filter(|_| !self.kind.has_limited_mtu())
    }

    /// The part that holds the MTU of a link that other links limit.
    pub fn limited_mtu(&self) -> Option<LinkMtu> {
        let device = self.kind.made().and_then(MadeLink::below);
        let part = LinkMtu {
            link: self.name.clone(),
            mtu: self.mtu,
            device,
            limit: None,
            on_our_link: self.is_ours(),
        };
        self.kind.has_limited_mtu().then_some(part)
    }
}

/// The kind of a link. As JSON, a link that the agent could have made is an object with its kind and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A port that exists before the agent, which sets its attributes and never deletes it.
    Physical,
    /// The loopback device, which exists in every namespace.
    Loopback,
    /// A kind that the agent makes.
    Made(MadeLink),
    /// Observed only: a kind that the native model has no name for (`IFLA_INFO_KIND`).
    Other(SmolStr),
}

impl From<MadeLink> for LinkKind {
    fn from(made: MadeLink) -> Self {
        Self::Made(made)
    }
}

impl From<&'static LinkRow> for LinkKind {
    /// A link of this kind with default parameters.
    fn from(row: &'static LinkRow) -> Self {
        Self::Made(MadeLink::new(row))
    }
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
            Self::Made(made) => made.row().name,
        }
    }

    /// Kind and parameters of a link that the agent makes. Links of other kinds must exist.
    pub fn made(&self) -> Option<&MadeLink> {
        match self {
            Self::Made(made) => Some(made),
            _ => None,
        }
    }

    /// True for kinds that the agent creates.
    pub fn is_made_by_us(&self) -> bool {
        self.made().is_some()
    }

    /// Name of the other end of a pair.
    pub fn far_end(&self) -> Option<SmolStr> {
        self.made()?.far_end()
    }

    /// True for a link whose MTU follows from that of other links: a bridge, and a tunnel on a link.
    pub fn has_limited_mtu(&self) -> bool {
        self.made().is_some_and(MadeLink::has_limited_mtu)
    }

    /// True when both are of one kind, with any parameters.
    pub fn same_kind(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Serialize for LinkKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self::Made(made) = self else { return serializer.serialize_str(self.name()) };
        let param = |param: &Param| match param {
            Param::Bool(on) => Json::from(*on),
            Param::Uint(number) => Json::from(*number),
            Param::Ip(_) | Param::Name(_) => Json::from(param.to_string()),
        };
        let params =
            made.params().map(|(row, value)| (row.leaf.to_owned(), value.map(param).into()));
        let params: serde_json::Map<String, Json> = params.collect();
        let mut kind = serializer.serialize_map(Some(1))?;
        kind.serialize_entry(made.row().name, &params)?;
        kind.end()
    }
}

impl<'de> Deserialize<'de> for LinkKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let params = match Json::deserialize(deserializer)? {
            Json::String(name) => {
                return Ok(match name.as_str() {
                    "physical" => Self::Physical,
                    "loopback" => Self::Loopback,
                    _ => Self::Other(name.into()),
                });
            }
            Json::Object(kind) => kind,
            other => return Err(D::Error::custom(format!("{other} is not a kind of link"))),
        };
        let (name, params) = params.into_iter().next().unwrap_or_default();
        let unknown = || D::Error::custom(format!("`{name}` is not a kind of link"));
        let row = row_named(&name).ok_or_else(unknown)?;
        let mut made = MadeLink::new(row);
        for (position, param) in row.params.iter().enumerate() {
            let value = params.get(param.leaf).filter(|value| !value.is_null());
            let value = value.map(|value| {
                let read = param_of_json(param.ty, value);
                read.ok_or_else(|| D::Error::custom(format!("{value} is not a {}", param.leaf)))
            });
            made.set(position, value.transpose()?);
        }
        Ok(Self::Made(made))
    }
}

fn param_of_json(ty: ParamType, value: &Json) -> Option<Param> {
    Some(match ty {
        ParamType::Bool => Param::Bool(value.as_bool()?),
        ParamType::Uint => Param::Uint(value.as_u64()?.try_into().ok()?),
        ParamType::Ip => Param::Ip(value.as_str()?.parse().ok()?),
        ParamType::Enum(_) | ParamType::Link | ParamType::FarEnd | ParamType::OwnName => {
            Param::Name(value.as_str()?.into())
        }
    })
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

// The enum name of OpenConfig's `oper-status`.
holdfast_config::enum_names!(OperState {
    Up = "UP",
    Down = "DOWN",
    Testing = "TESTING",
    Unknown = "UNKNOWN",
    Dormant = "DORMANT",
    NotPresent = "NOT_PRESENT",
    LowerLayerDown = "LOWER_LAYER_DOWN",
});

impl OperState {
    /// True for a link that its surroundings keep from working. A link whose state the kernel cannot tell counts as
    /// working.
    pub fn is_down(self) -> bool {
        matches!(self, Self::Down | Self::LowerLayerDown | Self::NotPresent)
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

/// Part of a link that goes down with the link below: it is administratively up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAdmin {
    /// The link.
    pub link: SmolStr,
    /// The link below. Observed: `None` where that is in another namespace.
    pub below: Option<SmolStr>,
    /// Observed only: the link carries our mark, so nobody else shall raise it.
    pub on_our_link: bool,
}

/// Presence of a link of this name, of any origin. Observed only; configured ports depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The link.
    pub link: SmolStr,
    /// Kind of the link, where it is a bridge or bond that the agent did not make: the configuration need not say so.
    #[serde(default)]
    pub takes_ports: Option<SmolStr>,
}

impl Port {
    /// The presence of an observed link.
    pub(super) fn of(link: &Link) -> Self {
        let made = link.kind.made().map(MadeLink::row).filter(|row| row.ports.is_some());
        let takes_ports = made.filter(|_| !link.is_ours()).map(|row| SmolStr::new_static(row.name));
        Self { link: link.name.clone(), takes_ports }
    }
}

/// Part of a link: the bridge or bond that it is a port of. Every link has this part, with `None` when it is not a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMaster {
    /// The port.
    pub link: SmolStr,
    /// The bridge or bond. Observed: `None` for a link that is not a port. Intended: always set.
    pub master: Option<SmolStr>,
    /// Kind of `master`, by its name in the kernel. Observed: `None` for a link that is not a port.
    pub kind: Option<SmolStr>,
    /// Observed only: the link carries our mark, so there is no foreign setting to restore.
    pub on_our_link: bool,
}

impl LinkMaster {
    /// How the master takes ports; `None` without one, and for one of a kind that the agent does not make.
    pub(crate) fn rule(&self) -> Option<PortRule> {
        self.kind.as_deref().and_then(port_rule)
    }
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
