//! End of the start: revisions show the state of the box.
//!
//! The first complete reading finds most values in place. They are shown once, when the plan that says so is taken over:
//! nobody reads before.

use tokio::sync::oneshot;

use super::task::CoreTask;

/// How far the start is. The sender completes it.
#[derive(Debug)]
pub(super) enum FirstShowing {
    /// The first complete reading of the box is not taken in yet.
    Reading(oneshot::Sender<()>),
    /// The plan that follows from it is being made and taken over.
    Planning(oneshot::Sender<()>),
    /// State is being shown.
    Showing(oneshot::Sender<()>),
    Done,
}

impl FirstShowing {
    /// Notes that a complete reading of the box was taken in.
    pub(super) fn note_complete_reading(&mut self) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Reading(ready) => Self::Planning(ready),
            other => other,
        };
    }
}

impl CoreTask {
    /// Completes the start once revisions show the state of the box.
    pub(super) fn complete_start(&mut self) {
        self.first_showing = match std::mem::replace(&mut self.first_showing, FirstShowing::Done) {
            FirstShowing::Planning(ready) if !self.is_in_portions() => {
                // Values that were pending before the restart too are no change for the engine, but no revision shows
                // them yet.
                let waiting = self.engine.read().pending_keys().cloned().collect();
                self.publisher.begin_showing(waiting);
                self.complete_showing(ready)
            }
            FirstShowing::Showing(ready) => self.complete_showing(ready),
            other => other,
        };
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
