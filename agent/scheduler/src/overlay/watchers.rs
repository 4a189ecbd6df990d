//! Notification of watchers when a target is gained or lost, and the dependents of a target.

use smallvec::SmallVec;

use super::{Overlay, OverlayIdx, OverlayTarget, OverlayTargetId, TargetRef};
use crate::dependency::Target;
use crate::graph::{NodeIdx, TargetState};
use crate::planned_operation::Cause;
use crate::value_spec::ValueSpec;

/// Number of watchers up to which no memory is reserved before notifying.
const WATCHERS_FEW: usize = 64;

/// Notification of all watchers of a target that was gained or lost, one at a time.
#[derive(Debug)]
pub(crate) struct Notification {
    target_id: OverlayTargetId,
    target: Target,
    /// True when the target was gained.
    there: bool,
    /// Nodes with a new goal that are still to be notified, and nodes of the graph.
    new: SmallVec<[OverlayIdx; 4]>,
    of_graph: SmallVec<[NodeIdx; 4]>,
}

/// Search for the present dependents of a target, one watcher at a time.
#[derive(Debug)]
pub(crate) struct Gathering {
    target: Target,
    /// Nodes with a new goal that are still to be looked at, and nodes of the graph.
    new: Vec<OverlayIdx>,
    of_graph: Vec<NodeIdx>,
    found: Vec<OverlayIdx>,
}

