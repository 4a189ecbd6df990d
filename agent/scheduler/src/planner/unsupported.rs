//! Protection of new values from relying on unsupported ones.

use super::Planner;
use crate::overlay::{OverlayIdx, PendingAction};

impl Planner<'_> {
    /// Marks the offers of unsupported values as going. They are removed as soon as they are planned for or tried
    /// again, unless their dependencies are met by then; otherwise a new value could come to support them in a circle.
    pub(super) fn mark_unsupported_going(&mut self) {
        let graph = self.overlay.graph;
        for &idx in graph.unsupported.all() {
            let (oidx, _) = self.overlay.touch_idx(idx);
            if self.overlay.has_unmet(oidx)
                && matches!(self.overlay.node(oidx).pending_action, PendingAction::Nothing)
            {
                self.overlay.mark_going(oidx, None, false);
            }
        }
    }

    /// Clears the mark of a value whose dependencies are met again and that stays.
    pub(super) fn clear_going_if_supported(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        if !node.is_going()
            || node.unmet > 0
            || !matches!(node.pending_action, PendingAction::Nothing)
        {
            return;
        }
        self.overlay.clear_going(oidx);
        self.drain_ready();
    }
}
