//! The tables of the log.
//!
//! `revisions` has the documents by number, `revision-undo` the pieces of the undo records by number and piece, in the form of
//! the records of prepared transactions. Sums and bounds are in the table of small numbers, so that a write reads none of
//! it, unless the oldest revisions go.

use redb::{
    ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction,
};
use tracing::warn;

use super::{ConfigRevision, LogLimits};
use crate::prepared::{self, Ticket};
use crate::tables::{META, META_LAST_TRANSACTION};
use crate::undo::{self, Chunk};
use crate::{Change, StoreError, unconfirmed};

/// Documents, by number.
pub(crate) const REVISIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revisions");
/// Pieces of undo records, by number of the revision and piece.
pub(crate) const REVISION_UNDO: TableDefinition<'_, (u64, u32), &[u8]> =
    TableDefinition::new("revision-undo");

/// Number of the newest revision.
const META_LAST: &str = "last-revision";
/// The first revision with an undo record; all later ones have theirs, too.
const META_UNDO_FROM: &str = "revision-undo-from";
const META_DOCUMENT_OCTETS: &str = "revision-octets";
const META_UNDO_OCTETS: &str = "revision-undo-octets";
/// The last transaction that the log knows of. An earlier version of the agent counts transactions, and not this.
const META_COVERED: &str = "revisions-cover";
/// Revision of the commit that waits to be confirmed.
pub(crate) const META_WAITING: &str = "revision-waits";

pub(crate) const APPEND: &str = "log a configuration revision";
pub(crate) const READ: &str = "read the log of configuration revisions";

/// Documents and pieces of the log that were read, written and removed since the file was opened: what a change costs,
/// independent of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogWork {
    /// Documents and pieces that were read, those that were removed among them.
    pub read: u64,
    pub written: u64,
    pub removed: u64,
}

/// The small numbers of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogState {
    pub(crate) last: u64,
    pub(crate) undo_from: u64,
    document_octets: u64,
    undo_octets: u64,
}

impl LogState {
    pub(crate) fn read(meta: &impl ReadableTable<&'static str, u64>) -> Result<Self, redb::Error> {
        let number = |name, default| -> Result<u64, redb::Error> {
            Ok(meta.get(name)?.map_or(default, |number| number.value()))
        };
        Ok(Self {
            last: number(META_LAST, 0)?,
            undo_from: number(META_UNDO_FROM, 1)?,
            document_octets: number(META_DOCUMENT_OCTETS, 0)?,
            undo_octets: number(META_UNDO_OCTETS, 0)?,
        })
    }

    fn write(self, write: &WriteTransaction) -> Result<(), redb::Error> {
        let mut meta = write.open_table(META)?;
        meta.insert(META_LAST, self.last)?;
        meta.insert(META_UNDO_FROM, self.undo_from)?;
        meta.insert(META_DOCUMENT_OCTETS, self.document_octets)?;
        meta.insert(META_UNDO_OCTETS, self.undo_octets)?;
        Ok(())
    }

    pub(crate) fn octets(self) -> u64 {
        self.document_octets + self.undo_octets
    }

    /// True when the rows as of this revision can be found.
    pub(crate) fn is_restorable(self, number: u64) -> bool {
        self.oldest_restorable() <= number && number <= self.last
    }

    pub(crate) fn oldest_restorable(self) -> u64 {
        self.undo_from.saturating_sub(1)
    }
}

/// Source of the undo record of a revision.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UndoRows<'a> {
    /// The record of a prepared transaction.
    Of(Ticket),
    /// The rows with their content before.
    Before(&'a [Change]),
}

/// Creates the tables.
pub(crate) fn make(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(REVISIONS)?;
    write.open_table(REVISION_UNDO)?;
    Ok(())
}

