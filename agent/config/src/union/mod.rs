//! Union of the layers. It makes the effective tree, and for each origin the view that a Get of that origin reads.
//!
//! The walk descends the native lists ([`crate::map::Map`] has one anchor for each) with the corresponding entry
//! of every layer in parallel, in the old and in the new version. Where a layer did not change, both versions are
//! the same memory and are skipped: the work is proportional to the change. A computation from scratch is the
//! change from an empty configuration.
//!
//! The specification is `UNION.md`, next to the manifest of this crate.

mod entry;
mod lease;
mod list;
mod reserved;
mod resolve;
mod shell;

use std::sync::Arc;

use smol_str::SmolStr;

pub(crate) use lease::leased_links;
pub(crate) use list::{native_list, openconfig_list};

use crate::claims::{ClaimError, Disagreement};
use crate::images::{Images, Provenance, ProvenanceKind};
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, LayerSet, Layers, LeafMark, Namespace, Owner};
use crate::limits::LimitExceeded;
use crate::map::AnchorId;
use crate::models::Models;
use crate::progress::CancelToken;
use crate::schema::{NodeId, Origin};
use crate::services::{Unanswered, WorkFailure};
use crate::tree::{Branch, List, Tree};
use crate::value::Value;
use list::NewList;

/// A conflict between layers, or configuration that this device does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Two layers of equal rank, or two alternatives in one layer, ask for different values of one leaf.
    Conflict { native: InstancePath, sides: [ConflictingValue; 2] },
    /// A client and services give a user different keys.
    KeyConflict {
        /// Entry of the user.
        native: InstancePath,
        openconfig: InstancePath,
        /// The key of the services. That of the client is shown to nobody.
        key: SmolStr,
    },
    /// A value without a native counterpart.
    Unsupported { layer: LayerKey, openconfig: InstancePath, reason: String },
    /// A change by a client or a service of an item that is reserved for a namespace.
    Reserved {
        service: Namespace,
        layer: LayerKey,
        /// Path in the layer's own model.
        path: InstancePath,
        why: &'static str,
    },
    /// An entry lacks a mandatory leaf.
    MissingMandatory { native: InstancePath },
    /// An entry lacks all leaves although it needs one of them.
    MissingOneOf { native: InstancePath, one_of: Vec<NodeId> },
    /// The work of a service instance failed.
    Work(WorkFailure),
    /// Handlers have to be asked first.
    Unanswered(Unanswered),
    /// Two services ask for different values of one leaf.
    Disagreement(Box<Disagreement>),
    /// All services together ask for too much.
    Limit(LimitExceeded),
}

/// One side of a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConflictingValue {
    pub(crate) layer: LayerKey,
    /// The OpenConfig leaf that has the value; for a native value, the one of the other side.
    pub(crate) openconfig: Option<InstancePath>,
    pub(crate) value: Value,
}

impl Problem {
    /// Problems of claims that cannot be joined.
    pub(crate) fn of_claims(error: ClaimError) -> Vec<Self> {
        match error {
            ClaimError::Disagreements(found) => {
                found.into_iter().map(Box::new).map(Self::Disagreement).collect()
            }
            ClaimError::Limit(error) => vec![Self::Limit(error)],
        }
    }
}

/// Computes the result for `new`, given that for `old`. After a cancellation the result is unusable.
pub(crate) fn unite(
    models: &Models,
    old: (&Layers, &Images),
    new: &Layers,
    cancel: &CancelToken,
) -> (Images, Vec<Problem>, WorkCount) {
    let nothing = Layers::new();
    let no_images = Images::default();
    // A switch changes the rank of all leaves of a layer, so the union starts from scratch.
    let (old, images) = if old.0.off == new.off { old } else { (&nothing, &no_images) };
    let empty = List::default();
    let old = lease::without_hidden_leases(models, old);
    let new = lease::without_hidden_leases(models, new);
    let old = &*old;
    let new = &*new;
    let mut union = Union::new(models, cancel, old, new, &empty);
    let inputs = union.roots(old, new);
    let outputs = union.entry(0, &inputs, &EntryResult::of(images));
    let images = outputs.into_images();
    (images, union.problems, union.work)
}

