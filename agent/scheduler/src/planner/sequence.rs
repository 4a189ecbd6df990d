//! Order without dependence: who comes first where both come, and goes first where both go.
//!
//! A plan is played without it, for only then it is known what comes and what goes. Where that turns out not to be in
//! order, it is played once more, and whoever is early waits until the other one is done. When nothing else can be done
//! any more, whoever still waits goes on out of order: nothing ever depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{CREATES, DELETES, Planner};
use crate::dependency::Target;
use crate::key::{FixedMap, Key, KeySet};
use crate::operation::Action;
use crate::overlay::{Spot, Want};
use crate::plan::PlannedOperation;
use crate::traits::Traits;

/// For what comes, and for what goes, the values that do so before it.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    creates: FixedMap<Key, Vec<Key>>,
    deletes: FixedMap<Key, Vec<Key>>,
    /// Whoever is early, and a value that it waits for.
    early: BTreeMap<Key, (Spot, Key)>,
    /// Who waits for each value; may name some that wait no longer.
    followers: FixedMap<Key, Vec<Spot>>,
    /// Those that went on out of order.
    released: KeySet,
}

impl Sequence {
    /// What the values of a plan that was played ask for.
    pub(super) fn of(planner: &Planner<'_>) -> Self {
        let mut sequence = Self::default();
        if !planner.overlay.ordered {
            return sequence;
        }
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        for op in &planner.operations {
            if op.action == Action::Create {
                come.extend(planner.overlay.node(op.spot).goal.traits().map(|it| (&op.key, &**it)));
            }
            let deleted = [&op.key].into_iter().filter(|_| op.action == Action::Delete);
            gone.extend(deleted.chain(&op.taken).filter_map(|key| Some((key, was(planner, key)?))));
        }
        for (first, then) in pairs(&come) {
            sequence.creates.entry(then).or_default().push(first);
        }
        for (last, before) in pairs(&gone) {
            sequence.deletes.entry(last).or_default().push(before);
        }
        sequence
    }

    /// Nobody asks for an order.
    fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.deletes.is_empty()
    }

    /// Whether these operations are in order.
    pub(super) fn is_kept(&self, operations: &[PlannedOperation]) -> bool {
        if self.is_empty() {
            return true;
        }
        let (creates, deletes) = places(operations);
        let kept = |all: &FixedMap<Key, Vec<Key>>, places: &FixedMap<&Key, u32>| {
            all.iter().all(|(then, firsts)| {
                firsts.iter().all(|first| places.get(first) <= places.get(then))
            })
        };
        kept(&self.creates, &creates) && kept(&self.deletes, &deletes)
    }

    /// Tells each operation which others are to be over before it, whatever became of them.
    pub(super) fn note(&self, operations: &mut [PlannedOperation]) {
        if self.is_empty() {
            return;
        }
        let (creates, deletes) = places(operations);
        let mut behind: Vec<(u32, u32)> = Vec::new();
        for (all, places) in [(&self.creates, &creates), (&self.deletes, &deletes)] {
            for (then, firsts) in all {
                let Some(&then) = places.get(then) else { continue };
                let firsts = firsts.iter().filter_map(|first| places.get(first));
                behind.extend(firsts.filter(|&&first| first < then).map(|&first| (then, first)));
            }
        }
        behind.sort_unstable();
        behind.dedup();
        for of_one in behind.chunk_by(|a, b| a.0 == b.0) {
            operations[of_one[0].0 as usize].behind = of_one.iter().map(|it| it.1).collect();
        }
    }
}

/// What the system had under a key, if it was ours.
fn was<'p>(planner: &'p Planner<'_>, key: &Key) -> Option<&'p Traits> {
    let graph = planner.overlay.graph;
    let node = graph.node(graph.find(key)?);
    node.live.as_deref().filter(|_| node.ours)
}

/// Of all these, each two of which the second one asks to be after the first.
fn pairs(all: &[(&Key, &Traits)]) -> Vec<(Key, Key)> {
    let mut wanted: FixedMap<&Target, Vec<&Key>> = FixedMap::default();
    for (key, traits) in all {
        for target in traits.order() {
            wanted.entry(target).or_default().push(key);
        }
    }
    let mut pairs = Vec::new();
    if wanted.is_empty() {
        return pairs;
    }
    let covering: BTreeSet<(u32, IpAddr)> = wanted.keys().filter_map(|it| address(it)).collect();
    for (key, traits) in all {
        for target in offered(key, traits, &covering) {
            let after = wanted.get(&target).into_iter().flatten().filter(|after| *after != key);
            pairs.extend(after.map(|&after| ((*key).clone(), after.clone())));
        }
    }
    pairs
}

