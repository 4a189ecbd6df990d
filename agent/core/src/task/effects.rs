//! Carrying out of the effects of a commit.
//!
//! One loop takes inputs from one queue, in their order. An effect that has a result at once puts it at the end of the
//! queue; one that takes time comes back as a job. No effect is carried out below another one.

use std::sync::Arc;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_store::{FinalContent, StoreError, Ticket};
use tracing::error;

use super::{CoreTask, reconcile};
use crate::changes::{AppliedChange, PlannedChange};
use crate::commit::{CommitInFlight, CommitInput, Effect, Input};
use crate::examination::package_row;
use crate::planning::CommitPlan;
use crate::request::{CommitStamp, Preview};
use crate::state::JobResult;

type CommitEffect = Effect<Box<CommitPlan>>;

impl CoreTask {
    /// Begins a commit, with its first input.
    pub(crate) fn begin_commit(&mut self, commit: CommitInFlight, first: CommitInput) {
        self.push_input(commit.ticket, first);
        self.commits.insert(commit);
    }

    /// Queues an input of a commit.
    pub(crate) fn push_input(&mut self, ticket: Ticket, input: CommitInput) {
        self.commits.push_input(ticket, input);
    }

    /// Handles the inputs of commits, and those that follow from them at once.
    pub(crate) fn advance_commits(&mut self) {
        loop {
            while let Some((commit, input)) = self.commits.next_input() {
                self.handle_input(commit, input);
            }
            self.finalize_next();
            match self.commits.next_turn() {
                Some((ticket, turn)) => self.push_input(ticket, Input::Turn(turn)),
                None => return,
            }
        }
    }

    fn handle_input(&mut self, mut commit: CommitInFlight, input: CommitInput) {
        for effect in commit.machine.on(input) {
            self.execute(effect, &mut commit);
        }
        if commit.machine.has_ended() {
            self.commits.note_end(commit.ticket);
        } else {
            self.commits.insert(commit);
        }
    }

    fn execute(&mut self, effect: CommitEffect, commit: &mut CommitInFlight) {
        match effect {
            Effect::Examine(intent) => self.examine(intent, commit),
            Effect::ExamineAnswered(intent) => self.examine_answered(intent, commit),
            Effect::Ask(calls) => self.ask(calls, commit),
            Effect::NoteAnswers(reply) => commit.rounds.note(reply),
            Effect::Wait(footprint) => {
                commit.footprint = Some(footprint);
                commit.behind = None;
            }
            Effect::Plan(mut candidate) => {
                commit.packages = std::mem::take(&mut candidate.packages);
                commit.difference = candidate.difference.take();
                commit.service_record.touched = candidate.touched.clone();
                self.plan(*candidate, commit);
            }
            Effect::Record(planned) => self.record(*planned, commit),
            Effect::Start(txn) => {
                self.prepare_entries(commit);
                let step = self.engine.write().start_prepared(txn, self.now());
                self.follow(step);
            }
            Effect::Cancel(txn) => {
                let step = self.engine.write().cancel(txn, self.now());
                self.follow(step);
            }
            Effect::Judge(configuration, due) => {
                self.judge_ready(commit, *configuration, due);
            }
            Effect::Finalize(rows) => {
                commit.rows = rows;
                self.commits.queue_to_finalize(commit.ticket);
            }
            Effect::Abort => self.abort(commit.ticket),
            Effect::Undo(change) => {
                self.commits.pass_over(commit.ticket);
                self.undo(change, commit);
            }
            Effect::SetCredentials(credentials) => {
                self.in_force.set_credentials(credentials);
                self.commits.note_applied(commit);
            }
            Effect::Apply(change) => self.apply(*change, commit),
            Effect::Build(applied) => self.build_revision(commit, &applied),
            Effect::Publish(applied, built) => {
                let number = commit.number.unwrap_or_default(); // given by Finalize, which comes before
                self.publish_commit(commit.ticket, number, applied, built);
            }
            Effect::Confirm => {
                let ticket = commit.ticket;
                let confirmed = self.store.confirm();
                self.jobs.push(async move { finished(ticket, confirmed.await) });
            }
            Effect::CloseWindow => {
                self.window.close();
                self.show_window(); // before the answer
            }
            Effect::Release => self.publisher.release(commit.ticket),
            Effect::Answer(result) => {
                if let Err(error) = &result {
                    commit.rounds.end(Err(error));
                    self.note_failed_transaction(commit, error);
                }
                commit.reply.send(result);
            }
            Effect::AnswerAhead(stamp) => self.answer_ahead(stamp, commit),
            Effect::AnswerUnchanged => commit.reply.send(Ok(self.unchanged())),
            Effect::AnswerPreview(planned) => {
                let CommitPlan { plan, differences, services, .. } = *planned;
                let preview = Preview::new(&self.engine.read(), &plan, differences, services);
                commit.reply.send_preview(preview);
            }
        }
    }

