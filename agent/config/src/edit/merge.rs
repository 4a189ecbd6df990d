//! Merging of updates into the layers.

use std::collections::BTreeMap;

use super::EditCause;
use super::payload::InvalidPayload;
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::leaf_list::LeafListBuilder;
use crate::limits::LimitExceeded;
use crate::models::Models;
use crate::schema::{NodeId, NodeKind, Origin, Schema};
use crate::tree::{Branch, Child, Leaf};
use crate::value::Value;

/// Additions to leaf-lists by the operations of a request. They are written to the trees at the end, because a
/// request may add ten thousand entries one by one.
#[derive(Debug, Default)]
pub(super) struct LeafListAdditions {
    lists: BTreeMap<Origin, BTreeMap<InstancePath, Addition>>,
}

#[derive(Debug)]
struct Addition {
    entries: LeafListBuilder<Value>,
    mark: LeafMark,
}

impl LeafListAdditions {
    /// Adds `more` to the leaf-list at a path; `held` are its entries in the tree.
    ///
    /// # Errors
    /// When the leaf-list would exceed its limit.
    pub(super) fn add(
        &mut self,
        origin: Origin,
        path: &InstancePath,
        current: &Value,
        more: &Leaf<LeafMark>,
    ) -> Result<(), LimitExceeded> {
        let lists = self.lists.entry(origin).or_default();
        if !lists.contains_key(path) {
            let addition =
                Addition { entries: LeafListBuilder::of(entries(current)), mark: more.meta };
            lists.insert(path.clone(), addition);
        }
        let Some(addition) = lists.get_mut(path) else { return Ok(()) };
        addition.mark = more.meta;
        addition.entries.add(entries(&more.value))
    }

    /// True when entries were added at a path.
    pub(super) fn has(&self, origin: Origin, path: &InstancePath) -> bool {
        self.lists.get(&origin).is_some_and(|lists| lists.contains_key(path))
    }

    /// Drops the additions at a path and below it, after a later operation replaced or removed it.
    pub(super) fn discard(&mut self, origin: Origin, path: &InstancePath) {
        let Some(lists) = self.lists.get_mut(&origin) else { return };
        let below = lists.range(path.clone()..).take_while(|(it, _)| it.starts_with(path));
        let below: Vec<InstancePath> = below.map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| drop(lists.remove(path)));
    }

    /// Writes the additions to the client's layers.
    pub(super) fn apply_to(&mut self, models: &Models, layers: &mut Layers) {
        for (origin, lists) in std::mem::take(&mut self.lists) {
            let schema = models.schema(origin);
            let tree = layers.tree_mut(LayerKey::client(origin));
            for (path, Addition { entries, mark }) in lists {
                let node = path.last().map_or(schema.root(), |step| step.node);
                let all = entries.all(schema.node(node).user_ordered);
                tree.set_leaf(schema, &path, Leaf::new(Value::List(all.into()), mark));
            }
        }
    }
}

fn entries(value: &Value) -> &[Value] {
    match value {
        Value::List(entries) => entries,
        one => std::slice::from_ref(one),
    }
}

/// Merges subtrees into the client's layer of one origin: leaves are replaced, leaf-lists are joined.
pub(super) struct SubtreeMerge<'a, 'f> {
    schema: &'a Schema,
    origin: Origin,
    additions: &'f mut LeafListAdditions,
    /// Path of the current node.
    way: Vec<(NodeId, Option<&'f Keys>)>,
}

impl<'a, 'f> SubtreeMerge<'a, 'f> {
    /// Prepares a merge of subtrees at `path`.
    pub(super) fn new(
        schema: &'a Schema,
        origin: Origin,
        path: &'f InstancePath,
        additions: &'f mut LeafListAdditions,
    ) -> Self {
        let way = path.0.iter().map(|step| (step.node, step.keys.as_ref())).collect();
        Self { schema, origin, additions, way }
    }

    /// Merges `from` into `into`.
    ///
    /// # Errors
    /// When a leaf-list would exceed its limit.
    pub(super) fn branch(
        &mut self,
        into: &mut Branch<LeafMark>,
        from: &'f Branch<LeafMark>,
    ) -> Result<(), InvalidPayload> {
        into.given |= from.given;
        for (node, child) in from.children() {
            self.way.push((*node, None));
            match child {
                Child::Leaf(leaf) => self.leaf(*node, into, leaf)?,
                Child::Container(branch) => {
                    if into.container(*node).is_some() {
                        self.branch(into.container_mut(*node), branch)?
                    } else {
                        drop(into.put(*node, Child::Container(branch.clone())))
                    }
                }
                Child::List(list) => {
                    let entries = into.list_mut(*node);
                    for (keys, entry) in list.iter() {
                        if entries.get(keys).is_none() {
                            entries.put(keys.clone(), entry.clone());
                            continue;
                        }
                        self.way.pop();
                        self.way.push((*node, Some(keys)));
                        self.branch(entries.entry_mut(keys, Branch::default), entry)?;
                    }
                }
            }
            self.way.pop();
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        node: NodeId,
        into: &mut Branch<LeafMark>,
        leaf: &Leaf<LeafMark>,
    ) -> Result<(), InvalidPayload> {
        match into.value(node) {
            Some(present) if self.schema.node(node).kind == NodeKind::LeafList => {
                let path = self.path();
                let added = self.additions.add(self.origin, &path, present, leaf);
                added.map_err(|error| InvalidPayload {
                    path: path.to_path(self.schema).to_string(),
                    cause: EditCause::Limit(error),
                })
            }
            _ => {
                into.put_leaf(node, leaf.value.clone(), leaf.meta);
                Ok(())
            }
        }
    }

    fn path(&self) -> InstancePath {
        let step =
            |(node, keys): &(NodeId, Option<&Keys>)| Step { node: *node, keys: keys.cloned() };
        InstancePath(self.way.iter().map(step).collect())
    }
}
