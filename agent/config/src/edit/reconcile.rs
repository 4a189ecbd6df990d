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
    way: Vec<(NodeId, Option<&'a Keys>)>,
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
    pub(super) fn new(schema: &'a Schema, path: &'a InstancePath, track: bool) -> Self {
        let inside_entry = path.0.iter().rev().skip(1).any(|step| step.keys.is_some());
        let way = path.0.iter().map(|step| (step.node, step.keys.as_ref())).collect();
        Self { schema, way, inside_entry, kept: Vec::new(), track }
    }

    /// What is to be in the layer at the target. `held` is what the layer held before.
    pub(super) fn run(
        &mut self,
        supplied: &'a Arc<Branch<Mark>>,
        view: Held<'_>,
        held: Held<'_>,
    ) -> Option<Arc<Branch<Mark>>> {
        let last = self.way.last();
        let (node, entry) =
            last.map_or((self.schema.root(), false), |(node, keys)| (*node, keys.is_some()));
        let unit = entry || self.is_unit(node);
        self.inside_entry |= entry;
        let compared = self.branch(supplied, view, held);
        if unit && compared.same {
            self.keep();
            return held.cloned();
        }
        Some(compared.result)
    }

    fn branch(
        &mut self,
        supplied: &'a Arc<Branch<Mark>>,
        view: Held<'_>,
        held: Held<'_>,
    ) -> Compared {
        let Some(view) = view else { return Compared { same: false, result: supplied.clone() } };
        let mut same = contents(supplied) == contents(view);
        let mut patches: Vec<(NodeId, Option<Child<Mark>>)> = Vec::new();
        for (node, child) in supplied.children() {
            match child {
                Child::Leaf(leaf) => same &= view.value(*node) == Some(&leaf.value),
                Child::Container(branch) => {
                    let held = held.and_then(|held| held.container(*node));
                    self.way.push((*node, None));
                    let compared = self.branch(branch, view.container(*node), held);
                    same &= compared.same;
                    if compared.same && self.is_unit(*node) {
                        self.keep();
                        patches.push((*node, held.cloned().map(Child::Container)));
                    } else if !Arc::ptr_eq(&compared.result, branch) {
                        let result = Some(compared.result).filter(|it| !it.is_empty());
                        patches.push((*node, result.map(Child::Container)));
                    }
                    self.way.pop();
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
        supplied: &'a List<Mark>,
        view: Option<&List<Mark>>,
        held: Option<&List<Mark>>,
    ) -> (bool, Option<List<Mark>>) {
        let Some(view) = view else { return (false, None) };
        let mut same = supplied.len() == view.len();
        let mut patches: Vec<(&Keys, Option<Arc<Branch<Mark>>>)> = Vec::new();
        let inside_entry = std::mem::replace(&mut self.inside_entry, true);
        for (keys, entry) in supplied.iter() {
            let held = held.and_then(|held| held.get(keys));
            self.way.push((node, Some(keys)));
            let compared = self.branch(entry, view.get(keys), held);
            same &= compared.same;
            if compared.same {
                self.keep();
                patches.push((keys, held.cloned()));
            } else if !Arc::ptr_eq(&compared.result, entry) {
                patches.push((keys, Some(compared.result)));
            }
            self.way.pop();
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
            self.kept.push(InstancePath(steps(&self.way)));
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
    if let Some(Step { node, keys: Some(keys) }) = path.last() {
        own_keys(models.schema(origin), path, *node, keys, Arc::make_mut(branch))?;
    }
    let way = path.0.iter().map(|step| (step.node, step.keys.as_ref())).collect();
    let mut check =
        Check { models, origin, base: path.0.len(), way, lacking: Vec::new(), empty: Vec::new() };
    if let Some(Step { node, keys: Some(keys) }) = path.last() {
        check.entry(*node, keys, branch)?;
    }
    check.below(branch)?;
    let (lacking, empty) = (check.lacking, check.empty);
    let schema = models.schema(origin);
    for (steps, mirrors) in lacking {
        let root = Arc::make_mut(branch);
        put_mirrors(root.descend_mut(schema, &steps, &Mark::Explicit), mirrors);
    }
    for steps in empty {
        let found = Found::Branch(branch).get(&steps);
        if matches!(found, Some(Found::Branch(container)) if container.is_empty()) {
            Arc::make_mut(branch).remove_at(schema, &steps);
        }
    }
    Ok(())
}

/// The target is an entry: its payload may leave the keys out, and may not contradict them.
fn own_keys(
    schema: &Schema,
    path: &InstancePath,
    list: NodeId,
    keys: &Keys,
    entry: &mut Branch<Mark>,
) -> Result<(), Misfit> {
    let NodeKind::List { keys: leaves } = &schema.node(list).kind else { return Ok(()) };
    for (leaf, value) in leaves.iter().zip(&keys.0) {
        match entry.value(*leaf) {
            Some(given) if given != value => {
                let path = path.to_path(schema).to_string();
                return Err(Misfit { path, cause: mismatch(schema, *leaf, value, given) });
            }
            Some(_) => {}
            None => drop(entry.put_leaf(*leaf, value.clone(), Mark::Explicit)),
        }
    }
    entry.given = true;
    Ok(())
}

/// A walk over every entry of a payload: what it does for each is done a hundred thousand times.
struct Check<'a> {
    models: &'a Models,
    origin: Origin,
    /// Where the walk is, from the root.
    way: Vec<(NodeId, Option<&'a Keys>)>,
    /// Length of the target's path.
    base: usize,
    /// Entries without the leaves that repeat their keys, by the way from the target.
    lacking: Vec<(Vec<Step>, Vec<super::apply::Mirror>)>,
    /// Containers that say nothing, by the way from the target.
    empty: Vec<Vec<Step>>,
}

impl<'a> Check<'a> {
    fn below(&mut self, branch: &'a Branch<Mark>) -> Result<(), Misfit> {
        for (node, child) in branch.children() {
            match child {
                Child::Leaf(_) => {}
                Child::Container(branch) => {
                    self.way.push((*node, None));
                    if branch.is_empty() {
                        self.empty.push(self.steps());
                    }
                    self.below(branch)?;
                    self.way.pop();
                }
                Child::List(list) => {
                    for (keys, entry) in list.iter() {
                        self.way.push((*node, Some(keys)));
                        self.entry(*node, keys, entry)?;
                        self.below(entry)?;
                        self.way.pop();
                    }
                }
            }
        }
        Ok(())
    }

    /// The entry that the walk is at: supported, and of one mind about its keys.
    fn entry(&mut self, list: NodeId, keys: &Keys, entry: &Branch<Mark>) -> Result<(), Misfit> {
        let map = &self.models.map;
        if let Err(reason) = map.supports(self.origin, list, keys) {
            return Err(self.misfit(Cause::Unsupported(reason.to_owned())));
        }
        let mut complete = true;
        for (config, leaf, place) in map.mirrors(self.origin, list) {
            match entry.container(*config).and_then(|config| config.value(*leaf)) {
                Some(given) if *given != keys.0[*place] => {
                    let schema = self.models.schema(self.origin);
                    return Err(self.misfit(mismatch(schema, *leaf, &keys.0[*place], given)));
                }
                Some(_) => {}
                None => complete = false,
            }
        }
        if !complete {
            let lacking = lacking_mirrors(self.models, list, keys, entry);
            self.lacking.push((self.steps(), lacking));
        }
        Ok(())
    }

    /// The way from the target.
    fn steps(&self) -> Vec<Step> {
        steps(&self.way[self.base..])
    }

    fn misfit(&self, cause: Cause) -> Misfit {
        let schema = self.models.schema(self.origin);
        Misfit { path: InstancePath(steps(&self.way)).to_path(schema).to_string(), cause }
    }
}

fn steps(way: &[(NodeId, Option<&Keys>)]) -> Vec<Step> {
    way.iter().map(|(node, keys)| Step { node: *node, keys: keys.cloned() }).collect()
}

fn mismatch(schema: &Schema, leaf: NodeId, entry: &Value, given: &Value) -> Cause {
    let key = schema.node(leaf).name.to_string();
    Cause::KeyMismatch { key, entry: entry.to_string(), given: given.to_string() }
}
