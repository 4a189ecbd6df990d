//! The way from the engine to the transports.
//!
//! Before an object is taken over, what it was before has to be durable, or a crash could never give it back. So what
//! comes with pre-images waits until the store has them, and whatever comes later waits behind it: the transports are
//! given everything in the order in which the engine said it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_base::ErrorChain;
use holdfast_platform::pre_image;
use holdfast_scheduler::{
    Completion, EngineOutput, Key, Operation, OperationError, SharedValue, TransactionOutcome,
    WaitResult,
};
use holdfast_store::StoreError;
use tracing::warn;

use super::task::{CommitEvent, CoreTask, JobResult};

/// Batches that the transports have not been given yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The first one waits for the store.
    waiting: VecDeque<Batch>,
    /// Pre-images, or their end, that are not known to be durable.
    owed: BTreeMap<Key, Option<SharedValue>>,
}

/// Operations and readings of one step of the engine.
#[derive(Debug)]
struct Batch {
    restores: Vec<(Key, Option<SharedValue>)>,
    submit: Vec<Operation>,
    read: Vec<Key>,
}

impl Outbox {
    /// True when pre-images must be durable before this batch may go.
    fn is_held(&self, batch: &Batch) -> bool {
        let touches = || batch.submit.iter().any(|it| self.owes(&it.key));
        !batch.restores.is_empty() || (!self.owed.is_empty() && touches())
    }

    /// True when the pre-image of an object is known and not yet durable.
    fn owes(&self, key: &Key) -> bool {
        matches!(self.owed.get(key), Some(Some(_)))
    }

    /// Takes out the operations that lack pre-images because the store refused them: all operations of the transactions
    /// that touch such objects in the first batch.
    fn refused(&mut self) -> Vec<Operation> {
        let Some(first) = self.waiting.front() else { return Vec::new() };
        let touching = first.submit.iter().filter(|it| self.owes(&it.key));
        let txns: BTreeSet<_> = touching.map(|it| it.txn).collect();
        let refused = |batch: &mut Batch| {
            batch.submit.extract_if(.., |it| txns.contains(&it.txn)).collect::<Vec<_>>()
        };
        self.waiting.iter_mut().flat_map(refused).collect()
    }
}

impl CoreTask {
    /// Sends a step of the engine to listeners and to the log, and hands it out.
    pub(super) fn follow(&mut self, step: EngineOutput) {
        let now = self.now();
        let engine = self.engine.read();
        self.event_tx.send(&engine, &step);
        self.repair_log.note(&engine, &step, now);
        drop(engine);
        self.hand_out(step);
    }

    /// Does what the engine says.
    pub(super) fn hand_out(&mut self, step: EngineOutput) {
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

    /// The first batch may go, except operations that the store refused; then the batches behind it.
    pub(super) fn restores_written(&mut self, result: Result<(), StoreError>) {
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

/// Rows that record, or remove, the pre-images of adopted objects.
fn restore_rows(restores: &BTreeMap<Key, Option<SharedValue>>) -> Vec<holdfast_store::Change> {
    let row = |(key, value): (&Key, &Option<SharedValue>)| {
        let octets = value.as_ref().and_then(|value| pre_image::to_bytes(&**value));
        holdfast_store::Change::restore(key.as_bytes().to_vec(), octets)
    };
    restores.iter().map(row).collect()
}
