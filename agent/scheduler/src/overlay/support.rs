//! Transitive support: the values that would go if one value went.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Overlay, OverlayIdx, OverlayNode, OverlayTargetId, OverlayTargetIds, TargetRef};
use crate::dependency::Target;
use crate::graph::{Goal, TargetState};
use crate::key::{FixedMap, Key};
use crate::targets::provided_targets;
use crate::value_spec::ValueSpec;

/// Values visited in a search. Real chains are a handful long.
const SEARCHED_MOST: usize = 10_000;

/// A value that would go.
type Dependent = (Key, Arc<ValueSpec>);

impl Overlay<'_> {
    /// True when one of these targets is provided only by the value and its transitive dependents, so that nothing
    /// would provide it without the value.
    pub(crate) fn is_only_supported_by(&mut self, oidx: OverlayIdx, targets: &[&Target]) -> bool {
        let node = self.node(oidx);
        let Some(present) = node.present.clone() else { return false };
        let mut stack = vec![(node.key.clone(), present)];
        let mut lost_keys = BTreeSet::from([node.key.clone()]);
        let mut lost: FixedMap<OverlayTargetId, u32> = FixedMap::default();
        while let Some((key, present)) = stack.pop() {
            for target_id in self.offered_targets(&key, &present) {
                let count = lost.entry(target_id).or_default();
                *count += 1;
                if *count < self.target(target_id).providers {
                    continue;
                }
                if targets.contains(&&self.target_refs[target_id as usize].target) {
                    return true;
                }
                let mut dependents_of = self.dependents_of(target_id);
                dependents_of.retain(|(key, _)| {
                    lost_keys.len() < SEARCHED_MOST && lost_keys.insert(key.clone())
                });
                stack.extend(dependents_of);
            }
        }
        false
    }

    /// Watched targets that a value provides; an address once for each prefix that contains it.
    fn offered_targets(&mut self, key: &Key, present: &ValueSpec) -> OverlayTargetIds {
        let sets = [&self.graph.addresses, &self.reads.addresses];
        let targets = provided_targets(key, Some(present), &sets);
        self.reads.prefixes.extend(present.prefixes());
        targets.iter().filter_map(|target| self.existing_target_id(target)).collect()
    }

    /// Present values of ours that need a target, or are to need it.
    fn dependents_of(&mut self, target_id: OverlayTargetId) -> Vec<Dependent> {
        self.note_walked(target_id);
        let TargetRef { target, graph_id } = &self.target_refs[target_id as usize];
        let state = graph_id.map(|id| self.graph.target_at(id));
        let watchers = state.map_or_else(Default::default, TargetState::unique_watchers);
        let new_watchers = &self.target(target_id).new_watchers;
        let of_graph = watchers.iter().filter_map(|idx| match self.reads.by_idx.get(idx) {
            Some(&oidx) => self.node(oidx).as_dependent(target),
            None => {
                let node = self.graph.node(*idx);
                let present = node.present.as_ref().filter(|_| node.ours)?;
                as_dependent(&node.key, present, &node.goal, target)
            }
        });
        let new = new_watchers.iter().filter_map(|&oidx| self.node(oidx).as_dependent(target));
        let dependents_of = of_graph.chain(new).collect();
        self.edges += (watchers.len() + new_watchers.len()) as u64;
        dependents_of
    }
}

impl OverlayNode {
    fn as_dependent(&self, target: &Target) -> Option<Dependent> {
        as_dependent(&self.key, self.present.as_ref().filter(|_| self.ours)?, &self.goal, target)
    }
}

/// Counts the goal as well: a late notification may show a value without what the intended one needs.
fn as_dependent(
    key: &Key,
    present: &Arc<ValueSpec>,
    goal: &Goal,
    target: &Target,
) -> Option<Dependent> {
    let needs = |spec: &ValueSpec| !spec.needs_of(target).is_empty();
    let is_dependent = needs(present) || goal.spec().is_some_and(|goal| needs(goal));
    is_dependent.then(|| (key.clone(), Arc::clone(present)))
}
