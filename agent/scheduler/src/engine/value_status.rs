//! Statuses and states of values.

use std::ops::Range;
use std::sync::Arc;

use crate::change::Owner;
use crate::dependency::Target;
use crate::descriptor::catch_panic;
use crate::engine::Engine;
use crate::graph::{Goal, Node, NodeIdx, Source};
use crate::key::{FixedMap, Key, KindId};
use crate::operation::ErrorClass;
use crate::sorted_map::SortedMap;
use crate::status::{Detail, Repair, ValueState, ValueStatus};

/// Values visited in search of a dependency cycle.
const CYCLE_SEARCHED: usize = 10_000;

impl Engine {
    /// Status of one value; `None` for a key the engine has never seen.
    pub fn status(&self, key: &Key) -> Option<ValueStatus> {
        self.graph.find(key).map(|idx| self.status_of(idx, true))
    }

    /// The state of one value. Cheaper than [`Engine::status`].
    pub fn state(&self, key: &Key) -> ValueState {
        self.graph
            .find(key)
            .map_or(ValueState::Nonexistent, |idx| self.state_of(idx, self.graph.node(idx)))
    }

    /// All values, ascending by key. Properties show as parts of their values only.
    pub fn statuses(&self) -> Vec<ValueStatus> {
        self.sorted(self.graph.nodes().map(|(idx, _)| idx).collect())
    }

    /// Values that are intended and not in place, or drifted, or reduced, or have an error, ascending by key. Costs as much as it
    /// returns.
    pub fn pending(&self) -> Vec<ValueStatus> {
        self.sorted(self.graph.unsettled.all().to_vec())
    }

    /// Number of the values that [`Engine::pending`] returns.
    pub fn pending_count(&self) -> usize {
        self.graph.unsettled.all().len()
    }

    /// Number of places of values, used or free, for [`Engine::pending_keys`].
    pub fn places(&self) -> u32 {
        self.graph.slots()
    }

    /// Keys of the values that [`Engine::pending`] returns, of those in a range of places, in no order. A value keeps its place, so a
    /// caller that lets events in between two ranges sees each one that is pending all the time.
    pub fn pending_keys(&self, places: Range<u32>) -> impl Iterator<Item = &Key> {
        let nodes = self.graph.nodes_in(places);
        nodes.filter(|(idx, _)| self.graph.unsettled.contains(*idx)).map(|(_, node)| &node.key)
    }

    /// Number of values in each state.
    pub fn state_counts(&self) -> Vec<(ValueState, usize)> {
        self.state_counts_of(|_| true)
    }

    /// Number of values of some kinds in each state.
    pub fn state_counts_of(&self, is_counted: impl Fn(KindId) -> bool) -> Vec<(ValueState, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for (idx, node) in self.graph.nodes().filter(|(_, node)| is_counted(node.key.kind())) {
            *counts.entry(self.state_of(idx, node)).or_insert(0) += 1;
        }
        counts.into_iter().filter(|&(state, _)| state != ValueState::Nonexistent).collect()
    }

    fn sorted(&self, mut indexes: Vec<NodeIdx>) -> Vec<ValueStatus> {
        indexes.retain(|&idx| self.state_of(idx, self.graph.node(idx)) != ValueState::Nonexistent);
        indexes.sort_unstable_by(|&a, &b| self.graph.node(a).key.cmp(&self.graph.node(b).key));
        indexes.into_iter().map(|idx| self.status_of(idx, false)).collect()
    }

    pub(crate) fn state_of(&self, idx: NodeIdx, node: &Node) -> ValueState {
        let retry = node.retry.as_ref();
        let failed = retry.filter(|retry| retry.error.is_some());
        let failed =
            failed.map(
                |retry| if retry.is_due_soon() { ValueState::Retrying } else { ValueState::Failed },
            );
        let drifted = || match (&node.applied, &node.observed) {
            (Some(applied), Some(observed)) => !self.graph.satisfied(&node.key, applied, observed),
            _ => false,
        };
        match &node.goal {
            _ if node.running_op().is_some() => ValueState::InProgress,
            Goal::Nothing if node.present.is_none() => ValueState::Nonexistent,
            Goal::Nothing if node.applied.is_none() => ValueState::Obtained,
            Goal::Nothing => failed.unwrap_or(ValueState::InProgress),
            Goal::Refused(..) if node.goal.is_unimplemented() => ValueState::Unimplemented,
            Goal::Refused(..) => ValueState::Invalid,
            Goal::Valid(..) if node.present.is_none() && self.graph.count_unmet(idx) > 0 => {
                ValueState::Pending
            }
            Goal::Valid(..) if self.claim_holder(idx).is_some() => ValueState::Conflict,
            Goal::Valid(..) if self.is_prevented_by_another(idx, node) => ValueState::Pending,
            Goal::Valid(..) if failed.is_some() => failed.unwrap_or(ValueState::Failed),
            Goal::Valid(..) if node.present.is_none() && node.applied.is_some() => {
                ValueState::Missing
            }
            Goal::Valid(..) if node.present.is_none() => ValueState::Pending,
            Goal::Valid(..) if drifted() => ValueState::Drifted,
            Goal::Valid(goal, _)
                if node.applied.as_ref().is_some_and(|applied| Arc::ptr_eq(applied, goal)) =>
            {
                ValueState::Configured
            }
            Goal::Valid(..) => ValueState::Pending,
        }
    }

