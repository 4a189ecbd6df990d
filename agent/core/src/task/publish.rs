//! Revisions of commits and of state.

use std::sync::Arc;

use holdfast_store::Ticket;
use holdfast_telemetry::Boundary;
use tokio::task::spawn_blocking;

use super::CoreTask;
use crate::changes::AppliedChange;
use crate::commit::{CommitInFlight, Input};
use crate::publication::{BuildResult, BuilderPanicked};
use crate::state::JobResult;

impl CoreTask {
    /// Has a thread lay out the entries that a large commit adds to its revision, while the commit is carried out.
    pub(crate) fn prepare_entries(&mut self, commit: &mut CommitInFlight) {
        let (Some(change), Some(base)) = (commit.machine.executed_change(), &commit.base) else {
            return;
        };
        if !change.is_large() {
            return;
        }
        let preparation = self.publisher.preparation(&base.configuration, change);
        commit.prepared = Some(spawn_blocking(move || Box::new(preparation.run())));
    }

    /// Has a thread build the revision of a commit that was answered.
    pub(crate) fn build_revision(
        &mut self,
        commit: &mut CommitInFlight,
        applied: &Arc<AppliedChange>,
    ) {
        let ticket = commit.ticket;
        let prepared = commit.prepared.take();
        let mut builder =
            self.publisher.builder(ticket, applied, &self.engine, self.in_force.configuration());
        self.jobs.push(async move {
            if let Some(prepared) = prepared {
                builder.prepared = prepared.await.ok(); // without them, the entries are added one by one
            }
            let built = spawn_blocking(move || Box::new(builder.build())).await;
            JobResult::Commit(ticket, Input::Built(built.map_err(|_| BuilderPanicked)))
        });
    }

    /// Publishes a commit, and its boundary. Where no thread has built its revision, or has panicked, it is built now.
    pub(crate) fn publish_commit(
        &mut self,
        ticket: Ticket,
        transaction: u64,
        applied: Arc<AppliedChange>,
        built: Option<BuildResult>,
    ) {
        let is_answered = built.is_some();
        let built = match built {
            Some(Ok(built)) => *built,
            Some(Err(BuilderPanicked)) | None => {
                let publisher = &mut self.publisher;
                publisher
                    .builder(ticket, &applied, &self.engine, self.in_force.configuration())
                    .build()
            }
        };
        let before = self.publisher.chain().newest();
        let revision = self.publisher.complete(ticket, &self.engine.read(), built);
        let confirm_id = applied.confirm_id.clone();
        self.publisher.announce(Boundary { revision, transaction, confirm_id });
        if is_answered {
            self.publisher.note_caught_up();
            // Memory that only earlier versions used is large: to free it takes as long as to build it.
            spawn_blocking(move || drop((before, applied)));
        }
    }

    /// Publishes some of the state that changed without a change of configuration.
    pub(crate) fn publish_state(&mut self) {
        self.publisher.show_portion(&self.engine.read());
    }
}
