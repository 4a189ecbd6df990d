//! Speed and duplex of links: seen, never set.
//!
//! The driver sets them, alone or with the other end of the cable. A configuration that names them asks for nothing to be
//! done: its value is in place while the link shows the same, and waits while it shows another, or none.

use holdfast_scheduler::{Dependency, Descriptor, Effect, Facet, Key, KindId, Offer};

use super::{NO_REQUEST, kinds};
use crate::values::{Ethernet, EthernetAttribute};

/// Speed and duplex of a link, as its driver says.
#[derive(Debug)]
pub struct EthernetDescriptor;

/// Speed and duplex that a link has to have, as its configuration says.
#[derive(Debug)]
pub struct EthernetConfigDescriptor;

/// The key under which the speed and duplex of a link are observed.
pub fn key(link: &str) -> Key {
    Key::of(kinds::ETHERNET).str(link)
}

/// The key of the speed and duplex that a link has to have.
pub fn config_key(link: &str) -> Key {
    Key::of(kinds::ETHERNET_CONFIG).str(link)
}

/// Offered by the link while it has this attribute.
fn facet(link: &str, attribute: EthernetAttribute) -> Facet {
    let of = |name| Facet::of(kinds::ETHERNET, name).str(link);
    match attribute {
        EthernetAttribute::Speed(mbps) => of("speed").u32(mbps),
        EthernetAttribute::Duplex(duplex) => of("duplex").str(duplex.name()),
        EthernetAttribute::AutoNegotiate(on) => of("auto-negotiate").u32(on.into()),
    }
}

impl Descriptor for EthernetDescriptor {
    type Value = Ethernet;

    fn kind(&self) -> KindId {
        kinds::ETHERNET
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

impl Descriptor for EthernetConfigDescriptor {
    type Value = Ethernet;

    fn kind(&self) -> KindId {
        kinds::ETHERNET_CONFIG
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
