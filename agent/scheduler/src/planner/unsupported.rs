//! Which values in place new ones may rely on.

use super::Planner;
use crate::overlay::{OverlayIdx, PendingAction};

impl Planner<'_> {
    /// Has nothing new rely on values that lack something by now: they go as soon as they are looked at, or tried again,
    /// if it has not come by then. Else what they lack might come to rest on them.
    pub(super) fn mark_unsupported_going(&mut self) {
        let graph = self.overlay.graph;
        for &idx in graph.unsupported.all() {
            let (oidx, _) = self.overlay.touch_idx(idx);
            if self.overlay.lacks(oidx)
                && matches!(self.overlay.node(oidx).pending_action, PendingAction::Nothing)
            {
                self.overlay.mark_going(oidx, None, false);
            }
        }
    }

    /// What a value lacked has come, and it stays.
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
