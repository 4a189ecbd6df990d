//! Reduction of values to the members whose targets are available.
//!
//! Nothing is left out of a value before it is known which targets come and go. Only when nothing else is ready, each
//! reducible value is reduced to the targets that stay. A value that uses a target that goes is changed first, instead
//! of being deleted.

use super::Planner;
use super::tasks::Task;
use crate::dependency::Target;
use crate::graph::Goal;
use crate::overlay::{InPlaceAction, PendingAction};
use crate::planned_operation::{Cause, OverlayIdx};
use crate::value::same;
use crate::value_spec::{FullValue, ValueSpec};

impl Planner<'_> {
    /// Notes a value that may get less or more than its goal, to be reduced when the available targets are known.
    pub(super) fn note_reducible(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        if node.unmet > 0 || node.goal.is_partial() {
            self.note_waiting_reducible(oidx);
        }
    }

    /// Notes a reducible value that waits for targets, whether or not they have providers that go.
    pub(super) fn note_waiting_reducible(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        if node.goal.is_reducible() {
            self.state.reducible_candidates.insert(node.key.clone(), oidx);
        }
    }

    /// True for a present reducible value with an unmet dependency.
    pub(super) fn may_be_reduced(&self, oidx: OverlayIdx) -> bool {
        let node = self.overlay.node(oidx);
        node.goal.is_reducible() && node.present.is_some() && node.unmet > 0
    }

    /// Reduces all noted values. False when there are none.
    pub(super) fn reduce_all(&mut self) -> bool {
        let noted: Vec<OverlayIdx> =
            std::mem::take(&mut self.state.reducible_candidates).into_values().collect();
        let some = !noted.is_empty();
        self.state.follow_ups.extend(some.then(|| Task::Reduce(noted.into_iter())));
        some
    }

    /// Reduces a noted value. A value that is to be deleted is reduced when it is to be created again.
    pub(super) fn reduce_noted(&mut self, oidx: OverlayIdx) {
        let goes = matches!(self.overlay.node(oidx).pending_action, PendingAction::Delete);
        if !goes && !self.reduce(oidx) {
            self.choose_without_reduction(oidx);
        }
    }

    /// Chooses the action of a value that cannot be kept in part: it goes like one that is not reducible.
    fn choose_without_reduction(&mut self, oidx: OverlayIdx) {
        let waits = matches!(self.overlay.node(oidx).pending_action, PendingAction::Nothing);
        if waits && self.may_be_reduced(oidx) {
            self.choose_action_now(oidx);
        }
    }

    /// Reduces a value to the targets that stay. False where that is its goal already, or nothing is left.
    pub(super) fn reduce(&mut self, oidx: OverlayIdx) -> bool {
        let node = self.overlay.node(oidx);
        let goes = matches!(
            node.pending_action,
            PendingAction::Delete | PendingAction::InPlace(InPlaceAction::Released)
        );
        let Some(full) = node.goal.reducible().filter(|_| !goes) else { return false };
        let goal = self.reduced_goal(oidx, &full).unwrap_or_else(|| Goal::Valid(full.0, full.1));
        let node = self.overlay.node(oidx);
        if same(node.goal.value(), goal.value()) {
            return false;
        }
        let key = node.key.clone();
        let fresh = !node.changed;
        self.overlay.set_reduced_goal(oidx, goal);
        self.overlay.clear_going(oidx);
        self.state.change_missing_dependency.remove(&key);
        self.state.blocked_by_dependents.remove(&key);
        self.state.blocked_after_parking.remove(&key);
        let node = self.overlay.node_mut(oidx);
        node.pending_action = PendingAction::Nothing;
        if fresh && node.cause == Cause::Requested {
            node.cause = Cause::Unblocked;
        }
        let stays = node.unmet == 0;
        if stays {
            self.choose_action(oidx);
        }
        stays
    }

    /// Reduction of a value to the targets that stay; `None` where nothing is left.
    fn reduced_goal(&mut self, oidx: OverlayIdx, full: &FullValue) -> Option<Goal> {
        let mut missing: Vec<Target> = Vec::new();
        for need in &full.1.needs {
            let target_id = self.overlay.target_id(&need.target);
            let state = self.overlay.target_mut(target_id);
            if state.stays() {
                continue;
            }
            if state.providers > 0 {
                state.removal_mut().waiting.push(oidx); // the provider may stay after all
            }
            missing.push(need.target.clone());
        }
        self.overlay.edges += full.1.needs.len() as u64;
        let goal = self.goal_without(oidx, full, &missing)?;
        let unsupported = self.self_supported_needs(oidx, &goal);
        if unsupported.is_empty() {
            return Some(goal);
        }
        missing.extend(unsupported);
        missing.sort_unstable();
        self.goal_without(oidx, full, &missing)
    }

    fn goal_without(&self, oidx: OverlayIdx, full: &FullValue, missing: &[Target]) -> Option<Goal> {
        if missing.is_empty() {
            return Some(Goal::Valid(full.0.clone(), full.1.clone()));
        }
        let registry = &self.overlay.graph.registry;
        let key = &self.overlay.node(oidx).key;
        let (value, spec) = ValueSpec::reduced(registry, key, full.clone(), missing)?;
        let whole = missing.iter().all(|target| spec.needs_of(target).is_empty());
        whole.then_some(Goal::Valid(value, spec))
    }

    /// Targets that a reduction would newly need and that go together with the value itself.
    fn self_supported_needs(&mut self, oidx: OverlayIdx, goal: &Goal) -> Vec<Target> {
        let (Some(present), Some(new)) = (self.overlay.node(oidx).present.clone(), goal.spec())
        else {
            return Vec::new();
        };
        let supported = |target: &&Target| self.overlay.is_only_supported_by(oidx, &[target]);
        added_needs(&present, new).into_iter().filter(supported).cloned().collect()
    }

    /// True when a value would newly need a target that only itself or its dependents provide: it could never have been
    /// created so.
    pub(super) fn is_self_supporting(
        &mut self,
        oidx: OverlayIdx,
        present: &ValueSpec,
        new: &ValueSpec,
    ) -> bool {
        let added = added_needs(present, new);
        !added.is_empty() && self.overlay.is_only_supported_by(oidx, &added)
    }
}

/// Targets that `new` needs and `present` does not.
fn added_needs<'t>(present: &ValueSpec, new: &'t ValueSpec) -> Vec<&'t Target> {
    let added = new.needs.iter().filter(|need| present.needs_of(&need.target).is_empty());
    added.map(|need| &need.target).collect()
}
