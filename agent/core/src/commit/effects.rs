//! Carrying out of the effects of a commit.
//!
//! One loop takes inputs from one queue, in their order. An effect that has a result at once puts it at the end of the
//! queue; one that takes time comes back as a job. No effect is carried out below another one.

use std::sync::Arc;

use holdfast_base::{ErrorChain, beside_others, now_ns};
use holdfast_config::parallel;
use holdfast_scheduler::Key;
use holdfast_store::{StoreError, Ticket};
use tracing::error;

use super::{AppliedChange, CommitInFlight, Effect, Input, PlannedChange};
use crate::CommitStamp;
use crate::examination::{CredentialValues, EntryChange};
use crate::planning::CommitPlan;
use crate::preview::Preview;
use crate::reconcile;
use crate::task::{CommitInput, CoreTask, JobResult};

type CommitEffect = Effect<Box<CommitPlan>>;

impl CoreTask {
    /// Begins a commit, with its first input.
    pub(crate) fn begin_commit(&mut self, commit: CommitInFlight, first: CommitInput) {
        self.commit = Some(commit);
        self.inputs.push_back(first);
    }

    /// Handles the inputs of the commit in flight, and those that follow from them at once.
    pub(crate) fn advance_commit(&mut self) {
        let much = self.inputs.iter().any(is_much);
        beside_others(much, || {
            while let Some(input) = self.inputs.pop_front() {
                // Without a commit in flight, transactions of the engine (repairs, retries) only show in state.
                if let Some(mut commit) = self.commit.take() {
                    for effect in commit.machine.on(input) {
                        self.carry_out(effect, &mut commit);
                    }
                    self.commit = (!commit.machine.has_ended()).then_some(commit);
                }
            }
        });
    }

    fn carry_out(&mut self, effect: CommitEffect, commit: &mut CommitInFlight) {
        match effect {
            Effect::Examine(intent) => self.examine(*intent, commit.reply.is_dry_run()),
            Effect::Plan(candidate) => {
                let planned = self.plan(*candidate, commit).map(Box::new);
                self.inputs.push_back(Input::Planned(planned));
            }
            Effect::Record(planned) => self.record(*planned),
            Effect::Start(txn) => {
                let step = self.engine.start_prepared(txn, self.now());
                self.follow(step);
            }
            Effect::Cancel(txn) => {
                let step = self.engine.cancel(txn, self.now());
                self.follow(step);
            }
            Effect::Finalize => self.finalize(commit),
            Effect::Abort => self.abort(commit.ticket),
            Effect::Undo(change) => self.undo(&change, commit.origin),
            Effect::SetCredentials(credentials) => self.set_credentials(credentials),
            Effect::Apply(change) => self.apply(*change, commit),
            Effect::Build(applied) => self.build_revision(&applied),
            Effect::Publish(applied, built) => {
                let number = commit.number.unwrap_or_default(); // given by Finalize, which comes before
                self.publish_commit(number, &applied, built);
            }
            Effect::Confirm => {
                let confirmed = self.store.confirm();
                self.jobs.push(async move { finished(confirmed.await) });
            }
            Effect::CloseWindow => self.window = None,
            Effect::Release => self.publisher.release(),
            Effect::Answer(result) => commit.reply.send(result),
            Effect::AnswerAhead(stamp) => self.answer_ahead(stamp, commit),
            Effect::AnswerUnchanged => commit.reply.send(Ok(self.unchanged())),
            Effect::AnswerPreview(planned) => {
                let CommitPlan { plan, differences, .. } = *planned;
                commit.reply.send_preview(Preview::new(&self.engine, &plan, differences));
            }
        }
    }

    /// Has the engine prepare the plan while the store records the change.
    fn record(&mut self, planned: CommitPlan) {
        let CommitPlan { plan, rows, change, .. } = planned;
        let recorded = rows.map(|(recorded, consent)| {
            consent.give();
            recorded
        });
        let beside: Vec<Key> = plan.side_effects().cloned().collect();
        let (txn, mut step) = self.engine.prepare(plan, self.now());
        self.event_tx.send(&self.engine, &step);
        let mut keys = std::mem::take(&mut step.changed);
        keys.extend(beside);
        self.publisher.defer(keys);
        self.inputs.push_back(Input::Prepared { txn, change });
        self.hand_out(step);
        match recorded {
            Some(recorded) => {
                self.jobs.push(async move { JobResult::Commit(Input::Recorded(recorded.await)) })
            }
            None => self.inputs.push_back(Input::Recorded(Ok(()))),
        }
    }

    fn finalize(&mut self, commit: &mut CommitInFlight) {
        let artefacts = std::mem::take(&mut commit.artefacts);
        let number = self.next_number;
        // A number is not used again: the disk may have taken what it reported as refused.
        self.next_number += 1;
        commit.number = Some(number);
        let unconfirmed = commit.unconfirmed();
        let finalized = self.store.commit_with(commit.ticket, number, unconfirmed, artefacts);
        self.jobs.push(async move { finished(finalized.await) });
    }

    fn abort(&mut self, ticket: Ticket) {
        let aborted = self.store.abort(ticket);
        self.jobs.push(async move {
            let aborted = aborted.await;
            if let Err(error) = &aborted {
                error!(error = %ErrorChain(error), "cannot roll back a change in the store; the next start will");
            }
            finished(aborted)
        });
    }

    fn set_credentials(&mut self, CredentialValues { values, credentials }: CredentialValues) {
        for (key, value) in values {
            match value {
                Some(value) => self.credential_values.insert(key, value),
                None => self.credential_values.remove(&key),
            };
        }
        if let Some(credentials) = credentials {
            self.credentials = credentials;
        }
    }

    /// Puts the configuration of a final change in force.
    fn apply(&mut self, change: PlannedChange, commit: &CommitInFlight) {
        let PlannedChange { configuration, changes, .. } = change;
        let confirm_id = self.open_or_close_window(commit);
        let old = std::mem::replace(&mut self.configuration, configuration);
        self.configuration_tx.send_replace(self.configuration.clone());
        self.reconcile_as(reconcile::settings(&self.examiner.registry, &changes));
        self.pairs.update(changes.iter().flat_map(EntryChange::differences));
        let revision = self.publisher.revision().number + 1;
        let stamp = CommitStamp { time_ns: now_ns(), revision };
        let applied = AppliedChange { old, changes, confirm_id, stamp };
        self.inputs.push_back(Input::Applied(Arc::new(applied)));
    }

    fn answer_ahead(&mut self, stamp: CommitStamp, commit: &mut CommitInFlight) {
        self.behind_tx.send_replace(true);
        commit.reply.send(Ok(stamp));
        self.jobs.push(async {
            // The task that sends the answer may be waiting for this thread.
            tokio::task::yield_now().await;
            JobResult::Commit(Input::Replied)
        });
    }

    /// Answer to a request that changes no configuration.
    pub(crate) fn unchanged(&self) -> CommitStamp {
        CommitStamp { time_ns: now_ns(), revision: self.revision_tx.borrow().number }
    }
}

/// True for an input whose effects take long.
fn is_much(input: &CommitInput) -> bool {
    matches!(input, Input::Examined(Ok(candidate)) if candidate.changes.len() > parallel::FEW)
}

fn finished(result: Result<(), StoreError>) -> JobResult {
    JobResult::Commit(Input::Finished(result))
}
