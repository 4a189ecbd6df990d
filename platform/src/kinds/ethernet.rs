//! Speed and duplex of links: seen, never set.
//!
//! The driver sets them, alone or with the other end of the cable. A configuration that names them asks for nothing to be
//! done: its value is in place while the link shows the same, and waits while it shows another, or none.

use std::fmt;
use std::mem::discriminant;

use holdfast_config::{Schema, Value};
use holdfast_scheduler::{Dependency, Descriptor, Effect, Facet, Key, KindId, Offer};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::entry::vlan_of;
use super::native::{
    AttributeOfLink, Bind, INTERFACE, InterfaceNodes, ModelError, NativeKind, ValueEntry, nodes,
};
use super::reading::{Query, Read, first_text};
use super::row::Kind;
use super::state::{Leaves, Planes, StateEntry, enum_value};
use super::{NO_REQUEST, link};

/// Speed and duplex of a link.
pub const ETHERNET: KindId = KindId(15);

/// Speed and duplex that a link has to have.
pub const ETHERNET_CONFIG: KindId = KindId(16);

/// Duplex mode of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Duplex {
    /// One end sends at a time.
    Half,
    /// Both ends may send at once.
    Full,
}

// The enum name of OpenConfig's `duplex-mode`.
holdfast_config::enum_names!(Duplex {
    Half = "HALF",
    Full = "FULL",
});

/// Speed and duplex of a link. Observed: from its driver; links without a driver that says anything have none.
/// Intended: as the configuration has them; `None` leaves an attribute open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ethernet {
    /// The link.
    pub link: SmolStr,
    /// Mbit/s. Observed: `None` is not known, as without a carrier.
    pub speed_mbps: Option<u32>,
    /// Observed: `None` is not known.
    pub duplex: Option<Duplex>,
    /// True when both ends settle speed and duplex between them. Observed: `None` where the driver does not say.
    pub auto_negotiate: Option<bool>,
}

impl Ethernet {
    /// The attributes that are known, or asked for.
    pub fn attributes(&self) -> impl Iterator<Item = EthernetAttribute> {
        let speed = self.speed_mbps.map(EthernetAttribute::Speed);
        let duplex = self.duplex.map(EthernetAttribute::Duplex);
        let auto_negotiate = self.auto_negotiate.map(EthernetAttribute::AutoNegotiate);
        [speed, duplex, auto_negotiate].into_iter().flatten()
    }

    /// The attribute that `other` is a value of, as it is here.
    pub fn counterpart(&self, other: EthernetAttribute) -> Option<EthernetAttribute> {
        self.attributes().find(|own| discriminant(own) == discriminant(&other))
    }
}

/// One attribute of [`Ethernet`] with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EthernetAttribute {
    /// Mbit/s.
    Speed(u32),
    /// Duplex mode.
    Duplex(Duplex),
    /// True when both ends settle speed and duplex between them.
    AutoNegotiate(bool),
}

impl fmt::Display for EthernetAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Speed(mbps) => write!(f, "a speed of {mbps} Mbit/s"),
            Self::Duplex(Duplex::Full) => f.write_str("full duplex"),
            Self::Duplex(Duplex::Half) => f.write_str("half duplex"),
            Self::AutoNegotiate(true) => f.write_str("autonegotiation on"),
            Self::AutoNegotiate(false) => f.write_str("autonegotiation off"),
        }
    }
}

/// Speed and duplex of a link, as its driver says.
#[derive(Debug, Default)]
pub struct EthernetDescriptor;

/// Speed and duplex that a link has to have, as its configuration says.
#[derive(Debug, Default)]
pub struct EthernetConfigDescriptor;

/// The key under which the speed and duplex of a link are observed.
pub fn key(link: &str) -> Key {
    Key::of(ETHERNET).str(link)
}

/// The key of the speed and duplex that a link has to have.
pub fn config_key(link: &str) -> Key {
    Key::of(ETHERNET_CONFIG).str(link)
}

