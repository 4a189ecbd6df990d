//! Which native leaf an OpenConfig leaf stands for, as a table.
//!
//! `openconfig.map` beside this file has one line for each OpenConfig leaf. [`Map`] is that text
//! looked up in both schemas, in the shape in which the union walks it: one `Anchor` for each
//! native list, since native lists are the objects of this device, with the leaves of one entry.
//! Keys are one-to-one, so an OpenConfig entry and its native entry name the same thing.

mod codec;
mod compile;
mod text;
mod translate;

use std::collections::HashMap;

use smol_str::SmolStr;

pub use codec::{Codec, ETHERNET_HEADER};

use crate::instance::{Keys, Step};
use crate::reserved;
use crate::schema::{NodeId, Origin};
use crate::tree::{Branch, Leaf};
use crate::value::Value;

/// The table, compiled for one pair of schemas.
#[derive(Debug)]
pub struct Map {
    /// Parents before children; the first is the root.
    pub(crate) anchors: Vec<Anchor>,
    /// Rows by their native leaf: by the number of its node.
    by_native: Vec<Vec<Row>>,
    /// Rows by their OpenConfig leaf.
    by_openconfig: HashMap<NodeId, Row>,
    /// By model and list: where not every entry is supported.
    limits: [Vec<Option<Limit>>; 2],
    /// By model and node: it is such a list or leads to one.
    limited: [Vec<bool>; 2],
    /// By OpenConfig list, the leaves in `config` that repeat a key: container, leaf, place of the key.
    mirrors: Vec<Vec<(NodeId, NodeId, usize)>>,
    /// By OpenConfig node: it is a key of a list, or repeats one.
    keys: Vec<bool>,
}

/// A mistake in the table: found by the first test.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the OpenConfig map: {reason}")]
pub struct MapError {
    pub line: usize,
    pub reason: String,
}

/// Index of an [`Anchor`].
pub(crate) type AnchorId = usize;

/// One native list (or the root), its OpenConfig counterpart, and the leaves of an entry itself:
/// everything below it down to lists, which are anchors of their own.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) parent: Option<AnchorId>,
    /// Containers from the parent anchor's entry to the list, the list last. Empty at the root.
    pub(crate) native: Vec<NodeId>,
    pub(crate) openconfig: Option<Counterpart>,
    pub(crate) leaves: Vec<OwnLeaf>,
    /// Leaves without any of which an entry means nothing.
    pub(crate) one_of: Vec<NodeId>,
    /// OpenConfig leaves that follow from the keys alone.
    pub(crate) implied: Vec<Implied>,
    /// OpenConfig leaves that mean nothing here and can have one value only.
    pub(crate) constants: Vec<(Vec<Step>, Value)>,
    /// OpenConfig leaves that are taken from no client.
    pub(crate) never: Vec<Never>,
    pub(crate) children: Vec<AnchorId>,
}

/// The OpenConfig list of an anchor.
#[derive(Debug)]
pub(crate) struct Counterpart {
    /// From the parent anchor's entry to the container of the list; fixed entries have their keys.
    pub(crate) above: Vec<Step>,
    pub(crate) list: NodeId,
    pub(crate) keys: Vec<KeyRule>,
}

/// Where the value of an OpenConfig key comes from.
#[derive(Clone, Debug)]
pub(crate) enum KeyRule {
    Fixed(Value),
    /// The native key at this place.
    Native(usize),
}

/// One native configuration leaf of an anchor's entry.
#[derive(Debug)]
pub(crate) struct OwnLeaf {
    /// From the entry: containers, the leaf last.
    pub(crate) native: Vec<NodeId>,
    /// Its place among the keys of the list.
    pub(crate) key: Option<usize>,
    pub(crate) default: Option<Value>,
    pub(crate) mandatory: bool,
    /// Under which the native default is in use.
    pub(crate) when: Option<When>,
    pub(crate) openconfig: Option<MappedLeaf>,
}

/// The OpenConfig leaf that stands for a native one.
#[derive(Debug)]
pub(crate) struct MappedLeaf {
    /// From the OpenConfig entry to the leaf.
    pub(crate) steps: Vec<Step>,
    /// So many of `steps` lead to the entry or presence container whose existence brings the
    /// default into use.
    pub(crate) unit: usize,
    pub(crate) codec: &'static Codec,
    /// As OpenConfig says it, and as native.
    pub(crate) default: Option<(Value, Value)>,
    /// Under which the OpenConfig default is in use.
    pub(crate) when: Option<When>,
}

