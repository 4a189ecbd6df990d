//! The record of a prepared transaction: what each row held before it.
//!
//! One record is a table byte, the key, and the earlier value or its absence; lengths are `u32`, little endian.

use super::{Change, StoreError, Table};

/// A prepared record is stored in pieces of about this many octets, so that no single value grows with a transaction.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// Appends what `key` held.
pub(super) fn push(
    chunk: &mut Vec<u8>,
    table: Table,
    key: &[u8],
    earlier: Option<&[u8]>,
) -> Result<(), StoreError> {
    chunk.push(match table {
        Table::Layer => 1,
        Table::Restore => 2,
        Table::Note => 3,
    });
    push_bytes(chunk, key)?;
    match earlier {
        None => chunk.push(ABSENT),
        Some(value) => {
            chunk.push(PRESENT);
            push_bytes(chunk, value)?;
        }
    }
    Ok(())
}

fn push_bytes(chunk: &mut Vec<u8>, bytes: &[u8]) -> Result<(), StoreError> {
    let length = u32::try_from(bytes.len())
        .map_err(|_| StoreError::Corrupt { what: "row of over 4 GiB" })?;
    chunk.extend_from_slice(&length.to_le_bytes());
    chunk.extend_from_slice(bytes);
    Ok(())
}

/// The changes that put everything back, in the order in which it was recorded.
pub(super) fn parse(mut chunk: &[u8]) -> Result<Vec<Change>, StoreError> {
    let mut changes = Vec::new();
    while !chunk.is_empty() {
        changes.push(
            take_change(&mut chunk).ok_or(StoreError::Corrupt { what: "prepared transaction" })?,
        );
    }
    Ok(changes)
}

fn take_change(chunk: &mut &[u8]) -> Option<Change> {
    let table = match take_byte(chunk)? {
        1 => Table::Layer,
        2 => Table::Restore,
        3 => Table::Note,
        _ => return None,
    };
    let key = take_bytes(chunk)?;
    let value = match take_byte(chunk)? {
        ABSENT => None,
        PRESENT => Some(take_bytes(chunk)?),
        _ => return None,
    };
    Some(Change { table, key, value })
}

fn take_byte(chunk: &mut &[u8]) -> Option<u8> {
    let (first, rest) = chunk.split_first()?;
    *chunk = rest;
    Some(*first)
}

fn take_bytes(chunk: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = chunk.split_first_chunk::<4>()?;
    let (bytes, rest) =
        rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *chunk = rest;
    Some(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_read_back() {
        let changes = [
            Change::layer(b"a".to_vec(), None),
            Change::layer(b"b".to_vec(), Some(Vec::new())),
            Change::restore(Vec::new(), Some(vec![7; 300])),
        ];
        let mut chunk = Vec::new();
        for change in &changes {
            push(&mut chunk, change.table, &change.key, change.value.as_deref()).unwrap();
        }
        assert_eq!(parse(&chunk).unwrap(), changes);
        for cut in 1..chunk.len() {
            let read = parse(&chunk[..cut]);
            assert!(
                read.is_err() || read.is_ok_and(|some| some.len() < changes.len()),
                "cut at {cut}"
            );
        }
    }
}
