//! From the stack of layers to what holds: the effective tree, and what each origin's Get shows.
//!
//! The walk goes down the native lists ([`crate::map::Map`] has one anchor for each) with the same
//! entry of every layer side by side, in the old and in the new version. Where a layer did not
//! change, both are the same memory and nothing is done: the work is in proportion to the change.
//! From scratch is the change from nothing.
//!
//! UNION.md beside the manifest of this crate is the specification.

mod entry;
mod lease;
mod list;
mod reserved;
mod resolve;
mod shell;

use std::sync::Arc;

pub(crate) use list::{native_list, openconfig_list};

use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Layers, Mark, Owner, Owners, Service};
use crate::map::AnchorId;
use crate::models::Models;
use crate::progress::Cancel;
use crate::schema::{NodeId, Origin};
use crate::tree::{Branch, List, Tree};
use crate::value::Value;

/// Why an effective leaf has the value it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prov {
    pub kind: ProvKind,
    /// Who asked for it, or whose default it is; none for a native default.
    pub owners: Owners,
}

impl Prov {
    /// True of a leaf that a lease gave, and that nobody else asks for.
    pub fn is_leased(&self) -> bool {
        self.owners == Owners::of(LayerKey::LEASE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProvKind {
    Explicit,
    OcDefault,
    Factory,
    NativeDefault,
}

/// What the layers come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Images {
    /// Native configuration as it is to be.
    pub(crate) effective: Tree<Prov>,
    /// What Get CONFIG shows of each origin.
    pub(crate) openconfig: Tree<Mark>,
    pub(crate) native: Tree<Mark>,
}

/// Why layers do not go together, or what this device cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Two layers of equal rank ask for different values of one leaf.
    Conflict {
        native: InstancePath,
        openconfig: Option<InstancePath>,
        sides: [(LayerKey, Value); 2],
    },
    /// A value that has no native counterpart.
    Unsupported { layer: LayerKey, openconfig: InstancePath, reason: String },
    /// A client would change what a service keeps to itself.
    Reserved {
        service: Service,
        layer: LayerKey,
        /// In the layer's own model.
        path: InstancePath,
        why: &'static str,
    },
    /// A leaf without which the entry means nothing.
    Missing { native: InstancePath },
    /// An entry means nothing without one of these leaves.
    MissingAll { native: InstancePath, one_of: Vec<NodeId> },
}

/// Computes the images of `new`, given those of `old`. When it is cancelled on the way, they are of no use.
pub(crate) fn unite(
    models: &Models,
    old: (&Layers, &Images),
    new: &Layers,
    cancel: &Cancel,
) -> (Images, Vec<Problem>, Work) {
    let (nothing, no_images) = (Layers::new(), Images::default());
    // A switch changes the rank of everything a layer holds: begin anew.
    let (old, images) = if old.0.off == new.off { old } else { (&nothing, &no_images) };
    let empty = List::default();
    let (old, new) = (lease::visible(models, old), lease::visible(models, new));
    let (old, new) = (&*old, &*new);
    let mut union = Union::new((models, cancel), old, new, &empty);
    let inputs = union.roots(old, new);
    let outputs = union.entry(0, &inputs, &Outputs::of(images));
    let images = outputs.into_images();
    (images, union.problems, union.work)
}

/// How much was done: asserted in tests instead of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Entries of native lists that were computed anew.
    pub entries: usize,
}

/// One layer that holds anything, before or after.
#[derive(Clone, Copy, Debug)]
struct Slot {
    layer: LayerKey,
    /// The layer's owner is switched off.
    off: bool,
}

/// The same entry of one layer, before and after.
#[derive(Clone, Copy, Debug, Default)]
struct Pair<'a> {
    old: Option<&'a Arc<Branch<Mark>>>,
    new: Option<&'a Arc<Branch<Mark>>>,
}

