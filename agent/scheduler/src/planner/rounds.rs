//! Rounds: the values that are ready, by rank and in the order of their keys; and the values to start from.

use std::vec::IntoIter;

use super::tasks::Task;
use super::{FOUND, LAST, Planner};
use crate::graph::NodeIdx;
use crate::key::sort_by_keys_of;
use crate::planned_operation::{Cause, OverlayIdx};

/// Bound on the rounds of a plan for each value it touches, far more than needed.
const ROUNDS_PER_VALUE: usize = 64;

/// Operations shown when a debug build exceeds that bound.
const OPERATIONS_SHOWN: usize = 12;

impl Planner<'_> {
    /// Values whose surroundings changed, ascending by key.
    pub(super) fn sorted_revisits(&mut self) -> IntoIter<NodeIdx> {
        let graph = self.overlay.graph;
        let mut indexes = std::mem::take(&mut self.state.revisits);
        self.overlay.reserve_known(indexes.len());
        sort_by_keys_of(&mut indexes, |&idx| &graph.node(idx).key);
        indexes.into_iter()
    }

    /// Adds a value whose surroundings changed.
    pub(super) fn revisit(&mut self, idx: NodeIdx) {
        let (oidx, new) = self.overlay.touch_idx(idx);
        if new {
            let node = self.overlay.graph.node(idx);
            let has_to_follow = node.retry.as_ref().is_some_and(|retry| retry.has_to_follow);
            let drifted = node.applied.is_some() && !has_to_follow;
            self.overlay.node_mut(oidx).cause =
                if drifted { Cause::Drift } else { Cause::Unblocked };
        }
    }

    /// Begins the next round, or takes a decision when nothing is ready. False when the plan is complete.
    pub(super) fn next_round(&mut self) -> bool {
        // A value goes and returns at most a few times. If this bound is ever reached, the remaining values stay pending.
        self.state.rounds += 1;
        if self.state.rounds > ROUNDS_PER_VALUE * (self.overlay.nodes.len() + 1) {
            let last = &self.state.operations
                [self.state.operations.len().saturating_sub(OPERATIONS_SHOWN)..];
            debug_assert!(false, "the plan turns in a circle: {last:?}");
            return false;
        }
        let rank = (FOUND..=LAST).find(|&rank| !self.state.ready[rank].is_empty());
        let Some(rank) = rank else { return self.resolve() };
        let mut round = std::mem::take(&mut self.state.ready[rank]);
        let key = |oidx: &OverlayIdx| &self.overlay.nodes[*oidx as usize].key;
        round.sort_unstable();
        round.dedup();
        sort_by_keys_of(&mut round, key);
        self.state.follow_ups.push(Task::Round { rank, values: round.into_iter() });
        true
    }
}
