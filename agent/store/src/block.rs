//! Blocks: neighbouring rows of the layers in one row of the database.
//!
//! A database row for each list entry costs more than the entry: its key, which repeats those of all entries on the
//! way, two lengths, and its share of half-filled pages. A block holds some 64 entries, ascending by key.
//!
//! ```text
//! block = number of entries (one byte), entry...
//! entry = shared, length, bytes     the key: bytes shared with the key before, and those that follow
//!         shared, length, bytes     the value, likewise
//! ```
//!
//! Numbers are written as by `holdfast_config::rows::varint`. The key before the first entry is the key of the block,
//! which is that of the first entry; the value before it is empty. So a block is read without its neighbours. An entry
//! and those of its inner lists lie in different blocks, because a key begins with its list: see
//! `holdfast_config::rows`. That keeps neighbours alike. Entries of different lists may share a block, so that the many
//! short lists of a small configuration do not take a block each.
//!
//! **Bounds.** A block ends at [`TARGET_ENTRIES`] or [`TARGET_OCTETS`], unless the rest fits within [`MAX_ENTRIES`] and
//! [`MAX_OCTETS`]. A value that is larger than a block has a block to itself, so that its neighbours can change without
//! it. One page of the database has room for a full block, so one changed leaf rewrites one page of rows.
//!
//! **Integrity.** The database has a checksum for each page, by which it finds the last complete transaction after a
//! crash; blocks have none beside it. They are parsed strictly, so that no damage becomes configuration: keys ascend,
//! and the bytes end with the last entry. The version of this form is that of the database file, see `format.rs`.

use std::cmp::Ordering;

use holdfast_config::rows::varint;

use super::StoreError;

/// Entries at which a block is cut.
const TARGET_ENTRIES: usize = 64;
/// Most entries of a block.
const MAX_ENTRIES: usize = 2 * TARGET_ENTRIES - 1;
/// Entries below which a block is joined with a neighbour.
const MIN_ENTRIES: usize = 32;

/// Bytes at which a block is cut: two of them fit into a page.
const TARGET_OCTETS: usize = MAX_OCTETS / 2;
/// Most bytes of a block with several entries. A page of the database has 4096; a key takes about a hundred of them.
pub(super) const MAX_OCTETS: usize = 3840;
/// Bytes below which a block may be joined with a neighbour.
const MIN_OCTETS: usize = TARGET_OCTETS / 2;

const MALFORMED: StoreError = StoreError::Corrupt { what: "block of rows" };

/// A complete block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Key of the first entry.
    pub(super) key: Vec<u8>,
    pub(super) octets: Vec<u8>,
}

impl Block {
    pub(super) fn size(&self) -> Size {
        Size::of(&self.octets)
    }
}

/// Number of entries and bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) entries: usize,
    pub(super) octets: usize,
}

impl Size {
    pub(super) fn of(block: &[u8]) -> Self {
        Self { entries: block.first().map_or(0, |count| usize::from(*count)), octets: block.len() }
    }

    /// True for a block that is to be joined with a neighbour.
    pub(super) fn is_small(self) -> bool {
        self.entries < MIN_ENTRIES && self.octets < MIN_OCTETS
    }

    /// True when one block has room for both. The first key of the second one, of `key` bytes, is its own key so
    /// far and becomes part of the block.
    pub(super) fn has_room_for(self, next: Self, key: usize) -> bool {
        self.entries + next.entries <= MAX_ENTRIES && self.octets + next.octets + key <= MAX_OCTETS
    }
}

/// Cuts ascending entries into blocks.
#[derive(Debug, Default)]
pub(super) struct BlockWriter {
    /// Blocks before `head`.
    complete: Vec<Block>,
    /// A block that takes no more entries, once `tail` has some.
    head: BlockBuilder,
    /// Entries after `head`: the next block, or, if few follow, the end of `head`.
    tail: BlockBuilder,
}

impl BlockWriter {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        if self.tail.is_empty() && self.head.has_room(key, value) {
            return self.head.push(key, value);
        }
        if !self.tail.has_room(key, value) {
            let next = std::mem::take(&mut self.tail);
            let head = std::mem::replace(&mut self.head, next);
            self.complete.push(head.block);
        }
        self.tail.push(key, value);
    }

    pub(super) fn finish(mut self) -> Result<Vec<Block>, StoreError> {
        let mut last = self.tail;
        let key = last.block.key.len();
        if !last.is_empty() && self.head.block.size().has_room_for(last.block.size(), key) {
            self.head.append(&last.block)?;
            last = BlockBuilder::default();
        }
        let blocks = [self.head, last].into_iter().filter(|it| !it.is_empty());
        self.complete.extend(blocks.map(|it| it.block));
        Ok(self.complete)
    }
}

