//! Steps of the end of the start.

use holdfast_base::ErrorChain;
use holdfast_scheduler::Key;
use tokio::task::spawn_blocking;
use tracing::error;

use super::CoreTask;
use crate::state::{JobResult, keys_to_show};

impl CoreTask {
    /// Completes the start once revisions show the state of the box.
    pub(crate) fn complete_start(&mut self) {
        if self.start.is_planning() {
            if !self.is_in_portions() {
                self.list_what_is_shown_first();
            }
        } else if !self.publisher.has_work() {
            self.start.note_shown();
        }
    }

    /// Has a thread list the keys whose state is to be shown at first.
    fn list_what_is_shown_first(&mut self) {
        let engine = self.engine.clone();
        let changed = self.publisher.take_dirty();
        let keys = spawn_blocking(move || keys_to_show(&engine, changed));
        self.jobs.push(async move {
            let keys = keys.await.unwrap_or_else(|error| {
                error!(error = %ErrorChain(&error), "cannot list what is to be shown; it is when it changes");
                Vec::new()
            });
            JobResult::FirstKeys(keys)
        });
        self.start.note_sorting();
    }

    /// Begins to show state, of these keys first.
    pub(crate) fn begin_showing(&mut self, keys: Vec<Key>) {
        let now = self.now();
        self.publisher.observe_links(&self.engine.read(), &keys, now);
        self.publisher.begin_showing(keys);
        self.start.note_sorted();
    }

    /// Has the store forget what was taken back at the start, once the box is as configured. If the disk refuses, the next
    /// start takes it into account once more, which does no harm.
    pub(crate) fn forget_taken_back(&mut self) {
        if self.start.may_forget_taken_back() && self.engine.read().is_idle() {
            self.start.note_forgotten();
            drop(self.store.forget_taken_back());
        }
    }

    /// True while the engine plans for what it has read, or takes something over or in.
    fn is_in_portions(&self) -> bool {
        let engine = self.engine.read();
        engine.is_between_portions() || engine.is_converging()
    }
}
