//! What a replace brings, held against what Get showed: units sent back unchanged stay as they are.

use std::sync::Arc;

use super::Cause;
use super::apply::{lacking_mirrors, put_mirrors};
use super::payload::Misfit;
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::Mark;
use crate::models::Models;
use crate::schema::{NodeId, NodeKind, Origin, Schema};
use crate::tree::{Branch, Child, Found, List};
use crate::value::Value;

/// Compares one supplied subtree with the view of it.
pub(super) struct Reconciler<'a> {
    schema: &'a Schema,
    /// Where the walk is.
    path: InstancePath,
    /// A list entry is above: containers are parts of it.
    inside_entry: bool,
    /// The units that were sent back as they were shown, if anyone wants to know.
    pub(super) kept: Vec<InstancePath>,
    track: bool,
}

/// One subtree, compared.
struct Compared {
    /// Just what the view shows, everything below included.
    same: bool,
    /// What is to be in the layer.
    result: Arc<Branch<Mark>>,
}

type Held<'h> = Option<&'h Arc<Branch<Mark>>>;

impl<'a> Reconciler<'a> {
    pub(super) fn new(schema: &'a Schema, path: &InstancePath, track: bool) -> Self {
        let inside_entry = path.0.iter().rev().skip(1).any(|step| step.keys.is_some());
        Self { schema, path: path.clone(), inside_entry, kept: Vec::new(), track }
    }

    /// What is to be in the layer at the target. `held` is what the layer held before.
    pub(super) fn run(
        &mut self,
        supplied: &Arc<Branch<Mark>>,
        view: Held<'_>,
        held: Held<'_>,
    ) -> Option<Arc<Branch<Mark>>> {
        let last = self.path.last();
        let (node, entry) =
            last.map_or((self.schema.root(), false), |it| (it.node, it.keys.is_some()));
        let unit = entry || self.is_unit(node);
        self.inside_entry |= entry;
        let compared = self.branch(supplied, view, held);
        if unit && compared.same {
            self.keep();
            return held.cloned();
        }
        Some(compared.result)
    }

    fn branch(&mut self, supplied: &Arc<Branch<Mark>>, view: Held<'_>, held: Held<'_>) -> Compared {
        let Some(view) = view else { return Compared { same: false, result: supplied.clone() } };
        let mut same = contents(supplied) == contents(view);
        let mut patches: Vec<(NodeId, Option<Child<Mark>>)> = Vec::new();
        for (node, child) in supplied.children() {
            match child {
                Child::Leaf(leaf) => same &= view.value(*node) == Some(&leaf.value),
                Child::Container(branch) => {
                    let held = held.and_then(|held| held.container(*node));
                    self.path.0.push(Step::node(*node));
                    let compared = self.branch(branch, view.container(*node), held);
                    same &= compared.same;
                    if compared.same && self.is_unit(*node) {
                        self.keep();
                        patches.push((*node, held.cloned().map(Child::Container)));
                    } else if !Arc::ptr_eq(&compared.result, branch) {
                        let result = Some(compared.result).filter(|it| !it.is_empty());
                        patches.push((*node, result.map(Child::Container)));
                    }
                    self.path.0.pop();
                }
                Child::List(list) => {
                    let held = held.and_then(|held| held.list(*node));
                    let (list_same, patched) = self.list(*node, list, view.list(*node), held);
                    same &= list_same;
                    patches.extend(patched.map(|list| {
                        (*node, Some(Child::List(list)).filter(|list| !list.is_empty()))
                    }));
                }
            }
        }
        Compared { same, result: patched(supplied, patches) }
    }

    fn list(
        &mut self,
        node: NodeId,
        supplied: &List<Mark>,
        view: Option<&List<Mark>>,
        held: Option<&List<Mark>>,
    ) -> (bool, Option<List<Mark>>) {
        let Some(view) = view else { return (false, None) };
        let mut same = supplied.len() == view.len();
        let mut patches: Vec<(&Keys, Option<Arc<Branch<Mark>>>)> = Vec::new();
        let inside_entry = std::mem::replace(&mut self.inside_entry, true);
        for (keys, entry) in supplied.iter() {
            let held = held.and_then(|held| held.get(keys));
            self.path.0.push(Step::entry(node, keys.clone()));
            let compared = self.branch(entry, view.get(keys), held);
            same &= compared.same;
            if compared.same {
                self.keep();
                patches.push((keys, held.cloned()));
            } else if !Arc::ptr_eq(&compared.result, entry) {
                patches.push((keys, Some(compared.result)));
            }
            self.path.0.pop();
        }
        self.inside_entry = inside_entry;
        if same {
            return (true, Some(held.cloned().unwrap_or_default()));
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
            self.kept.push(self.path.clone());
        }
    }

