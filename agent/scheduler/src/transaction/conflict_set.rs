//! Conflicts between transactions: two may run side by side when neither changes what the other relies on.
//!
//! A set answers for one value whether changing it conflicts with the plan or transaction that it was made of, at the cost
//! of some lookups. To make one takes as long as there are values, so it is made in portions.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use smallvec::SmallVec;

use crate::dependency::{Facet, Space, Target};
use crate::graph::{Graph, NodeIdx};
use crate::key::{FixedMap, FixedSet, Key, KeySet};
use crate::operation::Action;
use crate::plan::Plan;
use crate::planned_operation::PlannedOperation;
use crate::sorted_map::SortedMap;
use crate::targets::{PrefixTable, TargetIndex};
use crate::value_spec::ValueSpec;

/// A plan that has not begun, or a transaction in flight.
pub(crate) trait Subject {
    fn operations(&self) -> &[PlannedOperation];

    /// Number of values.
    fn values(&self) -> usize;

    /// Value at an index, unless it bears on nothing.
    fn value<'a>(&'a self, graph: &'a Graph, at: usize) -> Option<ValueChange<'a>>;
}

/// A value, as it is and as it is to be.
pub(crate) struct ValueChange<'a> {
    key: &'a Key,
    present: Option<&'a ValueSpec>,
    goal: Option<&'a ValueSpec>,
}

/// Target, or prefix of a table, that a value begins or ceases to provide.
enum Provided<'a> {
    Target(&'a Target),
    Prefix(Space, IpNet),
}

/// Portion of a step of the engine that is left for conflicts.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Operations and values that may still be looked at.
    pub(crate) left: usize,
}

/// Keys that go, even if they are created again: their targets lose a provider for a moment.
#[derive(Debug, Default)]
pub(crate) struct GoingKeys {
    keys: KeySet,
    /// Number of operations that are in the set.
    done: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ConflictSet {
    keys: BTreeSet<Key>,
    going: GoingKeys,
    /// Targets needed by its values, before or after.
    needs: TargetIndex<()>,
    /// Targets that gain or lose (true) a provider.
    moves: FixedMap<Target, bool>,
    prefixes: PrefixTable<bool>,
    claims: FixedSet<Facet>,
    /// Number of values that are in the set.
    done: usize,
}

impl Subject for Plan {
    fn operations(&self) -> &[PlannedOperation] {
        &self.operations
    }

    fn values(&self) -> usize {
        self.nodes.len()
    }

    fn value<'a>(&'a self, graph: &'a Graph, at: usize) -> Option<ValueChange<'a>> {
        let node = self.nodes.get(at).filter(|node| !node.is_bystander)?;
        let present = node.idx.and_then(|idx| graph.node(idx).present.as_deref());
        let goal = node.goal.spec().map(|spec| &**spec);
        Some(ValueChange { key: &node.key, present, goal })
    }
}

/// Nodes that a transaction has reserved, and its operations.
pub(crate) struct ReservedNodes<'t> {
    pub(super) nodes: &'t [NodeIdx],
    pub(super) operations: &'t [PlannedOperation],
}

impl Subject for ReservedNodes<'_> {
    fn operations(&self) -> &[PlannedOperation] {
        self.operations
    }

    fn values(&self) -> usize {
        self.nodes.len()
    }

    fn value<'a>(&'a self, graph: &'a Graph, at: usize) -> Option<ValueChange<'a>> {
        let node = graph.node(*self.nodes.get(at)?);
        let goal = node.goal.spec().map(|spec| &**spec);
        Some(ValueChange { key: &node.key, present: node.present.as_deref(), goal })
    }
}

impl Budget {
    /// Takes one item from the budget. False when it is used up.
    pub(super) fn spend(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left -= usize::from(is_left);
        is_left
    }
}

impl GoingKeys {
    /// Adds the keys of the operations that are not in the set. False when the budget ends before.
    pub(super) fn complete(
        &mut self,
        operations: &[PlannedOperation],
        budget: &mut Budget,
    ) -> bool {
        while let Some(operation) = operations.get(self.done) {
            if !budget.spend() {
                return false;
            }
            self.done += 1;
            if operation.action == Action::Delete {
                self.keys.extend(operation.cascaded.iter().chain([&operation.key]).cloned());
            }
        }
        true
    }
}