/// What becomes of one entry.
#[derive(Clone, Debug, Default)]
struct Outputs {
    effective: Option<Arc<Branch<Prov>>>,
    openconfig: Option<Arc<Branch<Mark>>>,
    native: Option<Arc<Branch<Mark>>>,
}

struct Union<'a> {
    models: &'a Models,
    /// Strongest first. The inputs of an entry are in the same order.
    slots: Vec<Slot>,
    /// Some layer of boot is in force.
    boot: bool,
    /// Layers whose owners are switched off.
    off: Owners,
    /// The places of the client's layers among the slots.
    client_openconfig: Option<usize>,
    client_native: Option<usize>,
    empty: &'a List<Mark>,
    cancel: &'a Cancel,
    /// The entries that the walk is in.
    place: Vec<(AnchorId, Keys)>,
    problems: Vec<Problem>,
    work: Work,
}

impl<'a> Union<'a> {
    fn new(
        (models, cancel): (&'a Models, &'a Cancel),
        old: &Layers,
        new: &Layers,
        empty: &'a List<Mark>,
    ) -> Self {
        let holds = |layer: &LayerKey| !old.tree(*layer).is_empty() || !new.tree(*layer).is_empty();
        let slot = |layer: LayerKey| Slot { layer, off: new.off.contains(layer) };
        let slots: Vec<_> = LayerKey::ALL.into_iter().filter(holds).map(slot).collect();
        let at = |layer| slots.iter().position(|slot| slot.layer == layer);
        Self {
            models,
            boot: slots.iter().any(|slot| slot.layer.owner == Owner::Boot && !slot.off),
            off: new.off,
            client_openconfig: at(LayerKey::CLIENT_OPENCONFIG),
            client_native: at(LayerKey::CLIENT_NATIVE),
            slots,
            empty,
            cancel,
            place: Vec::new(),
            problems: Vec::new(),
            work: Work::default(),
        }
    }

    /// A union in the same place, for a part of the work.
    fn branch_off(&self) -> Self {
        Self {
            slots: self.slots.clone(),
            place: self.place.clone(),
            problems: Vec::new(),
            work: Work::default(),
            ..*self
        }
    }

    fn roots(&self, old: &'a Layers, new: &'a Layers) -> Vec<Pair<'a>> {
        let pair = |slot: &Slot| Pair {
            old: Some(old.tree(slot.layer).root()),
            new: Some(new.tree(slot.layer).root()),
        };
        self.slots.iter().map(pair).collect()
    }

    /// The native path of the entry the walk is in.
    fn native_path(&self) -> InstancePath {
        let mut path = InstancePath::root();
        for (anchor, keys) in &self.place {
            if let Some((list, above)) = self.models.map.anchors[*anchor].native.split_last() {
                path.0.extend(above.iter().copied().map(Step::node));
                path.0.push(Step::entry(*list, keys.clone()));
            }
        }
        path
    }

    fn openconfig_path(&self) -> Option<InstancePath> {
        let keys: Vec<&Keys> = self.place.iter().map(|(_, keys)| keys).collect();
        let anchor = self.place.last().map_or(0, |(anchor, _)| *anchor);
        self.models.map.openconfig_entry(anchor, &keys)
    }
}

impl Pair<'_> {
    fn is_same(&self) -> bool {
        match (self.old, self.new) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Outputs {
    fn of(images: &Images) -> Self {
        Self {
            effective: Some(images.effective.root().clone()),
            openconfig: Some(images.openconfig.root().clone()),
            native: Some(images.native.root().clone()),
        }
    }

    fn into_images(self) -> Images {
        Images {
            effective: self.effective.map(Tree::from_root).unwrap_or_default(),
            openconfig: self.openconfig.map(Tree::from_root).unwrap_or_default(),
            native: self.native.map(Tree::from_root).unwrap_or_default(),
        }
    }
}

impl Slot {
    fn is_openconfig(self) -> bool {
        self.layer.origin == Origin::OpenConfig
    }
}
