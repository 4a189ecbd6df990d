//! Protection of new values from relying on unsupported ones.

use super::Planner;
use crate::graph::NodeIdx;
use crate::overlay::PendingAction;
use crate::planned_operation::OverlayIdx;

impl Planner<'_> {
    /// Marks the offers of a value as going if it is unsupported. It is removed as soon as it is planned for or tried
    /// again, unless its dependencies are met by then; otherwise a new value could come to support it in a circle.
    pub(super) fn mark_unsupported_going(&mut self, idx: NodeIdx) {
        if !self.overlay.graph.unsupported.contains(idx) {
            return; // supported again since the plan was begun
        }
        let (oidx, _) = self.overlay.touch_idx(idx);
        if self.overlay.has_unmet(oidx)
            && matches!(self.overlay.node(oidx).pending_action, PendingAction::Nothing)
        {
            self.overlay.mark_going(oidx, None);
        }
    }

    /// Keeps unsupported values out of a complete plan that were only marked, and whose offers no value of the plan looks
    /// for. Another transaction may have reserved them, and need not end first.
    pub(super) fn spare_bystanders(&mut self) {
        let graph = self.overlay.graph;
        for &idx in graph.unsupported.all() {
            let (oidx, _) = self.overlay.touch_idx(idx);
            let node = self.overlay.node(oidx);
            let is_bystander = node.is_untouched()
                && !node.going().iter().any(|&it| self.overlay.target(it).is_watched());
            self.overlay.node_mut(oidx).is_bystander = is_bystander;
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
