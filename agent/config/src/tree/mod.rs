//! Persistent trees of typed leaves, for layers, the effective configuration and published state.
//!
//! A clone is free and shares all memory; an edit copies the nodes from the root to the edited one, unless the
//! tree is not shared. [`Tree::diff`] skips the memory that two trees share, so the work after a change is
//! proportional to the change.
//!
//! The metadata of a leaf is a type parameter: a mark in a layer, the provenance in the effective tree, a time
//! stamp in a revision. Children are in the order of their [`NodeId`], which is schema order; entries of a list in
//! the order of their keys. Key leaves are leaves of their entry like all others.

mod branch;
mod diff;
mod entry;
mod leaf_mark;
mod list;
mod merge;
mod select;
mod share;

use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) use branch::OptionalBranch;
pub use branch::{Branch, Child, Leaf};
pub use diff::Change;
pub(crate) use diff::beside;
pub use entry::{EntryBranch, LeafMeta, ListEntry, StoredMeta};
pub use leaf_mark::LeafMark;
pub use list::{EntryDifference, List};
pub use select::SelectVisitor;

use crate::instance::{InstancePath, Step};
use crate::resolve::PathPattern;
use crate::schema::{NodeId, NodeKind, Schema};
use crate::value::Value;

/// One tree of one schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree<M: LeafMeta> {
    root: Arc<Branch<M>>,
}