/// Amount of work, which tests check instead of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCount {
    /// Number of native list entries that were computed.
    pub entries: usize,
}

/// A layer with content, before or after.
#[derive(Clone, Copy, Debug)]
struct InputLayer {
    layer: LayerKey,
    /// True when the layer's owner is switched off.
    off: bool,
}

/// The entry in one layer, before and after.
#[derive(Clone, Copy, Debug, Default)]
struct EntryVersions<'a> {
    old: Option<&'a Arc<Branch<LeafMark>>>,
    new: Option<&'a Arc<Branch<LeafMark>>>,
}

/// Result for one entry.
#[derive(Clone, Debug, Default)]
struct EntryResult {
    effective: Option<Arc<Branch<Provenance>>>,
    openconfig: Option<Arc<Branch<LeafMark>>>,
    native: Option<Arc<Branch<LeafMark>>>,
}

struct Union<'a> {
    models: &'a Models,
    /// Layers with content, strongest first. The inputs of an entry have this order.
    slots: Vec<InputLayer>,
    /// True when a boot layer is in force.
    boot: bool,
    /// Layers whose owners are switched off.
    off: LayerSet,
    /// Indices of the client's layers among the slots.
    client_openconfig: Option<usize>,
    client_native: Option<usize>,
    /// Index of the fence layer among the slots.
    fence: Option<usize>,
    empty: &'a List<LeafMark>,
    cancel: &'a CancelToken,
    /// Native entries on the way to the current place.
    place: Vec<(AnchorId, Keys)>,
    /// True below an entry that comes back because a boot layer does not remove it any more: what is in it is in no earlier
    /// result, and is computed whether or not it differs.
    is_rebuilding: bool,
    problems: Vec<Problem>,
    work: WorkCount,
    /// The last list that was computed from nothing.
    last_list: Option<NewList<'a>>,
}

impl<'a> Union<'a> {
    fn new(
        models: &'a Models,
        cancel: &'a CancelToken,
        old: &Layers,
        new: &Layers,
        empty: &'a List<LeafMark>,
    ) -> Self {
        let holds = |layer: &LayerKey| !old.tree(*layer).is_empty() || !new.tree(*layer).is_empty();
        let slot = |layer: LayerKey| InputLayer { layer, off: new.off.contains(layer) };
        let slots: Vec<_> = LayerKey::ALL.into_iter().filter(holds).map(slot).collect();
        let at = |layer| slots.iter().position(|slot| slot.layer == layer);
        Self {
            models,
            boot: slots.iter().any(|slot| slot.layer.owner == Owner::Boot && !slot.off),
            off: new.off,
            client_openconfig: at(LayerKey::CLIENT_OPENCONFIG),
            client_native: at(LayerKey::CLIENT_NATIVE),
            fence: at(LayerKey::FENCE),
            slots,
            empty,
            cancel,
            place: Vec::new(),
            is_rebuilding: false,
            problems: Vec::new(),
            work: WorkCount::default(),
            last_list: None,
        }
    }

    /// A union at the same place, for a part of the work.
    fn fork(&self) -> Self {
        Self {
            slots: self.slots.clone(),
            place: self.place.clone(),
            problems: Vec::new(),
            work: WorkCount::default(),
            last_list: None,
            ..*self
        }
    }

    fn roots(&self, old: &'a Layers, new: &'a Layers) -> Vec<EntryVersions<'a>> {
        let pair = |slot: &InputLayer| EntryVersions {
            old: Some(old.tree(slot.layer).root()),
            new: Some(new.tree(slot.layer).root()),
        };
        self.slots.iter().map(pair).collect()
    }

    /// Native path of the current entry.
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

impl EntryVersions<'_> {
    fn is_same(&self) -> bool {
        match (self.old, self.new) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        }
    }
}

impl EntryResult {
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

impl InputLayer {
    fn is_openconfig(self) -> bool {
        self.layer.origin == Origin::OpenConfig
    }
}
