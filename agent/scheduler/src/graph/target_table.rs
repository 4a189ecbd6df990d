//! The accounts of targets. Whoever is listed with one knows its slot, and need not look for it again.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::NodeIdx;
use crate::dependency::Target;
use crate::key::{Slots, hash_of};

/// A slot of the arena of groups.
pub(crate) type TargetId = u32;

/// The groups of what one value needs.
pub(crate) type TargetIds = SmallVec<[TargetId; 4]>;

/// Most targets have few members: those are kept without an allocation.
pub(super) type Watchers = SmallVec<[NodeIdx; 4]>;

/// OverlayTargetId of one target.
#[derive(Debug, Default)]
pub(crate) struct TargetState {
    /// Live values that offer it.
    pub(crate) providers: u32,
    /// Dependencies of live values of ours on it that order deletes.
    pub(crate) dependents: u32,
    /// Those among them that want to be made anew when it changes.
    pub(crate) recreate_dependents: u32,
    /// Values with a goal or a live value that needs it. May hold stale entries, and entries twice.
    pub(super) watchers: Watchers,
    pub(super) stale: u32,
}

impl TargetState {
    /// The members, each one once. Only a list with stale entries can hold one twice.
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

/// All groups. A slot is used again once its group is closed.
#[derive(Debug, Default)]
pub(crate) struct TargetTable {
    all: Vec<Option<(Target, TargetState)>>,
    index: Slots,
    free: Vec<TargetId>,
}

impl TargetTable {
    pub(super) fn find(&self, target: &Target) -> Option<TargetId> {
        self.find_hashed(target, hash_of(target))
    }

    pub(super) fn find_hashed(&self, target: &Target, hash: u64) -> Option<TargetId> {
        self.index.find(hash, |id| self.entry(id).is_some_and(|(it, _)| it == target))
    }

    /// The same for whoever knows where it was before.
    pub(super) fn find_at(&self, known: Option<TargetId>, target: &Target) -> Option<TargetId> {
        let there = |&id: &TargetId| self.entry(id).is_some_and(|(it, _)| it == target);
        known.filter(there).or_else(|| self.find(target))
    }

    pub(super) fn get(&self, target: &Target) -> Option<&TargetState> {
        self.find(target).map(|id| self.of(id))
    }

    /// The group of a slot that somebody is listed with.
    pub(super) fn of(&self, id: TargetId) -> &TargetState {
        &self.entry(id).expect("a watched target is not closed").1
    }

    pub(super) fn of_mut(&mut self, id: TargetId) -> &mut TargetState {
        let entry = self.all.get_mut(id as usize).and_then(Option::as_mut);
        &mut entry.expect("a watched target is not closed").1
    }

    pub(super) fn target(&self, id: TargetId) -> &Target {
        &self.entry(id).expect("a watched target is not closed").0
    }

    fn entry(&self, id: TargetId) -> Option<&(Target, TargetState)> {
        self.all.get(id as usize).and_then(Option::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Target, &TargetState)> {
        self.all.iter().flatten().map(|(target, state)| (target, state))
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.all.reserve(more);
        let all = &self.all;
        self.index.reserve(more, |id| hash_at(all, id));
    }

    /// Opens the account of a target that has none.
    pub(super) fn open(&mut self, target: &Target, state: TargetState) -> TargetId {
        let entry = Some((target.clone(), state));
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = entry;
                id
            }
            None => {
                self.all.push(entry);
                TargetId::try_from(self.all.len() - 1).expect("memory ends before 2^32 targets")
            }
        };
        let all = &self.all;
        self.index.insert(hash_of(target), id, |id| hash_at(all, id));
        id
    }

    pub(super) fn close(&mut self, id: TargetId) -> Option<Target> {
        let (target, _) = self.all.get_mut(id as usize)?.take()?;
        self.index.remove(hash_of(&target), id);
        self.free.push(id);
        Some(target)
    }
}

fn hash_at(all: &[Option<(Target, TargetState)>], id: TargetId) -> u64 {
    all[id as usize].as_ref().map_or(0, |(target, _)| hash_of(target))
}
