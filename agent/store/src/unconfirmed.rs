//! The record of a commit that waits to be confirmed: the previous content of its rows.
//!
//! The record is that of the prepared transaction, moved here when the transaction is committed. A confirmation
//! removes it; a commit that rolls the change back removes it in the same durable write; a start that finds it
//! restores the rows.
//!
//! Commits that join the one that waits append their rows of services. The newest piece is restored first, so that the
//! oldest content of a row is what comes back. [`JoinedRows`] keeps the record in proportion to the rows instead of the
//! commits.

use std::collections::BTreeSet;

use holdfast_config::is_service_row;
use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::prepared::{self, Ticket};
use super::undo::{self, Chunk};
use super::{StoreError, Table};

/// Pieces of the record, by transaction and number. Missing in files of earlier versions.
const UNCONFIRMED: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("unconfirmed");

/// A transaction, and the pieces of its record in order.
type Record = (u64, Vec<Vec<u8>>);

/// Keys of rows that were appended to the record in force. A row that is missing here is appended once more, which does no
/// harm.
#[derive(Debug, Default)]
pub(super) struct JoinedRows(BTreeSet<Vec<u8>>);

impl JoinedRows {
    /// Notes the rows of a commit that has joined.
    pub(super) fn extend(&mut self, keys: Vec<Vec<u8>>) {
        self.0.extend(keys);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

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

/// Appends the rows of services of a prepared transaction to the record of the commit that waits, except those that
/// it has already. Returns their keys.
pub(super) fn join(
    write: &WriteTransaction,
    ticket: Ticket,
    known: &JoinedRows,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let failed = StoreError::accessing("keep what a commit replaced while another one waits");
    let mut unconfirmed = write.open_table(UNCONFIRMED).map_err(|error| failed(error.into()))?;
    let last = unconfirmed.last().map_err(|error| failed(error.into()))?;
    let Some((number, mut piece)) = last.map(|(key, _)| key.value()) else {
        let state = "no commit waits to be confirmed that it could join";
        return Err(StoreError::out_of_order("commit", ticket, state));
    };
    let mut keys = Vec::new();
    let mut chunk = Chunk::default();
    for recorded in prepared::pieces(write, ticket).map_err(&failed)? {
        for row in undo::parse(&recorded)? {
            if row.table != Table::Layer || !is_service_row(&row.key) || known.0.contains(&row.key)
            {
                continue;
            }
            chunk.push(row.table, &row.key, row.value.as_deref())?;
            keys.push(row.key);
        }
        if !chunk.octets().is_empty() {
            piece += 1;
            let stored = unconfirmed.insert((number, piece), chunk.octets());
            stored.map_err(|error| failed(error.into()))?;
            chunk.clear();
        }
    }
    Ok(keys)
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
