//! The join of the claims of one origin, and its ledger.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;
use smallvec::SmallVec;

use super::ClaimNumber;
use crate::instance::{InstancePath, Step};
use crate::schema::Schema;
use crate::tree::{Branch, Change, Child, Leaf, LeafMark, LeafMeta, NodeRef, Tree};
use crate::value::Value;

/// Claims that hold a leaf, ascending. Claims of an entry are the holders of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holders(SmallVec<[ClaimNumber; 2]>);

impl LeafMeta for Holders {
    type Entry = std::sync::Arc<Branch<Self>>;
}

impl Holders {
    fn insert(&mut self, number: ClaimNumber) {
        if let Err(at) = self.0.binary_search(&number) {
            self.0.insert(at, number);
        }
    }

    fn remove(&mut self, number: ClaimNumber) {
        if let Ok(at) = self.0.binary_search(&number) {
            self.0.remove(at);
        }
    }
}

/// A leaf or presence container that one claim gains or gives up.
#[derive(Debug)]
pub(super) struct Part {
    number: ClaimNumber,
    path: InstancePath,
    /// `None` for a presence container.
    value: Option<Value>,
    gained: bool,
}

/// The claims of one origin.
#[derive(Clone, Debug, Default)]
pub(super) struct Join {
    pub(super) layer: Tree<LeafMark>,
    /// Holders of each leaf of the layer.
    ledger: Tree<Holders>,
    /// Holders of presence containers, which have no leaf of their own.
    presence: OrdMap<InstancePath, Holders>,
    /// Number of leaves of the layer, keys included.
    pub(super) leaves: usize,
}

/// Values of one leaf by two claims.
type Contradiction = (InstancePath, [(ClaimNumber, Value); 2]);

/// Lists what a claim gains and gives up.
pub(super) fn differences(
    old: &Tree<LeafMark>,
    new: &Tree<LeafMark>,
    number: ClaimNumber,
    parts: &mut Vec<Part>,
) {
    let part = |path: &InstancePath, value: Option<&Value>, gained| Part {
        number,
        path: path.clone(),
        value: value.cloned(),
        gained,
    };
    Tree::diff(old, new, &mut |path, change| match change {
        Change::Added(node) => {
            visit(node, &mut path.clone(), &mut |path, value| parts.push(part(path, value, true)));
        }
        Change::Removed(node) => {
            visit(node, &mut path.clone(), &mut |path, value| parts.push(part(path, value, false)));
        }
        Change::Leaf { old, new } if old.value != new.value => {
            parts.push(part(path, Some(&old.value), false));
            parts.push(part(path, Some(&new.value), true));
        }
        Change::Given(gained) if is_container(path) => parts.push(part(path, None, gained)),
        Change::Leaf { .. } | Change::Given(_) => {}
    });
}

/// True for the path of a container: entries have holders by their keys.
fn is_container(path: &InstancePath) -> bool {
    path.0.last().is_some_and(|step| step.keys.is_none())
}

/// Visits all leaves and presence containers below a node.
fn visit(
    node: NodeRef<'_, LeafMark>,
    path: &mut InstancePath,
    act: &mut dyn FnMut(&InstancePath, Option<&Value>),
) {
    match node {
        NodeRef::Leaf(leaf) => act(path, Some(&leaf.value)),
        NodeRef::Branch(branch) => {
            if branch.given && is_container(path) {
                act(path, None);
            }
            for (node, child) in branch.children() {
                path.0.push(Step::node(*node));
                visit(child.into(), path, act);
                path.0.pop();
            }
        }
        NodeRef::List(list) => {
            let Some(step) = path.0.pop() else { return };
            for (keys, entry) in list.iter() {
                path.0.push(Step::entry(step.node, keys.clone()));
                visit(NodeRef::Branch(entry), path, act);
                path.0.pop();
            }
            path.0.push(step);
        }
    }
}

