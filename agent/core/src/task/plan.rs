//! Plans of changes and of their way back, on other threads.

use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_scheduler::{Delta, Key};
use holdfast_store::Ticket;
use tokio::task::spawn_blocking;
use tracing::error;

use super::CoreTask;
use crate::changes::PlannedChange;
use crate::commit::{CommitInFlight, CommitKind, Input};
use crate::examination::Candidate;
use crate::planning::{CandidatePlanner, Inversion};
use crate::request::CommitError;
use crate::state::JobResult;

impl CoreTask {
    /// Plans a candidate on another thread. The result is an error if the plan is not the one that the client expects.
    pub(crate) fn plan(&mut self, candidate: Candidate, commit: &CommitInFlight) {
        self.show_routes_to_take_over(&candidate.changes);
        let planner = CandidatePlanner {
            engine: self.engine.clone(),
            examiner: Arc::clone(&self.examiner),
            relations: Arc::clone(self.in_force.relations()),
            store: self.store.clone(),
            ticket: commit.ticket,
            author: commit.reply.author(),
            origin: commit.origin,
            is_recorded: commit.machine.kind() == CommitKind::Recorded,
            is_admitted: commit.is_admitted,
            is_best_effort: commit.is_best_effort,
            is_dry_run: commit.reply.is_dry_run(),
            expected_plan: commit.options.expected_plan,
            follow_up: commit.options.follow_up.clone(),
            credential_source: self.credential_source.clone(),
            base: commit.base.as_ref().map(|base| base.configuration.clone()),
            maintained: Arc::clone(&self.maintained),
        };
        let ticket = commit.ticket;
        let planned = spawn_blocking(move || planner.plan(candidate).map(Box::new));
        self.jobs.push(async move {
            let planned = planned.await.unwrap_or_else(|error| Err(CommitError::ended(&error)));
            JobResult::Commit(ticket, Input::Planned(planned))
        });
    }

    /// Has a thread work out how to take back a change that the kernel has and that the store could not make final. No revision
    /// shows it meanwhile.
    pub(crate) fn undo(&mut self, change: Box<PlannedChange>, commit: &CommitInFlight) {
        // Beside its own entries, the configuration in force may differ from that which the change was made of.
        let before =
            commit.base.as_ref().map_or(self.in_force.configuration(), |base| &base.configuration);
        let credential = |(key, _): &(Key, _)| (key.clone(), self.in_force.credential(key));
        let inversion = Inversion {
            examiner: Arc::clone(&self.examiner),
            origin: commit.origin,
            before: before.clone(),
            credentials: change.credentials.values.iter().map(credential).collect(),
            change,
        };
        let ticket = commit.ticket;
        let inverted = spawn_blocking(move || inversion.run());
        self.jobs.push(async move {
            let inverted = inverted.await.unwrap_or_else(|error| Err(CommitError::ended(&error)));
            JobResult::Inverted(ticket, inverted)
        });
    }

    /// Has the engine take back a change, in a plan that it makes between events.
    pub(crate) fn start_undo(&mut self, ticket: Ticket, inverted: Result<Delta, CommitError>) {
        match inverted {
            Ok(delta) => {
                let (txn, step) = self.engine.write().start_unplanned(delta, self.now());
                self.push_input(ticket, Input::UndoStarted(Some(txn)));
                self.follow(step);
            }
            Err(fault) => {
                error!(error = %ErrorChain(&fault), "cannot plan the rollback");
                self.push_input(ticket, Input::UndoStarted(None));
            }
        }
    }
}
