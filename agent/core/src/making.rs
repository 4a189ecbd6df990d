//! The revision that shows a large change, made beside the core when the change is final and answered.
//!
//! Its configuration goes into the trees, then the state of new objects that are as they were asked. Everything else the
//! core shows in the end.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use holdfast_config::Configuration;
use holdfast_scheduler::{Key, SharedValue};
use holdfast_telemetry::Revision;
use imbl::OrdMap;

use super::publish::{Shown, Update, follow, look_at};
use super::startup::Objects;

/// Objects that are shown at a time: what is in between stays in the processor's caches.
const PORTION: usize = 256;
/// Portions by which one tree may be ahead of the other.
const UPDATES_AHEAD: usize = 4;

/// An object that is as intended: key, value, and observed value.
pub(super) type Told = (Key, SharedValue, SharedValue);

/// A revision to which the core adds what is left.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) next: Revision,
    /// True when the revision has state that the one before lacks.
    pub(super) is_told: bool,
    /// Told, and better shown in the end.
    pub(super) left: Vec<Key>,
}

impl Made {
    /// The revision after `last`, of what happened at `time_ns`. Takes as long as the difference is large.
    pub(super) fn of(
        objects: &Objects,
        last: &Revision,
        time_ns: u64,
        (old, new): (&Configuration, &Configuration),
        told: &[Told],
    ) -> Self {
        let (models, services) = (&objects.models, OrdMap::new()); // they matter where something is taken away
        let mut draft = last.draft(&models.openconfig, &models.native, time_ns);
        let [openconfig, native] = draft.trees_mut();
        let mut left = Vec::new();
        thread::scope(|scope| {
            // What is to be shown is worked out for both trees here.
            let (update_tx, updates) = sync_channel::<Arc<Update<'_>>>(UPDATES_AHEAD);
            scope.spawn(|| {
                follow(openconfig, old, new);
                updates.into_iter().for_each(|update| update.carry_out(openconfig));
            });
            follow(native, old, new);
            for portion in told.chunks(PORTION) {
                let shown = shown(objects, last, portion, &mut left);
                let update = Arc::new(Update { objects, last, services: &services, shown });
                // When the other thread has panicked, so does this one in the end.
                let _panicked = update_tx.send(Arc::clone(&update));
                update.carry_out(native);
            }
            drop(update_tx);
        });
        Self { next: draft.publish(), is_told: !told.is_empty(), left }
    }
}

/// The state of new objects.
fn shown(objects: &Objects, last: &Revision, told: &[Told], left: &mut Vec<Key>) -> Vec<Shown> {
    let mut shown = Vec::with_capacity(told.len());
    for (key, value, observed) in told {
        let planes = [Some(value), Some(value), Some(observed)];
        match look_at(objects, last, key.clone(), planes) {
            (key, now @ Some(_), None | Some(None)) => {
                shown.push(Shown { kind: key.kind(), before: None, now });
            }
            (key, ..) => left.push(key),
        }
    }
    shown
}
