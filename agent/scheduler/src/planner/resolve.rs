//! Decisions when no action is ready.
//!
//! Tried in this order: dependents of a value that must go are parked, or reduced where that helps, those of the
//! highest kind first; reducible values are reduced to the available targets; a change whose dependencies stay unmet
//! becomes a delete; a cycle among present values is broken; and identities reserved for values that do not return go
//! to other claimants.

use super::Planner;
use super::tasks::{ParkMode, Parking, Task};
use crate::key::Key;
use crate::overlay::PendingAction;
use crate::planned_operation::OverlayIdx;

impl Planner<'_> {
    /// Takes one decision. False when there is nothing left to decide.
    pub(crate) fn resolve(&mut self) -> bool {
        self.park_dependents()
            || self.reduce_all()
            || self.cancel_change()
            || self.break_cycle()
            || self.drop_reservations()
    }

    /// Parks the dependents of one value that must go. A second decision follows where none of them has to.
    fn park_dependents(&mut self) -> bool {
        let Some((key, oidx)) = self.state.blocked_by_dependents.pop_last() else { return false };
        self.park_dependents_of(oidx, &key);
        self.state.blocked_after_parking.insert(key, oidx);
        true
    }

    fn park_dependents_of(&mut self, oidx: OverlayIdx, key: &Key) {
        let Some(present) = self.overlay.node(oidx).present.clone() else { return };
        let next = self.next(oidx);
        let new = next.as_ref().map(|(_, spec)| &**spec);
        let (_, lost) = self.overlay.provider_changes(key, Some(&present), new);
        let last = lost.into_iter().filter(|&it| self.overlay.target(it).providers <= 1);
        let targets = last.collect();
        self.state.follow_ups.push(Task::Park(Parking::new(ParkMode::Reduced, oidx, targets)));
    }

    /// Gives up a change whose dependencies stay unmet. A value of ours cannot stay as it is, so it is parked; a
    /// foreign one stays, and the intended value is pending.
    fn cancel_change(&mut self) -> bool {
        while let Some((_, oidx)) = self.state.change_missing_dependency.pop_last() {
            if !matches!(self.overlay.node(oidx).pending_action, PendingAction::InPlace(_)) {
                continue;
            }
            if !(self.is_ours(oidx) && self.park(oidx)) {
                self.overlay.node_mut(oidx).pending_action = PendingAction::Nothing;
                self.overlay.clear_going(oidx);
                self.drain_ready();
            }
            return true;
        }
        false
    }

    fn break_cycle(&mut self) -> bool {
        let Some((_, oidx)) = self.state.blocked_after_parking.pop_last() else { return false };
        match self.overlay.node(oidx).pending_action {
            PendingAction::Delete => self.delete(oidx, true),
            PendingAction::InPlace(_) => self.change(oidx, true),
            _ => {}
        }
        true
    }
}