/// Empties the log, and counts from 1 again.
pub(crate) fn clear(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.delete_table(REVISIONS)?;
    write.delete_table(REVISION_UNDO)?;
    make(write)?;
    let mut meta = write.open_table(META)?;
    for name in [META_LAST, META_UNDO_FROM, META_DOCUMENT_OCTETS, META_UNDO_OCTETS, META_WAITING] {
        meta.remove(name)?;
    }
    Ok(())
}

/// Notes that the log knows of a transaction.
pub(crate) fn cover(write: &WriteTransaction, transaction: u64) -> Result<(), StoreError> {
    let noted = || -> Result<(), redb::Error> {
        write.open_table(META)?.insert(META_COVERED, transaction)?;
        Ok(())
    };
    noted().map_err(StoreError::accessing(APPEND))
}

/// Notes that the commit of a revision waits to be confirmed; `None` for one without a revision.
pub(crate) fn note_wait(write: &WriteTransaction, revision: Option<u64>) -> Result<(), StoreError> {
    let noted = || -> Result<(), redb::Error> {
        let mut meta = write.open_table(META)?;
        match revision {
            Some(revision) => drop(meta.insert(META_WAITING, revision)?),
            None => drop(meta.remove(META_WAITING)?),
        }
        Ok(())
    };
    noted().map_err(StoreError::accessing(APPEND))
}

/// Notes that no commit waits to be confirmed.
pub(crate) fn note_end_of_wait(write: &WriteTransaction) -> Result<(), StoreError> {
    note_wait(write, None)
}

/// Appends a revision, with the undo record of its rows. Returns its number. The oldest revisions go where there is no room.
pub(crate) fn append(
    write: &WriteTransaction,
    revision: &ConfigRevision,
    rows: UndoRows<'_>,
    limits: LogLimits,
    work: &mut LogWork,
) -> Result<u64, StoreError> {
    let failed = StoreError::accessing(APPEND);
    let state = || LogState::read(&write.open_table(META)?);
    let mut state = state().map_err(&failed)?;
    state.last += 1;
    let number = state.last;
    let document = document(&ConfigRevision { number, ..revision.clone() })?;
    state.document_octets += document.len() as u64;
    let room = limits.octets.saturating_sub(document.len() as u64);
    match keep_undo(write, number, rows, room, work)? {
        Some(octets) => state.undo_octets += octets,
        // The way back ends here: what it would need is not kept.
        None => {
            let emptied = || -> Result<(), redb::Error> {
                write.delete_table(REVISION_UNDO)?;
                write.open_table(REVISION_UNDO)?;
                Ok(())
            };
            emptied().map_err(&failed)?;
            (state.undo_octets, state.undo_from) = (0, number + 1);
            warn!(
                revision = number,
                "a change is larger than the log of revisions may be: earlier revisions cannot be restored"
            );
        }
    }
    let mut stored = || -> Result<(), redb::Error> {
        write.open_table(REVISIONS)?.insert(number, document.as_slice())?;
        work.written += 1;
        prune(write, &mut state, limits, work)?;
        state.write(write)
    };
    stored().map_err(failed)?;
    Ok(number)
}

fn document(revision: &ConfigRevision) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(revision)
        .map_err(|_| StoreError::Corrupt { what: "configuration revision without a JSON form" })
}

/// Stores the undo record of a revision. Returns its bytes; `None` when it takes more than there is room for, and a part of
/// it may be stored.
fn keep_undo(
    write: &WriteTransaction,
    number: u64,
    rows: UndoRows<'_>,
    room: u64,
    work: &mut LogWork,
) -> Result<Option<u64>, StoreError> {
    let failed = StoreError::accessing(APPEND);
    let undo = write.open_table(REVISION_UNDO).map_err(|error| failed(error.into()))?;
    let mut pieces = UndoPieces { undo, number, piece: 0, octets: 0, room, work };
    match rows {
        UndoRows::Of(ticket) => {
            prepared::visit_pieces(write, ticket, |piece| {
                let kept = undo::retain(piece, |table, key| table.is_of_clients(key))?;
                pieces.push(&kept)
            })?;
        }
        UndoRows::Before(rows) => {
            let mut chunk = Chunk::default();
            for row in rows.iter().filter(|row| row.table.is_of_clients(&row.key)) {
                chunk.push(row.table, &row.key, row.value.as_deref())?;
                if chunk.is_full() {
                    pieces.push(chunk.octets())?;
                    chunk.clear();
                }
            }
            pieces.push(chunk.octets())?;
        }
    }
    Ok((pieces.octets <= room).then_some(pieces.octets))
}

