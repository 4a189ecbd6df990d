//! Way back of a transaction that failed, or was cancelled.

use std::ops::Range;

use super::{Phase, Transaction};
use crate::change::IntentChange;
use crate::graph::NodeIdx;
use crate::operation::Now;
use crate::transaction::OwnPlan;

/// Way back of one transaction, until its plan is taken over.
#[derive(Debug)]
pub(crate) struct Rollback {
    pub(crate) stage: Stage,
    /// Items of the stage that are done.
    pub(crate) done: usize,
    /// Number of objects that are read because their operations were completed and not verified.
    pub(crate) reads: usize,
    /// Values with operations, to be planned for.
    pub(crate) touched: Vec<NodeIdx>,
    /// Values that were intended before.
    pub(crate) before: Vec<IntentChange>,
    /// Plan in the making, once there was something to plan.
    pub(crate) plan: Option<OwnPlan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Operations end, then the values of before are listed.
    Ending,
    Settled,
    /// The absence of values is confirmed whose operations were not done.
    Confirming,
    Planning,
}

impl Rollback {
    fn is_due(&self) -> bool {
        self.stage != Stage::Settled
    }

    /// Items of the stage (`all` in number) that are done in this portion, and whether some are left.
    pub(crate) fn portion(&mut self, all: usize, most: usize) -> (Range<usize>, bool) {
        let from = self.done;
        self.done = all.min(from + most);
        (from..self.done, self.done < all)
    }

    pub(crate) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.done = 0;
    }
}

impl Transaction {
    /// True when a portion of the way back is due.
    pub(crate) fn has_rollback_due(&self) -> bool {
        self.rollback.as_ref().is_some_and(|rollback| rollback.is_due())
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.rollback.as_ref().is_some_and(|rollback| rollback.stage == Stage::Ending)
    }

    pub(crate) fn begin_undoing(&mut self, now: Now) {
        self.phase = Phase::Undoing;
        self.last_progress = now.monotonic;
        self.record(false);
    }
}