/// The node at a path.
#[derive(Debug)]
pub enum NodeRef<'a, M: LeafMeta> {
    Leaf(&'a Leaf<M>),
    /// A container, a list entry or the root.
    Branch(&'a Arc<Branch<M>>),
    /// All entries of a list, for a path without keys.
    List(&'a List<M>),
}

impl<M: LeafMeta> Clone for NodeRef<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: LeafMeta> Copy for NodeRef<'_, M> {}

impl<M: LeafMeta> Default for Tree<M> {
    fn default() -> Self {
        Self { root: Arc::new(Branch::default()) }
    }
}

impl<M: LeafMeta> Tree<M> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn from_root(root: Arc<Branch<M>>) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Arc<Branch<M>> {
        &self.root
    }

    /// The root for editing, copied when shared.
    pub fn root_mut(&mut self) -> &mut Branch<M> {
        Arc::make_mut(&mut self.root)
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// True when both are the same tree in memory: fast, and sufficient for equality.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// True when there is a node at `path`.
    pub fn contains(&self, path: &InstancePath) -> bool {
        with_node(NodeRef::Branch(&self.root), &path.0, &mut |_| ()).is_some()
    }

    /// Copy of the node at `steps`, an entry as a container. It shares the memory of the tree, as far as the tree stores
    /// the node.
    pub fn find(&self, steps: &[Step]) -> Option<Child<M>> {
        with_node(NodeRef::Branch(&self.root), steps, &mut |found| match found {
            NodeRef::Leaf(leaf) => Child::Leaf(leaf.clone()),
            NodeRef::Branch(branch) => Child::Container(Arc::clone(branch)),
            NodeRef::List(list) => Child::List(list.clone()),
        })
    }

    /// Copy of the leaf at `path`, see [`Tree::find`].
    pub fn find_leaf(&self, path: &InstancePath) -> Option<Leaf<M>> {
        match self.find(&path.0)? {
            Child::Leaf(leaf) => Some(leaf),
            Child::Container(_) | Child::List(_) => None,
        }
    }

    /// Copy of the branch at `steps`, see [`Tree::find`].
    pub fn find_branch(&self, steps: &[Step]) -> Option<Arc<Branch<M>>> {
        match self.find(steps)? {
            Child::Container(branch) => Some(branch),
            Child::Leaf(_) | Child::List(_) => None,
        }
    }

    /// Sets one leaf. Missing containers and entries on the way are created, entries with their key leaves, which
    /// get the same meta.
    pub fn set_leaf(&mut self, schema: &Schema, path: &InstancePath, leaf: Leaf<M>) {
        let Some((last, above)) = path.0.split_last() else { return };
        self.branch_mut(schema, above, &leaf.meta).put(last.node, Child::Leaf(leaf));
    }

    /// The branch at `path`, created when absent as by [`Tree::set_leaf`].
    pub fn branch_mut(&mut self, schema: &Schema, path: &[Step], meta: &M) -> &mut Branch<M> {
        Arc::make_mut(&mut self.root).descend_mut(schema, path, meta)
    }

    /// Runs a function on the branch at `path`, created where absent, with the key leaves of its entries.
    pub fn in_branch<R>(
        &mut self,
        schema: &Schema,
        path: &[Step],
        meta: &M,
        act: impl FnOnce(&mut Branch<M>) -> R,
    ) -> R {
        Arc::make_mut(&mut self.root).in_branch(schema, path, meta, act)
    }

    /// Replaces the subtree at `path`.
    ///
    /// A [`Child::Container`] at the path of an entry becomes that entry; the caller supplies its key leaves. A
    /// container at the root becomes the root.
    pub fn put(&mut self, schema: &Schema, path: &InstancePath, child: Child<M>, meta: &M) {
        match (path.0.split_last(), child) {
            (None, Child::Container(root)) => self.root = root,
            (None, _) => {}
            (Some((last, above)), child) => {
                let branch = self.branch_mut(schema, above, meta);
                match (&last.keys, child) {
                    (Some(keys), Child::Container(entry)) => {
                        branch.list_mut(last.node).put(keys.clone(), entry);
                    }
                    (_, child) => {
                        branch.put(last.node, child);
                    }
                }
            }
        }
    }

    /// Removes the node at `path`, then its ancestors without content: empty containers, and entries with nothing
    /// but keys, unless they were created as such. False when the node did not exist.
    pub fn remove(&mut self, schema: &Schema, path: &InstancePath) -> bool {
        if !self.contains(path) {
            return false;
        }
        if path.is_root() {
            *self = Self::default();
        } else {
            Arc::make_mut(&mut self.root).remove_at(schema, &path.0);
        }
        true
    }

    /// Visits every leaf, in schema order.
    pub fn walk(&self, visit: &mut dyn FnMut(&InstancePath, &Leaf<M>)) {
        NodeRef::Branch(&self.root).walk(&mut InstancePath::root(), visit);
    }

    /// Passes the nodes that match `pattern` to `out`, in schema order, until it stops the search.
    pub fn select_into(
        &self,
        pattern: &PathPattern,
        out: &mut impl SelectVisitor<M>,
    ) -> ControlFlow<()> {
        select::select(NodeRef::Branch(&self.root), &pattern.0, &mut InstancePath::root(), out)
    }

    /// Values of the leaves and leaf-lists that match `pattern`, in schema order.
    pub fn leaf_values(&self, pattern: &PathPattern) -> Vec<Value> {
        self.leaves(pattern).into_iter().map(|(_, value)| value).collect()
    }

    /// Leaves and leaf-lists that match `pattern`, in schema order, with their concrete paths.
    pub fn leaves(&self, pattern: &PathPattern) -> Vec<(InstancePath, Value)> {
        let mut found = Leaves(Vec::new());
        let _all_of_it = self.select_into(pattern, &mut found);
        found.0
    }

    /// Number of list entries that `new` has and `old` lacks, and the reverse. The cost depends on the memory that
    /// the trees do not share.
    pub fn entries_changed(old: &Self, new: &Self) -> (usize, usize) {
        diff::entries(&old.root, &new.root)
    }

    /// Passes every difference between `old` and `new` to `visit`, in schema order.
    pub fn diff(old: &Self, new: &Self, visit: &mut dyn FnMut(&InstancePath, Change<'_, M>)) {
        diff::branches(&old.root, &new.root, &mut InstancePath::root(), visit);
    }
}

impl<M: StoredMeta> Tree<M> {
    pub fn get(&self, path: &InstancePath) -> Option<NodeRef<'_, M>> {
        NodeRef::Branch(&self.root).get(&path.0)
    }

    pub fn leaf(&self, path: &InstancePath) -> Option<&Leaf<M>> {
        match self.get(path)? {
            NodeRef::Leaf(leaf) => Some(leaf),
            NodeRef::Branch(_) | NodeRef::List(_) => None,
        }
    }

    pub fn branch(&self, path: &InstancePath) -> Option<&Arc<Branch<M>>> {
        match self.get(path)? {
            NodeRef::Branch(branch) => Some(branch),
            NodeRef::Leaf(_) | NodeRef::List(_) => None,
        }
    }

    /// Nodes that match `pattern`, in schema order, with their concrete paths.
    pub fn select(&self, pattern: &PathPattern) -> Vec<(InstancePath, NodeRef<'_, M>)> {
        let mut found = Paths(Vec::new());
        let _all_of_it = self.select_into(pattern, &mut found);
        let node = |path: InstancePath| self.get(&path).map(|node| (path, node));
        found.0.into_iter().filter_map(node).collect()
    }
}

/// Paths of the matches of a pattern.
struct Paths(Vec<InstancePath>);

impl<M: LeafMeta> SelectVisitor<M> for Paths {
    fn visit(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn found(&mut self, path: &InstancePath, _: NodeRef<'_, M>) -> ControlFlow<()> {
        self.0.push(path.clone());
        ControlFlow::Continue(())
    }
}

/// The leaves that match a pattern.
struct Leaves(Vec<(InstancePath, Value)>);

impl<M: LeafMeta> SelectVisitor<M> for Leaves {
    fn visit(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn found(&mut self, path: &InstancePath, node: NodeRef<'_, M>) -> ControlFlow<()> {
        if let NodeRef::Leaf(leaf) = node {
            self.0.push((path.clone(), leaf.value.clone()));
        }
        ControlFlow::Continue(())
    }
}

/// Runs `act` on the node at `steps` below `from`; `None` when there is none.
fn with_node<M: LeafMeta, R>(
    from: NodeRef<'_, M>,
    steps: &[Step],
    act: &mut dyn FnMut(NodeRef<'_, M>) -> R,
) -> Option<R> {
    let Some((step, rest)) = steps.split_first() else { return Some(act(from)) };
    let NodeRef::Branch(branch) = from else { return None };
    match (branch.child(step.node)?, &step.keys) {
        (Child::List(list), Some(keys)) => {
            with_node(NodeRef::Branch(&list.get(keys)?.branch()), rest, act)
        }
        (child, None) => with_node(child.into(), rest, act),
        (Child::Leaf(_) | Child::Container(_), Some(_)) => None,
    }
}

impl<'a, M: StoredMeta> NodeRef<'a, M> {
    /// The node at `steps` below this one.
    pub fn get(self, steps: &[Step]) -> Option<NodeRef<'a, M>> {
        let Some((step, rest)) = steps.split_first() else { return Some(self) };
        let NodeRef::Branch(branch) = self else { return None };
        let next = match (branch.child(step.node)?, &step.keys) {
            (Child::Leaf(leaf), None) => NodeRef::Leaf(leaf),
            (Child::Container(branch), None) => NodeRef::Branch(branch),
            (Child::List(list), None) => NodeRef::List(list),
            (Child::List(list), Some(keys)) => NodeRef::Branch(list.get(keys)?),
            (Child::Leaf(_) | Child::Container(_), Some(_)) => return None,
        };
        next.get(rest)
    }
}

impl<M: LeafMeta> NodeRef<'_, M> {
    /// Visits every leaf below this node, in schema order. `path` is the path of this node, and unchanged
    /// afterwards.
    pub fn walk(self, path: &mut InstancePath, visit: &mut dyn FnMut(&InstancePath, &Leaf<M>)) {
        match self {
            NodeRef::Leaf(leaf) => visit(path, leaf),
            NodeRef::Branch(branch) => {
                for (node, child) in branch.children() {
                    path.0.push(Step::node(*node));
                    NodeRef::from(child).walk(path, visit);
                    path.0.pop();
                }
            }
            NodeRef::List(list) => {
                let Some(step) = path.0.pop() else { return };
                for (keys, entry) in list.iter() {
                    path.0.push(Step::entry(step.node, keys.clone()));
                    NodeRef::Branch(&entry.branch()).walk(path, visit);
                    path.0.pop();
                }
                path.0.push(step);
            }
        }
    }
}

impl<'a, M: LeafMeta> From<&'a Child<M>> for NodeRef<'a, M> {
    fn from(child: &'a Child<M>) -> Self {
        match child {
            Child::Leaf(leaf) => NodeRef::Leaf(leaf),
            Child::Container(branch) => NodeRef::Branch(branch),
            Child::List(list) => NodeRef::List(list),
        }
    }
}

/// True for a key leaf of a list, and for its OpenConfig copy in the entry's `config` container. Neither has
/// information beyond the existence of the entry.
pub fn is_key_or_copy(schema: &Schema, leaf: NodeId) -> bool {
    let node = schema.node(leaf);
    let Some(parent) = node.parent.map(|parent| schema.node(parent)) else { return false };
    match (&parent.kind, parent.parent.map(|id| &schema.node(id).kind)) {
        (NodeKind::List { keys }, _) => keys.contains(&leaf),
        (NodeKind::Container { .. }, Some(NodeKind::List { keys })) => {
            parent.name == "config" && keys.iter().any(|key| schema.node(*key).name == node.name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