fn address(target: &Target) -> Option<(u32, IpAddr)> {
    match target {
        Target::Covering { table, address } => Some((*table, *address)),
        _ => None,
    }
}

/// What a value offers, of addresses those that somebody wants covered.
fn offered(key: &Key, traits: &Traits, covering: &BTreeSet<(u32, IpAddr)>) -> Vec<Target> {
    let mut targets: Vec<Target> = key.prefixes().map(Target::Under).collect();
    targets.push(Target::Exact(key.clone()));
    targets.extend(traits.offers.keys().cloned());
    for &(table, prefix) in traits.prefixes() {
        let range = (table, prefix.network())..=(table, prefix.broadcast());
        let covered = covering.range(range);
        targets.extend(covered.map(|&(table, address)| Target::Covering { table, address }));
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Where in a plan each value comes, and where it goes.
fn places(operations: &[PlannedOperation]) -> (FixedMap<&Key, u32>, FixedMap<&Key, u32>) {
    let (mut creates, mut deletes) = (FixedMap::default(), FixedMap::default());
    for (at, op) in (0..).zip(operations) {
        match op.action {
            Action::Create => creates.insert(&op.key, at),
            Action::Delete => deletes.insert(&op.key, at),
            _ => None,
        };
        deletes.extend(op.taken.iter().map(|key| (key, at)));
    }
    (creates, deletes)
}

impl Planner<'_> {
    /// True when another value is to come, or to go, before this one; then it is tried again after that.
    pub(super) fn is_early(&mut self, spot: Spot) -> bool {
        let comes = matches!(self.overlay.node(spot).want, Want::Create);
        let sequence = &self.sequence;
        let all = if comes { &sequence.creates } else { &sequence.deletes };
        let key = &self.overlay.node(spot).key;
        let Some(firsts) = all.get(key).filter(|_| !sequence.released.contains(key)) else {
            return false;
        };
        let first = firsts.iter().find(|first| !self.has_passed(first, comes)).cloned();
        let key = key.clone();
        let Some(first) = first else {
            self.sequence.early.remove(&key);
            return false;
        };
        self.sequence.followers.entry(first.clone()).or_default().push(spot);
        self.sequence.early.insert(key, (spot, first));
        true
    }

    /// Whether a value has come, or gone, by this plan.
    fn has_passed(&self, key: &Key, comes: bool) -> bool {
        let Some(spot) = self.overlay.touched(key) else { return false };
        let node = self.overlay.node(spot);
        let op = node.op.map(|op| &self.operations[op as usize]);
        let made = op.is_some_and(|op| op.action == Action::Create && op.key == *key);
        if comes { made && node.live.is_some() } else { made || node.live.is_none() }
    }

    /// A value came or went: whoever waited for that may go on.
    pub(super) fn passed(&mut self, spot: Spot) {
        if self.sequence.followers.is_empty() {
            return;
        }
        let followers = self.sequence.followers.remove(&self.overlay.node(spot).key);
        for follower in followers.into_iter().flatten() {
            self.go_on(follower);
        }
    }

    fn go_on(&mut self, spot: Spot) {
        match self.overlay.node(spot).want {
            Want::Create => self.ready[CREATES].push(spot),
            Want::Delete => self.ready[DELETES].push(spot),
            _ => {}
        }
    }

    /// Has one that is early go on out of order: one that waits for something else than others that are early, or one
    /// of a circle.
    pub(super) fn release_early(&mut self) -> bool {
        let sequence = &mut self.sequence;
        let Some(mut key) = sequence.early.keys().next().cloned() else { return false };
        let mut seen = KeySet::default();
        while let Some((_, first)) = sequence.early.get(&key)
            && sequence.early.contains_key(first)
            && seen.insert(key.clone())
        {
            key = first.clone();
        }
        let Some((spot, _)) = sequence.early.remove(&key) else { return false };
        sequence.released.insert(key);
        self.go_on(spot);
        true
    }
}
