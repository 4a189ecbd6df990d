//! Values in place with an unmet dependency.
//!
//! An unsupported value has to go, so nothing new may rely on it: two values could otherwise come to support each other
//! in a circle. Values that are not created for this reason are *held back*, and are planned for again when some
//! unsupported value is supported again or gone.

use super::node_set::NodeSet;
use super::{Graph, GraphChange, NodeIdx};

/// Unsupported values, and the values held back because of them.
#[derive(Debug, Default)]
pub(crate) struct Unsupported {
    values: NodeSet,
    /// Values without an unmet dependency that were not created, or are being deleted, since all providers of some target are
    /// unsupported.
    held_back: NodeSet,
    /// True when some value left the set since the held-back ones were marked.
    some_supported_again: bool,
}

impl Unsupported {
    pub(crate) fn all(&self) -> &[NodeIdx] {
        self.values.all()
    }

    pub(crate) fn contains(&self, idx: NodeIdx) -> bool {
        self.values.contains(idx)
    }

    /// Removes a value. True when it was unsupported.
    pub(super) fn remove(&mut self, idx: NodeIdx) -> bool {
        let was_unsupported = self.values.remove(idx);
        self.some_supported_again |= was_unsupported;
        was_unsupported
    }
}

impl Graph {
    /// Updates the set after a change of the dependencies of a value.
    pub(super) fn update_unsupported(&mut self, idx: NodeIdx) {
        let node = self.node(idx);
        if node.ours && node.in_place() && self.count_unmet(idx) > 0 {
            if self.unsupported.values.insert(idx) {
                self.log.push(GraphChange::Unsupported(idx));
            }
        } else if self.unsupported.remove(idx) {
            self.log.push(GraphChange::Unsupported(idx));
            if self.node(idx).present.is_some() {
                self.mark_waiting_dirty(idx);
            }
        }
    }

    /// Records values that were not created, where that may be because of unsupported ones; with none, there is nothing
    /// to record.
    pub(crate) fn note_held_back(&mut self, waiting: impl IntoIterator<Item = NodeIdx>) {
        if !self.unsupported.all().is_empty() {
            for idx in waiting {
                self.unsupported.held_back.insert(idx);
            }
        }
    }

    /// Marks the held-back values when some value is no longer unsupported: the targets may have other providers now.
    pub(crate) fn mark_held_back_dirty(&mut self) {
        if !std::mem::take(&mut self.unsupported.some_supported_again) {
            return;
        }
        let mut waiting = std::mem::take(&mut self.unsupported.held_back).all().to_vec();
        waiting.retain(|&idx| {
            let node = self.node(idx);
            node.used && node.goal.spec().is_some() && node.may_be_absent()
        });
        self.note_held_back(waiting.iter().copied());
        waiting.into_iter().for_each(|idx| self.mark_dirty(idx));
    }
}
