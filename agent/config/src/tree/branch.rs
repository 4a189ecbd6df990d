//! Branches: a container, list entry or root with its children.

use std::sync::Arc;

use super::{LeafMeta, List, is_key_or_copy};
use crate::instance::{Keys, Step};
use crate::schema::{NodeId, NodeKind, Schema};
use crate::value::Value;

/// Capacity for containers and lists of a new entry in addition to its keys; few have more.
const INNER: usize = 2;

/// Content of a container, of a list entry, or of the whole tree.
#[derive(Clone, Debug)]
pub struct Branch<M: LeafMeta> {
    /// Children, ascending by node.
    children: Vec<(NodeId, Child<M>)>,
    /// True for an entry or presence container that was itself supplied, and thus stays when it is empty.
    pub given: bool,
}

#[derive(Clone, Debug)]
pub enum Child<M: LeafMeta> {
    /// A leaf or a whole leaf-list.
    Leaf(Leaf<M>),
    Container(Arc<Branch<M>>),
    List(List<M>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf<M> {
    pub value: Value,
    pub meta: M,
}

impl<M: LeafMeta> PartialEq for Branch<M> {
    fn eq(&self, other: &Self) -> bool {
        self.given == other.given && self.children == other.children
    }
}

impl<M: LeafMeta> Eq for Branch<M> {}

impl<M: LeafMeta> PartialEq for Child<M> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Child::Leaf(one), Child::Leaf(other)) => one == other,
            (Child::Container(one), Child::Container(other)) => {
                Arc::ptr_eq(one, other) || one == other
            }
            (Child::List(one), Child::List(other)) => one == other,
            _ => false,
        }
    }
}

impl<M: LeafMeta> Eq for Child<M> {}

impl<M: LeafMeta> Default for Branch<M> {
    fn default() -> Self {
        Self { children: Vec::new(), given: false }
    }
}

impl<M> Leaf<M> {
    pub fn new(value: Value, meta: M) -> Self {
        Self { value, meta }
    }
}

/// A branch on one side of a comparison.
pub(crate) type OptionalBranch<'b, M> = Option<&'b Arc<Branch<M>>>;

impl<M: LeafMeta> Child<M> {
    /// The branch of a container; `None` for leaves and lists.
    pub(crate) fn container(&self) -> OptionalBranch<'_, M> {
        match self {
            Child::Container(branch) => Some(branch),
            Child::Leaf(_) | Child::List(_) => None,
        }
    }

    /// The entries of a list; `None` for leaves and containers.
    pub(crate) fn list(&self) -> Option<&List<M>> {
        match self {
            Child::List(list) => Some(list),
            Child::Leaf(_) | Child::Container(_) => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Child::Leaf(_) => false,
            Child::Container(branch) => branch.is_empty(),
            Child::List(list) => list.is_empty(),
        }
    }
}

impl<M: LeafMeta> Branch<M> {
    /// Makes a branch for `children`, to be added in any order; [`Branch::put`] is fastest in schema order.
    pub fn with_capacity(children: usize) -> Self {
        Self { children: Vec::with_capacity(children), given: false }
    }

    /// Children in schema order.
    pub fn children(&self) -> &[(NodeId, Child<M>)] {
        &self.children
    }

    /// True without children, unless the branch was itself supplied.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty() && !self.given
    }

    pub fn child(&self, node: NodeId) -> Option<&Child<M>> {
        self.find(node).ok().map(|at| &self.children[at].1)
    }

    pub fn leaf(&self, node: NodeId) -> Option<&Leaf<M>> {
        match self.child(node)? {
            Child::Leaf(leaf) => Some(leaf),
            Child::Container(_) | Child::List(_) => None,
        }
    }

    pub fn value(&self, node: NodeId) -> Option<&Value> {
        self.leaf(node).map(|leaf| &leaf.value)
    }

    pub fn container(&self, node: NodeId) -> Option<&Arc<Branch<M>>> {
        self.child(node)?.container()
    }

    pub fn list(&self, node: NodeId) -> Option<&List<M>> {
        self.child(node)?.list()
    }

    /// Adds or replaces a child, and returns the replaced one.
    pub fn put(&mut self, node: NodeId, child: Child<M>) -> Option<Child<M>> {
        if self.children.last().is_none_or(|(last, _)| *last < node) {
            self.grow();
            self.children.push((node, child));
            return None;
        }
        match self.find(node) {
            Ok(at) => Some(std::mem::replace(&mut self.children[at].1, child)),
            Err(at) => {
                self.grow();
                self.children.insert(at, (node, child));
                None
            }
        }
    }

    pub fn put_leaf(&mut self, node: NodeId, value: Value, meta: M) -> Option<Child<M>> {
        self.put(node, Child::Leaf(Leaf { value, meta }))
    }

    pub fn take(&mut self, node: NodeId) -> Option<Child<M>> {
        let at = self.find(node).ok()?;
        Some(self.children.remove(at).1)
    }

    pub fn child_mut(&mut self, node: NodeId) -> Option<&mut Child<M>> {
        let at = self.find(node).ok()?;
        Some(&mut self.children[at].1)
    }

    /// The list at `node`, created when absent.
    pub fn list_mut(&mut self, node: NodeId) -> &mut List<M> {
        let at = self.slot(
            node,
            |child| matches!(child, Child::List(_)),
            || Child::List(List::default()),
        );
        match &mut self.children[at].1 {
            Child::List(list) => list,
            Child::Leaf(_) | Child::Container(_) => unreachable!("`slot` put a list there"),
        }
    }

    /// Grows one by one. Most branches have one, two or three children, and there are hundreds of thousands of
    /// them: the initial capacity of a vector, four, would double the memory of a tree.
    fn grow(&mut self) {
        let room = self.children.capacity();
        if self.children.len() == room {
            self.children.reserve_exact(if room < 4 { 1 } else { room });
        }
    }

    /// Reserves capacity for this number of children in an empty branch.
    pub fn expect(&mut self, children: usize) {
        if self.children.capacity() == 0 {
            self.children.reserve_exact(children);
        }
    }

    /// Releases unused capacity.
    pub fn fit(&mut self) {
        self.children.shrink_to_fit();
    }

    /// Keeps the children for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(NodeId, &mut Child<M>) -> bool) {
        self.children.retain_mut(|(node, child)| keep(*node, child));
    }

    fn find(&self, node: NodeId) -> Result<usize, usize> {
        self.children.binary_search_by_key(&node, |(node, _)| *node)
    }

    /// Index of `node`, created by `make` when absent or not of the `right` shape.
    fn slot(
        &mut self,
        node: NodeId,
        right: impl Fn(&Child<M>) -> bool,
        make: impl FnOnce() -> Child<M>,
    ) -> usize {
        match self.find(node) {
            Ok(at) if right(&self.children[at].1) => at,
            Ok(at) => {
                self.children[at].1 = make();
                at
            }
            Err(at) => {
                self.grow();
                self.children.insert(at, (node, make()));
                at
            }
        }
    }
}