/// A block under construction.
#[derive(Debug, Default)]
struct BlockBuilder {
    block: Block,
    last_key: Vec<u8>,
    last_value: Vec<u8>,
}

impl BlockBuilder {
    fn is_empty(&self) -> bool {
        self.block.octets.is_empty()
    }

    /// True when the entry belongs to this block, not to the next one.
    fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        let size = self.block.size();
        let entry =
            || relative_octets(&self.last_key, key) + relative_octets(&self.last_value, value);
        self.is_empty()
            || size.entries < TARGET_ENTRIES
                && size.octets < TARGET_OCTETS
                && size.octets + entry() <= MAX_OCTETS
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        if self.is_empty() {
            self.block.key.extend_from_slice(key);
            self.last_key.extend_from_slice(key);
            self.block.octets.push(0);
        }
        self.block.octets[0] += 1;
        put_relative(&mut self.block.octets, &mut self.last_key, key);
        put_relative(&mut self.block.octets, &mut self.last_value, value);
    }

    /// Adds the entries of a block that follows.
    fn append(&mut self, block: &Block) -> Result<(), StoreError> {
        let mut entries = BlockReader::new(block)?;
        while entries.advance()? {
            self.push(entries.key(), entries.value());
        }
        Ok(())
    }
}

/// Joins a block with the one after it; both fit into one.
pub(super) fn join(first: &Block, second: &Block) -> Result<Block, StoreError> {
    let mut joined = BlockBuilder::default();
    joined.append(first)?;
    joined.append(second)?;
    Ok(joined.block)
}

/// Reads the entries of a block, ascending by key, into buffers that it uses again.
#[derive(Debug, Default)]
pub(super) struct BlockReader<'b> {
    /// Bytes of the entries after the current one.
    rest: &'b [u8],
    /// Entries after the current one.
    left: u8,
    is_first: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'b> BlockReader<'b> {
    pub(super) fn new(block: &'b Block) -> Result<Self, StoreError> {
        let mut reader = Self::default();
        reader.open(&block.key, &block.octets)?;
        Ok(reader)
    }

    /// Starts with another block.
    pub(super) fn open(&mut self, key: &[u8], octets: &'b [u8]) -> Result<(), StoreError> {
        let (left, rest) = octets.split_first().ok_or(MALFORMED)?;
        if *left == 0 {
            return Err(MALFORMED);
        }
        (self.left, self.rest, self.is_first) = (*left, rest, true);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        Ok(())
    }

    /// Goes to the next entry; false after the last one.
    pub(super) fn advance(&mut self) -> Result<bool, StoreError> {
        let Some(left) = self.left.checked_sub(1) else {
            return if self.rest.is_empty() { Ok(false) } else { Err(MALFORMED) };
        };
        self.left = left;
        let order = take_relative(&mut self.rest, &mut self.key).ok_or(MALFORMED)?;
        take_relative(&mut self.rest, &mut self.value).ok_or(MALFORMED)?;
        let is_first = std::mem::take(&mut self.is_first);
        let expected = if is_first { Ordering::Equal } else { Ordering::Greater };
        if order == expected { Ok(true) } else { Err(MALFORMED) }
    }

    /// Key of the current entry.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the current entry.
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }
}

/// Number of bytes with which both begin.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Appends `octets` relative to those before, which they replace.
fn put_relative(out: &mut Vec<u8>, before: &mut Vec<u8>, octets: &[u8]) {
    let shared = common(before, octets);
    varint::put(out, shared as u64);
    varint::put(out, (octets.len() - shared) as u64);
    out.extend_from_slice(&octets[shared..]);
    before.truncate(shared);
    before.extend_from_slice(&octets[shared..]);
}

/// Number of bytes that [`put_relative`] appends.
fn relative_octets(before: &[u8], octets: &[u8]) -> usize {
    let shared = common(before, octets);
    let rest = octets.len() - shared;
    varint::octets(shared as u64) + varint::octets(rest as u64) + rest
}

