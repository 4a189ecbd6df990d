//! A branch of the native tree of a revision, with its children by name.

use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Branch, ListEntry};
use holdfast_config::{NodeId, Value};
use holdfast_telemetry::{LeafVersion, Revision};

/// One branch. A node that the models or the revision do not have is `None`, or an empty list.
pub(super) struct NamedBranch<'r> {
    schema: &'r Schema,
    node: NodeId,
    branch: Arc<Branch<LeafVersion>>,
}

impl<'r> NamedBranch<'r> {
    /// The root of the native tree.
    pub(super) fn native(revision: &'r Revision) -> Self {
        let schema = &revision.models.native;
        Self { schema, node: schema.root(), branch: Arc::clone(revision.native.root()) }
    }

    pub(super) fn into_shared(self) -> Arc<Branch<LeafVersion>> {
        self.branch
    }

    fn child(&self, name: &str) -> Option<NodeId> {
        self.schema.child(self.node, None, name)
    }

    pub(super) fn container(&self, name: &str) -> Option<Self> {
        let node = self.child(name)?;
        let branch = Arc::clone(self.branch.container(node)?);
        Some(Self { schema: self.schema, node, branch })
    }

    pub(super) fn entries(&self, list: &str) -> Vec<Self> {
        let list = self.child(list).and_then(|node| Some((node, self.branch.list(node)?)));
        let Some((node, entries)) = list else { return Vec::new() };
        let branches = entries.iter().map(|(_, entry)| entry.branch().into_shared());
        branches.map(|branch| Self { schema: self.schema, node, branch }).collect()
    }

    fn value(&self, leaf: &str) -> Option<&Value> {
        self.branch.value(self.child(leaf)?)
    }

    pub(super) fn text(&self, leaf: &str) -> Option<String> {
        self.value(leaf).map(Value::to_string)
    }

    pub(super) fn number(&self, leaf: &str) -> Option<u64> {
        match self.value(leaf)? {
            Value::Uint(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn is_true(&self, leaf: &str) -> bool {
        matches!(self.value(leaf), Some(Value::Bool(true)))
    }

    /// Entries of a leaf-list.
    pub(super) fn texts(&self, leaf_list: &str) -> Vec<String> {
        match self.value(leaf_list) {
            Some(Value::List(entries)) => entries.iter().map(Value::to_string).collect(),
            _ => Vec::new(),
        }
    }
}
