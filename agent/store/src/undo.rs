//! The record of a prepared transaction: the previous content of each row.
//!
//! An item is a table byte, the key, and the previous value or its absence; lengths are `u32`, little endian. Rows
//! are in the order of their tree, so most keys share a prefix with the one before, which is then omitted.

use std::borrow::Cow;

use super::block::common;
use super::{Change, StoreError, Table};

/// Approximate bytes of a piece of a record, so that no single database value grows with a transaction. The database
/// takes a power of two for a large value, and this is a little less than one.
const CHUNK_BYTES: usize = 124 * 1024;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
/// Flag in the table byte: the key begins with a number of bytes (`u8`) of the key before.
const CONTINUES: u8 = 0x80;
/// Shortest prefix that is worth sharing, in bytes.
const COMMON_LEAST: usize = 8;

/// A piece of the record under construction.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    octets: Vec<u8>,
    last_key: Vec<u8>,
}

impl Chunk {
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets
    }

    pub(super) fn is_full(&self) -> bool {
        self.octets.len() >= CHUNK_BYTES
    }

    /// Starts a new piece, which can be parsed alone.
    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.last_key.clear();
    }

    /// Appends the previous value of `key`.
    pub(super) fn push(
        &mut self,
        table: Table,
        key: &[u8],
        earlier: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let table = match table {
            Table::Layer => 1,
            Table::Restore => 2,
            Table::Note => 3,
            Table::Secret => 4,
        };
        let common = common(&self.last_key, key).min(usize::from(u8::MAX));
        match u8::try_from(common) {
            Ok(octets) if common >= COMMON_LEAST => {
                self.octets.extend([table | CONTINUES, octets]);
                push_bytes(&mut self.octets, &key[common..])?;
            }
            _ => {
                self.octets.push(table);
                push_bytes(&mut self.octets, key)?;
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        match earlier {
            None => self.octets.push(ABSENT),
            Some(value) => {
                self.octets.push(PRESENT);
                push_bytes(&mut self.octets, value)?;
            }
        }
        Ok(())
    }
}

fn push_bytes(chunk: &mut Vec<u8>, bytes: &[u8]) -> Result<(), StoreError> {
    let length = u32::try_from(bytes.len())
        .map_err(|_| StoreError::Corrupt { what: "row of over 4 GiB" })?;
    chunk.extend_from_slice(&length.to_le_bytes());
    chunk.extend_from_slice(bytes);
    Ok(())
}

/// Parses the changes that restore everything, in the order in which they were recorded.
pub(super) fn parse(chunk: &[u8]) -> Result<Vec<Change>, StoreError> {
    let mut changes: Vec<Change> = Vec::new();
    visit(chunk, |table, key, value| {
        changes.push(Change { table, key: key.to_vec(), value: value.map(<[u8]>::to_vec) });
        Ok(())
    })?;
    Ok(changes)
}

/// The items of a piece whose table and key are wanted, as a piece of their own.
pub(super) fn retain(
    chunk: &[u8],
    is_wanted: impl Fn(Table, &[u8]) -> bool,
) -> Result<Cow<'_, [u8]>, StoreError> {
    let mut are_all_wanted = true;
    visit(chunk, |table, key, _| {
        are_all_wanted &= is_wanted(table, key);
        Ok(())
    })?;
    if are_all_wanted {
        return Ok(Cow::Borrowed(chunk));
    }
    let mut kept = Chunk::default();
    visit(chunk, |table, key, value| match is_wanted(table, key) {
        true => kept.push(table, key, value),
        false => Ok(()),
    })?;
    Ok(Cow::Owned(kept.octets))
}

/// Passes table, key and previous value of each item to `take`, in the order in which they were recorded.
fn visit(
    mut chunk: &[u8],
    mut take: impl FnMut(Table, &[u8], Option<&[u8]>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut key = Vec::new();
    while !chunk.is_empty() {
        let item = take_item(&mut chunk, &mut key);
        let (table, value) = item.ok_or(StoreError::Corrupt { what: "prepared transaction" })?;
        take(table, &key, value)?;
    }
    Ok(())
}

/// Parses one item; `key` is the key before it, and its own afterwards.
fn take_item<'c>(chunk: &mut &'c [u8], key: &mut Vec<u8>) -> Option<(Table, Option<&'c [u8]>)> {
    let first = take_byte(chunk)?;
    let table = match first & !CONTINUES {
        1 => Table::Layer,
        2 => Table::Restore,
        3 => Table::Note,
        4 => Table::Secret,
        _ => return None,
    };
    let common = match first & CONTINUES {
        0 => 0,
        _ => usize::from(take_byte(chunk)?),
    };
    if common > key.len() {
        return None;
    }
    key.truncate(common);
    key.extend_from_slice(take_bytes(chunk)?);
    let value = match take_byte(chunk)? {
        ABSENT => None,
        PRESENT => Some(take_bytes(chunk)?),
        _ => return None,
    };
    Some((table, value))
}

