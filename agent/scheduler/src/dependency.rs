//! Dependencies as data: targets that a value needs before it can exist, and what a value provides for others.
//!
//! Nothing here is a closure, so the engine can count: each target counts its providers, each value counts its targets
//! without a provider, and readiness is a comparison with zero.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::key::{Key, KindId};

/// Property that several values may have: "an address of eth0". A test on the content of a target is a facet, too: the
/// target offers it only while its content is right.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Facet(Key);

impl Facet {
    /// Facet `name` of values of kind `kind`, to be narrowed by segments as a key is.
    pub fn of(kind: KindId, name: &str) -> Self {
        Self(Key::of(kind).str(name))
    }

    #[must_use]
    pub fn str(self, text: &str) -> Self {
        Self(self.0.str(text))
    }

    #[must_use]
    pub fn u32(self, number: u32) -> Self {
        Self(self.0.u32(number))
    }

    #[must_use]
    pub fn ip(self, address: IpAddr) -> Self {
        Self(self.0.ip(address))
    }

    #[must_use]
    pub fn prefix(self, prefix: IpNet) -> Self {
        Self(self.0.prefix(prefix))
    }
}

impl fmt::Display for Facet {
    /// The name and the segments, such as `frames eth0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.segments().enumerate() {
            f.write_str(if at == 0 { "" } else { " " })?;
            segment.fmt(f)?;
        }
        Ok(())
    }
}

/// Longest name of a link: `IFNAMSIZ` less the zero at its end.
const LINK_NAME_OCTETS: usize = 15;

/// Scope in which prefixes make addresses reachable: a routing table, or one link of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Space([u8; 1 + LINK_NAME_OCTETS]);

impl Space {
    const TABLE: u8 = 0;
    const LINK: u8 = 1;

    /// All prefixes of a routing table.
    pub fn table(number: u32) -> Self {
        Self::new(Self::TABLE, &number.to_be_bytes())
    }

    /// The prefixes on one link. Bytes of the name beyond the longest one that a link can have do not count.
    pub fn link(name: &str) -> Self {
        Self::new(Self::LINK, name.as_bytes())
    }

    fn new(tag: u8, content: &[u8]) -> Self {
        let mut octets = [0; 1 + LINK_NAME_OCTETS];
        octets[0] = tag;
        for (octet, value) in octets[1..].iter_mut().zip(content) {
            *octet = *value;
        }
        Self(octets)
    }
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [tag, content @ ..] = &self.0;
        if *tag == Self::TABLE {
            let [a, b, c, d, ..] = *content;
            return write!(f, "table {}", u32::from_be_bytes([a, b, c, d]));
        }
        let name = content.split(|octet| *octet == 0).next().unwrap_or_default();
        write!(f, "link {}", String::from_utf8_lossy(name))
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Condition that other values meet by existing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The value (or property) with this key.
    Exact(Key),
    /// Any value that offers this facet.
    AnyOf(Facet),
    /// Any value whose key starts with these segments.
    Under(Key),
    /// Any value that offers a prefix of this space with this address in it.
    Covering { space: Space, address: IpAddr },
    /// Any value that has this key as a part. The engine adds this dependency to each part.
    Whole(Key),
}

/// One target that a value needs. All dependencies of a value must be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Text shown to users while the dependency is unmet. Unique among the dependencies of a value.
    pub label: SmolStr,
    pub target: Target,
}

impl Dependency {
    pub fn new(label: impl Into<SmolStr>, target: Target) -> Self {
        Self { label: label.into(), target }
    }

    /// The value with this key.
    pub fn exact(label: impl Into<SmolStr>, key: Key) -> Self {
        Self::new(label, Target::Exact(key))
    }

    /// Any value that offers the facet.
    pub fn any_of(label: impl Into<SmolStr>, facet: Facet) -> Self {
        Self::new(label, Target::AnyOf(facet))
    }

    /// Any value whose key starts with `prefix`.
    pub fn under(label: impl Into<SmolStr>, prefix: Key) -> Self {
        Self::new(label, Target::Under(prefix))
    }

    /// Any prefix offered in `space` that contains `address`: makes a gateway reachable.
    pub fn covering(label: impl Into<SmolStr>, space: Space, address: IpAddr) -> Self {
        Self::new(label, Target::Covering { space, address })
    }
}

/// Target that a value provides besides its own key, as long as it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Offer {
    /// Meets [`Target::AnyOf`].
    Facet(Facet),
    /// Meets [`Target::Covering`] for every address of `prefix`.
    Prefix { space: Space, prefix: IpNet },
}

impl Offer {
    /// Connected prefix of an address, or destination of a route to a link. Host bits are dropped.
    pub fn prefix(space: Space, prefix: IpNet) -> Self {
        Self::Prefix { space, prefix: prefix.trunc() }
    }
}

impl From<Facet> for Offer {
    fn from(facet: Facet) -> Self {
        Self::Facet(facet)
    }
}

/// Claim of an identity in the system, which one value can hold at a time, or all values of one side together: an
/// address of the box cannot be that of a neighbour, however many links have such a neighbour. The old holders go
/// before a value comes that cannot hold the identity with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub(crate) identity: Facet,
    pub(crate) side: Option<&'static str>,
}

impl Claim {
    /// Claim of a value that holds the identity alone.
    pub fn alone(identity: Facet) -> Self {
        Self { identity, side: None }
    }

    /// Claim of a value that holds the identity together with others of its side.
    pub fn with_side(identity: Facet, side: &'static str) -> Self {
        Self { identity, side: Some(side) }
    }

    /// True when a value with this claim can hold the identity together with holders of `side`.
    pub(crate) fn goes_with(&self, side: Option<&'static str>) -> bool {
        self.side.is_some() && self.side == side
    }
}

/// Values that the system removes together with a value (or with a property that a value loses), so that they need no
/// delete of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cascade {
    /// All values whose key starts with these segments.
    Under(Key),
    /// All values that offer this facet.
    Of(Facet),
}
