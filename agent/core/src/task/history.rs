//! Service transactions of commits that end.

use holdfast_base::ErrorChain;
use holdfast_store::StoreError;
use tracing::warn;

use super::CoreTask;
use crate::commit::CommitInFlight;
use crate::request::CommitError;
use crate::service_history::HistoryChange;
use crate::state::JobResult;

impl CoreTask {
    /// Keeps the transaction of a commit that is in force now. Models that the commit has changed may have got a place for
    /// earlier ones.
    pub(super) fn note_service_transaction(
        &mut self,
        commit: &mut CommitInFlight,
    ) -> HistoryChange {
        let Some(ended) = commit.service_record.take_ended() else {
            return HistoryChange::default();
        };
        let change = self.service_history.note(ended);
        if commit.is_of_packages {
            return HistoryChange { dropped: change.dropped, ..self.service_history.all() };
        }
        change
    }

    /// Keeps and shows the transaction of a commit that failed.
    pub(super) fn note_failed_transaction(
        &mut self,
        commit: &mut CommitInFlight,
        error: &CommitError,
    ) {
        let book = &self.in_force.configuration().layers().book;
        let CommitInFlight { service_record, reply, rounds, .. } = commit;
        let rows = self.service_history.end(service_record, reply, rounds, book, Some(error));
        let Some(ended) = service_record.take_ended() else { return };
        let change = self.service_history.note(ended);
        self.publisher.show_history(&change);
        self.service_history.queue(rows);
        self.write_service_history();
    }

    /// Has the database write the rows of transactions that failed.
    fn write_service_history(&mut self) {
        let Some(rows) = self.service_history.take_unwritten() else { return };
        let written = self.store.write_artefacts(rows);
        self.jobs.push(async move { JobResult::HistoryWritten(written.await) });
    }

    pub(super) fn service_history_written(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            warn!(error = %ErrorChain(&error), "service transactions that failed are not kept for later runs");
        }
        self.service_history.note_written();
        self.write_service_history();
    }
}
