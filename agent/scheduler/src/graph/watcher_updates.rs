//! Updates of the watchers of targets that many values depend on.
//!
//! A hundred thousand values may depend on one target. When it comes or goes, the number of its providers changes at once. To
//! update each watcher takes longer than an event may wait, so that is done in portions by
//! [`Engine::due`](crate::Engine::due), between events:
//!
//! ```text
//! a target comes or goes:  its providers | watcher | watcher | watcher ...
//!                                        ==== portion ==== portion ====
//!                                             ^  an event: what its values lack is counted anew
//! ```
//!
//! *Invariants:*
//!
//! * `unmet` of a node lags behind while its update waits; [`Graph::count_unmet`] does not.
//! * Nothing is planned meanwhile: a plan would find some values ready, and others not yet.

use std::collections::VecDeque;
use std::vec;

use super::{Graph, NodeIdx, TargetId};
use crate::portion::PORTION;

/// Updates of the watchers of one target.
#[derive(Debug)]
struct WatcherUpdate {
    target: TargetId,
    /// Watchers that are left. May hold stale entries.
    watchers: vec::IntoIter<NodeIdx>,
    /// True when the target came or went by a change of ours.
    is_own_change: bool,
}

/// Updates that wait for their turn.
#[derive(Debug)]
pub(crate) struct WatcherUpdates {
    pending: VecDeque<WatcherUpdate>,
    /// Watchers that are updated at a time.
    pub(crate) portion: usize,
}

impl Default for WatcherUpdates {
    fn default() -> Self {
        Self { pending: VecDeque::new(), portion: PORTION }
    }
}

impl WatcherUpdates {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds the watchers of a target. They replace those that are left of an earlier update.
    pub(super) fn push(&mut self, target: TargetId, watchers: Vec<NodeIdx>, is_own_change: bool) {
        self.cancel(target);
        self.pending.push_back(WatcherUpdate {
            target,
            watchers: watchers.into_iter(),
            is_own_change,
        });
    }

    /// Drops what is left of the update of a target.
    pub(super) fn cancel(&mut self, target: TargetId) {
        self.pending.retain(|update| update.target != target);
    }

    /// The next watcher, its target, and whether that is a change of ours. An update stays listed until the call after its last
    /// watcher, which lags until then.
    fn next(&mut self) -> Option<(NodeIdx, TargetId, bool)> {
        loop {
            let update = self.pending.front_mut()?;
            if let Some(watcher) = update.watchers.next() {
                return Some((watcher, update.target, update.is_own_change));
            }
            self.pending.pop_front();
        }
    }
}

impl Graph {
    /// Number of needed targets without a provider.
    pub(crate) fn count_unmet(&self, idx: NodeIdx) -> u32 {
        let node = self.node(idx);
        if self.watcher_updates.is_empty() {
            return node.unmet;
        }
        self.recount_unmet(idx)
    }

    /// Like [`Graph::count_unmet`], counted anew.
    pub(super) fn recount_unmet(&self, idx: NodeIdx) -> u32 {
        let need_targets = &self.node(idx).need_targets;
        let unmet = need_targets.iter().filter(|&&id| self.targets.of(id).providers == 0).count();
        u32::try_from(unmet).unwrap_or(u32::MAX)
    }

    /// Updates the next watchers, at most so many. Returns how many.
    pub(crate) fn update_watchers(&mut self, most: usize) -> usize {
        let mut done = 0;
        while done < most
            && let Some((watcher, target, is_own_change)) = self.watcher_updates.next()
        {
            let is_provided = self.targets.of(target).providers > 0;
            self.is_own_change = is_own_change;
            self.update_watcher(watcher, target, is_provided);
            self.is_own_change = false;
            done += 1;
        }
        self.counters.edges += done as u64;
        self.counters.watchers_updated += done as u64;
        done
    }
}
