//! Rows of the tables that a transaction writes, and the record of their previous content.

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::layer_table::{self, BlockWork, BytesTable};
use super::notes::NOTES;
use super::prepared::{PREPARED, Ticket};
use super::{Change, Row, StoreError, Table, undo};

/// Rows of the layers in blocks, see [`block`](super::block).
pub(super) const LAYER: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("layer-blocks");
pub(super) const RESTORE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("restore");
/// Secrets to which the layers refer.
pub(super) const SECRETS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("secrets");
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Role and password hash, by name.
pub(super) const USERS: TableDefinition<'_, &str, (&str, &str)> = TableDefinition::new("users");

pub(super) const META_LAST_TRANSACTION: &str = "last-transaction";

/// Restores the rows in the pieces of a record, newest first. Returns their content before that.
pub(super) fn put_back(
    write: &WriteTransaction,
    chunks: &[Vec<u8>],
    work: &mut BlockWork,
    matches: impl Fn(&Change) -> bool,
) -> Result<Vec<Change>, StoreError> {
    let mut reverted = Vec::new();
    for chunk in chunks.iter().rev() {
        let mut changes = undo::parse(chunk)?;
        changes.retain(&matches);
        // A key that changed twice must end up with its oldest value.
        changes.reverse();
        reverted.extend(replace(write, &changes, work)?);
    }
    Ok(reverted)
}

pub(super) fn apply(
    write: &WriteTransaction,
    changes: &[Change],
    work: &mut BlockWork,
) -> Result<(), StoreError> {
    let mut tables = Tables::open(write).map_err(StoreError::accessing("write rows"))?;
    tables.put(changes, work, &mut |_, _, _| Ok(()))
}

/// Applies `changes`, and returns the previous content of each row.
pub(super) fn replace(
    write: &WriteTransaction,
    changes: &[Change],
    work: &mut BlockWork,
) -> Result<Vec<Change>, StoreError> {
    let mut tables = Tables::open(write).map_err(StoreError::accessing("write rows"))?;
    let mut replaced = Vec::new();
    tables.put(changes, work, &mut |table, key, value| {
        replaced.push(Change { table, key: key.to_vec(), value: value.map(<[u8]>::to_vec) });
        Ok(())
    })?;
    Ok(replaced)
}

/// Applies `changes` and stores the previous content of their rows as a record.
pub(super) fn apply_recording(
    write: &WriteTransaction,
    Ticket(ticket): Ticket,
    changes: &[Change],
    work: &mut BlockWork,
) -> Result<(), StoreError> {
    let failed = StoreError::accessing("record a prepared transaction");
    let mut tables = Tables::open(write).map_err(&failed)?;
    let mut prepared = write.open_table(PREPARED).map_err(|error| failed(error.into()))?;
    let mut number = 0;
    let mut chunk = undo::Chunk::default();
    tables.put(changes, work, &mut |table, key, earlier| {
        chunk.push(table, key, earlier)?;
        if chunk.is_full() {
            let stored = prepared.insert((ticket, number), chunk.octets());
            stored.map_err(|error| failed(error.into()))?;
            number += 1;
            chunk.clear();
        }
        Ok(())
    })?;
    // Written even without changes, because the record marks the transaction as prepared.
    prepared.insert((ticket, number), chunk.octets()).map_err(|error| failed(error.into()))?;
    Ok(())
}

/// All rows of a table, ascending by key.
pub(super) fn rows(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
) -> Result<Vec<Row>, redb::Error> {
    table
        .iter()?
        .map(|row| {
            let (key, value) = row?;
            Ok((key.value().to_vec(), value.value().to_vec()))
        })
        .collect()
}

/// The row that a change writes.
fn row(change: &Change) -> (Table, &[u8]) {
    (change.table, &change.key)
}

/// Receives table, key and previous content of a row.
type PreImages<'a> = dyn FnMut(Table, &[u8], Option<&[u8]>) -> Result<(), StoreError> + 'a;

/// Tables that a transaction writes, opened once.
struct Tables<'t> {
    layer: BytesTable<'t>,
    restore: BytesTable<'t>,
    note: BytesTable<'t>,
    secret: BytesTable<'t>,
}

impl<'t> Tables<'t> {
    fn open(write: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            layer: write.open_table(LAYER)?,
            restore: write.open_table(RESTORE)?,
            note: write.open_table(NOTES)?,
            secret: write.open_table(SECRETS)?,
        })
    }

    /// Makes changes in the order of tables and keys; the last one of a key counts. `earlier` is called once for each row.
    fn put(
        &mut self,
        changes: &[Change],
        work: &mut BlockWork,
        earlier: &mut PreImages<'_>,
    ) -> Result<(), StoreError> {
        let mut sorted: Vec<&Change> = changes.iter().collect();
        // Stable, so that the last change of a key stays the last one.
        sorted.sort_by(|one, other| row(one).cmp(&row(other)));
        let (of_layer, others) =
            sorted.split_at(sorted.partition_point(|change| change.table == Table::Layer));
        layer_table::apply(&mut self.layer, of_layer, work, &mut |key, value| {
            earlier(Table::Layer, key, value)
        })?;
        for of_row in others.chunk_by(|one, other| row(one) == row(other)) {
            let Some(change) = of_row.last() else { continue };
            let table = match change.table {
                Table::Layer => continue,
                Table::Restore => &mut self.restore,
                Table::Note => &mut self.note,
                Table::Secret => &mut self.secret,
            };
            let replaced = match &change.value {
                Some(value) => table.insert(change.key.as_slice(), value.as_slice()),
                None => table.remove(change.key.as_slice()),
            };
            let replaced =
                replaced.map_err(|error| StoreError::accessing("write a row")(error.into()))?;
            earlier(change.table, &change.key, replaced.as_ref().map(|value| value.value()))?;
        }
        Ok(())
    }
}
