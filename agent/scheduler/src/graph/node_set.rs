//! Set of nodes with cheap changes: all nodes of a large transaction enter and leave it.

use super::NodeIdx;

/// Place of a node that is not in the set.
const NOWHERE: u32 = u32::MAX;

/// Capacity kept after the set became empty.
const ROOM_KEPT: usize = 1024;

/// Node slots in no order. A change looks at one place, whatever the size.
#[derive(Debug, Default)]
pub(crate) struct NodeSet {
    all: Vec<NodeIdx>,
    /// Place of each node slot in `all`.
    places: Vec<u32>,
}

impl NodeSet {
    pub(crate) fn all(&self) -> &[NodeIdx] {
        &self.all
    }

    pub(crate) fn contains(&self, idx: NodeIdx) -> bool {
        self.places.get(idx as usize).is_some_and(|&place| place != NOWHERE)
    }

    /// Adds a node. True when it was not in the set.
    pub(super) fn insert(&mut self, idx: NodeIdx) -> bool {
        let slot = idx as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, NOWHERE);
        }
        let new = self.places[slot] == NOWHERE;
        if new {
            self.places[slot] = u32::try_from(self.all.len()).expect("there are less nodes");
            self.all.push(idx);
        }
        new
    }

    /// Removes a node. True when it was in the set.
    pub(super) fn remove(&mut self, idx: NodeIdx) -> bool {
        let place = self.places.get_mut(idx as usize);
        let Some(place) = place.filter(|place| **place != NOWHERE) else { return false };
        let at = std::mem::replace(place, NOWHERE);
        self.all.swap_remove(at as usize);
        if let Some(&moved) = self.all.get(at as usize) {
            self.places[moved as usize] = at;
        }
        if self.all.is_empty() {
            self.all.shrink_to(ROOM_KEPT);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_and_go_in_any_order() {
        let mut set = NodeSet::default();
        for idx in [7, 2, 9, 2] {
            set.insert(idx);
        }
        assert!(set.remove(7));
        assert!(!set.remove(7));
        assert!(!set.remove(100));
        set.insert(4);
        set.remove(9);
        let mut all = set.all().to_vec();
        all.sort_unstable();
        assert_eq!(all, [2, 4]);
    }
}
