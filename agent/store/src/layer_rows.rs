//! Rows of the layers as they are read at a start.

use std::fmt;

use redb::ReadableTable;

use super::block::{BlockReader, Size};
use super::{Row, StoreError};

/// Rows of [`Table::Layer`](super::Table::Layer), ascending by key, and those of
/// [`Table::Secret`](super::Table::Secret) behind them. The former stay in their blocks until they are visited, which
/// takes a fifth of the memory.
#[derive(Default)]
pub struct LayerRows {
    /// Keys and bytes of blocks, ascending.
    blocks: Vec<Row>,
    secrets: Vec<Row>,
}

/// Rows are counted, as some of them are secrets.
impl fmt::Debug for LayerRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerRows").field("rows", &self.len()).finish_non_exhaustive()
    }
}

impl LayerRows {
    pub(super) fn read(
        blocks: &impl ReadableTable<&'static [u8], &'static [u8]>,
        secrets: Vec<Row>,
    ) -> Result<Self, redb::Error> {
        Ok(Self { blocks: super::tables::rows(blocks)?, secrets })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        let of_blocks = self.blocks.iter().map(|(_, octets)| Size::of(octets).entries);
        of_blocks.sum::<usize>() + self.secrets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys of some rows, about one in sixty, ascending.
    pub fn sample(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().map(|(key, _)| key.as_slice())
    }

    #[cfg(test)]
    pub(super) fn block_sizes(&self) -> impl Iterator<Item = Size> {
        self.blocks.iter().map(|(_, octets)| Size::of(octets))
    }

    /// Passes key and value of each row to `take`.
    ///
    /// # Errors
    /// The first error of `take`, and [`StoreError::Corrupt`] for a damaged block.
    pub fn visit<E: From<StoreError>>(
        &self,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = BlockReader::default();
        for (key, octets) in &self.blocks {
            entries.open(key, octets)?;
            while entries.advance()? {
                take(entries.key(), entries.value())?;
            }
        }
        self.secrets.iter().try_for_each(|(key, value)| take(key, value))
    }
}
