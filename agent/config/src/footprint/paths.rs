//! Sets of paths that are read and written, as one tree, and sets of other things.

use std::collections::BTreeMap;

use crate::instance::{Keys, Step};
use crate::schema::NodeId;

/// Use of a path, or of another thing. The second one is the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
                || all_in_both(&self.nodes, &other.nodes, Self::keeps_clear_of)
                    && all_in_both(&self.entries, &other.entries, Self::keeps_clear_of))
    }

    fn is_touched(&self) -> bool {
        self.read || self.written || !self.nodes.is_empty() || !self.entries.is_empty()
    }
}

/// True when `check` holds for the values of all keys that both have, by the keys of the smaller one.
fn all_in_both<K: Ord, V>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
    check: impl Fn(&V, &V) -> bool,
) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().all(|(key, mine)| many.get(key).is_none_or(|theirs| check(mine, theirs)))
}

/// Things without parts that are read or written.
#[derive(Clone, Debug)]
pub(super) struct TouchedItems<K>(BTreeMap<K, Access>);

impl<K> Default for TouchedItems<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> TouchedItems<K> {
    pub(super) fn add(&mut self, item: K, access: Access) {
        let present = self.0.entry(item).or_insert(access);
        *present = access.max(*present);
    }

    /// True when nothing that one of them writes is read or written by the other.
    pub(super) fn keeps_clear_of(&self, other: &Self) -> bool {
        all_in_both(&self.0, &other.0, |mine, theirs| {
            (mine, theirs) == (&Access::Read, &Access::Read)
        })
    }
}
