//! Sets of paths that are read and written, as one tree.

use std::collections::BTreeMap;

use crate::instance::{Keys, Step};
use crate::schema::NodeId;

/// Use of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Paths of one model that are read or written, each with all that is below it. The last step of a path may be a list
/// without keys, which stands for all of its entries.
#[derive(Clone, Debug, Default)]
pub(super) struct TouchedPaths {
    read: bool,
    /// Then there is nothing below, because all of it is meant.
    written: bool,
    /// True when this path, or one below it, is written.
    writes_within: bool,
    nodes: BTreeMap<NodeId, TouchedPaths>,
    /// Entries, in case this is a list.
    entries: BTreeMap<Keys, TouchedPaths>,
}

impl TouchedPaths {
    pub(super) fn add(&mut self, path: &[Step], access: Access) {
        let mut at = self;
        for step in path {
            if !at.pass(access) {
                return;
            }
            at = at.nodes.entry(step.node).or_default();
            if let Some(keys) = &step.keys {
                if !at.pass(access) {
                    return;
                }
                if !at.entries.contains_key(keys) {
                    at.entries.insert(keys.clone(), Self::default());
                }
                let Some(entry) = at.entries.get_mut(keys) else { return };
                at = entry;
            }
        }
        match access {
            Access::Read => at.read = true,
            Access::Write if at.written => {}
            Access::Write => *at = Self { written: true, writes_within: true, ..Self::default() },
        }
    }

    /// Notes a path that leads on from here; false when this node covers it.
    fn pass(&mut self, access: Access) -> bool {
        self.writes_within |= access == Access::Write;
        !(self.written || self.read && access == Access::Read)
    }

    /// True when something at or below `path` is read or written, or `path` is covered.
    pub(super) fn meets(&self, path: &[Step]) -> bool {
        let mut at = self;
        for step in path {
            if at.read || at.written {
                return true;
            }
            let Some(node) = at.nodes.get(&step.node) else { return false };
            at = node;
            if let Some(keys) = &step.keys {
                if at.read || at.written {
                    return true;
                }
                let Some(entry) = at.entries.get(keys) else { return false };
                at = entry;
            }
        }
        true
    }

    /// True when nothing that one of them writes is read or written by the other.
    pub(super) fn keeps_clear_of(&self, other: &Self) -> bool {
        let conflict = self.written && other.is_touched()
            || other.written && self.is_touched()
            || self.read && other.writes_within
            || other.read && self.writes_within;
        // Two that only read have nothing to look for.
        !conflict
            && (!self.writes_within && !other.writes_within
                || are_clear(&self.nodes, &other.nodes) && are_clear(&self.entries, &other.entries))
    }

    fn is_touched(&self) -> bool {
        self.read || self.written || !self.nodes.is_empty() || !self.entries.is_empty()
    }
}

/// Compares what both have, by the keys of the smaller one.
fn are_clear<K: Ord>(one: &BTreeMap<K, TouchedPaths>, other: &BTreeMap<K, TouchedPaths>) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().all(|(key, mine)| many.get(key).is_none_or(|theirs| mine.keeps_clear_of(theirs)))
}