    fn status_of(&self, idx: NodeIdx, alone: bool) -> ValueStatus {
        let node = self.graph.node(idx);
        let parts = node.present.as_ref().or(node.goal.spec());
        let keys = parts.iter().flat_map(|spec| {
            let parts = spec.parts().into_iter().flat_map(SortedMap::keys);
            parts.chain(spec.properties())
        });
        let mut parts: Vec<Key> = keys.cloned().collect();
        parts.sort_unstable();
        let mut detail = self.detail(idx, node, alone);
        let state = match self.state_of(idx, node) {
            ValueState::Pending if !detail.cycle.is_empty() => ValueState::Cyclic,
            state => state,
        };
        if state == ValueState::Drifted {
            detail.drift = self.drift_of(node);
        }
        if matches!(state, ValueState::Missing | ValueState::Drifted) {
            detail.repair = self.repair_of(idx, node);
        }
        ValueStatus {
            key: node.key.clone(),
            label: self.graph.label(&node.key),
            state,
            detail,
            last: node.last,
            intended: node.goal.requested().cloned(),
            applied: node.applied.clone(),
            observed: node.observed.clone(),
            part_of: node.sources.iter().filter_map(|(source, _)| whole(source)).cloned().collect(),
            parts,
        }
    }

    fn detail(&self, idx: NodeIdx, node: &Node, alone: bool) -> Detail {
        let retry = node.retry.as_ref();
        let is_lacking = self.graph.count_unmet(idx) > 0;
        let waits = node.present.is_none() || is_lacking || node.goal.is_partial();
        let unmet = self.graph.unmet(idx).filter(|_| waits);
        Detail {
            unmet: unmet.map(|(_, label)| label.to_owned()).collect(),
            cycle: if alone && waits && is_lacking { self.cycle_through(idx) } else { Vec::new() },
            conflict: self
                .claim_holder(idx)
                .or_else(|| conflicting_source(node).and_then(whole).cloned()),
            other_owner: conflicting_source(node).and_then(owner).cloned(),
            invalid: node.goal.invalid().cloned(),
            drift: None,
            error: retry.and_then(|retry| retry.error.clone()),
            attempts: retry.map_or(0, |retry| retry.attempts),
            retry_at: retry.filter(|retry| retry.error.is_some()).and_then(|retry| retry.due),
            repair: None,
        }
    }

    /// Next step for a value that is not in the system as it was applied.
    fn repair_of(&self, idx: NodeIdx, node: &Node) -> Option<Repair> {
        if self.graph.is_drift_tolerated(idx) {
            return Some(Repair::Left);
        }
        let retry = node.retry.as_ref().filter(|it| it.error.is_none())?;
        let number = retry.repairs.saturating_add(1);
        Some(Repair::Due { at: retry.due?, number })
    }

    fn drift_of(&self, node: &Node) -> Option<String> {
        let (applied, observed) = node.applied.as_ref().zip(node.observed.as_ref())?;
        let descriptor = self.graph.registry.descriptor(node.key.kind())?;
        catch_panic(|| descriptor.drift(&**applied, &**observed)).ok().flatten()
    }

    /// True for a value that was refused because of the state of another object.
    fn is_prevented_by_another(&self, idx: NodeIdx, node: &Node) -> bool {
        let error = node.retry.as_ref().and_then(|retry| retry.error.as_ref());
        error.is_some_and(|error| self.classify(idx, error) == ErrorClass::Unmet)
    }

    /// Holder of an identity that the value claims and does not have.
    pub(crate) fn claim_holder(&self, idx: NodeIdx) -> Option<Key> {
        let node = self.graph.node(idx);
        if node.in_place() {
            return None;
        }
        let claims = node.goal.spec().map_or(&[][..], |spec| spec.claims());
        let holder = claims.iter().find_map(|claim| self.graph.rival(claim, idx));
        holder.map(|holder| self.graph.node(holder).key.clone())
    }

    /// A shortest cycle of values that wait for one another, through this one.
    fn cycle_through(&self, start: NodeIdx) -> Vec<Key> {
        let mut came_from: FixedMap<NodeIdx, NodeIdx> = FixedMap::default();
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(idx) = queue.pop_front() {
            for (target, _) in self.graph.unmet(idx) {
                let Target::Exact(key) = target else { continue };
                let Some(next) = self.graph.find(key) else { continue };
                if next == start {
                    return self.cycle_path(idx, start, &came_from);
                }
                if self.graph.node(next).present.is_none() && !came_from.contains_key(&next) {
                    came_from.insert(next, idx);
                    queue.push_back(next);
                }
            }
            if came_from.len() > CYCLE_SEARCHED {
                break;
            }
        }
        Vec::new()
    }

    fn cycle_path(
        &self,
        last: NodeIdx,
        start: NodeIdx,
        came_from: &FixedMap<NodeIdx, NodeIdx>,
    ) -> Vec<Key> {
        let mut path = vec![last];
        while let Some(&before) =
            path.last().filter(|&&idx| idx != start).and_then(|idx| came_from.get(idx))
        {
            path.push(before);
        }
        path.reverse();
        path.into_iter().map(|idx| self.graph.node(idx).key.clone()).collect()
    }
}

fn whole(source: &Source) -> Option<&Key> {
    match source {
        Source::Direct | Source::Of(_) => None,
        Source::Part(key) => Some(key),
    }
}

fn owner(source: &Source) -> Option<&Owner> {
    match source {
        Source::Of(owner) => Some(owner),
        Source::Direct | Source::Part(_) => None,
    }
}

/// Owner or whole that asks for another value than the one that counts.
fn conflicting_source(node: &Node) -> Option<&Source> {
    let ((_, first), others) = node.sources.split_first()?;
    let mut owned = others.iter().filter(|(source, _)| *source != Source::Direct);
    let (source, _) = owned.find(|(_, value)| !first.same(&**value))?;
    Some(source)
}