/// Reads bytes relative to those before, which they replace. Returns how they compare with those.
fn take_relative(input: &mut &[u8], before: &mut Vec<u8>) -> Option<Ordering> {
    let mut number = || usize::try_from(varint::take(input).ok()?).ok();
    let shared = number()?;
    let length = number()?;
    let (octets, rest) = input.split_at_checked(length)?;
    let order = octets.cmp(before.get(shared..)?);
    before.truncate(shared);
    before.extend_from_slice(octets);
    *input = rest;
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entry = (Vec<u8>, Vec<u8>);

    fn entries(count: usize, octets: usize) -> Vec<Entry> {
        let entry = |number: usize| {
            (
                format!("a list, {number:06}").into_bytes(),
                vec![u8::try_from(number % 251).unwrap(); octets],
            )
        };
        (0..count).map(entry).collect()
    }

    fn cut(entries: &[Entry]) -> Vec<Block> {
        let mut writer = BlockWriter::default();
        entries.iter().for_each(|(key, value)| writer.push(key, value));
        writer.finish().unwrap()
    }

    fn read(block: &Block) -> Result<Vec<Entry>, StoreError> {
        let mut reader = BlockReader::new(block)?;
        let mut entries = Vec::new();
        while reader.advance()? {
            entries.push((reader.key().to_vec(), reader.value().to_vec()));
        }
        Ok(entries)
    }

    #[track_caller]
    fn check_cut(entries: &[Entry], want: &[usize]) {
        let blocks = cut(entries);
        let counts: Vec<_> = blocks.iter().map(|block| block.size().entries).collect();
        assert_eq!(counts, want);
        let back: Vec<_> = blocks.iter().flat_map(|block| read(block).unwrap()).collect();
        assert_eq!(back, entries);
        for block in blocks {
            assert_eq!(block.key, read(&block).unwrap()[0].0);
            assert!(
                block.size().octets <= MAX_OCTETS || block.size().entries == 1,
                "{:?}",
                block.size()
            );
        }
    }

    #[test]
    fn blocks_are_bounded_in_entries_and_octets() {
        check_cut(&[], &[]);
        check_cut(&entries(1, 10), &[1]);
        check_cut(&entries(127, 10), &[127]);
        check_cut(&entries(128, 10), &[64, 64]);
        check_cut(&entries(200, 10), &[64, 64, 72]);
        check_cut(&entries(7, 1000), &[2, 2, 3]);
        check_cut(&entries(3, 5000), &[1, 1, 1]);
        let mut mixed = entries(9, 10);
        mixed[4].1 = vec![7; 1 << 20];
        check_cut(&mixed, &[4, 1, 4]);
        mixed[8].1 = (0..=255).cycle().take(1 << 20).collect();
        check_cut(&mixed, &[4, 1, 3, 1]);
    }

    #[test]
    fn neighbours_that_are_alike_take_few_octets() {
        let key =
            |number: usize| format!("network instance, protocol, list, 10.0.{number:03}.0/24");
        let alike: Vec<_> = (0..64).map(|number| (key(number).into_bytes(), vec![3; 22])).collect();
        let octets = cut(&alike)[0].octets.len();
        assert!(octets < 64 * 15, "{octets}");
    }

    #[test]
    fn two_blocks_become_one() {
        let all = entries(40, 30);
        let (one, two) = all.split_at(15);
        let joined = join(&cut(one)[0], &cut(two)[0]).unwrap();
        assert_eq!(joined, cut(&all)[0]);
    }

    #[test]
    fn damage_is_found() {
        let whole = &cut(&entries(5, 3))[0];
        for length in 0..whole.octets.len() {
            let octets = whole.octets[..length].to_vec();
            assert!(read(&Block { octets, ..whole.clone() }).is_err(), "cut at {length}");
        }
        let mut longer = whole.clone();
        longer.octets.push(0);
        assert!(read(&longer).is_err(), "bytes behind the last entry");
        let descending =
            Block { key: b"b".to_vec(), octets: vec![2, 1, 0, 0, 0, 0, 1, b'a', 0, 0] };
        assert!(read(&descending).is_err(), "keys that do not ascend");
        let foreign = Block { key: b"b".to_vec(), octets: vec![1, 0, 1, b'a', 0, 0] };
        assert!(read(&foreign).is_err(), "a first entry that has not the key of the block");
        let endless =
            Block { key: b"b".to_vec(), octets: [&[1, 1, 0, 0][..], &[0xff; 11]].concat() };
        assert!(read(&endless).is_err(), "a number that does not end");
    }
}
