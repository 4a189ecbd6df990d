//! Steps of the end of the start.

use holdfast_base::ErrorChain;
use holdfast_scheduler::Key;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::error;

use super::{CoreTask, JobResult};
use crate::state::{FirstShowing, keys_to_show};

impl CoreTask {
    /// Completes the start once revisions show the state of the box.
    pub(crate) fn complete_start(&mut self) {
        self.first_showing = match std::mem::replace(&mut self.first_showing, FirstShowing::Done) {
            FirstShowing::Planning(ready) if !self.is_in_portions() => {
                let (engine, changed) = (self.engine.clone(), self.publisher.take_dirty());
                let keys = spawn_blocking(move || keys_to_show(&engine, changed));
                self.jobs.push(async move {
                    let keys = keys.await.unwrap_or_else(|error| {
                        error!(error = %ErrorChain(&error), "cannot list what is to be shown; it is when it changes");
                        Vec::new()
                    });
                    JobResult::FirstKeys(keys)
                });
                FirstShowing::Sorting(ready)
            }
            FirstShowing::Showing(ready) => self.complete_showing(ready),
            other => other,
        };
    }

    /// Begins to show state, of these keys first.
    pub(crate) fn begin_showing(&mut self, keys: Vec<Key>) {
        let now = self.now();
        self.publisher.observe_links(&self.engine.read(), &keys, now);
        self.publisher.begin_showing(keys);
        self.first_showing.note_sorted();
    }

    /// Has the store forget what was taken back at the start, once the box is as configured. If the disk refuses, the next
    /// start takes it into account once more, which does no harm.
    pub(crate) fn forget_taken_back(&mut self) {
        let is_started = matches!(self.first_showing, FirstShowing::Done);
        if self.has_taken_back && is_started && self.engine.read().is_idle() {
            self.has_taken_back = false;
            drop(self.store.forget_taken_back());
        }
    }

    /// True while the engine plans for what it has read, or takes something over or in.
    fn is_in_portions(&self) -> bool {
        let engine = self.engine.read();
        engine.is_between_portions() || engine.is_converging()
    }

    fn complete_showing(&self, ready: oneshot::Sender<()>) -> FirstShowing {
        if self.publisher.has_work() {
            return FirstShowing::Showing(ready);
        }
        let _start_was_given_up = ready.send(());
        FirstShowing::Done
    }
}
