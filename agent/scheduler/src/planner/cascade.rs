//! Values that go because of another one: parked, or removed by the system in a cascade.

use std::sync::Arc;

use super::Planner;
use super::tasks::{ParkMode, Parking, Task};
use crate::dependency::{Cascade, Target};
use crate::key::Key;
use crate::overlay::{InPlaceAction, OverlayTargetIds, PendingAction};
use crate::planned_operation::{After, Cause, OverlayIdx};
use crate::value_spec::ValueSpec;

impl Planner<'_> {
    pub(super) fn mark_cascade(&mut self, cascade: &Cascade, by: OverlayIdx) {
        match cascade {
            Cascade::Under(prefix) => self.state.cascade_under.entry(prefix.clone()).or_insert(by),
            Cascade::Of(facet) => self.state.cascade_of.entry(facet.clone()).or_insert(by),
        };
    }

    /// Schedules the removal of a value because of another one, to return when it can. False when it goes already.
    pub(crate) fn park(&mut self, oidx: OverlayIdx) -> bool {
        let node = self.overlay.node(oidx);
        match node.pending_action {
            _ if node.present.is_none() => false,
            PendingAction::Delete | PendingAction::InPlace(InPlaceAction::Released) => false,
            _ => {
                self.state.change_missing_dependency.remove(&node.key.clone());
                self.schedule_removal(oidx, Some(Cause::Parked));
                true
            }
        }
    }

    /// Parks the dependents of a key that goes, unless they have an action of their own or may be reduced: nothing else
    /// can provide an exact key.
    pub(super) fn park_idle(&mut self, oidx: OverlayIdx, key: &Key) {
        if std::mem::replace(&mut self.overlay.node_mut(oidx).removal_mut().dependents_parked, true)
        {
            return;
        }
        if let Some(target_id) = self.overlay.existing_target_id(&Target::Exact(key.clone())) {
            let targets = vec![target_id];
            self.state.follow_ups.push(Task::Park(Parking::new(ParkMode::Idle, oidx, targets)));
        }
    }

    /// Completes a removal: values that went with this one are gone, and it may be created again.
    pub(super) fn on_removed(&mut self, oidx: OverlayIdx, op: u32) {
        self.overlay.node_mut(oidx).current = None;
        self.take_cascaded(oidx, op);
        self.schedule_return(oidx);
    }

    pub(super) fn take_cascaded(&mut self, oidx: OverlayIdx, op: u32) {
        let cascaded = self.overlay.node_mut(oidx).take_cascaded();
        self.finish_cascades(cascaded, op);
    }

    /// Completes the removal of values by an operation, once their dependents know of the removal itself.
    fn finish_cascades(&mut self, cascaded: Vec<OverlayIdx>, op: u32) {
        if !cascaded.is_empty() {
            let values = cascaded.into_iter();
            self.state.follow_ups.extend([Task::Notifications, Task::FinishCascade { values, op }]);
        }
    }

    pub(super) fn schedule_return(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node_mut(oidx);
        node.pending_action = PendingAction::Nothing;
        if node.cause == Cause::Parked {
            node.cause = Cause::Unparked;
        }
        self.schedule_create(oidx);
    }

    /// Root of the cascade that removes this value.
    pub(super) fn find_cascade_root(
        &self,
        oidx: OverlayIdx,
        present: &ValueSpec,
    ) -> Option<OverlayIdx> {
        if self.overlay.node(oidx).op.is_some() {
            return None; // created by this plan, after the cascade
        }
        let under = (!self.state.cascade_under.is_empty())
            .then(|| {
                self.overlay
                    .node(oidx)
                    .key
                    .prefixes()
                    .find_map(|prefix| self.state.cascade_under.get(&prefix))
            })
            .flatten();
        if self.state.cascade_of.is_empty() && under.is_none() {
            return None;
        }
        let facets = present.offers.keys().filter_map(|target| match target {
            Target::AnyOf(facet) => self.state.cascade_of.get(facet),
            _ => None,
        });
        let mut candidates = under.into_iter().chain(facets).map(|&by| self.outermost_root(by));
        candidates.find(|&by| by != oidx)
    }

    /// Value whose operation starts a chain of cascades.
    pub(super) fn outermost_root(&self, mut oidx: OverlayIdx) -> OverlayIdx {
        while let Some(cascade_root) = self.overlay.node(oidx).cascade_root {
            oidx = cascade_root;
        }
        oidx
    }

    /// Removes a value without an operation: it goes when its cascade root goes.
    pub(super) fn remove_by_cascade(
        &mut self,
        oidx: OverlayIdx,
        cascade_root: OverlayIdx,
        present: Arc<ValueSpec>,
        lost: &OverlayTargetIds,
    ) {
        let before =
            if self.state.transports { self.predecessors(oidx, false, lost) } else { After::new() };
        let node = self.overlay.node_mut(oidx);
        node.in_cascade = Some(present);
        node.cascade_root = Some(cascade_root);
        node.current = None;
        node.pending_action = PendingAction::Nothing;
        self.overlay.set_present(oidx, None, false, None);
        self.overlay.clear_going(oidx);
        let mut cascaded = self.overlay.node_mut(oidx).take_cascaded();
        let root = self.overlay.node(cascade_root);
        match root.op.filter(|_| {
            matches!(root.pending_action, PendingAction::Nothing | PendingAction::Create)
        }) {
            Some(op) => {
                cascaded.push(oidx);
                self.finish_cascades(cascaded, op);
            }
            None => {
                for &other in &cascaded {
                    self.overlay.node_mut(other).cascade_root = Some(cascade_root);
                }
                let removal = self.overlay.node_mut(cascade_root).removal_mut();
                removal.cascaded.extend(cascaded);
                removal.cascaded.push(oidx);
                removal.waits_for.extend(before);
            }
        }
        self.drain_ready();
    }

    pub(super) fn finish_cascade(&mut self, oidx: OverlayIdx, op: u32) {
        let node = self.overlay.node_mut(oidx);
        node.cascade_root = None;
        node.op = Some(op);
        let spec = node.in_cascade.take();
        let key = node.key.clone();
        self.state.operations[op as usize].cascaded.push(key);
        for claim in spec.iter().flat_map(|spec| spec.claims()) {
            self.overlay.release(claim, oidx, Some(op));
        }
        for need in spec.iter().filter(|_| self.state.transports).flat_map(|it| &it.needs) {
            let target_id = self.overlay.target_id(&need.target);
            self.overlay.target_mut(target_id).removal_mut().released_by.push(op);
        }
        self.schedule_return(oidx);
    }
}
