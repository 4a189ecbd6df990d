//! State leaves of the native model, from observed values; those of objects without values from their configuration.
//!
//! Two keys never share a leaf, so a reader can keep the published leaves of a key and publish the difference when
//! the key changes.

use holdfast_config::{InstancePath, NodeId, Step, Value};
use holdfast_scheduler::ObjectValue;
use smallvec::{SmallVec, smallvec};

/// The state leaves of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// The native entry of the leaves, or outside of lists their parent.
    pub path: InstancePath,
    /// Leaves by container.
    pub groups: Vec<StateGroup>,
}

/// Leaves of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateGroup {
    /// List entry within that of the key, such as a next hop of a route; `None` for the key's own entry.
    pub entry: Option<Step>,
    /// Containers from that entry to the leaves.
    pub containers: SmallVec<[NodeId; 2]>,
    /// The leaves and their values.
    pub leaves: Vec<(NodeId, Value)>,
}

impl StateEntry {
    /// Every leaf with its full path.
    pub fn leaves(&self) -> impl Iterator<Item = (InstancePath, &Value)> {
        let groups = self.groups.iter().map(|group| (group, group.branch(&self.path)));
        groups.flat_map(|(group, branch)| {
            let leaves = group.leaves.iter();
            leaves.map(move |(leaf, value)| (branch.join(Step::node(*leaf)), value))
        })
    }

    /// True when both entries have the same leaves, with any values.
    pub fn has_leaves_of(&self, other: &Self) -> bool {
        let leaves = |entry: &Self| {
            let groups = entry.groups.iter();
            let leaf = |group: &StateGroup| group.leaves.iter().map(|(leaf, _)| *leaf).collect();
            groups.map(|it| (it.entry.clone(), leaf(it))).collect::<Vec<(_, Vec<NodeId>)>>()
        };
        leaves(self) == leaves(other)
    }
}

impl StateGroup {
    /// Path of the container of the leaves, below that of the key.
    fn branch(&self, path: &InstancePath) -> InstancePath {
        let containers = self.containers.iter().copied().map(Step::node);
        InstancePath(path.0.iter().chain(&self.entry).cloned().chain(containers).collect())
    }
}

/// Values of one key in the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planes<'a> {
    /// Intended value.
    pub intended: Option<&'a dyn ObjectValue>,
    /// Value of the last completed operation.
    pub applied: Option<&'a dyn ObjectValue>,
    /// Observed value.
    pub observed: Option<&'a dyn ObjectValue>,
}

impl<'a> Planes<'a> {
    pub(crate) fn observed<V: 'static>(&self) -> Option<&'a V> {
        self.observed?.as_any().downcast_ref()
    }

    pub(crate) fn applied<V: 'static>(&self) -> Option<&'a V> {
        self.applied?.as_any().downcast_ref()
    }

    pub(crate) fn intended<V: 'static>(&self) -> Option<&'a V> {
        self.intended?.as_any().downcast_ref()
    }
}

/// Builder for the leaves of one `state` container.
pub(crate) struct Leaves {
    /// The container itself first, then those within it.
    pub(crate) groups: Vec<StateGroup>,
}

impl Leaves {
    /// Starts with leaves of the entry itself.
    pub(crate) fn of(state: NodeId) -> Self {
        Self::within(None, state)
    }

    /// Starts with leaves of the configuration, which stand in the entry itself.
    pub(crate) fn of_entry() -> Self {
        let none = SmallVec::new();
        Self { groups: vec![StateGroup { entry: None, containers: none, leaves: Vec::new() }] }
    }

    /// Starts with leaves of an entry within it.
    pub(crate) fn within(entry: Option<Step>, state: NodeId) -> Self {
        Self {
            groups: vec![StateGroup { entry, containers: smallvec![state], leaves: Vec::new() }],
        }
    }

    pub(crate) fn put(&mut self, leaf: NodeId, value: Value) {
        self.groups[0].leaves.push((leaf, value));
    }

    pub(crate) fn put_below(&mut self, container: NodeId, leaf: NodeId, value: Value) {
        let existing = self.groups.iter().position(|it| it.containers.last() == Some(&container));
        let at = existing.unwrap_or_else(|| {
            let StateGroup { entry, mut containers, .. } = self.groups[0].clone();
            containers.push(container);
            self.groups.push(StateGroup { entry, containers, leaves: Vec::new() });
            self.groups.len() - 1
        });
        self.groups[at].leaves.push((leaf, value));
    }

    pub(crate) fn optional(&mut self, leaf: NodeId, value: Option<Value>) {
        if let Some(value) = value {
            self.put(leaf, value);
        }
    }

    pub(crate) fn text(&mut self, leaf: NodeId, text: &str) {
        self.put(leaf, text_value(text));
    }

    pub(crate) fn text_enum(&mut self, leaf: NodeId, name: &'static str) {
        self.put(leaf, enum_value(name));
    }

    pub(crate) fn entry(self, path: InstancePath) -> StateEntry {
        StateEntry { path, groups: self.groups }
    }
}

pub(crate) fn text_value(text: &str) -> Value {
    Value::Str(text.into())
}

pub(crate) fn enum_value(name: &'static str) -> Value {
    Value::Enum(name.into())
}
