//! Layers: one sparse configuration tree for each owner and schema.

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::boot::BootConfiguration;
use crate::claims::Claims;
use crate::fence::Fences;
use crate::schema::Origin;
use crate::secrets::Secrets;
use crate::services::Book;
use crate::tree::{Branch, LeafMeta, Tree};

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

impl Namespace {
    pub const ALL: [Self; 2] = [Self::Gnsi, Self::Bootz];

    /// Layers of the namespace.
    pub fn layers(self) -> LayerSet {
        match self {
            Self::Gnsi => LayerSet::of(LayerKey::GNSI),
            Self::Bootz => {
                LayerSet::of(LayerKey::BOOT_NATIVE).and(LayerSet::of(LayerKey::BOOT_OPENCONFIG))
            }
        }
    }

    /// Name for operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gnsi => "gnsi",
            Self::Bootz => "bootz",
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

/// Origin of a leaf in a layer, or in the view of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeafMark {
    /// Set explicitly.
    Explicit,
    /// From the factory configuration.
    Factory,
    /// A default in use. Only views have these, layers do not.
    Default,
    /// Negated by `no X` in a boot text; the value has no meaning. On the keys of an entry, the mark says that the
    /// entry exists for its descendants only, or, when it is given, that it is to be absent.
    Absent,
}

impl LeafMeta for LeafMark {
    type Entry = Arc<Branch<Self>>;
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

/// All configuration of this box. A clone shares the trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    trees: [Tree<LeafMark>; LayerKey::ALL.len()],
    /// Annotation `openconfig-metadata:protobuf-metadata` at the root, as unchanged base64. Clients keep it with
    /// the OpenConfig layer.
    pub annotation: Option<SmolStr>,
    /// References to the secrets that clients gave users, with the OpenConfig layer.
    pub secrets: Secrets,
    /// Boot configuration in force.
    pub boot: Option<Arc<BootConfiguration>>,
    /// Boot configuration before the trial of the present one; `None` outside of a trial.
    pub boot_before: Option<Option<Arc<BootConfiguration>>>,
    /// Text of the factory configuration at the first start of this box.
    pub factory_text: Option<Arc<[u8]>>,
    /// Owners that are switched off. Their layers are kept, and rank below the clients'.
    pub off: LayerSet,
    /// Claims of services; their two trees are the join.
    claims: Claims,
    /// Items of the fence layer with their owners; its tree follows from them.
    pub(crate) fences: Fences,
    /// Service plans, which say how far the instances are.
    pub book: Book,
}

impl Layers {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn tree(&self, layer: LayerKey) -> &Tree<LeafMark> {
        &self.trees[Self::at(layer)]
    }

    pub fn tree_mut(&mut self, layer: LayerKey) -> &mut Tree<LeafMark> {
        &mut self.trees[Self::at(layer)]
    }

    /// True when the namespace is switched on, so that its layers have their own rank.
    pub fn is_on(&self, namespace: Namespace) -> bool {
        self.off.without(namespace.layers()) == self.off
    }

    pub fn switch(&mut self, namespace: Namespace, on: bool) {
        self.off = if on {
            self.off.without(namespace.layers())
        } else {
            self.off.and(namespace.layers())
        };
    }

    /// Claims of services.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Replaces the claims of services, and with them the layers that they are joined into.
    pub fn set_claims(&mut self, claims: Claims) {
        for layer in [LayerKey::SERVICE_NATIVE, LayerKey::SERVICE_OPENCONFIG] {
            *self.tree_mut(layer) = claims.layer(layer.origin).clone();
        }
        self.claims = claims;
    }

    /// These layers without those of services, whose union is the ground.
    pub(crate) fn without_claims(&self) -> Self {
        let mut layers = self.clone();
        layers.set_claims(Claims::default());
        layers
    }

    /// True when both are known to be equal, trees and secrets by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.trees.iter().zip(&other.trees).all(|(one, other)| one.is_same(other))
            && self.secrets.is_same(&other.secrets)
            && self.annotation == other.annotation
            && self.claims.is_same(&other.claims)
            && self.fences.is_same(&other.fences)
            && self.book.is_same(&other.book)
            && self.boot == other.boot
            && self.boot_before == other.boot_before
            && self.factory_text == other.factory_text
            && self.off == other.off
    }

    /// These layers with all that differs between `base` and `theirs` laid under their own changes: the trees by
    /// [`Tree::merged`], each other part as a whole. `self` wins where both changed the same; the number of such
    /// leaves, entries and parts comes second. Claims are not merged: where both changed them, those of `self` stay.
    pub(crate) fn merged(&self, base: &Self, theirs: &Self) -> (Self, usize) {
        let mut collisions = 0;
        let mut trees = self.trees.clone();
        for (at, tree) in trees.iter_mut().enumerate() {
            let (merged, found) = Tree::merged(&base.trees[at], tree, &theirs.trees[at]);
            *tree = merged;
            collisions += found;
        }
        let found = &mut collisions;
        let merged = Self {
            trees,
            annotation: changed(&base.annotation, &self.annotation, &theirs.annotation, found),
            secrets: changed(&base.secrets, &self.secrets, &theirs.secrets, found),
            boot: changed(&base.boot, &self.boot, &theirs.boot, found),
            boot_before: changed(&base.boot_before, &self.boot_before, &theirs.boot_before, found),
            factory_text: changed(
                &base.factory_text,
                &self.factory_text,
                &theirs.factory_text,
                found,
            ),
            off: changed(&base.off, &self.off, &theirs.off, found),
            claims: if self.claims.is_same(&base.claims) {
                theirs.claims.clone()
            } else {
                self.claims.clone()
            },
            fences: self.fences.merged(&base.fences, &theirs.fences),
            book: self.book.merged(&base.book, &theirs.book),
        };
        (merged, collisions)
    }

    /// True when `near` differs from these layers in no more containers and entries than `far`; the cost is that of the
    /// smaller difference.
    pub(crate) fn is_nearer(&self, near: &Self, far: &Self) -> bool {
        let size = |other: &Self, limit: usize| {
            self.trees.iter().zip(&other.trees).fold(0, |count, (one, other)| {
                count + Tree::difference_size(one, other, limit - count)
            })
        };
        let mut limit = FIRST_LOOK;
        loop {
            let (near, far) = (size(near, limit), size(far, limit));
            if near < limit || far < limit {
                return near <= far;
            }
            limit *= 2;
        }
    }

    fn at(layer: LayerKey) -> usize {
        layer.index().expect("`LayerKey` is built from the pairs in `ALL` only")
    }
}

/// Number of containers and entries up to which two differences are first compared.
const FIRST_LOOK: usize = 64;

/// The one of two versions that differs from `base`; `ours` when both do, which counts as a collision.
fn changed<T: Clone + PartialEq>(base: &T, ours: &T, theirs: &T, collisions: &mut usize) -> T {
    if base == ours {
        return theirs.clone();
    }
    *collisions += usize::from(base != theirs && ours != theirs);
    ours.clone()
}
