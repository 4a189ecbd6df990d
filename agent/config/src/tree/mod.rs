//! Persistent trees of typed leaves: layers, the effective configuration, what is published.
//!
//! A clone costs nothing and shares everything; an edit copies the way from the root to what it
//! touches, and nothing when no one else holds the tree. [`Tree::diff`] skips what two trees
//! share, so that the work after a change is in proportion to the change.
//!
//! What a leaf carries beside its value is the tree's parameter: a mark in a layer, the
//! provenance in the effective tree, a time stamp in a revision. Children stand in the order of
//! their [`NodeId`], which is schema order; the entries of a list in the order of their keys.
//! Key leaves are leaves of their entry like all others.

mod branch;
mod diff;
mod list;
mod select;
mod share;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use branch::{Branch, Child, Leaf};
pub use diff::Change;
pub(crate) use diff::beside;
pub use list::{Difference, List};
pub use select::Selecting;

use crate::instance::{InstancePath, Step};
use crate::resolve::Pattern;
use crate::schema::{NodeId, NodeKind, Schema};

/// One tree of one schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree<M: Eq> {
    root: Arc<Branch<M>>,
}

/// What stands at a path.
#[derive(Debug)]
pub enum Found<'a, M> {
    Leaf(&'a Leaf<M>),
    /// A container, a list entry or the root.
    Branch(&'a Arc<Branch<M>>),
    /// All entries of a list: its path had no keys.
    List(&'a List<M>),
}

impl<M> Clone for Found<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Found<'_, M> {}

impl<M: Clone + Eq> Default for Tree<M> {
    fn default() -> Self {
        Self { root: Arc::new(Branch::default()) }
    }
}

impl<M: Clone + Eq> Tree<M> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn from_root(root: Arc<Branch<M>>) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Arc<Branch<M>> {
        &self.root
    }

    /// Copies the root when it is shared.
    pub fn root_mut(&mut self) -> &mut Branch<M> {
        Arc::make_mut(&mut self.root)
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// True when both are one and the same tree in memory: a fast, sufficient sign of equality.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    pub fn get(&self, path: &InstancePath) -> Option<Found<'_, M>> {
        Found::Branch(&self.root).get(&path.0)
    }

    pub fn leaf(&self, path: &InstancePath) -> Option<&Leaf<M>> {
        match self.get(path)? {
            Found::Leaf(leaf) => Some(leaf),
            Found::Branch(_) | Found::List(_) => None,
        }
    }

    pub fn branch(&self, path: &InstancePath) -> Option<&Arc<Branch<M>>> {
        match self.get(path)? {
            Found::Branch(branch) => Some(branch),
            Found::Leaf(_) | Found::List(_) => None,
        }
    }

    /// Sets one leaf. Containers and entries on the way are made, entries with their key leaves,
    /// which carry the same meta.
    pub fn set_leaf(&mut self, schema: &Schema, path: &InstancePath, leaf: Leaf<M>) {
        let Some((last, above)) = path.0.split_last() else { return };
        self.branch_mut(schema, above, &leaf.meta).put(last.node, Child::Leaf(leaf));
    }

    /// The branch at `path`, made when absent as [`Tree::set_leaf`] does.
    pub fn branch_mut(&mut self, schema: &Schema, path: &[Step], meta: &M) -> &mut Branch<M> {
        Arc::make_mut(&mut self.root).descend_mut(schema, path, meta)
    }

    /// Puts a whole subtree at `path`, in place of what is there.
    ///
    /// A [`Child::Container`] at a path that ends in an entry becomes that entry; its key leaves
    /// are the caller's. A container put at the root becomes the root.
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

    /// Removes what stands at `path`, then what that leaves behind without content: containers
    /// with nothing in them, and entries with nothing but keys, unless they were given as such.
    /// False when there was nothing.
    pub fn remove(&mut self, schema: &Schema, path: &InstancePath) -> bool {
        if self.get(path).is_none() {
            return false;
        }
        if path.is_root() {
            *self = Self::default();
        } else {
            Arc::make_mut(&mut self.root).remove_at(schema, &path.0);
        }
        true
    }

    /// Every leaf, in schema order.
    pub fn walk(&self, visit: &mut dyn FnMut(&InstancePath, &Leaf<M>)) {
        Found::Branch(&self.root).walk(&mut InstancePath::root(), visit);
    }

    /// What `pattern` names here, in schema order: each with its concrete path.
    pub fn select(&self, pattern: &Pattern) -> Vec<(InstancePath, Found<'_, M>)> {
        let mut found = Vec::new();
        let _all_of_it = self.select_into(pattern, &mut found);
        found
    }

    /// Tells `out` what `pattern` names here, in schema order, for as long as it wants to hear.
    pub fn select_into<'a>(
        &'a self,
        pattern: &Pattern,
        out: &mut impl Selecting<'a, M>,
    ) -> ControlFlow<()> {
        select::select(Found::Branch(&self.root), &pattern.0, &mut InstancePath::root(), out)
    }

    /// How many list entries `new` has that `old` lacks, and the other way round. Costs what the two do not share.
    pub fn entries_changed(old: &Self, new: &Self) -> (usize, usize) {
        diff::entries(&old.root, &new.root)
    }

    /// Tells `visit` of everything in which `new` differs from `old`, in schema order.
    pub fn diff(old: &Self, new: &Self, visit: &mut dyn FnMut(&InstancePath, Change<'_, M>)) {
        diff::branches(&old.root, &new.root, &mut InstancePath::root(), visit);
    }
}

impl<'a, M> Found<'a, M> {
    /// What stands at `steps` below this.
    pub fn get(self, steps: &[Step]) -> Option<Found<'a, M>> {
        let Some((step, rest)) = steps.split_first() else { return Some(self) };
        let Found::Branch(branch) = self else { return None };
        let next = match (branch.child(step.node)?, &step.keys) {
            (Child::Leaf(leaf), None) => Found::Leaf(leaf),
            (Child::Container(branch), None) => Found::Branch(branch),
            (Child::List(list), None) => Found::List(list),
            (Child::List(list), Some(keys)) => Found::Branch(list.get(keys)?),
            (Child::Leaf(_) | Child::Container(_), Some(_)) => return None,
        };
        next.get(rest)
    }

    /// Every leaf of this, in schema order. `path` is where this stands; it is left as it was.
    pub fn walk(self, path: &mut InstancePath, visit: &mut dyn FnMut(&InstancePath, &Leaf<M>)) {
        match self {
            Found::Leaf(leaf) => visit(path, leaf),
            Found::Branch(branch) => {
                for (node, child) in branch.children() {
                    path.0.push(Step::node(*node));
                    Found::from(child).walk(path, visit);
                    path.0.pop();
                }
            }
            Found::List(list) => {
                let Some(step) = path.0.pop() else { return };
                for (keys, entry) in list.iter() {
                    path.0.push(Step::entry(step.node, keys.clone()));
                    Found::Branch(entry).walk(path, visit);
                    path.0.pop();
                }
                path.0.push(step);
            }
        }
    }
}

impl<'a, M> From<&'a Child<M>> for Found<'a, M> {
    fn from(child: &'a Child<M>) -> Self {
        match child {
            Child::Leaf(leaf) => Found::Leaf(leaf),
            Child::Container(branch) => Found::Branch(branch),
            Child::List(list) => Found::List(list),
        }
    }
}

/// True for a list's key leaf, and for its OpenConfig twin in the entry's `config` container:
/// neither says more than that the entry exists.
pub fn is_key(schema: &Schema, leaf: NodeId) -> bool {
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
