//! Arenas of the graph, and their indexes: tables that grow a piece at a time.
//!
//! A table of a million values that moves to a larger place as a whole keeps events waiting for a tenth of a second. So an arena adds
//! chunks, whose slots stay where they are, and an index by content has shards that grow one by one:
//!
//! ```text
//! Arena:  [ 4096 slots ] [ 4096 slots ] [ 7 slots, room for 4096 ]   <- one chunk is added
//! Slots:  shard 0 | shard 1 | ... | shard 255                        <- the fullest one grows, 1/256 of the index
//! ```

use std::array;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

/// Bits of a slot number that say which slot of its chunk it is. A chunk of nodes is about a megabyte, and only its
/// used part is touched: smaller chunks made completions a tenth slower, larger ones leave more room unused.
const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Lowest bit of a hash that selects the shard. The table of the shard uses the lowest ones and the seven uppermost ones.
const SHARD_SHIFT: u32 = 40;

/// Table of slots that never move once there are more than a chunk.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    /// All chunks are full, except the last one.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Arena<T> {
    pub(crate) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Adds a slot, and returns its number.
    pub(crate) fn push(&mut self, content: T) -> u32 {
        let slot = u32::try_from(self.len()).expect("memory ends before 2^32 slots");
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(content),
            // The only chunk of a small table takes no more memory than it needs.
            None => self.chunks.push(vec![content]),
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(content);
                self.chunks.push(chunk);
            }
        }
        slot
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let (chunk, at) = place(slot);
        self.chunks.get(chunk)?.get(at)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let (chunk, at) = place(slot);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        let (chunk, at) = place(slot);
        &self.chunks[chunk][at]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        let (chunk, at) = place(slot);
        &mut self.chunks[chunk][at]
    }
}

fn place(slot: u32) -> (usize, usize) {
    ((slot >> CHUNK_BITS) as usize, slot as usize % CHUNK)
}

/// Index of slots by the hash of their content, which is not stored a second time. Of several shards, each grows
/// alone.
#[derive(Clone, Debug)]
pub(crate) struct Slots<const SHARDS: usize = 1> {
    shards: [HashTable<u32>; SHARDS],
    len: usize,
    /// Number of slots that are expected: a shard that has to grow makes room for its share.
    expected: usize,
}

impl<const SHARDS: usize> Default for Slots<SHARDS> {
    fn default() -> Self {
        Self { shards: array::from_fn(|_| HashTable::new()), len: 0, expected: 0 }
    }
}

impl<const SHARDS: usize> Slots<SHARDS> {
    /// Returns the slot with this hash for which `is` is true.
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.shards[Self::shard(hash)].find(hash, |&slot| is(slot)).copied()
    }

    /// Adds a slot that is not indexed yet. `of` returns the hash of the content of any slot.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, of: impl Fn(u32) -> u64) {
        let share = self.expected.div_ceil(SHARDS);
        let shard = &mut self.shards[Self::shard(hash)];
        if shard.len() == shard.capacity() {
            shard.reserve(share.saturating_sub(shard.len()).max(1), |&slot| of(slot));
        }
        shard.insert_unique(hash, slot, |&slot| of(slot));
        self.len += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let shard = &mut self.shards[Self::shard(hash)];
        if let Ok(entry) = shard.find_entry(hash, |&other| other == slot) {
            entry.remove();
            self.len -= 1;
        }
    }

    /// Expects this many more slots.
    pub(crate) fn expect(&mut self, more: usize) {
        self.expected = self.len + more;
    }

    fn shard(hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize % SHARDS
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::key::hash_of;

    /// Number of slots: enough for several chunks, and for shards that grow more than once.
    const MANY: u32 = 300_000;

    #[test]
    fn slots_of_a_large_arena_never_move() {
        let mut arena = Arena::default();
        for number in 0..CHUNK {
            arena.push(number);
        }
        let before: Vec<*const usize> = arena.iter().map(std::ptr::from_ref).collect();
        for number in CHUNK..10 * CHUNK + 7 {
            arena.push(number);
        }
        let after: Vec<*const usize> = arena.iter().take(CHUNK).map(std::ptr::from_ref).collect();
        assert_eq!(before, after);
        assert_eq!(arena.len(), 10 * CHUNK + 7);
        assert!(arena.iter().copied().eq(0..arena.len()));
        let last = u32::try_from(arena.len() - 1).unwrap();
        arena[last] = 3;
        assert_eq!((arena[last], arena.get(last), arena.get(last + 1)), (3, Some(&3), None));
    }

    /// Most slots that one insertion moves.
    fn moved_most<const SHARDS: usize>(expected: usize) -> usize {
        let mut slots = Slots::<SHARDS>::default();
        slots.expect(expected);
        let mut most = 0;
        for slot in 0..MANY {
            let moved = Cell::new(0);
            slots.insert(hash_of(&slot), slot, |other| {
                moved.set(moved.get() + 1);
                hash_of(&other)
            });
            most = most.max(moved.get());
        }
        assert_eq!(slots.len(), MANY as usize);
        for slot in (0..MANY).step_by(1000) {
            assert_eq!(slots.find(hash_of(&slot), |other| other == slot), Some(slot));
            slots.remove(hash_of(&slot), slot);
            assert_eq!(slots.find(hash_of(&slot), |other| other == slot), None);
        }
        most
    }

    #[test]
    fn an_insertion_moves_no_more_than_a_shard() {
        assert!(moved_most::<1>(0) > MANY as usize / 2, "all that there are");
        assert!(moved_most::<256>(0) < 2 * MANY as usize / 256);
        assert!(moved_most::<256>(MANY as usize) < 16, "where they are expected, next to none");
    }
}
