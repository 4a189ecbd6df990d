//! What gives way when a plan cannot go on.
//!
//! In this order: the users of what must go are parked, or do without it where they can, those of the highest kind first;
//! what can be had in part becomes what is there; a change that will not get what it needs becomes a delete; where
//! values of the system use one another in a circle, the circle is broken; and an identity kept for its holder of
//! before, who does not come, goes to whoever else wants it.

use crate::overlay::{OverlayIdx, PendingAction};
use crate::planner::Planner;

impl Planner<'_> {
    /// Lets something give way. False when there is nothing left to decide.
    pub(crate) fn resolve(&mut self) -> bool {
        self.park_dependents()
            || self.reduce_all()
            || self.give_up_change()
            || self.break_circle()
            || self.drop_reservations()
    }

    /// Parks the users of one value that must go.
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
        for user in dependents {
            parked |= user != oidx && (self.reduce(user) || self.park(user));
        }
        parked
    }

    /// A change that waits for what will not come: the value cannot stay as it is, and cannot become what it shall.
    /// What is not ours stays as it is, and the value pending.
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

    fn break_circle(&mut self) -> bool {
        let Some((_, oidx)) = self.blocked_after_parking.pop_last() else { return false };
        match self.overlay.node(oidx).pending_action {
            PendingAction::Delete => self.delete(oidx, true),
            PendingAction::InPlace(_) => self.change(oidx, true),
            _ => {}
        }
        true
    }
}