    /// Has the engine prepare the plan while the store records the change.
    fn record(&mut self, planned: CommitPlan, commit: &CommitInFlight) {
        let ticket = commit.ticket;
        let CommitPlan { plan, rows, change, keys, .. } = planned;
        let recorded = rows.map(|(recorded, consent)| {
            consent.give();
            recorded
        });
        self.publisher.defer(ticket, keys);
        let (txn, step) = self.engine.write().prepare(plan, self.now());
        if let Some(follow_up) = commit.options.follow_up.clone() {
            self.commits.await_settled(txn, follow_up);
        }
        self.push_input(ticket, Input::Prepared { txn, change });
        self.follow(step);
        match recorded {
            Some(recorded) => {
                let job = async move { JobResult::Commit(ticket, Input::Recorded(recorded.await)) };
                self.jobs.push(job);
            }
            None => self.push_input(ticket, Input::Recorded(Ok(()))),
        }
    }

    /// Makes the next commit final in the store, unless another one is at it.
    fn finalize_next(&mut self) {
        let Some((number, commit)) = self.commits.next_to_finalize() else { return };
        let mut artefacts = std::mem::take(&mut commit.artefacts);
        artefacts.extend(std::mem::take(&mut commit.packages).into_iter().map(package_row));
        let book = &self.in_force.configuration().layers().book;
        let CommitInFlight { service_record, reply, rounds, .. } = commit;
        artefacts.extend(self.service_history.end(service_record, reply, rounds, book, None));
        let revision = commit.take_revision().map(Box::new);
        let content = FinalContent { artefacts, rows: std::mem::take(&mut commit.rows), revision };
        let ticket = commit.ticket;
        let unconfirmed = commit.unconfirmed(self.window.waiting().is_some());
        let finalized = self.store.commit_with(ticket, number, unconfirmed, content);
        self.jobs.push(async move { finished(ticket, finalized.await) });
    }

    fn abort(&mut self, ticket: Ticket) {
        let aborted = self.store.abort(ticket);
        self.jobs.push(async move {
            let aborted = aborted.await;
            if let Err(error) = &aborted {
                error!(error = %ErrorChain(error), "cannot roll back a change in the store; the next start will");
            }
            finished(ticket, aborted)
        });
    }

    /// Puts the configuration of a final change in force.
    fn apply(&mut self, change: PlannedChange, commit: &mut CommitInFlight) {
        // Whoever sees the configuration finds the answers that it was made with.
        commit.rounds.end(Ok(()));
        let PlannedChange { configuration, changes, .. } = change;
        let now = self.now();
        let before = self.in_force.configuration();
        let confirm_id = self.window.open_or_close(commit, before.layers(), now);
        self.show_window();
        let configuration = match &commit.base {
            Some(base) => configuration.rebased(&base.configuration, self.in_force.configuration()),
            None => configuration,
        };
        let old = self.in_force.replace(configuration);
        if let Some(follow_up) = &commit.options.follow_up {
            follow_up.note_touched(old.changed_instances(self.in_force.configuration()));
        }
        self.in_force.announce();
        self.reconcile_as(reconcile::settings(&self.examiner.registry, &changes));
        self.in_force.update_relations(&changes);
        let is_large = commit.machine.is_large();
        let revision = self.publisher.chain().reserve(is_large);
        let stamp = CommitStamp { time_ns: now_ns(), revision };
        let history = self.note_service_transaction(commit);
        let applied = AppliedChange { old, changes, confirm_id, history, stamp };
        self.push_input(commit.ticket, Input::Applied(Arc::new(applied)));
    }

    fn answer_ahead(&mut self, stamp: CommitStamp, commit: &mut CommitInFlight) {
        self.publisher.note_behind();
        commit.reply.send(Ok(stamp));
        let ticket = commit.ticket;
        self.jobs.push(async move {
            // The task that sends the answer may be waiting for this thread.
            tokio::task::yield_now().await;
            JobResult::Commit(ticket, Input::Replied)
        });
    }

    /// Answer to a request that changes no configuration.
    pub(crate) fn unchanged(&self) -> CommitStamp {
        CommitStamp { time_ns: now_ns(), revision: self.publisher.chain().newest().number }
    }
}

fn finished(ticket: Ticket, result: Result<(), StoreError>) -> JobResult {
    JobResult::Commit(ticket, Input::Finished(result))
}
