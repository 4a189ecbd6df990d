//! The table of layer rows in blocks, and how changes of single entries become changes of blocks.
//!
//! The key of a block is that of its first entry, so an entry is in the last block whose key is not above its own. An
//! entry before all blocks goes into the first one, which then gets another key. Changes are sorted, and every block
//! that they concern is read once and written once. A block that grows too large is cut where it stands; one that
//! becomes small is joined with the one behind or before it if both fit into one. A block whose last entry goes is
//! removed, so the deletion of a whole list reads its blocks and writes none.
//!
//! All of it happens in one transaction of the database, together with the pre-images, which stay those of single
//! entries: a roll-back is a change like any other, whatever became of the blocks meanwhile.

use std::ops::Bound;

use redb::{AccessGuard, ReadableTable};

use super::block::{self, Block, BlockReader, BlockWriter, Size};
use super::{Change, StoreError};

/// Blocks that were decoded, written and removed: what a change costs, independent of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockWork {
    pub read: u64,
    pub written: u64,
    pub removed: u64,
}

pub(super) type BytesTable<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

/// Receives the content of a row before it changes.
pub(super) type PreImage<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), StoreError> + 'a;

const ATTEMPT: &str = "write rows in blocks";

/// Makes `changes`, ascending by key; the last one of a key counts. `earlier` is called once for each key.
pub(super) fn apply(
    table: &mut BytesTable<'_>,
    changes: &[&Change],
    work: &mut BlockWork,
    earlier: &mut PreImage<'_>,
) -> Result<(), StoreError> {
    let mut small = Vec::new();
    let mut rest = changes;
    while let Some(first) = rest.first() {
        let block = holder(table, &first.key)?;
        let bound = match &block {
            Some(block) => key_after(table, &block.key)?,
            None => None,
        };
        let inside =
            bound.map_or(rest.len(), |bound| rest.partition_point(|change| change.key < bound));
        let (run, after) = rest.split_at(inside);
        let edited = edit(block.as_ref(), run, earlier)?;
        work.read += u64::from(block.is_some());
        replace(table, block.as_slice(), &edited, work)?;
        if edited.is_empty() {
            // The blocks around the one that is gone are neighbours now.
            small.extend(holder(table, &first.key)?.map(|it| it.key));
        }
        small.extend(edited.into_iter().filter(|it| it.size().is_small()).map(|it| it.key));
        rest = after;
    }
    small.iter().try_for_each(|key| join_small(table, key, work))
}

/// The block that holds `key`, or would hold it; `None` when there are no blocks.
fn holder(table: &BytesTable<'_>, key: &[u8]) -> Result<Option<Block>, StoreError> {
    let found = || -> Result<Option<Block>, redb::Error> {
        let row = match table.range::<&[u8]>(..=key)?.next_back() {
            Some(row) => Some(row?),
            None => table.first()?,
        };
        Ok(row.map(|row| block_of(&row)))
    };
    found().map_err(StoreError::accessing(ATTEMPT))
}

/// A row of the table as it is stored: the key of a block, and its bytes.
type StoredRow<'t> = (AccessGuard<'t, &'static [u8]>, AccessGuard<'t, &'static [u8]>);

fn block_of((key, octets): &StoredRow<'_>) -> Block {
    Block { key: key.value().to_vec(), octets: octets.value().to_vec() }
}

fn key_after(table: &BytesTable<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let next = row_after(table, key).map_err(StoreError::accessing(ATTEMPT))?;
    Ok(next.map(|(key, _)| key.value().to_vec()))
}

fn row_after<'t>(
    table: &'t BytesTable<'_>,
    key: &[u8],
) -> Result<Option<StoredRow<'t>>, redb::Error> {
    let mut after = table.range::<&[u8]>((Bound::Excluded(key), Bound::Unbounded))?;
    Ok(after.next().transpose()?)
}

/// Merges the entries of a block with changes that lie before the next block.
fn edit(
    block: Option<&Block>,
    changes: &[&Change],
    earlier: &mut PreImage<'_>,
) -> Result<Vec<Block>, StoreError> {
    let mut writer = BlockWriter::default();
    let mut entries = match block {
        Some(block) => BlockReader::new(block)?,
        None => BlockReader::default(),
    };
    let mut has_entry = entries.advance()?;
    for of_key in changes.chunk_by(|one, other| one.key == other.key) {
        let Some(change) = of_key.last() else { continue };
        while has_entry && entries.key() < change.key.as_slice() {
            writer.push(entries.key(), entries.value());
            has_entry = entries.advance()?;
        }
        let is_replaced = has_entry && entries.key() == change.key.as_slice();
        earlier(&change.key, is_replaced.then(|| entries.value()))?;
        if let Some(value) = &change.value {
            writer.push(&change.key, value);
        }
        if is_replaced {
            has_entry = entries.advance()?;
        }
    }
    while has_entry {
        writer.push(entries.key(), entries.value());
        has_entry = entries.advance()?;
    }
    writer.finish()
}

/// Writes `new` blocks in place of `old` ones.
fn replace(
    table: &mut BytesTable<'_>,
    old: &[Block],
    new: &[Block],
    work: &mut BlockWork,
) -> Result<(), StoreError> {
    let mut replaced = || -> Result<(), redb::Error> {
        for block in old.iter().filter(|old| new.iter().all(|new| new.key != old.key)) {
            table.remove(block.key.as_slice())?;
            work.removed += 1;
        }
        for block in new {
            table.insert(block.key.as_slice(), block.octets.as_slice())?;
            work.written += 1;
        }
        Ok(())
    };
    replaced().map_err(StoreError::accessing(ATTEMPT))
}

/// Joins a small block with neighbours until it is large enough, or neither has room.
fn join_small(
    table: &mut BytesTable<'_>,
    key: &[u8],
    work: &mut BlockWork,
) -> Result<(), StoreError> {
    let mut key = key.to_vec();
    while let Some((first, second)) = partners(table, &key)? {
        let joined = block::join(&first, &second)?;
        work.read += 2;
        key.clone_from(&joined.key);
        replace(table, &[first, second], &[joined], work)?;
    }
    Ok(())
}

/// A small block and the neighbour with which it fits into one, in their order.
fn partners(table: &BytesTable<'_>, key: &[u8]) -> Result<Option<(Block, Block)>, StoreError> {
    let found = || -> Result<Option<(Block, Block)>, redb::Error> {
        // A neighbour that was joined may have taken the block.
        let Some(octets) = table.get(key)? else { return Ok(None) };
        let size = Size::of(octets.value());
        if !size.is_small() {
            return Ok(None);
        }
        let block = || Block { key: key.to_vec(), octets: octets.value().to_vec() };
        if let Some(next) = row_after(table, key)?
            && size.has_room_for(Size::of(next.1.value()), next.0.value().len())
        {
            return Ok(Some((block(), block_of(&next))));
        }
        if let Some(before) = table.range::<&[u8]>(..key)?.next_back().transpose()?
            && Size::of(before.1.value()).has_room_for(size, key.len())
        {
            return Ok(Some((block_of(&before), block())));
        }
        Ok(None)
    };
    found().map_err(StoreError::accessing(ATTEMPT))
}
