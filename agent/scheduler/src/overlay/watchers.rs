//! Notification of watchers when a target is gained or lost, and the dependents of a target.

use super::{Overlay, OverlayIdx, OverlayTargetId, TargetRef};
use crate::dependency::Target;
use crate::graph::{NodeIdx, TargetState};
use crate::plan::Cause;
use crate::value_spec::ValueSpec;

/// Number of watchers up to which no memory is reserved before notifying.
const WATCHERS_FEW: usize = 64;

impl Overlay<'_> {
    /// Notifies all watchers of a target that it was gained or lost.
    pub(super) fn notify_watchers(&mut self, target_id: OverlayTargetId, there: bool) {
        let graph = self.graph;
        let TargetRef { target, known } = &self.target_refs[target_id as usize];
        let known = known.map(|id| graph.target_at(id));
        let mut new_watchers = std::mem::take(&mut self.targets[target_id as usize].new_watchers);
        if known.is_none() && new_watchers.is_empty() {
            return;
        }
        let target = target.clone();
        let watchers = known.map_or_else(Default::default, TargetState::unique_watchers);
        if !new_watchers.is_sorted_by(|a, b| a < b) {
            new_watchers.sort_unstable();
            new_watchers.dedup();
        }
        self.edges += (watchers.len() + new_watchers.len()) as u64;
        for &oidx in &new_watchers {
            self.notify(oidx, target_id, &target, there);
        }
        self.target_mut(target_id).new_watchers = new_watchers;
        if watchers.len() > WATCHERS_FEW {
            self.reserve_known(watchers.len());
        }
        for &idx in &*watchers {
            self.notify_watcher(idx, target_id, &target, there);
        }
    }

    pub(super) fn notify_watcher(
        &mut self,
        idx: NodeIdx,
        target_id: OverlayTargetId,
        target: &Target,
        there: bool,
    ) {
        match self.by_idx.get(&idx) {
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
    pub(super) fn must_notify(&self, idx: NodeIdx, there: bool) -> bool {
        let node = self.graph.node(idx);
        if there {
            node.goal.spec().is_some() && (!node.in_place() || node.goal.is_partial())
        } else {
            node.ours && node.present.is_some()
        }
    }

    pub(super) fn notify(
        &mut self,
        oidx: OverlayIdx,
        target_id: OverlayTargetId,
        target: &Target,
        there: bool,
    ) {
        let node = self.node_mut(oidx);
        let wanted = node.need_targets.iter().filter(|&&other| other == target_id).count();
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if there {
            node.unmet = node.unmet.saturating_sub(wanted);
            let reducible = node.goal.is_reducible();
            if wanted > 0 && node.unmet == 0 {
                self.ready_changes.ready.push(oidx);
            }
            if reducible {
                self.ready_changes.reducible.push(oidx);
            }
        } else {
            node.unmet = node.unmet.saturating_add(wanted);
            self.notify_if_lost(oidx, target, there);
        }
    }

    pub(super) fn notify_if_lost(&mut self, oidx: OverlayIdx, target: &Target, there: bool) {
        let node = self.node(oidx);
        let used = node.ours
            && node.present.as_ref().is_some_and(|spec| !spec.needs_of(target).is_empty());
        if used && !there {
            self.ready_changes.lost_dependency.push(oidx);
        }
    }

    /// Present nodes of ours that depend on a target; with `recreate_only`, those to be re-created when it changes.
    pub(crate) fn dependents(
        &mut self,
        target_id: OverlayTargetId,
        recreate_only: bool,
    ) -> Vec<OverlayIdx> {
        let TargetRef { target, known } = &self.target_refs[target_id as usize];
        let (target, graph) = (target.clone(), self.graph);
        let known = known.map(|id| graph.target_at(id));
        let watchers = known.map_or_else(Default::default, TargetState::unique_watchers);
        let mut dependents = self.target(target_id).new_watchers.to_vec();
        self.edges += (watchers.len() + dependents.len()) as u64;
        for &idx in &*watchers {
            let node = graph.node(idx);
            let uses = node.ours
                && node
                    .present
                    .as_ref()
                    .is_some_and(|spec| depends_on(spec, &target, recreate_only));
            if uses || self.by_idx.contains_key(&idx) {
                dependents.push(self.touch_idx(idx).0);
            }
        }
        dependents.sort_unstable();
        dependents.dedup();
        dependents.retain(|&oidx| {
            let node = self.node(oidx);
            node.ours
                && node
                    .present
                    .as_ref()
                    .is_some_and(|spec| depends_on(spec, &target, recreate_only))
        });
        dependents
    }

    /// Number of dependencies of this spec on a target: a value does not block itself.
    pub(crate) fn own_dependencies(&mut self, spec: &ValueSpec, target_id: OverlayTargetId) -> u32 {
        let target = &self.target_refs[target_id as usize].target;
        u32::try_from(spec.needs_of(target).len()).unwrap_or(u32::MAX)
    }
}

pub(super) fn depends_on(spec: &ValueSpec, target: &Target, recreate_only: bool) -> bool {
    spec.needs_of(target).iter().any(|need| need.recreate || !recreate_only)
}
