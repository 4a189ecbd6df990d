//! Decisions when no action is ready.
//!
//! Tried in this order: dependents of a value that must go are parked, or reduced where that helps, those of the
//! highest kind first; reducible values are reduced to the available targets; a change whose dependencies stay unmet
//! becomes a delete; a cycle among present values is broken; and identities reserved for values that do not return go
//! to other claimants.

use crate::overlay::{OverlayIdx, PendingAction};
use crate::planner::Planner;

impl Planner<'_> {
    /// Takes one decision. False when there is nothing left to decide.
    pub(crate) fn resolve(&mut self) -> bool {
        self.park_dependents()
            || self.reduce_all()
            || self.give_up_change()
            || self.break_cycle()
            || self.drop_reservations()
    }

    /// Parks the dependents of one value that must go.
    fn park_dependents(&mut self) -> bool {
        while let Some((key, oidx)) = self.blocked_by_dependents.pop_last() {
            let parked = self.park_dependents_of(oidx);
            self.blocked_after_parking.insert(key, oidx);
            if parked {
                return true;
            }
        }
        false
    }

    fn park_dependents_of(&mut self, oidx: OverlayIdx) -> bool {
        let Some(present) = self.overlay.node(oidx).present.clone() else { return false };
        let key = self.overlay.node(oidx).key.clone();
        let next = self.next(oidx);
        let (_, lost) = self.overlay.provider_changes(
            &key,
            Some(&present),
            next.as_ref().map(|(_, spec)| &**spec),
        );
        let mut dependents = Vec::new();
        for target_id in lost {
            if self.overlay.target(target_id).providers <= 1 {
                dependents.extend(self.overlay.dependents(target_id, false));
            }
        }
        if let Some(target_id) = self.recreate_target(&key).filter(|_| next.is_some()) {
            dependents.extend(self.overlay.dependents(target_id, true));
        }
        let mut parked = false;
        for dependent in dependents {
            parked |= dependent != oidx && (self.reduce(dependent) || self.park(dependent));
        }
        parked
    }

    /// Gives up a change whose dependencies stay unmet. A value of ours cannot stay as it is, so it is parked; a
    /// foreign one stays, and the intended value is pending.
    fn give_up_change(&mut self) -> bool {
        while let Some((_, oidx)) = self.change_missing_dependency.pop_last() {
            if !matches!(self.overlay.node(oidx).pending_action, PendingAction::InPlace(_)) {
                continue;
            }
            if self.is_ours(oidx) && self.park(oidx) {
                return true;
            }
            self.overlay.node_mut(oidx).pending_action = PendingAction::Nothing;
            self.overlay.clear_going(oidx);
            self.drain_ready();
        }
        false
    }

    fn break_cycle(&mut self) -> bool {
        let Some((_, oidx)) = self.blocked_after_parking.pop_last() else { return false };
        match self.overlay.node(oidx).pending_action {
            PendingAction::Delete => self.delete(oidx, true),
            PendingAction::InPlace(_) => self.change(oidx, true),
            _ => {}
        }
        true
    }
}
