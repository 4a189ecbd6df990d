//! Roll-backs: of transactions that were given up, and of what a start finds unfinished or unconfirmed.

use holdfast_base::now_ns;
use redb::WriteTransaction;
use tracing::warn;

use super::{Database, finish};
use crate::prepared::{self, Ticket};
use crate::revisions::{self, UndoRows};
use crate::tables::{put_back, replace};
use crate::taken_back::{self, NotedRows};
use crate::{Change, ChangeSource, ConfigRevision, StoreError, Table, unconfirmed};

/// Author of changes that the agent makes without a request.
const AGENT: &str = "agent";

impl Database {
    /// Rolls back the transactions whose end was never recorded.
    ///
    /// Restore rows of adopted objects stay: the kernel may have been changed already, and the original values
    /// exist nowhere else. The core gives up objects that no layer configures.
    pub(super) fn roll_back_unfinished(&mut self) -> Result<(), StoreError> {
        const ATTEMPT: &str = "roll back what was interrupted";
        let unfinished = prepared::recorded(self.redb()?)?;
        if unfinished.is_empty() {
            return Ok(());
        }
        let transactions = unfinished.len();
        let write = self.begin(ATTEMPT)?;
        let taken_back = self.put_back_all(&write, &unfinished, keeps_restores)?;
        self.taken_back.note(&write, taken_back)?;
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| it.is_of_roll_back()) {
            return fault.strike(write);
        }
        finish(write, ATTEMPT)?;
        self.rolled_back = transactions;
        if self.held.is_none() {
            warn!(transactions, "rolled back what was interrupted before it was answered");
        }
        Ok(())
    }

    /// Rolls back the commit that was not confirmed before the agent ended.
    pub(super) fn roll_back_unconfirmed(&mut self) -> Result<(), StoreError> {
        const ATTEMPT: &str = "roll back an unconfirmed commit";
        let Some((transaction, chunks)) = unconfirmed::find(self.redb()?)? else { return Ok(()) };
        let revision = self.waiting_revision()?;
        let write = self.begin(ATTEMPT)?;
        let taken_back = put_back(&write, &chunks, &mut self.block_work, keeps_restores)?;
        unconfirmed::forget(&write)?;
        revisions::note_end_of_wait(&write)?;
        let is_of_clients = |row: &Change| row.table.is_of_clients(&row.key);
        if revision.is_some() || taken_back.iter().any(is_of_clients) {
            let undone = undone(revision.unwrap_or_default());
            let rows = UndoRows::Before(&taken_back);
            revisions::append(&write, &undone, rows, self.log_limits, &mut self.log_work)?;
        }
        self.taken_back.note(&write, taken_back)?;
        finish(write, ATTEMPT)?;
        if self.held.is_none() {
            warn!(transaction, "a commit that was not confirmed before the restart is rolled back");
        }
        Ok(())
    }

    /// Restores rows from the records of transactions, in one durable write.
    pub(super) fn undo(&mut self, tickets: &[Ticket]) -> Result<(), StoreError> {
        const ATTEMPT: &str = "roll back a transaction";
        let write = self.begin(ATTEMPT)?;
        self.put_back_all(&write, tickets, |_| true)?;
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| it.is_of_roll_back()) {
            return fault.strike(write);
        }
        finish(write, ATTEMPT)
    }

    /// Restores rows from the records of transactions, and removes these. Returns the content of the rows before that.
    fn put_back_all(
        &mut self,
        write: &WriteTransaction,
        tickets: &[Ticket],
        matches: impl Fn(&Change) -> bool,
    ) -> Result<Vec<Change>, StoreError> {
        let failed = StoreError::accessing("roll back a transaction");
        let mut taken_back = Vec::new();
        for ticket in tickets {
            let pieces = prepared::pieces(write, *ticket).map_err(&failed)?;
            taken_back.extend(put_back(write, &pieces, &mut self.block_work, &matches)?);
            prepared::forget(write, *ticket)?;
        }
        Ok(taken_back)
    }

    /// Writes rows outside of a transaction, and notes their content before, which the system may still have.
    ///
    /// # Errors
    /// The errors of [`Self::write`].
    pub fn write_over(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        const ATTEMPT: &str = "write the rows of a start";
        self.prepared.claim(ATTEMPT, changes)?;
        let write = self.begin(ATTEMPT)?;
        let before = replace(&write, changes, &mut self.block_work)?;
        self.taken_back.note(&write, before)?;
        finish(write, ATTEMPT)
    }

    /// Forgets what was taken back: the system is as configured.
    ///
    /// # Errors
    /// When the disk refuses; nothing is forgotten then.
    pub fn forget_taken_back(&mut self) -> Result<(), StoreError> {
        const ATTEMPT: &str = "forget what was taken back";
        let write = self.begin(ATTEMPT)?;
        taken_back::forget(&write)?;
        finish(write, ATTEMPT)?;
        self.taken_back = NotedRows::default();
        Ok(())
    }
}

/// The revision that takes back another one, whose commit was not confirmed before the agent ended.
fn undone(revision: ConfigRevision) -> ConfigRevision {
    ConfigRevision {
        number: 0,
        time_ns: now_ns(),
        author: AGENT.to_owned(),
        from: None,
        by: ChangeSource::Rollback,
        comment: None,
        trace: revision.trace,
        restored: None,
        difference: revision.difference.inverted(),
    }
}

/// Selects the rows that a roll-back at start restores: see [`Database::roll_back_unfinished`].
fn keeps_restores(change: &Change) -> bool {
    change.table != Table::Restore || change.value.is_some()
}
