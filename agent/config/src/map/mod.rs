//! The map between OpenConfig leaves and native leaves.
//!
//! The file `openconfig.map` has one line for each OpenConfig leaf. [`Map`] is that text compiled for both
//! schemas, in the shape that the union needs: one `Anchor` for each native list, since native lists are the
//! objects of this device, with the leaves of an entry. Keys are mapped one-to-one, so an OpenConfig entry and its
//! native entry denote the same object. Several native lists may share an OpenConfig list: see section 2.2 of `UNION.md`,
//! next to the manifest of this crate.

mod codec;
mod compile;
mod finish;
mod keys;
mod table;
mod text;
mod translate;

use std::collections::HashMap;

use smallvec::SmallVec;
use smol_str::SmolStr;

pub use codec::{Codec, ETHERNET_HEADER};
pub(crate) use keys::{Counterpart, KeyRule};

use crate::instance::Step;
use crate::reserved;
use crate::schema::{NodeId, Origin};
use crate::tree::{Branch, Leaf, LeafMeta};
use crate::value::Value;

/// The map in the binary.
pub(crate) const TEXT: &str = include_str!("openconfig.map");

/// The map, compiled for a pair of schemas.
#[derive(Debug)]
pub struct Map {
    /// Parents before children; the first is the root.
    pub(crate) anchors: Vec<Anchor>,
    /// Rows by the node number of their native leaf.
    by_native: Vec<Vec<MapRow>>,
    /// Rows by their OpenConfig leaf. Of several, the fixed keys on the way to the leaf tell which one counts.
    by_openconfig: HashMap<NodeId, Vec<MapRow>>,
    /// Anchors by their OpenConfig list. Of several, the keys of an entry tell which one has it.
    by_list: HashMap<NodeId, Vec<AnchorId>>,
    /// Anchors with a leaf that has alternatives.
    with_alternatives: Vec<AnchorId>,
    /// By model and list: the supported entries, where these are limited.
    limits: [Vec<Option<SupportedEntries>>; 2],
    /// By model and node: true for a list with limits and for its ancestors.
    limited: [Vec<bool>; 2],
    /// By OpenConfig list, the leaves in `config` that repeat a key: container, leaf, index of the key.
    key_copies: Vec<Vec<(NodeId, NodeId, usize)>>,
    /// By OpenConfig node: true for a key of a list, and for a leaf that repeats one.
    keys: Vec<bool>,
}

/// An error in the table, which the first test would find.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the OpenConfig map: {reason}")]
pub struct MapError {
    pub line: usize,
    pub reason: String,
}

/// Index of an [`Anchor`].
pub(crate) type AnchorId = usize;

/// A native list (or the root), its OpenConfig counterpart, and the leaves of an entry itself. Descendant lists
/// have anchors of their own.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) parent: Option<AnchorId>,
    /// Containers from the parent anchor's entry to the list, the list last. Empty at the root.
    pub(crate) native: Vec<NodeId>,
    pub(crate) openconfig: Option<Counterpart>,
    pub(crate) leaves: Vec<OwnLeaf>,
    /// Presence containers of an entry, outer ones first: nodes from the entry to each.
    pub(crate) presence: Vec<Vec<NodeId>>,
    /// Leaves; an entry needs at least one of them.
    pub(crate) one_of: Vec<NodeId>,
    /// An entry with nothing but its keys is complete, and so no shell.
    pub(crate) keys_suffice: bool,
    /// OpenConfig leaves that are derived from the keys alone.
    pub(crate) implied: Vec<ImpliedLeaf>,
    /// OpenConfig leaves that clients cannot set.
    pub(crate) never: Vec<UnwritableLeaf>,
    pub(crate) children: Vec<AnchorId>,
    /// For each of the `children`, the one before it, by its place among them, that has the same OpenConfig list.
    pub(crate) shares_list_with: Vec<Option<usize>>,
    /// Places of the `children`, such that a list comes before those in its entries.
    pub(crate) outer_lists_first: Vec<usize>,
}

/// One native configuration leaf of an anchor's entry.
#[derive(Debug)]
pub(crate) struct OwnLeaf {
    /// Nodes from the entry to the leaf: containers, then the leaf itself.
    pub(crate) native: Vec<NodeId>,
    /// Index among the keys of the list.
    pub(crate) key: Option<usize>,
    pub(crate) default: Option<Value>,
    pub(crate) mandatory: bool,
    /// Condition for the native default.
    pub(crate) when: Option<DefaultCondition>,
    /// Number of leading nodes of `native` to the innermost presence container that the leaf is in. The leaf has no default
    /// and is not mandatory without that.
    pub(crate) presence: Option<usize>,
    /// OpenConfig counterparts: the first one, then its alternatives.
    pub(crate) openconfig: Vec<MappedLeaf>,
}

