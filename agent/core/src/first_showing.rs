//! End of the start: revisions show the state of the box.
//!
//! The first complete reading finds most values in place. They are shown once, when the plan that says so is taken over:
//! nobody reads before.

use holdfast_base::ErrorChain;
use holdfast_scheduler::{Key, sort_keys};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::error;

use super::shared_engine::SharedEngine;
use super::task::{CoreTask, JobResult};

/// Places of values that are looked through with one guard of the engine: a millisecond at most.
const PLACES: u32 = 16_384;

/// How far the start is. The sender completes it.
#[derive(Debug)]
pub(super) enum FirstShowing {
    /// The first complete reading of the box is not taken in yet.
    Reading(oneshot::Sender<()>),
    /// The plan that follows from it is being made and taken over.
    Planning(oneshot::Sender<()>),
    /// A thread sorts the keys that are to be shown.
    Sorting(oneshot::Sender<()>),
    /// State is being shown.
    Showing(oneshot::Sender<()>),
    Done,
}

impl FirstShowing {
    /// True until the first complete reading of the box is taken in.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self, Self::Reading(_))
    }

    /// Notes that a complete reading of the box was taken in.
    pub(super) fn note_complete_reading(&mut self) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Reading(ready) => Self::Planning(ready),
            other => other,
        };
    }

    /// Notes that what is to be shown is known.
    fn note_sorted(&mut self) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Sorting(ready) => Self::Showing(ready),
            other => other,
        };
    }
}

/// Keys whose state is to be shown at first, ascending: those that have changed, and those of values that were
/// pending before the restart too, which did not change for the engine, but which no revision shows yet.
fn keys_to_show(engine: &SharedEngine, mut keys: Vec<Key>) -> Vec<Key> {
    let mut from = 0;
    loop {
        let engine = engine.read();
        let to = engine.places().min(from + PLACES);
        if from == to {
            break;
        }
        keys.extend(engine.pending_keys(from..to).cloned());
        from = to;
    }
    sort_keys(&mut keys);
    keys
}

impl CoreTask {
    /// Completes the start once revisions show the state of the box.
    pub(super) fn complete_start(&mut self) {
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
    pub(super) fn begin_showing(&mut self, keys: Vec<Key>) {
        let now = self.now();
        self.publisher.observe_links(&self.engine.read(), &keys, now);
        self.publisher.begin_showing(keys);
        self.first_showing.note_sorted();
    }

    /// Has the store forget what was taken back at the start, once the box is as configured. If the disk refuses, the next
    /// start takes it into account once more, which does no harm.
    pub(super) fn forget_taken_back(&mut self) {
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
