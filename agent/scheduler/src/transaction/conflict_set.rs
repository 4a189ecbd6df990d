//! Conflicts between transactions: two may run side by side when neither changes what the other relies on.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;

use ipnet::IpNet;

use super::{Phase, Transaction};
use crate::dependency::{Claim, Target};
use crate::engine::Engine;
use crate::graph::{Graph, NodeIdx};
use crate::key::{FixedHasher, FixedMap, Key, KeySet};
use crate::operation::{Action, TxnId};
use crate::plan::{Plan, PlannedOperation};
use crate::sorted_map::SortedMap;
use crate::targets::TargetIndex;
use crate::value_spec::ValueSpec;

type FixedSet<T> = HashSet<T, BuildHasherDefault<FixedHasher>>;

#[derive(Debug, Default)]
pub(crate) struct ConflictSet {
    keys: KeySet,
    /// Keys that go, even if they are created again: their targets lose a provider for a moment.
    leaves: KeySet,
    /// Targets needed by its values, before or after.
    needs: TargetIndex<()>,
    /// Targets that gain or lose (true) a provider.
    moves: FixedMap<Target, bool>,
    prefixes: BTreeMap<(u32, IpNet), bool>,
    claims: FixedSet<Claim>,
}

impl ConflictSet {
    /// Conflict set of a plan that has not begun.
    pub(crate) fn of_plan(graph: &Graph, plan: &Plan) -> Self {
        let mut conflict_set = Self::with_removed_keys(plan.operations.iter());
        for node in plan.nodes.iter().filter(|node| !node.is_bystander) {
            let present = node.idx.and_then(|idx| graph.node(idx).present.as_deref());
            let goal = node.goal.spec().map(|spec| &**spec);
            conflict_set.add(&node.key, present, goal);
        }
        conflict_set
    }

    fn of_nodes(graph: &Graph, nodes: &[NodeIdx], operations: &[PlannedOperation]) -> Self {
        let mut conflict_set = Self::with_removed_keys(operations.iter());
        for &idx in nodes {
            let node = graph.node(idx);
            let goal = node.goal.spec().map(|spec| &**spec);
            conflict_set.add(&node.key, node.present.as_deref(), goal);
        }
        conflict_set
    }

    fn with_removed_keys<'a>(operations: impl Iterator<Item = &'a PlannedOperation>) -> Self {
        let deletes = operations.filter(|op| op.action == Action::Delete);
        let keys = deletes.flat_map(|op| op.cascaded.iter().chain([&op.key]));
        Self { leaves: keys.cloned().collect(), ..Self::default() }
    }

    fn add(&mut self, key: &Key, present: Option<&ValueSpec>, goal: Option<&ValueSpec>) {
        self.keys.insert(key.clone());
        let full = goal.and_then(|goal| goal.full()).map(|(_, full)| &**full);
        for spec in present.into_iter().chain(goal).chain(full) {
            self.claims.extend(spec.claims().iter().cloned());
            for need in &spec.needs {
                self.needs.entry(&need.target);
            }
        }
        let stays = goal.filter(|_| !self.leaves.contains(key));
        self.provider_changes(present, stays, true);
        self.provider_changes(goal, present, false);
    }

    /// Adds the targets that `from` provides and `to` does not.
    fn provider_changes(&mut self, from: Option<&ValueSpec>, to: Option<&ValueSpec>, goes: bool) {
        let Some(from) = from else { return };
        let offers = SortedMap::difference(Some(&from.offers), to.map(|to| &to.offers));
        for offer in offers.iter().filter(|offer| offer.new.is_none()) {
            *self.moves.entry(offer.key.clone()).or_default() |= goes;
        }
        for prefix in from.prefixes() {
            if to.is_none_or(|to| to.prefixes().binary_search(prefix).is_err()) {
                *self.prefixes.entry(*prefix).or_default() |= goes;
            }
        }
    }

    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        intersect(&self.keys, &other.keys)
            || intersect(&self.claims, &other.claims)
            || self.relies_on(other)
            || other.relies_on(self)
            || self.may_remove_last(other)
    }

    /// True when the other transaction changes a target that this one needs.
    fn relies_on(&self, other: &Self) -> bool {
        let (needs, keys) = (&self.needs, &other.keys);
        let values = if keys.len() < needs.len() {
            keys.iter().any(|key| needs.contains(&Target::Exact(key.clone())))
        } else {
            needs.targets().any(|need| matches!(need, Target::Exact(key) if keys.contains(key)))
        };
        let offers = if other.moves.len() < needs.len() {
            other.moves.keys().any(|target| needs.contains(target))
        } else {
            needs.targets().any(|need| other.moves.contains_key(need))
        };
        let covered = other.prefixes.keys().any(|&(table, prefix)| needs.has_within(table, prefix));
        let under = keys.iter().any(|key| needs.has_under(key));
        values || offers || covered || under
    }

    /// True when both might remove the last two providers of a target at the same time.
    fn may_remove_last(&self, other: &Self) -> bool {
        let (few, many) =
            if self.moves.len() < other.moves.len() { (self, other) } else { (other, self) };
        let offers = few
            .moves
            .iter()
            .any(|(target, goes)| many.moves.get(target).is_some_and(|other| *goes || *other));
        let prefixes = self
            .prefixes
            .iter()
            .any(|(prefix, goes)| other.prefixes.get(prefix).is_some_and(|other| *goes || *other));
        offers || prefixes
    }
}

fn intersect<T: Eq + std::hash::Hash>(a: &FixedSet<T>, b: &FixedSet<T>) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.iter().any(|item| many.contains(item))
}

impl Transaction {
    /// True when this transaction conflicts with the set. During a rollback, transactions that only wait for reads do
    /// not conflict.
    fn conflicts_with(&mut self, graph: &Graph, of: &ConflictSet, going_back: bool) -> bool {
        if going_back && matches!(self.phase, Phase::Settling { .. }) {
            return false;
        }
        let (reserved, operations) = (&self.reserved, &self.operations);
        let conflict_set = self
            .conflict_set
            .get_or_insert_with(|| ConflictSet::of_nodes(graph, reserved, operations));
        conflict_set.conflicts(of)
    }
}

impl Engine {
    /// Transaction in flight that conflicts with a plan. Costs nothing while there is none.
    pub(crate) fn conflicting_transaction(
        &mut self,
        plan: &Plan,
        going_back: Option<TxnId>,
    ) -> Option<TxnId> {
        let mut others = self.running.iter_mut().filter(|it| Some(it.txn) != going_back).peekable();
        others.peek()?;
        let conflict_set = ConflictSet::of_plan(&self.graph, plan);
        others.find_map(|it| {
            it.conflicts_with(&self.graph, &conflict_set, going_back.is_some()).then_some(it.txn)
        })
    }
}