impl<M: LeafMeta> Branch<M> {
    /// The container at `node`, created when absent, copied when shared.
    pub fn container_mut(&mut self, node: NodeId) -> &mut Branch<M> {
        let at = self.slot(
            node,
            |child| matches!(child, Child::Container(_)),
            || Child::Container(Arc::new(Branch::default())),
        );
        match &mut self.children[at].1 {
            Child::Container(branch) => Arc::make_mut(branch),
            Child::Leaf(_) | Child::List(_) => unreachable!("`slot` put a container there"),
        }
    }

    /// The entry with `keys`, created with its key leaves when absent, copied when shared.
    pub fn entry_mut(
        &mut self,
        schema: &Schema,
        node: NodeId,
        keys: &Keys,
        meta: &M,
    ) -> &mut Branch<M> {
        self.list_mut(node).entry_mut(keys, || Self::of_keys(schema, node, keys, meta))
    }

    /// The branch at the end of `steps`, created where absent.
    pub fn descend_mut(&mut self, schema: &Schema, steps: &[Step], meta: &M) -> &mut Branch<M> {
        steps.iter().fold(self, |branch, step| match &step.keys {
            None => branch.container_mut(step.node),
            Some(keys) => branch.entry_mut(schema, step.node, keys, meta),
        })
    }

    /// Runs a function on the branch at the end of `steps`, created where absent. In long lists this searches an entry once.
    pub fn in_branch<R>(
        &mut self,
        schema: &Schema,
        steps: &[Step],
        meta: &M,
        act: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let Some((step, rest)) = steps.split_first() else { return act(self) };
        let Some(keys) = &step.keys else {
            return self.container_mut(step.node).in_branch(schema, rest, meta, act);
        };
        let make = || Self::of_keys(schema, step.node, keys, meta);
        let within = |entry: &mut Self| entry.in_branch(schema, rest, meta, act);
        self.list_mut(step.node).in_entry(keys, make, within)
    }

    /// A new entry of list `node` with its key leaves only.
    pub fn of_keys(schema: &Schema, node: NodeId, keys: &Keys, meta: &M) -> Self {
        let it = schema.node(node);
        let NodeKind::List { keys: leaves } = &it.kind else { return Self::default() };
        let holds_more = |node: &&NodeId| {
            matches!(schema.node(**node).kind, NodeKind::Container { .. } | NodeKind::List { .. })
        };
        let inner = it.children.iter().filter(holds_more).take(INNER).count();
        let mut entry = Self::with_capacity(leaves.len() + inner);
        for (leaf, value) in leaves.iter().zip(keys) {
            entry.put_leaf(*leaf, value.clone(), meta.clone());
        }
        entry
    }

    /// Removes the node at `steps`, which exists, and prunes, see [`Tree::remove`](super::Tree::remove).
    pub(crate) fn remove_at(&mut self, schema: &Schema, steps: &[Step]) {
        let Some((step, rest)) = steps.split_first() else { return };
        let removed = match (self.child_mut(step.node), &step.keys) {
            (Some(Child::List(list)), Some(keys)) => {
                let empty = rest.is_empty() || {
                    let entry = list.entry_mut(keys, Branch::default);
                    entry.remove_at(schema, rest);
                    !entry.given && entry.has_only_keys(schema)
                };
                if empty {
                    list.remove(keys);
                }
                list.is_empty()
            }
            (Some(Child::Container(branch)), None) if !rest.is_empty() => {
                let branch = Arc::make_mut(branch);
                branch.remove_at(schema, rest);
                branch.is_empty()
            }
            (Some(_), None) => true,
            (_, _) => false,
        };
        if removed {
            self.take(step.node);
        }
    }

    /// True when this entry has no content but its keys.
    pub fn has_only_keys(&self, schema: &Schema) -> bool {
        self.children.iter().all(|(node, child)| match child {
            Child::Leaf(_) => is_key_or_copy(schema, *node),
            Child::Container(branch) => !branch.given && branch.has_only_keys(schema),
            Child::List(list) => list.is_empty(),
        })
    }
}
