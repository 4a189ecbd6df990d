//! The log of configuration revisions in the database.

use redb::ReadableDatabase;
use tracing::{info, warn};

use super::{Database, finish};
use crate::revisions::log::{
    APPEND, LogState, META_WAITING, READ, REVISIONS, forget_undo, is_covered,
};
use crate::tables::META;
use crate::{ConfigRevision, ListedRevision, LogWork, RevisionList, RevisionRange, StoreError};

impl Database {
    /// Drops the undo records where an earlier version of the agent, which keeps no log, has changed the configuration since.
    pub(crate) fn ensure_log_is_covered(&mut self) -> Result<(), StoreError> {
        if is_covered(self.redb()?)? {
            return Ok(());
        }
        let write = self.begin(APPEND)?;
        let state = forget_undo(&write).map_err(StoreError::accessing(APPEND))?;
        finish(write, APPEND)?;
        if state.last > 0 {
            info!(
                revision = state.last,
                "an earlier version of the agent has changed the configuration: no earlier revision can be restored"
            );
        }
        Ok(())
    }

    /// The state of the log, and configuration revisions of it. Documents of others are not read.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn revisions(&mut self, range: RevisionRange) -> Result<RevisionList, StoreError> {
        let redb = self.redb()?;
        let mut read = 0;
        let mut listed = || -> Result<RevisionList, redb::Error> {
            let transaction = redb.begin_read()?;
            let state = LogState::read(&transaction.open_table(META)?)?;
            let mut revisions = Vec::new();
            let documents = transaction.open_table(REVISIONS)?;
            let RevisionRange { first, last, most } = range;
            for row in documents.range(first..=last)?.rev().take(most) {
                let (number, document) = row?;
                read += 1;
                match serde_json::from_slice(document.value()) {
                    Ok(revision) => {
                        let restorable = state.is_restorable(number.value());
                        revisions.push(ListedRevision { revision, restorable });
                    }
                    Err(error) => {
                        warn!(revision = number.value(), %error, "a configuration revision cannot be read");
                    }
                }
            }
            revisions.reverse();
            Ok(RevisionList {
                last: state.last,
                oldest_restorable: state.oldest_restorable(),
                octets: state.octets(),
                revisions,
            })
        };
        let listed = listed().map_err(StoreError::accessing(READ));
        self.log_work.read += read;
        listed
    }

    /// Documents and pieces of the log that were read, written and removed since the file was opened.
    pub fn log_work(&self) -> LogWork {
        self.log_work
    }

    /// The document of the revision whose commit waits to be confirmed, if that has one.
    pub(crate) fn waiting_revision(&self) -> Result<Option<ConfigRevision>, StoreError> {
        let redb = self.redb()?;
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let transaction = redb.begin_read()?;
            let waiting = transaction.open_table(META)?.get(META_WAITING)?;
            let Some(waiting) = waiting.map(|number| number.value()) else { return Ok(None) };
            let document = transaction.open_table(REVISIONS)?.get(waiting)?;
            Ok(document.map(|document| document.value().to_vec()))
        };
        let document = read().map_err(StoreError::accessing(READ))?;
        // A note that cannot be read counts as absent: its text is for people.
        Ok(document.and_then(|document| serde_json::from_slice(&document).ok()))
    }
}