impl Overlay<'_> {
    /// Records that the plan depends on the watchers and dependents of a target.
    pub(super) fn note_walked(&mut self, target_id: OverlayTargetId) {
        if let Some(graph_id) = self.target_refs[target_id as usize].graph_id {
            self.reads.note_walked(graph_id);
        }
    }

    /// State of a target whose dependents are to be read.
    pub(crate) fn walked_target(&mut self, target_id: OverlayTargetId) -> &OverlayTarget {
        self.note_walked(target_id);
        self.target(target_id)
    }

    /// Leaves it to the planner to notify the watchers of a target that was gained or lost: they may be many.
    pub(super) fn notify_watchers(&mut self, target_id: OverlayTargetId, there: bool) {
        self.note_walked(target_id);
        let graph_id = self.target_refs[target_id as usize].graph_id;
        if graph_id.is_some() || !self.target(target_id).new_watchers.is_empty() {
            self.ready_changes.notifications.push((target_id, there));
        }
    }

    /// Begins to notify the watchers of a target. `None` when it has turned again meanwhile, or nothing watches it.
    pub(crate) fn notification(
        &mut self,
        target_id: OverlayTargetId,
        there: bool,
    ) -> Option<Notification> {
        let graph = self.graph;
        let state = &mut self.targets[target_id as usize];
        if there != (state.providers > 0) {
            return None;
        }
        if !state.new_watchers.is_sorted_by(|a, b| a < b) {
            state.new_watchers.sort_unstable();
            state.new_watchers.dedup();
        }
        let mut new = state.new_watchers.clone();
        let TargetRef { target, graph_id } = &self.target_refs[target_id as usize];
        let target = target.clone();
        let state = graph_id.map(|id| graph.target_at(id));
        let watchers = state.map_or_else(Default::default, TargetState::unique_watchers);
        if watchers.len() > WATCHERS_FEW {
            self.reserve_known(watchers.len());
        }
        let mut of_graph = SmallVec::from_slice(&watchers);
        new.reverse();
        of_graph.reverse();
        let some = !new.is_empty() || !of_graph.is_empty();
        some.then_some(Notification { target_id, target, there, new, of_graph })
    }

    /// Notifies one watcher. False when there are no more.
    pub(crate) fn notify_next(&mut self, notification: &mut Notification) -> bool {
        let Notification { target_id, target, there, new, of_graph } = notification;
        self.edges += 1;
        if let Some(oidx) = new.pop() {
            self.notify(oidx, *target_id, target, *there);
        } else if let Some(idx) = of_graph.pop() {
            self.notify_watcher(idx, *target_id, target, *there);
        }
        !new.is_empty() || !of_graph.is_empty()
    }

    fn notify_watcher(
        &mut self,
        idx: NodeIdx,
        target_id: OverlayTargetId,
        target: &Target,
        there: bool,
    ) {
        match self.reads.by_idx.get(&idx) {
            // A node with a new goal is among the new watchers; this entry counts for its present value only.
            Some(&oidx) if self.node(oidx).changed => self.notify_if_lost(oidx, target, there),
            Some(&oidx) => self.notify(oidx, target_id, target, there),
            None if self.must_notify(idx, there) => {
                // The copy is counted correctly: the target has changed already.
                let oidx = self.copy(idx);
                self.node_mut(oidx).cause = Cause::Unblocked;
                if there {
                    self.ready_changes.ready.push(oidx);
                } else {
                    self.notify_if_lost(oidx, target, there);
                }
            }
            None => {}
        }
    }

    /// True when an untouched node must be notified: a pending one of a gain, a present one of a loss.
    fn must_notify(&self, idx: NodeIdx, there: bool) -> bool {
        let node = self.graph.node(idx);
        if there {
            node.goal.spec().is_some() && (!node.in_place() || node.goal.is_partial())
        } else {
            node.ours && node.present.is_some()
        }
    }

    /// Counts the unmet dependencies of a node again. A node may have been copied, and counted, since the target changed.
    fn notify(
        &mut self,
        oidx: OverlayIdx,
        target_id: OverlayTargetId,
        target: &Target,
        there: bool,
    ) {
        let need_targets = &self.node(oidx).need_targets;
        let is_needed = need_targets.contains(&target_id);
        if is_needed {
            let unmet = need_targets.iter().filter(|&&it| self.target(it).providers == 0).count();
            self.node_mut(oidx).unmet = u32::try_from(unmet).unwrap_or(u32::MAX);
        }
        if there {
            let node = self.node(oidx);
            let ready = is_needed && node.unmet == 0;
            let reducible = node.goal.is_reducible();
            self.ready_changes.ready.extend(ready.then_some(oidx));
            self.ready_changes.reducible.extend(reducible.then_some(oidx));
        } else {
            self.notify_if_lost(oidx, target, there);
        }
    }

    fn notify_if_lost(&mut self, oidx: OverlayIdx, target: &Target, there: bool) {
        let node = self.node(oidx);
        let used = node.ours
            && node.present.as_ref().is_some_and(|spec| !spec.needs_of(target).is_empty());
        if used && !there {
            self.ready_changes.lost_dependency.push(oidx);
        }
    }

    /// Begins to look for the present nodes of ours that depend on a target.
    pub(crate) fn gathering(&mut self, target_id: OverlayTargetId) -> Gathering {
        self.note_walked(target_id);
        let graph = self.graph;
        let TargetRef { target, graph_id } = &self.target_refs[target_id as usize];
        let target = target.clone();
        let state = graph_id.map(|id| graph.target_at(id));
        let mut of_graph =
            state.map_or_else(Vec::new, |state| state.unique_watchers().into_owned());
        let new = self.target(target_id).new_watchers.to_vec();
        of_graph.reverse();
        Gathering { target, new, of_graph, found: Vec::new() }
    }

    /// Looks at one watcher. At the end, gives all that may be dependents, ascending: [`Overlay::is_dependent`] tells.
    pub(crate) fn gather_next(&mut self, gathering: &mut Gathering) -> Option<Vec<OverlayIdx>> {
        let Gathering { target, new, of_graph, found } = gathering;
        if let Some(oidx) = new.pop() {
            self.edges += 1;
            found.push(oidx);
        } else if let Some(idx) = of_graph.pop() {
            self.edges += 1;
            let node = self.graph.node(idx);
            let present = node.present.as_ref().filter(|_| node.ours);
            let uses = present.is_some_and(|spec| !spec.needs_of(target).is_empty());
            if uses || self.reads.by_idx.contains_key(&idx) {
                found.push(self.touch_idx(idx).0);
            }
        }
        if !new.is_empty() || !of_graph.is_empty() {
            return None;
        }
        found.sort_unstable();
        found.dedup();
        Some(std::mem::take(found))
    }

    /// True when a gathered node is a present one of ours that depends on the target.
    pub(crate) fn is_dependent(&self, gathering: &Gathering, oidx: OverlayIdx) -> bool {
        let node = self.node(oidx);
        let present = node.present.as_ref().filter(|_| node.ours);
        present.is_some_and(|spec| !spec.needs_of(&gathering.target).is_empty())
    }

    /// Number of dependencies of this spec on a target: a value does not block itself.
    pub(crate) fn own_dependencies(&mut self, spec: &ValueSpec, target_id: OverlayTargetId) -> u32 {
        let target = &self.target_refs[target_id as usize].target;
        u32::try_from(spec.needs_of(target).len()).unwrap_or(u32::MAX)
    }
}
