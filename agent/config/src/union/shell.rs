//! Shells: entries of client OpenConfig without any leaves but keys, also in all entries below.
//!
//! Controllers create shells when they read a whole tree and send it back, because some entries exist in state only.
//! A shell configures nothing, so the union ignores it except in the view of its layer. An entry that is complete
//! with its keys alone (a user without a role) is not a shell.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{EntryResult, EntryVersions, Union};
use crate::layer::{LayerKey, LeafMark};
use crate::map::{Anchor, Map, leaf_at};
use crate::tree::{Branch, Child, List, NodeRef};

impl Map {
    /// True when an OpenConfig entry and all of its descendants have no leaves but keys.
    pub(crate) fn is_shell(&self, entry: &Branch<LeafMark>) -> bool {
        entry.children().iter().all(|(node, child)| match child {
            Child::Leaf(_) => self.is_openconfig_key(*node),
            Child::Container(branch) => !branch.given && self.is_shell(branch),
            Child::List(list) => list.iter().all(|(_, entry)| self.is_shell(entry)),
        })
    }

    /// Applies the same test to any OpenConfig node.
    pub(crate) fn has_only_keys(&self, found: NodeRef<'_, LeafMark>) -> bool {
        match found {
            NodeRef::Leaf(_) => false,
            NodeRef::Branch(branch) => self.is_shell(branch),
            NodeRef::List(list) => list.iter().all(|(_, entry)| self.is_shell(entry)),
        }
    }

    /// True when the part of `new` that is not shared with `old` has leaves other than keys. The cost is that of
    /// this part.
    fn adds_non_key_leaf(
        &self,
        old: Option<&Arc<Branch<LeafMark>>>,
        new: &Arc<Branch<LeafMark>>,
    ) -> bool {
        if old.is_some_and(|old| Arc::ptr_eq(old, new)) {
            return false;
        }
        new.children().iter().any(|(node, child)| match child {
            Child::Leaf(_) => !self.is_openconfig_key(*node),
            Child::Container(branch) => {
                let old = old.and_then(|old| old.container(*node));
                branch.given || self.adds_non_key_leaf(old, branch)
            }
            Child::List(list) => {
                let empty = List::default();
                let old = old.and_then(|old| old.list(*node)).unwrap_or(&empty);
                let adds = |it: crate::tree::EntryDifference<'_, LeafMark>| {
                    it.new.is_some_and(|new| self.adds_non_key_leaf(it.old, new))
                };
                List::differences(old, list).any(adds)
            }
        })
    }
}

impl<'a> Union<'a> {
    /// Removes client OpenConfig from the inputs of an entry when it is a shell. `old` is the previous result,
    /// which tells whether OpenConfig had content in the entry before: only an entry that may have become a shell
    /// is searched as a whole.
    pub(super) fn without_shell(
        &self,
        anchor: &Anchor,
        inputs: &[EntryVersions<'a>],
        old: &EntryResult,
    ) -> Option<SmallVec<[EntryVersions<'a>; 4]>> {
        if anchor.keys_suffice {
            return None;
        }
        let at = self.client_openconfig?;
        let EntryVersions { old: before, new } = inputs[at];
        let entry = new?;
        let map = &self.models.map;
        let key = anchor.leaves.iter().find(|leaf| leaf.key.is_some())?;
        if map.adds_non_key_leaf(before, entry) || self.native_client_has_leaf(anchor, inputs) {
            return None;
        }
        let asked_for = match &old.effective {
            Some(entry) => leaf_at(entry, &key.native)
                .is_some_and(|leaf| leaf.meta.owners.contains(LayerKey::CLIENT_OPENCONFIG)),
            None => self.boot, // a boot layer may have removed the entry
        };
        if asked_for && !map.is_shell(entry) {
            return None;
        }
        let mut own: SmallVec<[EntryVersions<'a>; 4]> = inputs.iter().copied().collect();
        own[at].new = None;
        Some(own)
    }

    /// True when client native has a leaf of the entry itself, in which case a shell counts as a regular entry.
    fn native_client_has_leaf(&self, anchor: &Anchor, inputs: &[EntryVersions<'a>]) -> bool {
        let Some(entry) = self.client_native.and_then(|at| inputs[at].new) else { return false };
        anchor.leaves.iter().filter(|leaf| leaf.key.is_none()).any(|leaf| {
            leaf_at(entry, &leaf.native).is_some_and(|it| it.meta == LeafMark::Explicit)
        })
    }
}
