//! Values that can be had in part: what of them, by what is there.
//!
//! Nothing is left out of a value before it is known what comes and what goes: when nothing can be done any more, each
//! one gets what is there by then and stays. Where something goes that it uses, it changes first, rather than to go.

use super::Planner;
use crate::dependency::Target;
use crate::graph::Goal;
use crate::overlay::{InPlaceAction, OverlayIdx, PendingAction};
use crate::plan::Cause;
use crate::value::same;
use crate::value_spec::{FullValue, ValueSpec};

impl Planner<'_> {
    /// Has a value looked at when it is known what is there, if less or more than its goal may be had.
    pub(super) fn note_divisible(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        if node.unmet > 0 || node.goal.is_partial() {
            self.note_held(oidx);
        }
    }

    /// The same of one that waits for what it needs, be that there or about to go.
    pub(super) fn note_held(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        if node.goal.is_divisible() {
            self.reducible_candidates.insert(node.key.clone(), oidx);
        }
    }

    /// Whether a value that is there lacks something that it may be able to do without.
    pub(super) fn may_shrink(&self, oidx: OverlayIdx) -> bool {
        let node = self.overlay.node(oidx);
        node.goal.is_divisible() && node.present.is_some() && node.unmet > 0
    }

    /// Gives all that are to be looked at what is there. True when something is to be done now.
    pub(super) fn fit_all(&mut self) -> bool {
        let mut changed = false;
        for oidx in std::mem::take(&mut self.reducible_candidates).into_values() {
            if matches!(self.overlay.node(oidx).pending_action, PendingAction::Delete) {
                continue; // it is looked at when it could come again
            }
            changed |= self.fit(oidx) || self.give_in(oidx);
        }
        changed
    }

    /// Nothing of a value can be kept: it goes as one that is not divisible.
    fn give_in(&mut self, oidx: OverlayIdx) -> bool {
        let waits = matches!(self.overlay.node(oidx).pending_action, PendingAction::Nothing);
        if waits && self.may_shrink(oidx) {
            self.choose_action_now(oidx);
        }
        waits && !matches!(self.overlay.node(oidx).pending_action, PendingAction::Nothing)
    }

    /// Has a value use what stays of what it needs. False where that is what it is to become anyway, or nothing.
    pub(super) fn fit(&mut self, oidx: OverlayIdx) -> bool {
        let node = self.overlay.node(oidx);
        let goes = matches!(
            node.pending_action,
            PendingAction::Delete | PendingAction::InPlace(InPlaceAction::Released)
        );
        let Some(full) = node.goal.divisible().filter(|_| !goes) else { return false };
        let goal = self.fitting(oidx, &full).unwrap_or_else(|| Goal::Valid(full.0, full.1));
        let node = self.overlay.node(oidx);
        if same(node.goal.value(), goal.value()) {
            return false;
        }
        let (key, fresh) = (node.key.clone(), !node.changed);
        self.overlay.refit(oidx, goal);
        self.overlay.unfade(oidx);
        self.change_missing_dependency.remove(&key);
        self.blocked_by_dependents.remove(&key);
        self.blocked_after_parking.remove(&key);
        let node = self.overlay.node_mut(oidx);
        node.pending_action = PendingAction::Nothing;
        if fresh && node.cause == Cause::Asked {
            node.cause = Cause::Woken;
        }
        let stays = node.unmet == 0;
        if stays {
            self.choose_action(oidx);
        }
        stays
    }

    /// What can be had of a value by what stays; nothing where none of it can.
    fn fitting(&mut self, oidx: OverlayIdx, full: &FullValue) -> Option<Goal> {
        let mut lacking: Vec<Target> = Vec::new();
        for need in &full.1.needs {
            let target_id = self.overlay.target_id(&need.target);
            let state = self.overlay.target_mut(target_id);
            if state.lasts(need) {
                continue;
            }
            if state.providers > 0 {
                state.leaving_mut().held.push(oidx); // it may stay after all
            }
            lacking.push(need.target.clone());
        }
        self.overlay.edges += full.1.needs.len() as u64;
        let goal = self.had_without(oidx, full, &lacking)?;
        let leaning = self.leaning_on(oidx, &goal);
        if leaning.is_empty() {
            return Some(goal);
        }
        lacking.extend(leaning);
        lacking.sort_unstable();
        self.had_without(oidx, full, &lacking)
    }

    fn had_without(&self, oidx: OverlayIdx, full: &FullValue, lacking: &[Target]) -> Option<Goal> {
        if lacking.is_empty() {
            return Some(Goal::Valid(full.0.clone(), full.1.clone()));
        }
        let registry = &self.overlay.graph.registry;
        let key = &self.overlay.node(oidx).key;
        let (value, spec) = ValueSpec::reduced(registry, key, full.clone(), lacking)?;
        let whole = lacking.iter().all(|target| spec.needs_of(target).is_empty());
        whole.then_some(Goal::Valid(value, spec))
    }

    /// What a value would come to need that goes with the value itself.
    fn leaning_on(&mut self, oidx: OverlayIdx, goal: &Goal) -> Vec<Target> {
        let (Some(present), Some(new)) = (self.overlay.node(oidx).present.clone(), goal.spec())
        else {
            return Vec::new();
        };
        let falls = |target: &&Target| self.overlay.falls_with(oidx, &[target]);
        added(&present, new).into_iter().filter(falls).cloned().collect()
    }

    /// True when a value would need, from now on, what only itself offers, or what needs it in turn: it could never have
    /// been created so.
    pub(super) fn leans_on_itself(
        &mut self,
        oidx: OverlayIdx,
        present: &ValueSpec,
        new: &ValueSpec,
    ) -> bool {
        let added = added(present, new);
        !added.is_empty() && self.overlay.falls_with(oidx, &added)
    }
}

/// What a value needs more than before.
fn added<'t>(present: &ValueSpec, new: &'t ValueSpec) -> Vec<&'t Target> {
    let added = new.needs.iter().filter(|need| present.needs_of(&need.target).is_empty());
    added.map(|need| &need.target).collect()
}