/// The OpenConfig counterpart of a native leaf.
#[derive(Debug)]
pub(crate) struct MappedLeaf {
    /// Steps from the OpenConfig entry to the leaf.
    pub(crate) steps: Vec<Step>,
    /// Number of leading `steps` to the entry or presence container whose existence brings the default into use.
    pub(crate) unit: usize,
    pub(crate) codec: &'static Codec,
    /// OpenConfig default and its native value; of an alternative it is never in use, and `None`.
    pub(crate) default: Option<(Value, Value)>,
    /// Condition for the OpenConfig default.
    pub(crate) when: Option<DefaultCondition>,
}

/// A condition on another leaf of the same entry, evaluated on the effective tree.
#[derive(Clone, Debug)]
pub(crate) struct DefaultCondition {
    pub(crate) native: Vec<NodeId>,
    pub(crate) values: Vec<SmolStr>,
}

/// An OpenConfig configuration leaf without a native leaf of its own.
#[derive(Debug)]
pub(crate) struct ImpliedLeaf {
    pub(crate) steps: Vec<Step>,
    pub(crate) value: KeyRule,
}

/// An OpenConfig configuration leaf that no layer can hold.
#[derive(Debug)]
pub(crate) struct UnwritableLeaf {
    pub(crate) steps: Vec<Step>,
    pub(crate) reason: String,
    /// The service that reserves it while it is on.
    pub(crate) reserved: Option<&'static reserved::ReservedItem>,
}

/// One line of the table.
#[derive(Clone, Debug)]
struct MapRow {
    anchor: AnchorId,
    /// Steps from the OpenConfig entry to the leaf.
    openconfig: Vec<Step>,
    /// Nodes from the native entry to the leaf; empty for a leaf that is derived from the keys.
    native: Vec<NodeId>,
    up: OpenConfigRule,
    /// True for a row of configuration. Rows of configuration of one native leaf are alternatives.
    is_config: bool,
}

#[derive(Clone, Debug)]
enum OpenConfigRule {
    Codec(&'static Codec),
    /// A constant or key, shown while the native leaf exists, which means that the entry does.
    Implied(KeyRule),
    /// Not shown: configuration that only OpenConfig has.
    Nothing,
}

/// Supported entries of a list.
#[derive(Clone, Debug)]
struct SupportedEntries {
    /// For each key, the supported values; empty for any.
    keys: Vec<Vec<Value>>,
    reason: String,
}

fn model(origin: Origin) -> usize {
    match origin {
        Origin::OpenConfig => 0,
        Origin::Native => 1,
    }
}

impl DefaultCondition {
    pub(crate) fn holds<M: LeafMeta>(&self, entry: &Branch<M>) -> bool {
        let found = value_at(entry, &self.native);
        found.is_some_and(|value| self.values.iter().any(|it| value.to_string() == *it))
    }
}

/// Value of the leaf at the end of `way`, which consists of containers.
pub(crate) fn value_at<'a, M: LeafMeta>(entry: &'a Branch<M>, way: &[NodeId]) -> Option<&'a Value> {
    leaf_at(entry, way).map(|leaf| &leaf.value)
}

pub(crate) fn leaf_at<'a, M: LeafMeta>(
    entry: &'a Branch<M>,
    way: &[NodeId],
) -> Option<&'a Leaf<M>> {
    let (leaf, containers) = way.split_last()?;
    let mut branch = entry;
    for container in containers {
        branch = branch.container(*container)?;
    }
    branch.leaf(*leaf)
}

impl Map {
    /// True for an anchor whose OpenConfig list has no entries of others.
    pub(crate) fn has_list_of_its_own(&self, anchor: AnchorId) -> bool {
        self.anchors[anchor].openconfig.as_ref().is_none_or(Counterpart::is_total)
    }
}

impl Anchor {
    /// The native list; `None` at the root.
    pub(crate) fn list(&self) -> Option<NodeId> {
        self.native.last().copied()
    }

    /// The children that share an OpenConfig list with one of them, itself among them, from the last one to the first.
    pub(crate) fn children_of_same_list(&self, place: usize) -> SmallVec<[AnchorId; 1]> {
        let before = |place: &usize| self.shares_list_with[*place];
        std::iter::successors(Some(place), before).map(|place| self.children[place]).collect()
    }
}

impl OwnLeaf {
    /// The OpenConfig counterpart that shows a value of the native leaf, with the value there.
    pub(crate) fn shown_as(&self, native: &Value) -> Option<(&MappedLeaf, Value)> {
        self.openconfig.iter().find_map(|mapped| Some((mapped, (mapped.codec.up)(native)?)))
    }
}
