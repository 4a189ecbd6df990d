//! Leaves that the fence layer may hold, and those that it holds, with their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use smol_str::SmolStr;

use crate::instance::InstancePath;
use crate::route_metric::{IPV4_METRIC, IPV6_METRIC};
use crate::schema::{NodeId, Schema};
use crate::tree::{Leaf, LeafMark};
use crate::value::Value;

/// All leaves that the fence layer may hold, and what it does to each.
const TABLE: [(&str, FenceRule); 3] = [
    ("/interfaces/interface/enabled", FenceRule::Shut),
    ("/interfaces/interface/master", FenceRule::Detach),
    ("/network-instances/network-instance/static/route/next-hop/metric", FenceRule::Raise),
];

/// Effect of the fence layer on a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FenceRule {
    /// The interface is administratively down.
    Shut,
    /// The interface is not a port of a bridge or a bond.
    Detach,
    /// The next hop has a higher metric than it would have.
    Raise,
}

/// Nodes of the leaves that the fence layer may hold.
#[derive(Debug)]
pub(crate) struct FenceNodes(Vec<(NodeId, FenceRule)>);

/// On whose behalf something is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FenceOwner {
    /// A policy of faults, by name.
    Policy(SmolStr),
    /// An uplink group, by name.
    Group(SmolStr),
    /// A forced-down latch, by its reporter.
    Latch(SmolStr),
    /// A session of maintenance, by id.
    Session(SmolStr),
    /// The clients, by a leaf of the configuration.
    Client,
}

/// Text that names no owner of a fence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` does not name an owner of a fence: an owner is `policy`, `group`, `latch` or `session` with a name, or `client`"
)]
pub struct UnknownFenceOwner(String);

/// All items of the fence layer, by leaf. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences(pub(crate) OrdMap<InstancePath, Arc<FencedLeaf>>);

/// A leaf that the fence layer holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FencedLeaf {
    /// True for a port of the box: its entry is one even when only the fence layer has it.
    pub(crate) keeps_entry: bool,
    /// Owners, each with the metric that it asks for; 0 for an item without a metric.
    pub(crate) owners: BTreeMap<FenceOwner, u32>,
}

impl FenceNodes {
    pub(crate) fn find(native: &Schema) -> Self {
        let node = |(path, rule): &(&str, FenceRule)| Some((native.find(path)?, *rule));
        Self(TABLE.iter().filter_map(node).collect())
    }

    /// The effect of the fence layer on this leaf, if it may hold it.
    pub(crate) fn rule(&self, leaf: NodeId) -> Option<FenceRule> {
        self.0.iter().find(|(node, _)| *node == leaf).map(|(_, rule)| *rule)
    }

    pub(crate) fn leaf(&self, rule: FenceRule) -> Option<NodeId> {
        self.0.iter().find(|(_, it)| *it == rule).map(|(node, _)| *node)
    }
}

/// The metric of a route to `prefix` without a configured one.
pub(crate) fn family_metric(prefix: Option<&Value>) -> u32 {
    match prefix.map(ToString::to_string) {
        Some(prefix) if prefix.contains(':') => IPV6_METRIC,
        _ => IPV4_METRIC,
    }
}

/// True when a metric of the fence layer is in force over the one below, which is that of a route to `prefix`.
pub(crate) fn is_raised(below: Option<&Value>, prefix: Option<&Value>, fence: &Value) -> bool {
    let unset = family_metric(prefix);
    let number = |value: &Value| match value {
        Value::Uint(number) => Some(*number),
        _ => None,
    };
    number(fence) > below.map_or(Some(unset.into()), number)
}

impl FencedLeaf {
    pub(crate) fn metric(&self) -> u32 {
        self.owners.values().copied().max().unwrap_or_default()
    }

    /// The leaf in the tree of the layer.
    pub(crate) fn content(&self, rule: FenceRule) -> Leaf<LeafMark> {
        match rule {
            FenceRule::Shut => Leaf::new(Value::Bool(false), LeafMark::Explicit),
            FenceRule::Detach => Leaf::new(Value::Empty, LeafMark::Absent),
            FenceRule::Raise => Leaf::new(Value::Uint(self.metric().into()), LeafMark::Explicit),
        }
    }
}

