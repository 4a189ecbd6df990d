//! End of the start: revisions show the state of the box.
//!
//! The first complete reading finds most values in place. They are shown once, when the plan that says so is taken over:
//! nobody reads before.

use holdfast_scheduler::{Key, sort_keys};
use tokio::sync::oneshot;

use crate::shared_engine::SharedEngine;

/// Places of values that are looked through with one guard of the engine: a millisecond at most.
const PLACES: u32 = 16_384;

/// How far the start is. The sender completes it.
#[derive(Debug)]
enum FirstShowing {
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

/// The start of the core, up to the moment at which the box is as configured.
#[derive(Debug)]
pub(crate) struct Start {
    first_showing: FirstShowing,
    /// True while the store keeps what was taken back at the start.
    has_taken_back: bool,
}

impl Start {
    /// A start that is completed by this sender.
    pub(crate) fn new(ready_tx: oneshot::Sender<()>, has_taken_back: bool) -> Self {
        Self { first_showing: FirstShowing::Reading(ready_tx), has_taken_back }
    }

    /// True until the first complete reading of the box is taken in.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.first_showing, FirstShowing::Reading(_))
    }

    /// True while the plan that follows from it is being made and taken over.
    pub(crate) fn is_planning(&self) -> bool {
        matches!(self.first_showing, FirstShowing::Planning(_))
    }

    /// Notes that a complete reading of the box was taken in.
    pub(crate) fn note_complete_reading(&mut self) {
        self.advance(|showing| match showing {
            FirstShowing::Reading(ready) => FirstShowing::Planning(ready),
            other => other,
        });
    }

    /// Notes that a thread sorts what is to be shown.
    pub(crate) fn note_sorting(&mut self) {
        self.advance(|showing| match showing {
            FirstShowing::Planning(ready) => FirstShowing::Sorting(ready),
            other => other,
        });
    }

    /// Notes that what is to be shown is known.
    pub(crate) fn note_sorted(&mut self) {
        self.advance(|showing| match showing {
            FirstShowing::Sorting(ready) => FirstShowing::Showing(ready),
            other => other,
        });
    }

    /// Completes the start, if what was to be shown is.
    pub(crate) fn note_shown(&mut self) {
        self.advance(|showing| match showing {
            FirstShowing::Showing(ready) => {
                let _start_was_given_up = ready.send(());
                FirstShowing::Done
            }
            other => other,
        });
    }

    /// True when the store may forget what was taken back, once the box is as configured.
    pub(crate) fn may_forget_taken_back(&self) -> bool {
        self.has_taken_back && matches!(self.first_showing, FirstShowing::Done)
    }

    /// Notes that the store forgets what was taken back.
    pub(crate) fn note_forgotten(&mut self) {
        self.has_taken_back = false;
    }

    fn advance(&mut self, next: impl FnOnce(FirstShowing) -> FirstShowing) {
        self.first_showing = next(std::mem::replace(&mut self.first_showing, FirstShowing::Done));
    }
}

/// Keys whose state is to be shown at first, ascending: those that have changed, and those of values that were
/// pending before the restart too, which did not change for the engine, but which no revision shows yet.
pub(crate) fn keys_to_show(engine: &SharedEngine, mut keys: Vec<Key>) -> Vec<Key> {
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
