//! Speed and duplex of links: seen, never set.

use holdfast_scheduler::{Descriptor, Effect, Key, KindId};

use super::kinds;
use crate::values::Ethernet;

/// Speed and duplex of a link.
#[derive(Debug)]
pub struct EthernetDescriptor;

/// The key under which the speed and duplex of a link are observed.
pub fn key(link: &str) -> Key {
    Key::of(kinds::ETHERNET).str(link)
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
}