impl Fences {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when both are known to be equal, by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// Leaves that differ, each with what is new of it, ascending.
    pub(crate) fn differences<'f>(
        old: &'f Self,
        new: &'f Self,
    ) -> impl Iterator<Item = (&'f InstancePath, Option<&'f FencedLeaf>)> {
        old.0.diff(&new.0).map(|item| match item {
            DiffItem::Add(leaf, new) | DiffItem::Update { new: (leaf, new), .. } => {
                (leaf, Some(&**new))
            }
            DiffItem::Remove(leaf, _) => (leaf, None),
        })
    }

    /// These fences with all that differs between `base` and `theirs` laid under their own changes.
    pub(crate) fn merged(&self, base: &Self, theirs: &Self) -> Self {
        if self.is_same(base) {
            return theirs.clone();
        }
        let mut merged = theirs.clone();
        for (leaf, new) in Self::differences(base, self) {
            merged.put(leaf.clone(), new.cloned());
        }
        merged
    }

    /// Puts a leaf as it was stored.
    pub(crate) fn put(&mut self, leaf: InstancePath, fenced: Option<FencedLeaf>) {
        match fenced.filter(|it| !it.owners.is_empty()) {
            Some(fenced) => drop(self.0.insert(leaf, Arc::new(fenced))),
            None => drop(self.0.remove(&leaf)),
        }
    }

    pub(crate) fn add(
        &mut self,
        leaf: InstancePath,
        owner: &FenceOwner,
        metric: u32,
        keeps_entry: bool,
    ) {
        let known = self.0.get(&leaf);
        if known.is_some_and(|known| known.owners.get(owner) == Some(&metric)) {
            return;
        }
        let mut fenced = known.map_or_else(
            || FencedLeaf { keeps_entry, ..FencedLeaf::default() },
            |known| FencedLeaf::clone(known),
        );
        fenced.owners.insert(owner.clone(), metric);
        self.0.insert(leaf, Arc::new(fenced));
    }

    /// Takes owners off their leaves; a leaf without any goes.
    pub(crate) fn drop_owners(&mut self, is_lifted: impl Fn(&InstancePath, &FenceOwner) -> bool) {
        let lifted = |(leaf, fenced): (&InstancePath, &Arc<FencedLeaf>)| {
            if !fenced.owners.keys().any(|owner| is_lifted(leaf, owner)) {
                return None;
            }
            let mut fenced = FencedLeaf::clone(fenced);
            fenced.owners.retain(|owner, _| !is_lifted(leaf, owner));
            Some((leaf.clone(), fenced))
        };
        let lifted: Vec<(InstancePath, FencedLeaf)> = self.0.iter().filter_map(lifted).collect();
        lifted.into_iter().for_each(|(leaf, fenced)| self.put(leaf, Some(fenced)));
    }

    /// Owners of a leaf, or of all leaves in an entry.
    pub(crate) fn owners_at(&self, path: &InstancePath) -> BTreeSet<&FenceOwner> {
        let below = self.0.range(path.clone()..).take_while(|(leaf, _)| leaf.starts_with(path));
        below.flat_map(|(_, fenced)| fenced.owners.keys()).collect()
    }
}

impl fmt::Display for FenceOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(name) => write!(f, "policy {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Latch(reporter) => write!(f, "latch {reporter}"),
            Self::Session(id) => write!(f, "session {id}"),
            Self::Client => f.write_str("client"),
        }
    }
}

impl FromStr for FenceOwner {
    type Err = UnknownFenceOwner;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(' ') {
            Some(("policy", name)) => Ok(Self::Policy(name.into())),
            Some(("group", name)) => Ok(Self::Group(name.into())),
            Some(("latch", reporter)) => Ok(Self::Latch(reporter.into())),
            Some(("session", id)) => Ok(Self::Session(id.into())),
            None if text == "client" => Ok(Self::Client),
            _ => Err(UnknownFenceOwner(text.to_owned())),
        }
    }
}