impl Join {
    /// Applies what claims give up, then what they gain, so that a value that all holders change together does not
    /// contradict. Returns the contradictions of the result.
    pub(super) fn apply(&mut self, schema: &Schema, parts: Vec<Part>) -> Vec<Contradiction> {
        if parts.is_empty() {
            return Vec::new();
        }
        let before = (self.layer.clone(), self.ledger.clone());
        let (mut gained, lost): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.gained);
        for Part { number, path, value, .. } in lost {
            match value {
                Some(_) => self.release_leaf(schema, &path, number),
                None => self.release_presence(schema, &path, number),
            }
        }
        let mut contradictions = BTreeMap::new();
        // Entries come before what is in them, outer ones first, so that each is made by its own keys.
        let is_key =
            |path: &InstancePath| path.last().is_some_and(|it| schema.is_list_key(it.node));
        gained.sort_by_key(|part| (!is_key(&part.path), part.path.0.len()));
        for Part { number, path, value, .. } in gained {
            let Some(value) = value else {
                self.hold_presence(schema, &path, number);
                continue;
            };
            if let Some(existing) = self.hold_leaf(schema, &path, &value, number) {
                contradictions.entry(path).or_insert([existing, (number, value)]);
            }
        }
        self.layer = std::mem::take(&mut self.layer).sharing(&before.0);
        self.ledger = std::mem::take(&mut self.ledger).sharing(&before.1);
        contradictions.into_iter().collect()
    }

    /// Adds a holder to a leaf. If the leaf has another value, nothing changes, and one of its holders is returned
    /// with that value.
    fn hold_leaf(
        &mut self,
        schema: &Schema,
        path: &InstancePath,
        value: &Value,
        number: ClaimNumber,
    ) -> Option<(ClaimNumber, Value)> {
        let existing = self.ledger.leaf(path);
        let mut holders = match existing {
            Some(leaf) if leaf.value != *value => {
                let holder = leaf.meta.0.first().copied().unwrap_or(number);
                return Some((holder, leaf.value.clone()));
            }
            Some(leaf) => leaf.meta.clone(),
            None => Holders::default(),
        };
        let is_new = holders.0.is_empty();
        holders.insert(number);
        self.ledger.set_leaf(schema, path, Leaf::new(value.clone(), holders));
        if is_new {
            self.layer.set_leaf(schema, path, Leaf::new(value.clone(), LeafMark::Explicit));
            self.leaves += 1;
            if let Some(entry) = entry_of_key(schema, path) {
                self.set_given(schema, &entry.0, true);
                self.leaves +=
                    entry.0.last().and_then(|it| it.keys.as_ref()).map_or(0, |it| it.len() - 1);
            }
        }
        None
    }

    /// Removes a holder of a leaf, and the leaf with its last holder. An entry goes with its keys: every claim that holds
    /// something in it holds them, too.
    fn release_leaf(&mut self, schema: &Schema, path: &InstancePath, number: ClaimNumber) {
        let Some(leaf) = self.ledger.leaf(path) else { return };
        let mut leaf = leaf.clone();
        leaf.meta.remove(number);
        if !leaf.meta.0.is_empty() {
            self.ledger.set_leaf(schema, path, leaf);
            return;
        }
        let gone = entry_of_key(schema, path).unwrap_or_else(|| path.clone());
        self.leaves -= self.ledger.get(&gone).map_or(0, count_leaves);
        self.ledger.remove(schema, &gone);
        self.layer.remove(schema, &gone);
    }

    fn hold_presence(&mut self, schema: &Schema, path: &InstancePath, number: ClaimNumber) {
        let mut holders = self.presence.get(path).cloned().unwrap_or_default();
        holders.insert(number);
        self.presence.insert(path.clone(), holders);
        self.set_given(schema, &path.0, true);
    }

    fn release_presence(&mut self, schema: &Schema, path: &InstancePath, number: ClaimNumber) {
        let Some(mut holders) = self.presence.get(path).cloned() else { return };
        holders.remove(number);
        if !holders.0.is_empty() {
            self.presence.insert(path.clone(), holders);
            return;
        }
        self.presence.remove(path);
        // The container is gone with its entry, or stays while it has leaves.
        if self.layer.contains(path) {
            self.set_given(schema, &path.0, false);
            if self.layer.branch(path).is_some_and(|branch| branch.is_empty()) {
                self.layer.remove(schema, path);
                self.ledger.remove(schema, path);
            }
        }
    }

    fn set_given(&mut self, schema: &Schema, path: &[Step], given: bool) {
        self.layer.branch_mut(schema, path, &LeafMark::Explicit).given = given;
        self.ledger.branch_mut(schema, path, &Holders::default()).given = given;
    }

    /// Claims that hold something at or below a path. An entry has the holders of its keys, so that nothing below it is
    /// looked at.
    pub(super) fn holders_below(&self, path: &InstancePath) -> BTreeSet<ClaimNumber> {
        let mut found: BTreeSet<_> = self.holders(path).into_iter().collect();
        if is_container(path)
            && let Some(NodeRef::Branch(branch)) = self.ledger.get(path)
        {
            collect_holders(branch, &mut found);
        }
        found
    }

    /// Claims that hold a leaf, an entry by its keys, or a presence container.
    pub(super) fn holders(&self, path: &InstancePath) -> SmallVec<[ClaimNumber; 2]> {
        if let Some(Holders(numbers)) = self.presence.get(path) {
            return numbers.clone();
        }
        let leaf = match self.ledger.get(path) {
            Some(NodeRef::Leaf(leaf)) => Some(leaf),
            Some(NodeRef::Branch(entry)) if !is_container(path) => {
                // Keys come first in the order of a schema, and all of them have the holders of the entry.
                entry.children().iter().find_map(|(_, child)| match child {
                    Child::Leaf(leaf) => Some(leaf),
                    Child::Container(_) | Child::List(_) => None,
                })
            }
            _ => None,
        };
        leaf.map(|leaf| leaf.meta.0.clone()).unwrap_or_default()
    }
}

/// Adds the holders of all leaves of a branch.
fn collect_holders(branch: &Branch<Holders>, found: &mut BTreeSet<ClaimNumber>) {
    for (_, child) in branch.children() {
        match child {
            Child::Leaf(leaf) => found.extend(&leaf.meta.0),
            Child::Container(inner) => collect_holders(inner, found),
            Child::List(list) => list.iter().for_each(|(_, entry)| collect_holders(entry, found)),
        }
    }
}

/// Path of the entry whose key leaf is at `path`.
fn entry_of_key(schema: &Schema, path: &InstancePath) -> Option<InstancePath> {
    let (last, above) = path.0.split_last()?;
    schema.is_list_key(last.node).then(|| InstancePath(above.to_vec()))
}

fn count_leaves(node: NodeRef<'_, Holders>) -> usize {
    let mut leaves = 0;
    node.walk(&mut InstancePath::root(), &mut |_, _| leaves += 1);
    leaves
}
