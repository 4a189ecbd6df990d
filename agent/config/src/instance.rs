//! Concrete paths: which node of the schema, and which entry of each list above it.

use smallvec::SmallVec;

use crate::schema::NodeId;
use crate::value::Value;

/// The key values of one list entry, in the order of the schema's `key` statement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keys(pub SmallVec<[Value; 1]>);

/// One step down the tree. `keys` stand on list entries and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    pub node: NodeId,
    pub keys: Option<Keys>,
}

/// The way from the root to one node of an instance tree, without wildcards. Empty is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstancePath(pub Vec<Step>);

impl Keys {
    pub fn single(value: Value) -> Self {
        Self(SmallVec::from_iter([value]))
    }
}

impl Step {
    pub fn node(node: NodeId) -> Self {
        Self { node, keys: None }
    }

    pub fn entry(node: NodeId, keys: Keys) -> Self {
        Self { node, keys: Some(keys) }
    }
}

impl InstancePath {
    pub fn root() -> Self {
        Self::default()
    }

    /// This path with one more step.
    #[must_use]
    pub fn join(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }

    pub fn starts_with(&self, prefix: &InstancePath) -> bool {
        self.0.starts_with(&prefix.0)
    }

    pub fn last(&self) -> Option<&Step> {
        self.0.last()
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}
