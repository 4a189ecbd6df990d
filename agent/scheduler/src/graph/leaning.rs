//! Values in place that lack something they need by now. They have to go, so nothing new relies on them, and whoever
//! does not come for that reason is woken when it ends.

use super::unsettled::Unsettled;
use super::{Graph, NodeIdx};

/// Who leans on what is not there, and who waits because of them.
#[derive(Debug, Default)]
pub(crate) struct Leaning {
    values: Unsettled,
    /// Values that could come, and did not because all who offer something they need are among those.
    wary: Unsettled,
    /// Some of those lean no more since the wary ones were woken.
    relieved: bool,
}

impl Leaning {
    pub(crate) fn all(&self) -> &[NodeIdx] {
        self.values.all()
    }

    /// Whether it leant.
    pub(super) fn remove(&mut self, idx: NodeIdx) -> bool {
        let leant = self.values.remove(idx);
        self.relieved |= leant;
        leant
    }
}

impl Graph {
    /// Looks whether a value leans, after a change of what it needs.
    pub(super) fn weigh(&mut self, idx: NodeIdx) {
        let node = self.node(idx);
        if node.unmet > 0 && node.ours && node.in_place() {
            self.leaning.values.insert(idx);
        } else if self.leaning.remove(idx) && self.node(idx).present.is_some() {
            self.offer_anew(idx);
        }
    }

    /// Notes values that could come and do not, as far as that may be because of those that lean: without any of
    /// those, nobody is looked at.
    pub(crate) fn hold_back(&mut self, waiting: impl IntoIterator<Item = NodeIdx>) {
        if !self.leaning.all().is_empty() {
            waiting.into_iter().for_each(|idx| self.leaning.wary.insert(idx));
        }
    }

    /// Wakes the wary ones when some that leant do so no more: others may offer the same by now.
    pub(crate) fn wake_wary(&mut self) {
        if !std::mem::take(&mut self.leaning.relieved) {
            return;
        }
        let mut waiting = std::mem::take(&mut self.leaning.wary).all().to_vec();
        waiting.retain(|&idx| {
            let node = self.node(idx);
            node.used && node.goal.spec().is_some() && node.present.is_none()
        });
        self.hold_back(waiting.iter().copied());
        waiting.into_iter().for_each(|idx| self.wake(idx));
    }
}
