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
pub(crate) enum FirstShowing {
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
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self, Self::Reading(_))
    }

    /// Notes that a complete reading of the box was taken in.
    pub(crate) fn note_complete_reading(&mut self) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Reading(ready) => Self::Planning(ready),
            other => other,
        };
    }

    /// Notes that what is to be shown is known.
    pub(crate) fn note_sorted(&mut self) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Sorting(ready) => Self::Showing(ready),
            other => other,
        };
    }
}

/// Keys whose state is to be shown at first, ascending: those that have changed, and those of values that were pending before the
/// restart too, which are no change for the engine, but which no revision shows yet.
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