/// Offered by the link while it has this attribute.
fn facet(link: &str, attribute: EthernetAttribute) -> Facet {
    let of = |name| Facet::of(ETHERNET, name).str(link);
    match attribute {
        EthernetAttribute::Speed(mbps) => of("speed").u32(mbps),
        EthernetAttribute::Duplex(duplex) => of("duplex").str(duplex.name()),
        EthernetAttribute::AutoNegotiate(on) => of("auto-negotiate").u32(on.into()),
    }
}

impl Kind for EthernetDescriptor {
    const NATIVE: Option<Bind> = Some(NativeEthernet::bind);
    const READ: Read =
        Read::Kernel { class: &link::LINKS, one: |key| first_text(key).map(Query::Ethernet) };
}

impl Descriptor for EthernetDescriptor {
    type Value = Ethernet;

    fn kind(&self) -> KindId {
        ETHERNET
    }

    fn name(&self) -> &'static str {
        "ethernet"
    }

    fn key(&self, ethernet: &Ethernet) -> Key {
        key(&ethernet.link)
    }

    fn label(&self, ethernet: &Ethernet) -> String {
        format!("speed of {}", ethernet.link)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }

    fn provides(&self, ethernet: &Ethernet) -> Vec<Offer> {
        ethernet.attributes().map(|it| facet(&ethernet.link, it).into()).collect()
    }
}

nodes!(
    /// State of speed and duplex.
    EthernetNodes {
        state: "/state",
        port_speed: "/state/port-speed",
        negotiated_port_speed: "/state/negotiated-port-speed",
        duplex_mode: "/state/duplex-mode",
        auto_negotiate: "/state/auto-negotiate",
    }
);

/// Speed and duplex in the native model: attributes of an interface.
#[derive(Debug)]
struct NativeEthernet {
    interfaces: InterfaceNodes,
    nodes: EthernetNodes,
}

impl NativeEthernet {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        let interfaces = InterfaceNodes::bind(schema)?;
        let nodes = EthernetNodes::find(schema, INTERFACE)?;
        Ok(Box::new(Self { interfaces, nodes }))
    }
}

impl NativeKind for NativeEthernet {
    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let ethernet: &Ethernet = planes.observed()?;
        if vlan_of(&ethernet.link).is_some() {
            return None; // the driver repeats what the port says, and the model has it at the port alone
        }
        let nodes = &self.nodes;
        let path = self.interfaces.link(&ethernet.link);
        let mut leaves = Leaves::of(nodes.state);
        let speed = ethernet.speed_mbps.map(|speed| Value::Uint(speed.into()));
        let settled = speed.clone().filter(|_| ethernet.auto_negotiate == Some(true));
        leaves.optional(nodes.port_speed, speed);
        leaves.optional(nodes.negotiated_port_speed, settled);
        let duplex = ethernet.duplex.map(|duplex| enum_value(duplex.name()));
        leaves.optional(nodes.duplex_mode, duplex);
        leaves.optional(nodes.auto_negotiate, ethernet.auto_negotiate.map(Value::Bool));
        Some(leaves.entry(path))
    }

    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        self.interfaces.attribute(key)
    }
}

impl Kind for EthernetConfigDescriptor {
    const NATIVE: Option<Bind> = Some(AttributeOfLink::bind);
}

impl Descriptor for EthernetConfigDescriptor {
    type Value = Ethernet;

    fn kind(&self) -> KindId {
        ETHERNET_CONFIG
    }

    fn name(&self) -> &'static str {
        "ethernet-config"
    }

    fn key(&self, ethernet: &Ethernet) -> Key {
        config_key(&ethernet.link)
    }

    fn label(&self, ethernet: &Ethernet) -> String {
        format!("configured speed of {}", ethernet.link)
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    /// Each attribute as the driver has it: nothing else makes it so.
    fn dependencies(&self, ethernet: &Ethernet) -> Vec<Dependency> {
        let link = &ethernet.link;
        let need = |it| Dependency::any_of(format!("port {link} with {it}"), facet(link, it));
        ethernet.attributes().map(need).collect()
    }

    fn observable(&self) -> bool {
        false
    }
}
