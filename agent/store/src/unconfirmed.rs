//! The record of a commit that waits to be confirmed: the previous content of its rows.
//!
//! The record is that of the prepared transaction, moved here when the transaction is committed. A confirmation
//! removes it; a commit that rolls the change back removes it in the same durable write; a start that finds it
//! restores the rows.

use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::StoreError;
use super::prepared::{self, Ticket};

/// Pieces of the record, by transaction and number. Missing in files of earlier versions.
const UNCONFIRMED: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("unconfirmed");

/// A transaction, and the pieces of its record in order.
type Record = (u64, Vec<Vec<u8>>);

/// Keeps the record of a prepared transaction as that of commit `number`, which waits to be confirmed. One at a time
/// does.
pub(super) fn keep(
    write: &WriteTransaction,
    ticket: Ticket,
    number: u64,
) -> Result<(), StoreError> {
    let store = || -> Result<Option<u64>, redb::Error> {
        let mut unconfirmed = write.open_table(UNCONFIRMED)?;
        if let Some((key, _)) = unconfirmed.first()? {
            return Ok(Some(key.value().0));
        }
        for (piece, octets) in (0..).zip(prepared::pieces(write, ticket)?) {
            unconfirmed.insert((number, piece), octets.as_slice())?;
        }
        Ok(None)
    };
    match store().map_err(StoreError::accessing("keep what an unconfirmed commit replaced"))? {
        None => Ok(()),
        Some(other) => {
            let state = format!("commit {other} waits to be confirmed");
            Err(StoreError::out_of_order("commit", ticket, state))
        }
    }
}

/// Removes the record, if there is one, because the commit was confirmed or rolled back.
pub(super) fn forget(write: &WriteTransaction) -> Result<(), StoreError> {
    let forgotten = write.delete_table(UNCONFIRMED).map(drop);
    forgotten.map_err(|error| StoreError::accessing("end an unconfirmed commit")(error.into()))
}

/// The transaction that waits to be confirmed.
pub(super) fn find(redb: &redb::Database) -> Result<Option<Record>, StoreError> {
    let found = || -> Result<Option<Record>, redb::Error> {
        let table = match redb.begin_read()?.open_table(UNCONFIRMED) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut found: Option<Record> = None;
        for piece in table.iter()? {
            let (key, chunk) = piece?;
            found.get_or_insert((key.value().0, Vec::new())).1.push(chunk.value().to_vec());
        }
        Ok(found)
    };
    found().map_err(StoreError::accessing("look for an unconfirmed commit"))
}