impl ValueChange<'_> {
    /// Specs of the value, before and after.
    fn specs(&self) -> impl Iterator<Item = &ValueSpec> {
        let full = self.goal.and_then(|goal| goal.full()).map(|(_, full)| &**full);
        self.present.into_iter().chain(self.goal).chain(full)
    }

    /// Targets and prefixes that the value begins or ceases (true) to provide, besides its key.
    fn moves(&self, going: &GoingKeys) -> SmallVec<[(Provided<'_>, bool); 4]> {
        let stays = self.goal.filter(|_| !going.keys.contains(self.key));
        let gone = only_of(self.present, stays).map(|it| (it, true));
        let come = only_of(self.goal, self.present).map(|it| (it, false));
        gone.chain(come).collect()
    }
}

/// Targets and prefixes that `spec` provides and `other` does not.
fn only_of<'s>(
    spec: Option<&'s ValueSpec>,
    other: Option<&'s ValueSpec>,
) -> impl Iterator<Item = Provided<'s>> {
    spec.into_iter().flat_map(move |spec| {
        let offers = SortedMap::difference(Some(&spec.offers), other.map(|it| &it.offers));
        let offers = offers.into_iter().filter(|it| it.new.is_none());
        let has = move |prefix| other.is_some_and(|it| it.prefixes().binary_search(prefix).is_ok());
        let prefixes = spec.prefixes().iter().filter(move |prefix| !has(prefix));
        let targets = offers.map(|it| Provided::Target(it.key));
        targets.chain(prefixes.map(|&(space, prefix)| Provided::Prefix(space, prefix)))
    })
}

impl ConflictSet {
    /// Number of values that are in the set.
    pub(super) fn len(&self) -> usize {
        self.done
    }

    /// Adds what is missing of its subject. False when the budget ends before.
    pub(crate) fn complete(
        &mut self,
        graph: &Graph,
        subject: &impl Subject,
        budget: &mut Budget,
    ) -> bool {
        if !self.going.complete(subject.operations(), budget) {
            return false;
        }
        while self.done < subject.values() {
            if !budget.spend() {
                return false;
            }
            if let Some(change) = subject.value(graph, self.done) {
                self.add(&change);
            }
            self.done += 1;
        }
        true
    }

    fn add(&mut self, change: &ValueChange<'_>) {
        self.keys.insert(change.key.clone());
        for spec in change.specs() {
            self.claims.extend(spec.claims().iter().map(|claim| claim.identity.clone()));
            for need in &spec.needs {
                self.needs.entry(&need.target);
            }
        }
        for (provided, goes) in change.moves(&self.going) {
            let entry = match provided {
                Provided::Target(target) => self.moves.entry(target.clone()).or_default(),
                Provided::Prefix(space, prefix) => self.prefixes.entry(space, prefix),
            };
            *entry |= goes;
        }
    }

    /// True when the change of a value conflicts with the set; `going` are the keys of its own plan that go.
    pub(super) fn conflicts_with(&self, change: &ValueChange<'_>, going: &GoingKeys) -> bool {
        let specs = || change.specs();
        self.keys.contains(change.key)
            || specs()
                .flat_map(ValueSpec::claims)
                .any(|claim| self.claims.contains(&claim.identity))
            || specs().flat_map(|spec| &spec.needs).any(|need| self.changes(&need.target))
            || self.relies_on(change, going)
    }

    /// True when the set changes the providers of a target.
    fn changes(&self, target: &Target) -> bool {
        let is_moved = || self.moves.contains_key(target);
        match target {
            Target::Exact(key) => self.keys.contains(key) || is_moved(),
            Target::Under(prefix) => self.has_key_under(prefix) || is_moved(),
            Target::Covering { space, address } => {
                self.has_covering(*space, *address) || is_moved()
            }
            Target::AnyOf(_) | Target::Whole(_) => is_moved(),
        }
    }

    fn has_key_under(&self, prefix: &Key) -> bool {
        self.keys.range(prefix..).next().is_some_and(|key| key.starts_with(prefix))
    }

    fn has_covering(&self, space: Space, address: IpAddr) -> bool {
        self.prefixes.covering(space, address).next().is_some()
    }

    /// True when the set needs what the change of a value provides or takes away, or when both might remove the last two
    /// providers of a target at the same time.
    fn relies_on(&self, change: &ValueChange<'_>, going: &GoingKeys) -> bool {
        let moves = |(provided, goes): (Provided<'_>, bool)| match provided {
            Provided::Target(target) => {
                self.needs.contains(target)
                    || self.moves.get(target).is_some_and(|other| goes || *other)
            }
            Provided::Prefix(space, prefix) => {
                self.needs.has_within(space, prefix)
                    || self.prefixes.get(space, prefix).is_some_and(|other| goes || *other)
            }
        };
        self.needs.contains(&Target::Exact(change.key.clone()))
            || self.needs.has_under(change.key)
            || change.moves(going).into_iter().any(moves)
    }
}