/// The pieces of one undo record.
struct UndoPieces<'t> {
    undo: redb::Table<'t, (u64, u32), &'static [u8]>,
    number: u64,
    /// Number of the next piece.
    piece: u32,
    octets: u64,
    room: u64,
    work: &'t mut LogWork,
}

impl UndoPieces<'_> {
    /// Stores a piece, unless the record takes more than there is room for.
    fn push(&mut self, octets: &[u8]) -> Result<(), StoreError> {
        self.octets += octets.len() as u64;
        if octets.is_empty() || self.octets > self.room {
            return Ok(());
        }
        let stored = self.undo.insert((self.number, self.piece), octets);
        stored.map_err(|error| StoreError::accessing(APPEND)(error.into()))?;
        self.piece += 1;
        self.work.written += 1;
        Ok(())
    }
}

/// Removes the oldest revisions that there is no room for.
fn prune(
    write: &WriteTransaction,
    state: &mut LogState,
    limits: LogLimits,
    work: &mut LogWork,
) -> Result<(), redb::Error> {
    let mut documents = write.open_table(REVISIONS)?;
    let mut undo = write.open_table(REVISION_UNDO)?;
    while documents.len()? > 1
        && (documents.len()? > limits.revisions || state.octets() > limits.octets)
    {
        let Some((number, document)) = documents.pop_first()? else { break };
        let number = number.value();
        state.document_octets = state.document_octets.saturating_sub(document.value().len() as u64);
        let mut removed = 1;
        undo.retain_in((0, 0)..=(number, u32::MAX), |_, piece| {
            state.undo_octets = state.undo_octets.saturating_sub(piece.len() as u64);
            removed += 1;
            false
        })?;
        state.undo_from = state.undo_from.max(number + 1);
        work.read += removed;
        work.removed += removed;
    }
    Ok(())
}

/// True when the log knows of all that has changed the configuration.
pub(crate) fn is_covered(redb: &redb::Database) -> Result<bool, StoreError> {
    let numbers = || -> Result<[Option<u64>; 3], redb::Error> {
        let meta = redb.begin_read()?.open_table(META)?;
        let number = |name| -> Result<Option<u64>, redb::Error> {
            Ok(meta.get(name)?.map(|number| number.value()))
        };
        Ok([number(META_LAST_TRANSACTION)?, number(META_COVERED)?, number(META_WAITING)?])
    };
    let [last, covered, waiting] = numbers().map_err(StoreError::accessing(READ))?;
    if last != covered {
        return Ok(false);
    }
    // An earlier version rolls back a commit that waits, at its start.
    Ok(waiting.is_none() || unconfirmed::find(redb)?.is_some())
}

/// Drops all undo records, and notes that the log knows of all transactions.
pub(crate) fn forget_undo(write: &WriteTransaction) -> Result<LogState, redb::Error> {
    write.delete_table(REVISION_UNDO)?;
    write.open_table(REVISION_UNDO)?;
    let mut state = LogState::read(&write.open_table(META)?)?;
    (state.undo_octets, state.undo_from) = (0, state.last + 1);
    state.write(write)?;
    let mut meta = write.open_table(META)?;
    let last = meta.get(META_LAST_TRANSACTION)?.map(|number| number.value());
    match last {
        Some(last) => drop(meta.insert(META_COVERED, last)?),
        None => drop(meta.remove(META_COVERED)?),
    }
    meta.remove(META_WAITING)?;
    Ok(state)
}
