//! Values that go because of another one: parked, or taken along by the system.

use std::sync::Arc;

use super::Planner;
use crate::dependency::{Taken, Target};
use crate::key::Key;
use crate::overlay::{InPlaceAction, OverlayIdx, OverlayTargetIds, PendingAction};
use crate::plan::{After, Cause};
use crate::value_spec::ValueSpec;

impl Planner<'_> {
    pub(super) fn doom(&mut self, taken: &Taken, by: OverlayIdx) {
        match taken {
            Taken::Under(prefix) => self.doomed_under.entry(prefix.clone()).or_insert(by),
            Taken::Of(facet) => self.doomed_of.entry(facet.clone()).or_insert(by),
        };
    }

    /// Has a value go because of another one, to come back when it can. False when it goes already.
    pub(crate) fn park(&mut self, oidx: OverlayIdx) -> bool {
        let node = self.overlay.node(oidx);
        match node.pending_action {
            _ if node.present.is_none() => false,
            PendingAction::Delete | PendingAction::InPlace(InPlaceAction::Released) => false,
            _ => {
                self.change_missing_dependency.remove(&node.key.clone());
                self.schedule_removal(oidx, Some(Cause::Parked));
                true
            }
        }
    }

    /// Nobody else can be there under the key of a value that goes: its users go first, unless they are to change, or may
    /// do without it.
    pub(super) fn park_idle(&mut self, oidx: OverlayIdx, key: &Key) {
        if std::mem::replace(&mut self.overlay.node_mut(oidx).parting_mut().warned, true) {
            return;
        }
        let Some(target_id) = self.overlay.existing_target_id(&Target::Exact(key.clone())) else {
            return;
        };
        for user in self.overlay.dependents(target_id, false) {
            let node = self.overlay.node(user);
            let stays =
                !matches!(node.pending_action, PendingAction::Nothing) || node.goal.is_reducible();
            if user != oidx && !stays {
                self.park(user);
            }
        }
    }

    /// A value has gone: so have those that went with it, and it may come again.
    pub(super) fn on_removed(&mut self, oidx: OverlayIdx, op: u32) {
        self.overlay.node_mut(oidx).current = None;
        self.take_attached(oidx, op);
        self.schedule_return(oidx);
    }

    pub(super) fn take_attached(&mut self, oidx: OverlayIdx, op: u32) {
        for attached in self.overlay.node_mut(oidx).take_attached() {
            self.leave_now(attached, op);
        }
    }

    pub(super) fn schedule_return(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node_mut(oidx);
        node.pending_action = PendingAction::Nothing;
        if node.cause == Cause::Parked {
            node.cause = Cause::Returned;
        }
        self.schedule_create(oidx);
    }

    /// Who takes this value along when it goes, or took it already.
    pub(super) fn carrier(&self, oidx: OverlayIdx, present: &ValueSpec) -> Option<OverlayIdx> {
        if self.overlay.node(oidx).op.is_some() {
            return None; // made by this plan, after whatever was taken along
        }
        let under = (!self.doomed_under.is_empty())
            .then(|| {
                self.overlay
                    .node(oidx)
                    .key
                    .prefixes()
                    .find_map(|prefix| self.doomed_under.get(&prefix))
            })
            .flatten();
        if self.doomed_of.is_empty() && under.is_none() {
            return None;
        }
        let facets = present.offers.keys().filter_map(|target| match target {
            Target::AnyOf(facet) => self.doomed_of.get(facet),
            _ => None,
        });
        let mut candidates = under.into_iter().chain(facets).map(|&by| self.root(by));
        candidates.find(|&by| by != oidx)
    }

    /// The value whose operation takes another one along in the end.
    pub(super) fn root(&self, mut oidx: OverlayIdx) -> OverlayIdx {
        while let Some(carrier) = self.overlay.node(oidx).carrier {
            oidx = carrier;
        }
        oidx
    }

    /// The system will remove the value with its carrier: no operation, but gone only when the carrier goes.
    pub(super) fn leave_with(
        &mut self,
        oidx: OverlayIdx,
        carrier: OverlayIdx,
        present: Arc<ValueSpec>,
        lost: &OverlayTargetIds,
    ) {
        let before =
            if self.transports { self.predecessors(oidx, false, lost) } else { After::new() };
        let node = self.overlay.node_mut(oidx);
        node.leaving = Some(present);
        node.carrier = Some(carrier);
        node.current = None;
        node.pending_action = PendingAction::Nothing;
        self.overlay.set_present(oidx, None, false, None);
        self.overlay.unfade(oidx);
        let attached = self.overlay.node_mut(oidx).take_attached();
        let done = self.overlay.node(carrier);
        match done.op.filter(|_| {
            matches!(done.pending_action, PendingAction::Nothing | PendingAction::Create)
        }) {
            Some(op) => {
                for oidx in attached.into_iter().chain([oidx]) {
                    self.leave_now(oidx, op);
                }
            }
            None => {
                for &other in &attached {
                    self.overlay.node_mut(other).carrier = Some(carrier);
                }
                let parting = self.overlay.node_mut(carrier).parting_mut();
                parting.attached.extend(attached);
                parting.attached.push(oidx);
                parting.awaits.extend(before);
            }
        }
        self.drain_ready();
    }

    pub(super) fn leave_now(&mut self, oidx: OverlayIdx, op: u32) {
        let node = self.overlay.node_mut(oidx);
        node.carrier = None;
        node.op = Some(op);
        let spec = node.leaving.take();
        let key = node.key.clone();
        self.operations[op as usize].taken.push(key);
        for claim in spec.iter().flat_map(|spec| spec.claims()) {
            self.overlay.release(claim, oidx, Some(op));
        }
        for need in spec.iter().filter(|_| self.transports).flat_map(|it| &it.needs) {
            let target_id = self.overlay.target_id(&need.target);
            self.overlay.target_mut(target_id).leaving_mut().freed_by.push(op);
        }
        self.schedule_return(oidx);
    }
}
