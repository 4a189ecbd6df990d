//! Checkpoints: copies of the rows of clients, under names.
//!
//! A copy is in blocks, as the layers are. It is whole, so it needs no other revision, and stays when the log is pruned.

use std::fmt;
use std::str::FromStr;

use redb::{ReadTransaction, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::ClientRows;
use crate::StoreError;
use crate::block::{Block, BlockReader};

/// Checkpoints that are kept: an operator names a few states, and the log has the rest.
pub const MAX_CHECKPOINTS: usize = 16;
/// Bytes of all checkpoints together: four of a box with 100 000 routes.
pub const MAX_CHECKPOINT_OCTETS: u64 = 32 << 20;
/// Most characters of a name: it fits into a line of a list.
const MAX_NAME: usize = 64;

/// Documents of checkpoints, by name.
pub(crate) const CHECKPOINTS: TableDefinition<'_, &str, &[u8]> =
    TableDefinition::new("checkpoints");
/// Blocks of their rows, by name and first key.
pub(crate) const CHECKPOINT_ROWS: TableDefinition<'_, (&str, &[u8]), &[u8]> =
    TableDefinition::new("checkpoint-rows");

pub(crate) const READ: &str = "read a checkpoint";

/// Name of a checkpoint: letters, digits and `-_.`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckpointName(SmolStr);

/// A text that is not the name of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a checkpoint must have 1 to {MAX_NAME} letters, digits and `-_.`")]
pub struct InvalidCheckpointName;

impl CheckpointName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CheckpointName {
    type Err = InvalidCheckpointName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_valid = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
        if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_valid) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidCheckpointName)
        }
    }
}

holdfast_config::text_form!(CheckpointName);

impl fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A checkpoint to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCheckpoint {
    pub name: CheckpointName,
    /// Time of the request, nanoseconds since 1970.
    pub time_ns: u64,
    pub author: String,
    pub comment: Option<String>,
}

/// A checkpoint that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub name: CheckpointName,
    /// The newest revision at that time; 0 before the first.
    pub revision: u64,
    /// Time of the request, nanoseconds since 1970.
    pub time_ns: u64,
    pub author: String,
    #[serde(default)]
    pub comment: Option<String>,
    pub rows: u64,
    pub octets: u64,
}

/// Creates the tables.
pub(crate) fn make(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(CHECKPOINTS)?;
    write.open_table(CHECKPOINT_ROWS)?;
    Ok(())
}

/// Removes all checkpoints.
pub(crate) fn clear(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.delete_table(CHECKPOINTS)?;
    write.delete_table(CHECKPOINT_ROWS)?;
    make(write)
}

/// The rows of a checkpoint.
pub(crate) fn rows_of(
    read: &ReadTransaction,
    name: &CheckpointName,
) -> Result<ClientRows, StoreError> {
    let found = || -> Result<Option<Vec<Block>>, redb::Error> {
        let text = name.as_str();
        if read.open_table(CHECKPOINTS)?.get(text)?.is_none() {
            return Ok(None);
        }
        let beyond = format!("{text}\0");
        let table = read.open_table(CHECKPOINT_ROWS)?;
        let blocks = table.range((text, &[][..])..(beyond.as_str(), &[][..]))?;
        let blocks = blocks.map(|row| {
            let (key, octets) = row?;
            let (_, key) = key.value();
            Ok(Block { key: key.to_vec(), octets: octets.value().to_vec() })
        });
        blocks.collect::<Result<_, redb::Error>>().map(Some)
    };
    let blocks = found().map_err(StoreError::accessing(READ))?;
    let blocks = blocks.ok_or_else(|| StoreError::NoCheckpoint { name: name.clone() })?;
    let mut rows = Vec::new();
    for block in &blocks {
        let mut entries = BlockReader::new(block)?;
        while entries.advance()? {
            rows.push((entries.key().to_vec(), entries.value().to_vec()));
        }
    }
    Ok(ClientRows(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words() {
        let longest = "x".repeat(MAX_NAME);
        for (text, is_valid) in [
            ("before-upgrade_2.1", true),
            (longest.as_str(), true),
            ("", false),
            ("two words", false),
            ("a/b", false),
            ("ü", false),
            (&"x".repeat(MAX_NAME + 1), false),
        ] {
            assert_eq!(text.parse::<CheckpointName>().is_ok(), is_valid, "{text}");
        }
    }
}
