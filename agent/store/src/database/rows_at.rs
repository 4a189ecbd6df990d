//! The rows of clients as they were after an earlier revision.
//!
//! They are the present rows, without those of transactions that are prepared and not final, and without what the
//! later revisions did. No row is written by two prepared transactions, so their records can be taken in any order;
//! those of revisions are taken newest first. A write outside of transactions, such as the adoption of a port, makes
//! no revision: the row is there in every earlier one, unless a later revision wrote the same row after it.

use std::collections::BTreeMap;

use holdfast_config::is_client_row;
use redb::{ReadTransaction, ReadableDatabase, ReadableTable};

use super::Database;
use crate::prepared::PREPARED;
use crate::revisions::checkpoint;
use crate::revisions::log::{LogState, REVISION_UNDO};
use crate::tables::{LAYER, META, SECRETS, rows};
use crate::{ClientRows, LayerRows, RevisionTarget, StoreError, undo};

const READ: &str = "read an earlier configuration";

type RowMap = BTreeMap<Vec<u8>, Vec<u8>>;

impl Database {
    /// The rows of clients as of an earlier revision or a checkpoint.
    ///
    /// # Errors
    /// When there is no such revision or checkpoint, or none that can be restored, or it cannot be read.
    pub fn rows_at(&mut self, target: &RevisionTarget) -> Result<ClientRows, StoreError> {
        let failed = StoreError::accessing(READ);
        let read = self.redb()?.begin_read().map_err(|error| failed(error.into()))?;
        let number = match target {
            RevisionTarget::Checkpoint(name) => return checkpoint::rows_of(&read, name),
            RevisionTarget::Number(number) => *number,
        };
        let state = || LogState::read(&read.open_table(META)?);
        let state = state().map_err(&failed)?;
        if !state.is_restorable(number) {
            let reason = match number {
                _ if number > state.last => "there is none with this number",
                _ => "what was changed after it is no longer kept",
            };
            return Err(StoreError::NoRevision { number, reason });
        }
        let mut rows = final_rows(&read)?;
        let undone = undo_revisions(&read, number, &mut rows)?;
        self.log_work.read += undone;
        Ok(ClientRows(rows.into_iter().collect()))
    }

    /// The rows of clients as of the newest revision.
    pub(super) fn final_client_rows(&self) -> Result<ClientRows, StoreError> {
        let read = self.redb()?.begin_read();
        let read = read.map_err(|error| StoreError::accessing(READ)(error.into()))?;
        Ok(ClientRows(final_rows(&read)?.into_iter().collect()))
    }
}

/// The present rows of clients, without those of transactions that are not final.
fn final_rows(read: &ReadTransaction) -> Result<RowMap, StoreError> {
    let failed = StoreError::accessing(READ);
    let secrets = || rows(&read.open_table(SECRETS)?);
    let mut found: RowMap = secrets().map_err(&failed)?.into_iter().collect();
    let layers = || LayerRows::read(&read.open_table(LAYER)?, Vec::new());
    layers().map_err(&failed)?.visit(|key, value| -> Result<(), StoreError> {
        if is_client_row(key) {
            found.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    })?;
    let prepared = || -> Result<Vec<Vec<u8>>, redb::Error> {
        let table = read.open_table(PREPARED)?;
        table.iter()?.map(|piece| Ok(piece?.1.value().to_vec())).collect()
    };
    for piece in prepared().map_err(&failed)?.iter().rev() {
        put_back(piece, &mut found)?;
    }
    Ok(found)
}

/// Undoes all revisions above `number`. Returns the number of pieces that were read.
fn undo_revisions(
    read: &ReadTransaction,
    number: u64,
    found: &mut RowMap,
) -> Result<u64, StoreError> {
    let failed = StoreError::accessing(READ);
    let undo = read.open_table(REVISION_UNDO).map_err(|error| failed(error.into()))?;
    let later = undo.range((number + 1, 0)..).map_err(|error| failed(error.into()))?;
    let mut pieces = 0;
    for piece in later.rev() {
        let (_, octets) = piece.map_err(|error| failed(error.into()))?;
        put_back(octets.value(), found)?;
        pieces += 1;
    }
    Ok(pieces)
}

/// Gives the rows of a piece their content before; where a row is there twice, the oldest content counts.
fn put_back(piece: &[u8], found: &mut RowMap) -> Result<(), StoreError> {
    for row in undo::parse(piece)?.into_iter().rev() {
        if !row.table.is_of_clients(&row.key) {
            continue;
        }
        match row.value {
            Some(value) => drop(found.insert(row.key, value)),
            None => drop(found.remove(&row.key)),
        }
    }
    Ok(())
}
