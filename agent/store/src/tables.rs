//! Rows of the tables that a transaction writes, and the record of their previous content.

use redb::WriteTransaction;

use super::database::{LAYER, PREPARED, RESTORE, SECRETS};
use super::notes::NOTES;
use super::{Change, StoreError, Table, undo};

/// Restores the rows in the pieces of a record, newest first. Returns their content before that.
pub(super) fn put_back(
    write: &WriteTransaction,
    chunks: &[Vec<u8>],
    wanted: impl Fn(&Change) -> bool,
) -> Result<Vec<Change>, StoreError> {
    let mut tables = Tables::open(write).map_err(StoreError::accessing("write rows"))?;
    let mut taken_back = Vec::new();
    for chunk in chunks.iter().rev() {
        let mut changes = undo::parse(chunk)?;
        changes.retain(&wanted);
        // A key that changed twice must end up with its oldest value.
        for change in changes.iter().rev() {
            tables.put(change, |value| {
                let value = value.map(<[u8]>::to_vec);
                taken_back.push(Change { value, ..change.clone() });
                Ok(())
            })?;
        }
    }
    Ok(taken_back)
}

pub(super) fn apply(write: &WriteTransaction, changes: &[Change]) -> Result<(), StoreError> {
    let failed = StoreError::accessing("write rows");
    let mut tables = Tables::open(write).map_err(&failed)?;
    changes.iter().try_for_each(|change| tables.put(change, |_| Ok(())))
}

/// Applies `changes` and stores the previous content of their rows as the record of `transaction`.
pub(super) fn apply_recording(
    write: &WriteTransaction,
    transaction: u64,
    changes: &[Change],
) -> Result<(), StoreError> {
    let failed = StoreError::accessing("record a prepared transaction");
    let mut tables = Tables::open(write).map_err(&failed)?;
    let mut prepared = write.open_table(PREPARED).map_err(|error| failed(error.into()))?;
    let mut number = 0;
    let mut chunk = undo::Chunk::default();
    for change in changes {
        tables.put(change, |earlier| chunk.push(change.table, &change.key, earlier))?;
        if chunk.is_full() {
            let stored = prepared.insert((transaction, number), chunk.octets());
            stored.map_err(|error| failed(error.into()))?;
            number += 1;
            chunk.clear();
        }
    }
    // Written even without changes, because the record marks the transaction as prepared.
    prepared.insert((transaction, number), chunk.octets()).map_err(|error| failed(error.into()))?;
    Ok(())
}

type BytesTable<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

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

    /// Writes one row and returns its previous content.
    fn put(
        &mut self,
        change: &Change,
        earlier: impl FnOnce(Option<&[u8]>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let table = match change.table {
            Table::Layer => &mut self.layer,
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
        earlier(replaced.as_ref().map(|value| value.value()))
    }
}
