//! Values in place that lack something they need by now. They have to go, so nothing new relies on them, and whoever
//! does not come for that reason is woken when it ends.

use super::node_set::NodeSet;
use super::{Graph, NodeIdx};

/// Who leans on what is not there, and who waits because of them.
#[derive(Debug, Default)]
pub(crate) struct Unsupported {
    values: NodeSet,
    /// Values that could come, and did not because all who offer something they need are among those.
    held_back: NodeSet,
    /// Some of those lean no more since the wary ones were woken.
    some_supported_again: bool,
}

impl Unsupported {
    pub(crate) fn all(&self) -> &[NodeIdx] {
        self.values.all()
    }

    /// Whether it leant.
    pub(super) fn remove(&mut self, idx: NodeIdx) -> bool {
        let was_unsupported = self.values.remove(idx);
        self.some_supported_again |= was_unsupported;
        was_unsupported
    }
}

impl Graph {
    /// Looks whether a value leans, after a change of what it needs.
    pub(super) fn update_unsupported(&mut self, idx: NodeIdx) {
        let node = self.node(idx);
        if node.unmet > 0 && node.ours && node.in_place() {
            self.unsupported.values.insert(idx);
        } else if self.unsupported.remove(idx) && self.node(idx).present.is_some() {
            self.mark_waiting_dirty(idx);
        }
    }

    /// Notes values that could come and do not, as far as that may be because of those that lean: without any of
    /// those, nobody is looked at.
    pub(crate) fn note_held_back(&mut self, waiting: impl IntoIterator<Item = NodeIdx>) {
        if !self.unsupported.all().is_empty() {
            waiting.into_iter().for_each(|idx| self.unsupported.held_back.insert(idx));
        }
    }

    /// Wakes the wary ones when some that leant do so no more: others may offer the same by now.
    pub(crate) fn mark_held_back_dirty(&mut self) {
        if !std::mem::take(&mut self.unsupported.some_supported_again) {
            return;
        }
        let mut waiting = std::mem::take(&mut self.unsupported.held_back).all().to_vec();
        waiting.retain(|&idx| {
            let node = self.node(idx);
            node.used && node.goal.spec().is_some() && node.present.is_none()
        });
        self.note_held_back(waiting.iter().copied());
        waiting.into_iter().for_each(|idx| self.mark_dirty(idx));
    }
}
