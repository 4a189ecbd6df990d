//! Steps of the engine: who is told of them, and what goes to the transports.

use holdfast_base::ErrorChain;
use holdfast_scheduler::{Completion, EngineOutput, Key, OperationError};
use holdfast_store::{Change, StoreError};
use tracing::warn;

use super::CoreTask;
use crate::state::{JobResult, TransportWork};

impl CoreTask {
    /// Follows a step of the engine: tells listeners and the log, hands work to the transports and changes to the readers.
    pub(crate) fn follow(&mut self, step: EngineOutput) {
        let now = self.now();
        self.listeners.note(&self.engine.read(), &step, now);
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
        for (object, error) in left {
            warn!(object, error = %ErrorChain(&error), "cannot be given back, and stays as the system has it");
        }
        self.clock.call_engine_at(deadline);
        // The transports begin while what changed is noted.
        self.hand_to_transports(TransportWork { restores, submit, cancel, read, retrieve });
        self.note_for_readers(changed);
        self.commits.note_settled(reached);
        self.commits.push_outcomes(finished);
        if is_complete {
            self.note_complete_reading();
        }
    }

    /// Hands out what a step asks of the transports, or has it wait for the store.
    fn hand_to_transports(&mut self, work: TransportWork) {
        let rows = self.transports.hand_out(work);
        self.write_restores(rows);
    }

    /// Notes the keys whose state readers are to be shown.
    fn note_for_readers(&mut self, changed: Vec<Key>) {
        let now = self.now();
        self.publisher.observe_links(&self.engine.read(), &changed, now);
        self.publisher.mark_dirty(changed);
    }

    /// Has pre-images written down, for which operations wait.
    fn write_restores(&mut self, rows: Option<Vec<Change>>) {
        let Some(rows) = rows else { return };
        let written = self.store.write(rows);
        self.jobs.push(async move { JobResult::RestoresWritten(written.await) });
    }

    /// The first batch may go, except operations that the store refused; then the batches behind it.
    pub(crate) fn restores_written(&mut self, result: Result<(), StoreError>) {
        match result {
            Ok(()) => self.transports.note_written(),
            Err(error) => self.fail_adoptions(&error),
        }
        let rows = self.transports.go_on();
        self.write_restores(rows);
    }

    /// Fails the operations that lack pre-images. The step that follows waits behind the other batches.
    fn fail_adoptions(&mut self, error: &StoreError) {
        let message = format!("cannot record what was there before: {}", ErrorChain(error));
        let failed = self.transports.take_refused().into_iter().map(|operation| Completion {
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