/// A condition on another leaf of the same entry, read on the effective tree.
#[derive(Clone, Debug)]
pub(crate) struct When {
    pub(crate) native: Vec<NodeId>,
    pub(crate) values: Vec<SmolStr>,
}

/// An OpenConfig configuration leaf that has no native leaf of its own.
#[derive(Debug)]
pub(crate) struct Implied {
    pub(crate) steps: Vec<Step>,
    pub(crate) value: KeyRule,
}

/// An OpenConfig configuration leaf that no layer ever holds.
#[derive(Debug)]
pub(crate) struct Never {
    pub(crate) steps: Vec<Step>,
    pub(crate) reason: String,
    /// The service that keeps it to itself while it is on.
    pub(crate) reserved: Option<&'static reserved::Row>,
}

/// One line of the table.
#[derive(Clone, Debug)]
struct Row {
    anchor: AnchorId,
    /// From the OpenConfig entry to the leaf.
    openconfig: Vec<Step>,
    /// From the native entry to the leaf; empty for what follows from the keys.
    native: Vec<NodeId>,
    up: Up,
}

#[derive(Clone, Debug)]
enum Up {
    Codec(&'static Codec),
    /// Whatever the native leaf says: its presence means that the entry is there.
    Implied(KeyRule),
    /// Configuration that only OpenConfig knows.
    Nothing,
}

/// Which entries of a list this agent supports.
#[derive(Clone, Debug)]
struct Limit {
    /// For each key, the values that are supported; empty for any.
    keys: Vec<Vec<Value>>,
    reason: String,
}

fn model(origin: Origin) -> usize {
    match origin {
        Origin::OpenConfig => 0,
        Origin::Native => 1,
    }
}

impl When {
    pub(crate) fn holds<M>(&self, entry: &Branch<M>) -> bool {
        let found = value_at(entry, &self.native);
        found.is_some_and(|value| self.values.iter().any(|it| value.to_string() == *it))
    }
}

/// The value of the leaf at the end of `way`, which leads through containers only.
pub(crate) fn value_at<'a, M>(entry: &'a Branch<M>, way: &[NodeId]) -> Option<&'a Value> {
    leaf_at(entry, way).map(|leaf| &leaf.value)
}

pub(crate) fn leaf_at<'a, M>(entry: &'a Branch<M>, way: &[NodeId]) -> Option<&'a Leaf<M>> {
    let (leaf, containers) = way.split_last()?;
    let mut branch = entry;
    for container in containers {
        branch = branch.container(*container)?;
    }
    branch.leaf(*leaf)
}

impl Anchor {
    /// The native list; none at the root.
    pub(crate) fn list(&self) -> Option<NodeId> {
        self.native.last().copied()
    }
}

impl Counterpart {
    pub(crate) fn openconfig_keys(&self, native: &Keys) -> Keys {
        self.keys.iter().map(|rule| rule.value(native)).collect()
    }

    /// `None` when a fixed key has another value: an entry that has no native counterpart.
    pub(crate) fn native_keys(&self, openconfig: &Keys) -> Option<Keys> {
        let fits = |(rule, value): (&KeyRule, &Value)| match rule {
            KeyRule::Fixed(fixed) => fixed == value,
            KeyRule::Native(_) => true,
        };
        if !self.keys.iter().zip(openconfig).all(fits) {
            return None;
        }
        let is_native = |rule: &&KeyRule| matches!(rule, KeyRule::Native(_));
        let native = |at| {
            let mut rules = self.keys.iter().zip(openconfig);
            let here = |rule: &KeyRule| matches!(rule, KeyRule::Native(place) if *place == at);
            rules.find_map(|(rule, value)| here(rule).then(|| value.clone()))
        };
        (0..self.keys.iter().filter(is_native).count()).map(native).collect()
    }
}

impl KeyRule {
    pub(crate) fn value(&self, native: &Keys) -> Value {
        match self {
            KeyRule::Fixed(value) => value.clone(),
            KeyRule::Native(place) => native[*place].clone(),
        }
    }
}
