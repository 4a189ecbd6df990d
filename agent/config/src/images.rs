//! Result of the union: the effective tree with the provenance of its leaves, and the view of each origin's Get.

use std::sync::Arc;

use crate::layer::{LayerKey, LayerSet, LeafMark};
use crate::schema::Origin;
use crate::tree::{Branch, LeafMeta, Tree};

/// Provenance of an effective leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Provenance {
    pub kind: ProvenanceKind,
    /// Owners of the value, or of the default; empty for a native default.
    pub owners: LayerSet,
}

impl LeafMeta for Provenance {
    type Entry = Arc<Branch<Self>>;
}

impl Provenance {
    /// True when a leaf stems from a lease and no other layer sets it.
    pub fn is_leased(&self) -> bool {
        self.owners == LayerSet::of(LayerKey::LEASE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProvenanceKind {
    Explicit,
    OpenConfigDefault,
    Factory,
    NativeDefault,
}

/// Result of the union.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Images {
    /// Effective native configuration.
    pub(crate) effective: Tree<Provenance>,
    /// Views for Get CONFIG of each origin.
    pub(crate) openconfig: Tree<LeafMark>,
    pub(crate) native: Tree<LeafMark>,
}

impl Images {
    /// View for Get CONFIG of an origin.
    pub(crate) fn view(&self, origin: Origin) -> &Tree<LeafMark> {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    /// These images with the memory of `old` wherever they are equal.
    pub(crate) fn sharing(self, old: &Self) -> Self {
        Self {
            effective: self.effective.sharing(&old.effective),
            openconfig: self.openconfig.sharing(&old.openconfig),
            native: self.native.sharing(&old.native),
        }
    }
}
