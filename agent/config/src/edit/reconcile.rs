//! Comparison of a replace with the view of Get: units that are sent back unchanged keep their marks.

use std::sync::Arc;

use super::EditCause;
use super::payload::InvalidPayload;
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::LeafMark;
use crate::models::Models;
use crate::schema::{NodeId, NodeKind, Origin, Schema};
use crate::tree::{Branch, Child, List, OptionalBranch};

/// Compares a supplied subtree with its view.
pub(super) struct Reconciler<'a> {
    schema: &'a Schema,
    /// Path of the current node.
    way: Vec<(NodeId, Option<&'a Keys>)>,
    /// True below a list entry, where containers are not units of their own.
    inside_entry: bool,
    /// Units that were sent back unchanged; filled only if `track` is set.
    pub(super) kept: Vec<InstancePath>,
    track: bool,
}

/// Result for one subtree.
struct Comparison {
    /// True when it equals the view, including all descendants.
    same: bool,
    /// Subtree for the layer.
    result: Arc<Branch<LeafMark>>,
}

impl<'a> Reconciler<'a> {
    pub(super) fn new(schema: &'a Schema, path: &'a InstancePath, track: bool) -> Self {
        let inside_entry = path.0.iter().rev().skip(1).any(|step| step.keys.is_some());
        let way = path.0.iter().map(|step| (step.node, step.keys.as_ref())).collect();
        Self { schema, way, inside_entry, kept: Vec::new(), track }
    }

    /// Subtree for the layer at the target. `held` is the subtree that the layer has so far.
    pub(super) fn run(
        &mut self,
        supplied: &'a Arc<Branch<LeafMark>>,
        view: OptionalBranch<'_, LeafMark>,
        stored: OptionalBranch<'_, LeafMark>,
    ) -> Option<Arc<Branch<LeafMark>>> {
        let last = self.way.last();
        let (node, entry) =
            last.map_or((self.schema.root(), false), |(node, keys)| (*node, keys.is_some()));
        let unit = entry || self.is_unit(node);
        self.inside_entry |= entry;
        let compared = self.branch(supplied, view, stored);
        if unit && compared.same {
            self.keep();
            return stored.cloned();
        }
        Some(compared.result)
    }

    fn branch(
        &mut self,
        supplied: &'a Arc<Branch<LeafMark>>,
        view: OptionalBranch<'_, LeafMark>,
        stored: OptionalBranch<'_, LeafMark>,
    ) -> Comparison {
        let Some(view) = view else { return Comparison { same: false, result: supplied.clone() } };
        let mut same = contents(supplied) == contents(view);
        let mut patches: Vec<(NodeId, Option<Child<LeafMark>>)> = Vec::new();
        for (node, child) in supplied.children() {
            match child {
                Child::Leaf(leaf) => same &= view.value(*node) == Some(&leaf.value),
                Child::Container(branch) => {
                    let stored = stored.and_then(|stored| stored.container(*node));
                    self.way.push((*node, None));
                    let compared = self.branch(branch, view.container(*node), stored);
                    same &= compared.same;
                    if compared.same && self.is_unit(*node) {
                        self.keep();
                        patches.push((*node, stored.cloned().map(Child::Container)));
                    } else if !Arc::ptr_eq(&compared.result, branch) {
                        let result = Some(compared.result).filter(|it| !it.is_empty());
                        patches.push((*node, result.map(Child::Container)));
                    }
                    self.way.pop();
                }
                Child::List(list) => {
                    let stored = stored.and_then(|stored| stored.list(*node));
                    let (list_same, patched) = self.list(*node, list, view.list(*node), stored);
                    same &= list_same;
                    patches.extend(patched.map(|list| {
                        (*node, Some(Child::List(list)).filter(|list| !list.is_empty()))
                    }));
                }
            }
        }
        Comparison { same, result: patched(supplied, patches) }
    }