    /// Presence containers, and outside of entries the parents of `config` containers and of leaves.
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

/// How many children say something.
fn contents(branch: &Branch<Mark>) -> usize {
    branch.children().iter().filter(|(_, child)| !child.is_empty()).count()
}

fn patched(
    supplied: &Arc<Branch<Mark>>,
    patches: Vec<(NodeId, Option<Child<Mark>>)>,
) -> Arc<Branch<Mark>> {
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

/// Checks the entries of a supplied subtree, and adds the leaves that repeat their keys.
pub(super) fn complete(
    models: &Models,
    origin: Origin,
    path: &InstancePath,
    branch: &mut Arc<Branch<Mark>>,
) -> Result<(), Misfit> {
    let (target, path) = (path, path.clone());
    let mut check =
        Check { models, origin, base: path.0.len(), path, lacking: Vec::new(), empty: Vec::new() };
    if let Some(Step { node, keys: Some(keys) }) = target.last() {
        check.own_keys(*node, keys, Arc::make_mut(branch))?;
        check.entry(branch)?;
    }
    check.below(branch)?;
    let schema = models.schema(origin);
    for (steps, mirrors) in check.lacking {
        let root = Arc::make_mut(branch);
        put_mirrors(root.descend_mut(schema, &steps, &Mark::Explicit), mirrors);
    }
    for steps in check.empty {
        let found = Found::Branch(branch).get(&steps);
        if matches!(found, Some(Found::Branch(container)) if container.is_empty()) {
            Arc::make_mut(branch).remove_at(schema, &steps);
        }
    }
    Ok(())
}

struct Check<'a> {
    models: &'a Models,
    origin: Origin,
    path: InstancePath,
    /// Length of the target's path.
    base: usize,
    /// Entries without the leaves that repeat their keys, by the way from the target.
    lacking: Vec<(Vec<Step>, Vec<super::apply::Mirror>)>,
    /// Containers that say nothing, by the way from the target.
    empty: Vec<Vec<Step>>,
}

impl Check<'_> {
    /// The target is an entry: its payload may leave the keys out, and may not contradict them.
    fn own_keys(&self, list: NodeId, keys: &Keys, entry: &mut Branch<Mark>) -> Result<(), Misfit> {
        let schema = self.models.schema(self.origin);
        let NodeKind::List { keys: leaves } = &schema.node(list).kind else { return Ok(()) };
        for (leaf, value) in leaves.iter().zip(&keys.0) {
            match entry.value(*leaf) {
                Some(given) if given != value => return Err(self.mismatch(*leaf, value, given)),
                Some(_) => {}
                None => drop(entry.put_leaf(*leaf, value.clone(), Mark::Explicit)),
            }
        }
        entry.given = true;
        Ok(())
    }

    fn below(&mut self, branch: &Branch<Mark>) -> Result<(), Misfit> {
        for (node, child) in branch.children() {
            match child {
                Child::Leaf(_) => {}
                Child::Container(branch) => {
                    self.path.0.push(Step::node(*node));
                    if branch.is_empty() {
                        self.empty.push(self.path.0[self.base..].to_vec());
                    }
                    self.below(branch)?;
                    self.path.0.pop();
                }
                Child::List(list) => {
                    for (keys, entry) in list.iter() {
                        self.path.0.push(Step::entry(*node, keys.clone()));
                        self.entry(entry)?;
                        self.below(entry)?;
                        self.path.0.pop();
                    }
                }
            }
        }
        Ok(())
    }

    /// The entry that the walk is at: supported, and of one mind about its keys.
    fn entry(&mut self, entry: &Branch<Mark>) -> Result<(), Misfit> {
        let Some(step) = self.path.last() else { return Ok(()) };
        let Some(keys) = &step.keys else { return Ok(()) };
        let map = &self.models.map;
        if let Err(reason) = map.supports(self.origin, step.node, keys) {
            return Err(self.misfit(Cause::Unsupported(reason.to_owned())));
        }
        if self.origin != Origin::OpenConfig {
            return Ok(());
        }
        for (config, leaf, place) in map.mirrors(step.node) {
            let given = entry.container(*config).and_then(|config| config.value(*leaf));
            if let Some(given) = given.filter(|given| **given != keys.0[*place]) {
                return Err(self.mismatch(*leaf, &keys.0[*place], given));
            }
        }
        let lacking = lacking_mirrors(self.models, step, entry);
        if !lacking.is_empty() {
            self.lacking.push((self.path.0[self.base..].to_vec(), lacking));
        }
        Ok(())
    }

    fn mismatch(&self, leaf: NodeId, entry: &Value, given: &Value) -> Misfit {
        let key = self.models.schema(self.origin).node(leaf).name.to_string();
        let (entry, given) = (entry.to_string(), given.to_string());
        self.misfit(Cause::KeyMismatch { key, entry, given })
    }

    fn misfit(&self, cause: Cause) -> Misfit {
        let schema = self.models.schema(self.origin);
        Misfit { path: self.path.to_path(schema).to_string(), cause }
    }
}
