//! Names of layers, and sets of them.

use std::fmt;

use crate::schema::Origin;

/// Owner of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The gNSI services.
    Gnsi,
    /// Boot configuration, by bootz and gnoi.BootConfig.
    Boot,
    /// Faults and maintenance.
    Fence,
    /// Controllers and people.
    Client,
    /// Service instances.
    Service,
    /// The DHCP client.
    Lease,
}

/// A group of reserved items with layers of its own, which can be switched off. Clients can write its items then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Namespace {
    Gnsi,
    Bootz,
}

// Name for operators.
crate::enum_names!(Namespace {
    Gnsi = "gnsi",
    Bootz = "bootz",
});

impl Namespace {
    /// Layers of the namespace.
    pub fn layers(self) -> LayerSet {
        match self {
            Self::Gnsi => LayerSet::of(LayerKey::GNSI),
            Self::Bootz => {
                LayerSet::of(LayerKey::BOOT_NATIVE).and(LayerSet::of(LayerKey::BOOT_OPENCONFIG))
            }
        }
    }
}

/// A layer: its owner and the schema that it is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerKey {
    pub owner: Owner,
    pub origin: Origin,
}

impl LayerKey {
    pub const GNSI: Self = Self::new(Owner::Gnsi, Origin::Native);
    pub const BOOT_NATIVE: Self = Self::new(Owner::Boot, Origin::Native);
    pub const BOOT_OPENCONFIG: Self = Self::new(Owner::Boot, Origin::OpenConfig);
    pub const FENCE: Self = Self::new(Owner::Fence, Origin::Native);
    pub const CLIENT_NATIVE: Self = Self::new(Owner::Client, Origin::Native);
    pub const CLIENT_OPENCONFIG: Self = Self::new(Owner::Client, Origin::OpenConfig);
    pub const SERVICE_NATIVE: Self = Self::new(Owner::Service, Origin::Native);
    pub const SERVICE_OPENCONFIG: Self = Self::new(Owner::Service, Origin::OpenConfig);
    pub const LEASE: Self = Self::new(Owner::Lease, Origin::Native);

    /// All layers, strongest first.
    pub const ALL: [Self; 9] = [
        Self::GNSI,
        Self::BOOT_NATIVE,
        Self::BOOT_OPENCONFIG,
        Self::FENCE,
        Self::CLIENT_NATIVE,
        Self::CLIENT_OPENCONFIG,
        Self::SERVICE_NATIVE,
        Self::SERVICE_OPENCONFIG,
        Self::LEASE,
    ];

    const fn new(owner: Owner, origin: Origin) -> Self {
        Self { owner, origin }
    }

    /// Layer that a Set of this origin writes.
    pub const fn client(origin: Origin) -> Self {
        Self::new(Owner::Client, origin)
    }

    /// Layer of what services ask for in this schema.
    pub const fn service(origin: Origin) -> Self {
        Self::new(Owner::Service, origin)
    }

    /// Index in [`LayerKey::ALL`]; `None` for an unused pair.
    pub fn index(self) -> Option<usize> {
        Self::ALL.iter().position(|key| *key == self)
    }

    /// Stable name, which is stored.
    pub fn name(self) -> &'static str {
        match (self.owner, self.origin) {
            (Owner::Gnsi, _) => "gnsi",
            (Owner::Boot, Origin::Native) => "boot native",
            (Owner::Boot, Origin::OpenConfig) => "boot openconfig",
            (Owner::Fence, _) => "fence",
            (Owner::Client, Origin::Native) => "client native",
            (Owner::Client, Origin::OpenConfig) => "client openconfig",
            (Owner::Service, Origin::Native) => "service native",
            (Owner::Service, Origin::OpenConfig) => "service openconfig",
            (Owner::Lease, _) => "lease",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }
}

impl fmt::Display for LayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of layers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerSet(u16);

impl LayerSet {
    pub const NONE: Self = Self(0);

    pub fn of(layer: LayerKey) -> Self {
        layer.index().map_or(Self::NONE, |at| Self(1 << at))
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn contains(self, layer: LayerKey) -> bool {
        self.0 & Self::of(layer).0 != 0
    }

    /// Stored form: bit `n` is layer `n` of [`LayerKey::ALL`].
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Layers of the set, strongest first.
    pub fn iter(self) -> impl Iterator<Item = LayerKey> {
        LayerKey::ALL.into_iter().filter(move |layer| self.contains(*layer))
    }
}

impl fmt::Debug for LayerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(LayerKey::name)).finish()
    }
}
