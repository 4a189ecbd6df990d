//! Table of target states. Nodes keep the slots of their targets, so that no lookup is needed.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{NodeIdx, SHARDS};
use crate::arena::{Arena, Slots};
use crate::dependency::Target;
use crate::key::hash_of;

/// Slot in the arena of targets.
pub(crate) type TargetId = u32;

/// Targets of one value.
pub(crate) type TargetIds = SmallVec<[TargetId; 4]>;

/// Watchers, mostly few: without an allocation.
pub(super) type Watchers = SmallVec<[NodeIdx; 4]>;

/// Counts and watchers of one target.
#[derive(Debug, Default)]
pub(crate) struct TargetState {
    /// Present values that provide the target.
    pub(crate) providers: u32,
    /// Dependencies of present values of ours on the target.
    pub(crate) dependents: u32,
    /// Nodes with a goal or a present value that needs the target. May hold stale entries and duplicates.
    pub(super) watchers: Watchers,
    pub(super) stale: u32,
}

impl TargetState {
    /// True when values need the target, or may need it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.watchers.is_empty() || self.dependents > 0
    }

    /// Watchers without duplicates. Only a list with stale entries can hold any.
    pub(crate) fn unique_watchers(&self) -> Cow<'_, [NodeIdx]> {
        if self.stale == 0 {
            return Cow::Borrowed(&self.watchers);
        }
        let mut watchers = self.watchers.to_vec();
        watchers.sort_unstable();
        watchers.dedup();
        Cow::Owned(watchers)
    }
}

/// Arena of all targets. A slot is reused once its target is closed.
#[derive(Debug, Default)]
pub(crate) struct TargetTable {
    all: Arena<Option<(Target, TargetState)>>,
    index: Slots<SHARDS>,
    free: Vec<TargetId>,
}

impl TargetTable {
    pub(super) fn find(&self, target: &Target) -> Option<TargetId> {
        self.find_hashed(target, hash_of(target))
    }

    pub(super) fn find_hashed(&self, target: &Target, hash: u64) -> Option<TargetId> {
        self.index.find(hash, |id| self.entry(id).is_some_and(|(it, _)| it == target))
    }

    /// Finds a target that was in the slot `slot` before.
    pub(super) fn find_at(&self, slot: Option<TargetId>, target: &Target) -> Option<TargetId> {
        let there = |&id: &TargetId| self.entry(id).is_some_and(|(it, _)| it == target);
        slot.filter(there).or_else(|| self.find(target))
    }

    pub(super) fn get(&self, target: &Target) -> Option<&TargetState> {
        self.find(target).map(|id| self.of(id))
    }

    /// State in a slot of a watched target.
    pub(super) fn of(&self, id: TargetId) -> &TargetState {
        &self.entry(id).expect("a watched target is not closed").1
    }

    pub(super) fn of_mut(&mut self, id: TargetId) -> &mut TargetState {
        let entry = self.all.get_mut(id).and_then(Option::as_mut);
        &mut entry.expect("a watched target is not closed").1
    }

    pub(super) fn target(&self, id: TargetId) -> &Target {
        &self.entry(id).expect("a watched target is not closed").0
    }

    pub(super) fn entry(&self, id: TargetId) -> Option<&(Target, TargetState)> {
        self.all.get(id).and_then(Option::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Target, &TargetState)> {
        self.all.iter().flatten().map(|(target, state)| (target, state))
    }

    /// Expects this many more.
    pub(super) fn expect(&mut self, more: usize) {
        self.index.expect(more);
    }

    /// Adds a target that is not in the table.
    pub(super) fn open(&mut self, target: &Target, state: TargetState) -> TargetId {
        let entry = Some((target.clone(), state));
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id] = entry;
                id
            }
            None => self.all.push(entry),
        };
        let all = &self.all;
        self.index.insert(hash_of(target), id, |id| hash_at(all, id));
        id
    }

    pub(super) fn close(&mut self, id: TargetId) -> Option<Target> {
        let (target, _) = self.all.get_mut(id)?.take()?;
        self.index.remove(hash_of(&target), id);
        self.free.push(id);
        Some(target)
    }
}

fn hash_at(all: &Arena<Option<(Target, TargetState)>>, id: TargetId) -> u64 {
    all[id].as_ref().map_or(0, |(target, _)| hash_of(target))
}