    fn list(
        &mut self,
        node: NodeId,
        supplied: &'a List<LeafMark>,
        view: Option<&List<LeafMark>>,
        stored: Option<&List<LeafMark>>,
    ) -> (bool, Option<List<LeafMark>>) {
        let Some(view) = view else { return (false, None) };
        let mut same = supplied.len() == view.len();
        let mut patches: Vec<(&Keys, Option<Arc<Branch<LeafMark>>>)> = Vec::new();
        let inside_entry = std::mem::replace(&mut self.inside_entry, true);
        for (keys, entry) in supplied.iter() {
            let stored = stored.and_then(|stored| stored.get(keys));
            self.way.push((node, Some(keys)));
            let compared = self.branch(entry, view.get(keys), stored);
            same &= compared.same;
            if compared.same {
                self.keep();
                patches.push((keys, stored.cloned()));
            } else if !Arc::ptr_eq(&compared.result, entry) {
                patches.push((keys, Some(compared.result)));
            }
            self.way.pop();
        }
        self.inside_entry = inside_entry;
        if same {
            return (true, Some(stored.cloned().unwrap_or_default()));
        }
        if patches.is_empty() {
            return (false, None);
        }
        let mut list = supplied.clone();
        for (keys, entry) in patches {
            match entry {
                Some(entry) => drop(list.put(keys.clone(), entry)),
                None => drop(list.remove(keys)),
            }
        }
        (same, Some(list))
    }

    fn keep(&mut self) {
        if self.track {
            self.kept.push(InstancePath(steps(&self.way)));
        }
    }

    /// True for presence containers and, outside of entries, for the parents of `config` containers and of leaves.
    fn is_unit(&self, node: NodeId) -> bool {
        let node = self.schema.node(node);
        match node.kind {
            NodeKind::Container { presence: true } => true,
            NodeKind::Container { presence: false } if !self.inside_entry => {
                node.children
                    .iter()
                    .map(|child| self.schema.node(*child))
                    .any(|child| child.config && (child.leaf.is_some() || child.name == "config"))
                    && node.name != "config"
            }
            _ => false,
        }
    }
}

/// Number of children with content.
fn contents(branch: &Branch<LeafMark>) -> usize {
    branch.children().iter().filter(|(_, child)| !child.is_empty()).count()
}

fn patched(
    supplied: &Arc<Branch<LeafMark>>,
    patches: Vec<(NodeId, Option<Child<LeafMark>>)>,
) -> Arc<Branch<LeafMark>> {
    if patches.is_empty() {
        return supplied.clone();
    }
    let mut result = Branch::clone(supplied);
    for (node, child) in patches {
        match child {
            Some(child) => drop(result.put(node, child)),
            None => drop(result.take(node)),
        }
    }
    Arc::new(result)
}

/// Checks that this device supports every entry of a supplied subtree.
///
/// # Errors
/// With the first entry that it does not support.
pub fn check_supported(
    models: &Models,
    origin: Origin,
    path: &InstancePath,
    branch: &Branch<LeafMark>,
) -> Result<(), InvalidPayload> {
    let way = path.0.iter().map(|step| (step.node, step.keys.as_ref())).collect();
    SupportCheck { models, origin, way }.below(branch)
}

/// A walk to those lists that support only some entries. It skips everything else, because payloads are large.
struct SupportCheck<'a> {
    models: &'a Models,
    origin: Origin,
    /// Path of the current node, from the root.
    way: Vec<(NodeId, Option<&'a Keys>)>,
}

impl<'a> SupportCheck<'a> {
    fn below(&mut self, branch: &'a Branch<LeafMark>) -> Result<(), InvalidPayload> {
        let map = &self.models.map;
        for (node, child) in branch.children() {
            match child {
                Child::Container(branch) if map.is_restricted(self.origin, *node) => {
                    self.way.push((*node, None));
                    self.below(branch)?;
                    self.way.pop();
                }
                Child::List(list) if map.is_restricted(self.origin, *node) => {
                    for (keys, entry) in list.iter() {
                        self.way.push((*node, Some(keys)));
                        let supported = map.supports(self.origin, *node, keys);
                        supported.map_err(|reason| self.unsupported(reason.into_owned()))?;
                        self.below(entry)?;
                        self.way.pop();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn unsupported(&self, reason: String) -> InvalidPayload {
        let schema = self.models.schema(self.origin);
        let path = InstancePath(steps(&self.way)).to_path(schema).to_string();
        InvalidPayload { path, cause: EditCause::Unsupported(reason) }
    }
}

fn steps(way: &[(NodeId, Option<&Keys>)]) -> Vec<Step> {
    way.iter().map(|(node, keys)| Step { node: *node, keys: keys.cloned() }).collect()
}
