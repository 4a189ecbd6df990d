//! Configuration that is merged into trees that may hold state already.

use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Branch, Change, Child, List, NodeRef, Tree};
use holdfast_config::{InstancePath, Keys, LeafMark, NodeId, Step};

use super::prepared::PreparedTree;
use super::removal::{Marks, remove_plane_nodes};
use super::{ConfigOrState, LeafVersion, next_version, set};
use crate::entry::{DerivedEntry, DerivedLists, EntryVersion, ViewEntry};

/// Merges subtrees of configuration into subtrees that may hold state already.
#[derive(Clone, Copy)]
pub(super) struct Merge<'d> {
    pub(super) origin: Origin,
    pub(super) derived: &'d DerivedLists,
    /// Version of derived entries.
    pub(super) version: &'d EntryVersion,
    /// Entries that are in the tree already.
    pub(super) prepared: Option<&'d PreparedTree>,
    pub(super) stamp: LeafVersion,
}

impl Merge<'_> {
    /// Applies the differences between two configuration trees.
    pub(super) fn differences(
        self,
        tree: &mut Tree<LeafVersion>,
        schema: &Schema,
        [old, new]: [&Tree<LeafMark>; 2],
    ) {
        let mut added = AddedEntries::default();
        Tree::diff(old, new, &mut |path, difference| {
            if let Change::Added(NodeRef::Branch(branch)) = &difference
                && let Some((Step { node, keys: Some(keys) }, above)) = path.0.split_last()
            {
                if !added.is_beside(above, *node) {
                    added.merge_into(tree, schema, self);
                    added = AddedEntries::of(above, *node, self.prepared);
                }
                if !added.are_prepared {
                    added.entries.push((keys.clone(), Arc::clone(branch)));
                }
                return;
            }
            added.merge_into(tree, schema, self);
            self.change(tree, schema, path, difference);
        });
        added.merge_into(tree, schema, self);
    }

    /// Applies one difference, except the addition of an entry.
    fn change(
        self,
        tree: &mut Tree<LeafVersion>,
        schema: &Schema,
        path: &InstancePath,
        difference: Change<'_, LeafMark>,
    ) {
        match difference {
            Change::Leaf { new: leaf, .. } | Change::Added(NodeRef::Leaf(leaf)) => {
                set(tree, schema, path, leaf.value.clone(), self.stamp);
            }
            Change::Added(NodeRef::Branch(branch)) => match path.0.split_last() {
                None => self.branch(tree.root_mut(), branch),
                Some((last, above)) => {
                    self.container(tree.branch_mut(schema, above, &self.stamp), last.node, branch);
                }
            },
            Change::Added(NodeRef::List(_)) => {} // entries are reported one by one
            Change::Removed(_) => {
                let marks = Marks { origin: self.origin, lists: self.derived };
                remove_plane_nodes(tree, schema, path, ConfigOrState::Config, marks);
            }
            Change::Given(true) => {
                tree.branch_mut(schema, &path.0, &self.stamp).given = true;
            }
            Change::Given(false) => {} // the entry still exists, and only that matters here
        }
    }

    fn branch(self, into: &mut Branch<LeafVersion>, from: &Branch<LeafMark>) {
        into.given |= from.given;
        for (node, child) in from.children() {
            match child {
                Child::Leaf(leaf) => match into.leaf(*node) {
                    Some(old) if old.value == leaf.value => {}
                    old => {
                        let stamp = next_version(old, self.stamp);
                        into.put_leaf(*node, leaf.value.clone(), stamp);
                    }
                },
                Child::Container(inner) => self.container(into, *node, inner),
                Child::List(list) if self.prepared.is_some_and(|it| it.has_all_of(*node, list)) => {
                }
                Child::List(list) => {
                    let target = into.list_mut(*node);
                    for (keys, entry) in list.iter() {
                        self.entry(target, *node, keys, entry);
                    }
                }
            }
        }
    }

    fn container(self, into: &mut Branch<LeafVersion>, node: NodeId, from: &Branch<LeafMark>) {
        if into.container(node).is_some() {
            return self.branch(into.container_mut(node), from);
        }
        let mut container = Branch::with_capacity(from.children().len());
        self.branch(&mut container, from);
        into.put(node, Child::Container(Arc::new(container)));
    }

    fn entry(
        self,
        into: &mut List<LeafVersion>,
        node: NodeId,
        keys: &Keys,
        from: &Arc<Branch<LeafMark>>,
    ) {
        let merge = |entry: &mut Branch<LeafVersion>| {
            entry.given = true;
            self.branch(entry, from);
        };
        if into.get(keys).is_some() {
            return merge(into.entry_mut(keys, Branch::default));
        }
        if self.derived.contains(self.origin, node) {
            let config = Some(Arc::clone(from));
            let derived = DerivedEntry::new(self.origin, config, None, self.version);
            into.put(keys.clone(), ViewEntry::Derived(derived));
            return;
        }
        let mut entry = Branch::with_capacity(from.children().len());
        merge(&mut entry);
        into.put(keys.clone(), Arc::new(entry));
    }
}

/// Entries that are added to one list, which is found once for all of them.
#[derive(Default)]
struct AddedEntries {
    above: Vec<Step>,
    list: Option<NodeId>,
    /// True when they are in the tree already, as entries that were prepared.
    are_prepared: bool,
    entries: Vec<(Keys, Arc<Branch<LeafMark>>)>,
}

impl AddedEntries {
    fn of(above: &[Step], list: NodeId, prepared: Option<&PreparedTree>) -> Self {
        let are_prepared = prepared.is_some_and(|it| it.has_list(above, list));
        Self { above: above.to_vec(), list: Some(list), are_prepared, entries: Vec::new() }
    }

    fn is_beside(&self, above: &[Step], list: NodeId) -> bool {
        self.list == Some(list) && self.above == above
    }

    fn merge_into(&mut self, tree: &mut Tree<LeafVersion>, schema: &Schema, merge: Merge<'_>) {
        let Some(node) = self.list.filter(|_| !self.entries.is_empty()) else { return };
        let list = tree.branch_mut(schema, &self.above, &merge.stamp).list_mut(node);
        for (keys, entry) in self.entries.drain(..) {
            merge.entry(list, node, &keys, &entry);
        }
    }
}