fn take_byte(chunk: &mut &[u8]) -> Option<u8> {
    let (first, rest) = chunk.split_first()?;
    *chunk = rest;
    Some(*first)
}

fn take_bytes<'c>(chunk: &mut &'c [u8]) -> Option<&'c [u8]> {
    let (length, rest) = chunk.split_first_chunk::<4>()?;
    let (bytes, rest) =
        rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *chunk = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back() {
        let long = |end: &str| [&[7; 300][..], end.as_bytes()].concat();
        let changes = [
            Change::layer(b"a".to_vec(), None),
            Change::layer(b"entry of a list, 1".to_vec(), Some(Vec::new())),
            Change::layer(b"entry of a list, 12".to_vec(), Some(b"its value".to_vec())),
            Change::layer(b"entry of a list, 12".to_vec(), None),
            Change::note(b"entry of a list", None),
            Change {
                table: Table::Secret,
                key: b"a user".to_vec(),
                value: Some(b"a hash".to_vec()),
            },
            Change::layer(long("one"), None),
            Change::layer(long("two"), None),
            Change::restore(Vec::new(), Some(vec![7; 300])),
        ];
        let mut chunk = Chunk::default();
        for change in &changes {
            chunk.push(change.table, &change.key, change.value.as_deref()).unwrap();
        }
        let whole = chunk.octets().to_vec();
        assert_eq!(parse(&whole).unwrap(), changes);
        for cut in 1..whole.len() {
            let read = parse(&whole[..cut]);
            assert!(
                read.is_err() || read.is_ok_and(|some| some.len() < changes.len()),
                "cut at {cut}"
            );
        }
        chunk.clear();
        chunk.push(Table::Layer, &changes[2].key, None).unwrap();
        assert_eq!(parse(chunk.octets()).unwrap()[0].key, changes[2].key, "by itself");
    }

    #[test]
    fn some_items_become_a_piece_of_their_own() {
        let mut chunk = Chunk::default();
        let keys = ["entry of a list, 1", "entry of a list, 2", "other", "entry of a list, 2 too"];
        for key in keys {
            chunk.push(Table::Layer, key.as_bytes(), Some(key.as_bytes())).unwrap();
        }
        let keys_with = |part: &str| {
            let kept = retain(chunk.octets(), |_, key| key.ends_with(part.as_bytes())).unwrap();
            let parsed = parse(&kept).unwrap().into_iter();
            parsed.map(|it| String::from_utf8(it.key).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(keys_with("2"), ["entry of a list, 2"]);
        assert_eq!(keys_with("too"), ["entry of a list, 2 too"]);
        assert_eq!(keys_with(""), keys);
        assert!(keys_with("none").is_empty());
    }

    #[test]
    fn keys_of_one_list_are_not_repeated() {
        let mut chunk = Chunk::default();
        let sizes = ["10.0.0.1/32", "10.0.0.2/32"].map(|prefix| {
            let before = chunk.octets().len();
            let key = format!("a list in a list in a network instance, {prefix}");
            chunk.push(Table::Layer, key.as_bytes(), None).unwrap();
            chunk.octets().len() - before
        });
        assert!(sizes[1] * 4 < sizes[0], "{sizes:?}");
    }

    /// Records of an earlier version, which wrote every key in full.
    #[test]
    fn whole_keys_are_read_too() {
        let written = b"\x01\x02\0\0\0ab\x01\x01\0\0\0v\x02\x03\0\0\0abc\0";
        let expected = [
            Change::layer(b"ab".to_vec(), Some(b"v".to_vec())),
            Change::restore(b"abc".to_vec(), None),
        ];
        assert_eq!(parse(written).unwrap(), expected);
    }
}
