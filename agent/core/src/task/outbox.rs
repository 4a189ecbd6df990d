//! Steps of the engine: who is told of them, and what goes to the transports.

use holdfast_base::ErrorChain;
use holdfast_scheduler::{
    Completion, EngineOutput, OperationError, TransactionOutcome, WaitResult,
};
use holdfast_store::StoreError;
use tracing::warn;

use super::{CommitEvent, CoreTask, JobResult};
use crate::state::{Batch, restore_rows};

impl CoreTask {
    /// Sends a step of the engine to listeners and to the log, and hands it out.
    pub(crate) fn follow(&mut self, step: EngineOutput) {
        let now = self.now();
        let engine = self.engine.read();
        self.event_tx.send(&engine, &step);
        self.repair_log.note(&engine, &step, now);
        drop(engine);
        self.hand_out(step);
    }

    /// Does what the engine says.
    pub(crate) fn hand_out(&mut self, step: EngineOutput) {
        let EngineOutput {
            restores,
            submit,
            cancel,
            read,
            finished,
            reached,
            changed,
            left,
            system_changes: _, // only the log tells of them
            retrieve,
            is_complete,
            deadline,
        } = step;
        for WaitResult { txn, in_time, .. } in reached {
            if let Some(follow_up) = self.settling.remove(&txn) {
                follow_up.note_settled(in_time);
            }
        }
        for (object, error) in left {
            warn!(object, error = %ErrorChain(&error), "cannot be given back, and stays as the system has it");
        }
        if !cancel.is_empty() {
            self.transport.cancel(cancel);
        }
        if retrieve {
            self.transport.retrieve();
        }
        self.deadline = deadline;
        // The transports begin while what changed is noted.
        let batch = Batch { restores, submit, read };
        if self.outbox.waiting.is_empty() && !self.outbox.is_held(&batch) {
            self.submit(batch);
        } else {
            self.outbox.waiting.push_back(batch);
            if self.outbox.waiting.len() == 1 {
                self.write_restores();
            }
        }
        let now = self.now();
        self.publisher.observe_links(&self.engine.read(), &changed, now);
        self.publisher.mark_dirty(changed);
        // Of a change that did not end well, no value is waited for.
        let failed = finished.iter().filter(|it| !matches!(it, TransactionOutcome::Done { .. }));
        failed.for_each(|outcome| drop(self.settling.remove(&outcome.txn())));
        self.commit_events.extend(finished.into_iter().map(CommitEvent::Outcome));
        if is_complete {
            self.note_complete_reading();
        }
    }

    fn submit(&mut self, batch: Batch) {
        let Batch { submit, read, .. } = batch;
        if !submit.is_empty() {
            self.transport.submit(submit);
        }
        if !read.is_empty() {
            self.transport.read(read);
        }
    }

    /// Has what the first batch waits for written down, with all that could not be written before.
    fn write_restores(&mut self) {
        let Some(first) = self.outbox.waiting.front_mut() else { return };
        self.outbox.owed.extend(std::mem::take(&mut first.restores));
        let written = self.store.write(restore_rows(&self.outbox.owed));
        self.jobs.push(async move { JobResult::RestoresWritten(written.await) });
    }

    /// The first batch may go, but for what the store refused; then what waits behind it.
    pub(crate) fn restores_written(&mut self, result: Result<(), StoreError>) {
        match result {
            Ok(()) => self.outbox.owed.clear(),
            Err(error) => self.fail_adoptions(&error),
        }
        while let Some(batch) = self.outbox.waiting.pop_front() {
            self.submit(batch);
            if self.outbox.waiting.front().is_some_and(|next| self.outbox.is_held(next)) {
                return self.write_restores();
            }
        }
    }

    /// Fails the operations that lack pre-images. The step that follows waits behind the other batches.
    fn fail_adoptions(&mut self, error: &StoreError) {
        let message = format!("cannot record what was there before: {}", ErrorChain(error));
        let failed = self.outbox.refused().into_iter().map(|operation| Completion {
            op: operation.id,
            result: Err(OperationError {
                transient: true,
                ..OperationError::message(message.clone())
            }),
            observed: None,
        });
        let step = self.engine.write().completed(failed.collect(), self.now());
        self.follow(step);
    }
}
