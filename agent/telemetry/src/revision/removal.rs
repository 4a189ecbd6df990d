//! Removal of configuration or of state from a tree that holds both.

use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Branch, Child, List, ListEntry as _, Tree};
use holdfast_config::{InstancePath, Keys, NodeId, Step};

use super::{ConfigOrState, LeafVersion};
use crate::entry::{DerivedLists, ViewEntry};

/// Marks of one tree, which hold no entry.
#[derive(Clone, Copy)]
pub(super) struct Marks<'d> {
    pub(super) origin: Origin,
    pub(super) lists: &'d DerivedLists,
}

/// Removes configuration or state at `path` and below; nodes of the other stay.
pub(super) fn remove_plane_nodes(
    tree: &mut Tree<LeafVersion>,
    schema: &Schema,
    path: &InstancePath,
    plane: ConfigOrState,
    marks: Marks<'_>,
) {
    match path.last() {
        Some(Step { node, keys: Some(keys) }) => {
            let above = &path.0[..path.0.len() - 1];
            if !tree.contains(path) {
                return;
            }
            let list = tree.branch_mut(schema, above, &LeafVersion::default()).list_mut(*node);
            if list.update(keys, |entry| strip_entry(entry, schema, plane, marks)) == Some(false) {
                tree.remove(schema, path);
            }
        }
        last => match tree.find(&path.0) {
            None => {}
            Some(Child::Leaf(_)) => {
                let is_in_plane = last.is_some_and(|step| belongs(schema, step.node, plane));
                let _removed = is_in_plane && tree.remove(schema, path);
            }
            Some(Child::List(list)) => {
                let Some((last, above)) = path.0.split_last() else { return };
                let keys = keys_of(&list);
                drop(list); // else its memory would be copied
                for keys in keys {
                    let mut entry = InstancePath(above.to_vec());
                    entry.0.push(Step::entry(last.node, keys));
                    remove_plane_nodes(tree, schema, &entry, plane, marks);
                }
            }
            Some(Child::Container(_)) => {
                let branch = tree.branch_mut(schema, &path.0, &LeafVersion::default());
                strip(branch, schema, plane, marks);
                if branch.is_empty() {
                    tree.remove(schema, path);
                }
            }
        },
    }
}

/// Removes configuration or state of an entry. False when nothing holds it any more.
fn strip_entry(
    entry: &mut ViewEntry,
    schema: &Schema,
    plane: ConfigOrState,
    marks: Marks<'_>,
) -> bool {
    if let ViewEntry::Derived(derived) = entry {
        return derived.strip(plane);
    }
    let branch = entry.make_mut();
    strip(branch, schema, plane, marks);
    !is_unused_entry(branch, schema, marks)
}

fn strip(
    branch: &mut Branch<LeafVersion>,
    schema: &Schema,
    plane: ConfigOrState,
    marks: Marks<'_>,
) {
    if plane == ConfigOrState::Config {
        branch.given = false;
    }
    branch.retain(|node, child| match child {
        // A key leaf belongs to configuration and state, as far as they have its entry.
        Child::Leaf(_) => schema.is_list_key(node) || !belongs(schema, node, plane),
        Child::Container(inner) => {
            let inner = Arc::make_mut(inner);
            strip(inner, schema, plane, marks);
            !inner.is_empty()
        }
        Child::List(list) => {
            for keys in keys_of(list) {
                if list.update(&keys, |entry| strip_entry(entry, schema, plane, marks))
                    == Some(false)
                {
                    list.remove(&keys);
                }
            }
            !list.is_empty()
        }
    });
}

fn keys_of(list: &List<LeafVersion>) -> Vec<Keys> {
    list.iter().map(|(keys, _)| keys.clone()).collect()
}

/// True for an entry that neither configuration nor state holds any more; a mark does not count.
fn is_unused_entry(entry: &Branch<LeafVersion>, schema: &Schema, marks: Marks<'_>) -> bool {
    let is_mark = |(node, child): &(NodeId, Child<LeafVersion>)| {
        matches!(child, Child::Leaf(_)) && marks.lists.mark_at(marks.origin, *node).is_some()
    };
    let is_nothing = |(node, child): &(NodeId, Child<LeafVersion>)| match child {
        Child::Leaf(_) => schema.is_list_key(*node),
        Child::Container(inner) => inner.children().iter().all(is_mark),
        Child::List(list) => list.is_empty(),
    };
    let has_only_marks = || entry.children().iter().all(is_nothing);
    !entry.given && (entry.has_only_keys(schema) || has_only_marks())
}

fn belongs(schema: &Schema, leaf: NodeId, plane: ConfigOrState) -> bool {
    match plane {
        ConfigOrState::Config => schema.node(leaf).config,
        ConfigOrState::State => !schema.node(leaf).config,
        ConfigOrState::Both => true,
    }
}
