//! Prepared transactions: the rows that each has written, and their records of what was there before.
//!
//! Several transactions are prepared at the same time and end in any order. That is right because no row is written by
//! two of them: a roll-back restores entries, so it meets the entries of others in the same block as they are. Callers
//! keep their rows apart; [`PreparedSet::claim`] checks it, as an overlap would be lost configuration after a roll-back.
//!
//! The check has a digest of each row in memory, 8 bytes, until its transaction ends. Digests depend on a random key of
//! the process. Different rows with one digest, which less than one in 10^9 pairs of transactions of 100 000 rows has, are
//! a refused transaction, never a lost row.
//!
//! Records survive a kill, and digests need not: an opening rolls back whatever was prepared.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Bound, RangeInclusive};

use holdfast_config::limits::excerpt;
use redb::{ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{Change, StoreError};

/// Pieces of the undo records of prepared transactions, by ticket and number.
pub(super) const PREPARED: TableDefinition<'_, (u64, u32), &[u8]> =
    TableDefinition::new("prepared");

/// Name of a transaction until it is final and has a number.
///
/// Tickets are counted from the opening of the database. They need not outlive it, because an opening leaves no
/// transaction that is not final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {}", self.0)
    }
}

/// Digests of the rows of one transaction, ascending.
pub(super) type RowDigests = Vec<u64>;

/// The transactions that are prepared.
#[derive(Debug, Default)]
pub(super) struct PreparedSet {
    by_ticket: BTreeMap<Ticket, Prepared>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Prepared {
    rows: RowDigests,
    /// The end of the transaction could not be recorded, so it is rolled back when the disk answers again.
    is_given_up: bool,
}

impl PreparedSet {
    /// Digests of the rows of `changes`, which no prepared transaction has written.
    pub(super) fn claim(
        &self,
        attempt: &'static str,
        changes: &[Change],
    ) -> Result<RowDigests, StoreError> {
        let mut rows = Vec::with_capacity(changes.len());
        for change in changes {
            let row = self.digest(change);
            if let Some(ticket) = self.writer_of(row) {
                let row = excerpt(&change.key.escape_ascii());
                return Err(StoreError::RowInUse { attempt, row, ticket });
            }
            rows.push(row);
        }
        rows.sort_unstable();
        Ok(rows)
    }

    fn digest(&self, change: &Change) -> u64 {
        self.hasher.hash_one((change.table, &change.key))
    }

    fn writer_of(&self, row: u64) -> Option<Ticket> {
        let mut all = self.by_ticket.iter();
        all.find_map(|(ticket, it)| it.rows.binary_search(&row).is_ok().then_some(*ticket))
    }

    /// The first of these rows that a transaction has not prepared.
    pub(super) fn row_not_of(&self, ticket: Ticket, changes: &[Change]) -> Option<String> {
        let prepared = self.by_ticket.get(&ticket).map(|it| it.rows.as_slice()).unwrap_or_default();
        let is_missing = |it: &&Change| prepared.binary_search(&self.digest(it)).is_err();
        let missing = changes.iter().find(is_missing)?;
        Some(excerpt(&missing.key.escape_ascii()))
    }

    pub(super) fn insert(&mut self, ticket: Ticket, rows: RowDigests) {
        self.by_ticket.insert(ticket, Prepared { rows, is_given_up: false });
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.by_ticket.remove(&ticket);
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        self.by_ticket.contains_key(&ticket)
    }

    /// A transaction other than that of `ticket`.
    pub(super) fn other_than(&self, ticket: Ticket) -> Option<Ticket> {
        self.by_ticket.keys().copied().find(|it| *it != ticket)
    }

    /// Notes that a transaction is to be rolled back, although its end is not on disk.
    pub(super) fn mark_aborted(&mut self, ticket: Ticket) {
        if let Some(prepared) = self.by_ticket.get_mut(&ticket) {
            prepared.is_given_up = true;
        }
    }

    /// Keeps the transactions that have a record and are not given up. Returns the records of the others, which are to
    /// be rolled back: that of a transaction whose preparation was written and reported as an error is among them.
    pub(super) fn keep_recorded(&mut self, recorded: &[Ticket]) -> Vec<Ticket> {
        self.by_ticket.retain(|ticket, it| !it.is_given_up && recorded.contains(ticket));
        recorded.iter().copied().filter(|ticket| !self.contains(*ticket)).collect()
    }
}

/// Tickets of all records, ascending.
pub(super) fn recorded(redb: &redb::Database) -> Result<Vec<Ticket>, StoreError> {
    let read = || -> Result<Vec<Ticket>, redb::Error> {
        let table = redb.begin_read()?.open_table(PREPARED)?;
        let mut found = Vec::new();
        let mut after = Bound::Unbounded;
        while let Some((key, _)) = table.range((after, Bound::Unbounded))?.next().transpose()? {
            let (ticket, _) = key.value();
            found.push(Ticket(ticket));
            after = Bound::Excluded((ticket, u32::MAX));
        }
        Ok(found)
    };
    read().map_err(StoreError::accessing("look for prepared transactions"))
}

/// The pieces of a record, in order.
pub(super) fn pieces(
    write: &WriteTransaction,
    ticket: Ticket,
) -> Result<Vec<Vec<u8>>, redb::Error> {
    let table = write.open_table(PREPARED)?;
    table.range(keys(ticket))?.map(|piece| Ok(piece?.1.value().to_vec())).collect()
}

/// Passes the pieces of a record to `take`, in order.
pub(super) fn visit_pieces(
    write: &WriteTransaction,
    ticket: Ticket,
    mut take: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let failed = StoreError::accessing("read the record of a transaction");
    let table = write.open_table(PREPARED).map_err(|error| failed(error.into()))?;
    for piece in table.range(keys(ticket)).map_err(|error| failed(error.into()))? {
        let (_, octets) = piece.map_err(|error| failed(error.into()))?;
        take(octets.value())?;
    }
    Ok(())
}

/// Removes a record.
pub(super) fn forget(write: &WriteTransaction, ticket: Ticket) -> Result<(), StoreError> {
    let removed = || -> Result<(), redb::Error> {
        Ok(write.open_table(PREPARED)?.retain_in(keys(ticket), |_, _| false)?)
    };
    removed().map_err(StoreError::accessing("end a transaction"))
}

/// Keys of all pieces of one record.
fn keys(Ticket(ticket): Ticket) -> RangeInclusive<(u64, u32)> {
    (ticket, 0)..=(ticket, u32::MAX)
}
