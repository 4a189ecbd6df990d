//! `ready`, judged again once the objects of a change are verified, in the transaction that made them.
//!
//! No work is done, and no state but `ready` is entered or left, so no claim changes. All else is left to the walk that
//! follows.

use super::{Walk, is_reached, part};
use crate::component::Component;
use crate::outline::SELF;
use crate::work::WorkError;

impl Walk<'_> {
    /// Enters `ready` of each component that has reached all its other states, then judges that of `self`.
    pub(super) fn judge_ready(&mut self) -> Result<(), WorkError> {
        let parts: Vec<_> = self.own.plan().components.iter().map(part).collect();
        let (own, others): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.component_type == SELF);
        let mut moved = true;
        // A gate of one component may ask for `ready` of another one.
        while moved {
            moved = false;
            for part in &others {
                moved |= self.has_reached_all(part)? && self.go_on(part)?;
            }
        }
        for part in &own {
            // An instance that has not begun is judged by its first walk.
            let has_begun = self.states(part).first().is_some_and(|(_, init)| is_reached(init));
            if has_begun && !self.is_backing_out(part) {
                self.judge_whole(part);
            }
        }
        Ok(())
    }

    /// True for a component that may be ready: all of its other states are reached, and no gate has closed behind it.
    fn has_reached_all(&self, part: &Component) -> Result<bool, WorkError> {
        let states = self.states(part);
        let Some((_, earlier)) = states.split_last() else { return Ok(false) };
        let is_there = earlier.iter().all(|(_, state)| is_reached(state));
        Ok(is_there && !self.is_backing_out(part) && self.closed_gate(part)?.is_none())
    }
}
