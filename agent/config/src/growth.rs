//! Growth of the amounts that limits of the whole box bound, when changes run side by side.

use crate::limits::Limit;

/// Changes under way that have room within a limit together: each may take this part of it.
const CHANGES_UNDER_WAY: usize = 64;

/// Things that a change adds, and the number that there was room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    gained: usize,
    room: usize,
}

impl Growth {
    /// Growth from one number to another, with this limit.
    pub(crate) fn of([old, new]: [usize; 2], limit: &Limit) -> Self {
        Self { gained: new.saturating_sub(old), room: limit.figure.saturating_sub(old) }
    }

    /// True when as many changes under way could gain as much.
    pub(crate) fn is_small(self) -> bool {
        self.gained.saturating_mul(CHANGES_UNDER_WAY) <= self.room
    }

    pub(crate) fn keeps_clear_of(self, other: Self) -> bool {
        self.gained == 0 || other.gained == 0 || self.is_small() && other.is_small()
    }
}
