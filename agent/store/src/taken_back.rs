//! Rows of the layers that a start takes back, with their content before that.
//!
//! The system may still have what was taken back, and the agent may be killed again before it has put everything in place. So
//! a row stays in this table, over any number of starts, until the core says that the system is as configured. Of a row that several
//! starts take back, the content that was in force last is kept.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::{Change, StoreError, Table};

/// Missing in files of earlier versions.
const TAKEN_BACK: TableDefinition<'_, &[u8], Option<&[u8]>> = TableDefinition::new("taken-back");

/// Rows, with their content before they were taken back; `None` for one that was absent.
pub(super) type TakenBackRows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Keys of the rows that were noted since the file was opened. The first change to take a row back undoes the last one to
/// write it, so that its content was in force.
#[derive(Debug, Default)]
pub(super) struct NotedRows(BTreeSet<Vec<u8>>);

impl NotedRows {
    /// Notes rows with their content before they are taken back. Rows of other tables are not configuration.
    pub(super) fn note(
        &mut self,
        write: &WriteTransaction,
        rows: Vec<Change>,
    ) -> Result<(), StoreError> {
        let noted = || -> Result<(), redb::Error> {
            let mut taken_back = write.open_table(TAKEN_BACK)?;
            for Change { key, value, .. } in rows.into_iter().filter(|it| it.table == Table::Layer)
            {
                if !self.0.contains(&key) {
                    taken_back.insert(key.as_slice(), value.as_deref())?;
                    self.0.insert(key);
                }
            }
            Ok(())
        };
        noted().map_err(StoreError::accessing("note what is taken back"))
    }
}

/// Removes all rows.
pub(super) fn forget(write: &WriteTransaction) -> Result<(), StoreError> {
    let forgotten = write.delete_table(TAKEN_BACK).map(drop);
    forgotten.map_err(|error| StoreError::accessing("forget what was taken back")(error.into()))
}

pub(super) fn read(redb: &redb::Database) -> Result<TakenBackRows, StoreError> {
    let read = || -> Result<TakenBackRows, redb::Error> {
        let table = match redb.begin_read()?.open_table(TAKEN_BACK) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(TakenBackRows::new()),
            Err(error) => return Err(error.into()),
        };
        let row = |row: Result<(redb::AccessGuard<'_, &[u8]>, _), redb::StorageError>| {
            let (key, before): (_, redb::AccessGuard<'_, Option<&[u8]>>) = row?;
            Ok((key.value().to_vec(), before.value().map(<[u8]>::to_vec)))
        };
        table.iter()?.map(row).collect()
    };
    read().map_err(StoreError::accessing("read what was taken back"))
}
