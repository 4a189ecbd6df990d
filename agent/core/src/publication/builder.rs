//! The revision that shows a large commit, built beside the core when the commit is final and answered.
//!
//! Its configuration goes into the trees, then the state of new objects that are as they were asked, and the state that
//! is configuration in force. Everything else is shown by the core in the end.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use holdfast_config::Configuration;
use holdfast_scheduler::{Key, SharedValue};
use holdfast_telemetry::Revision;
use imbl::OrdMap;

use super::EntryChange;
use super::state::{StateChange, StateReading, StateSource, StateUpdate, follow_configuration};

/// Objects that are shown at a time: what is in between stays in the processor's caches.
const PORTION: usize = 256;
/// Portions by which one tree may be ahead of the other.
const UPDATES_AHEAD: usize = 4;

/// An object that is as intended: key, value, and observed value.
pub(super) type NewObject = (Key, SharedValue, SharedValue);

/// A revision that is being built, to which the core adds what is left.
#[derive(Debug)]
pub(crate) struct RevisionBuilder {
    pub(crate) next: Revision,
    /// True when the revision has all state of the changed configuration, and some that the one before lacks.
    pub(crate) has_state: bool,
    /// Keys that were handed over, and that are better shown in the end.
    pub(crate) left: Vec<Key>,
}

/// End of a builder by a panic. The core shows the objects that it was handed.
#[derive(Debug)]
pub(crate) struct BuilderPanicked(pub(crate) Arc<Vec<NewObject>>);

impl RevisionBuilder {
    /// Builds the revision after `last`, of a commit at `time_ns`. Takes as long as the difference is large. `changes`
    /// are entries of new objects.
    pub(super) fn build(
        source: &StateSource,
        last: &Revision,
        time_ns: u64,
        (old, new): (&Configuration, &Configuration),
        (changes, objects): (&[EntryChange], &[NewObject]),
    ) -> Self {
        let services = OrdMap::new(); // they matter where something is taken away
        let mut draft = last.draft(new.shared_models(), time_ns);
        let [openconfig, native] = draft.trees_mut();
        let mut left = Vec::new();
        thread::scope(|scope| {
            // The changes of state are worked out for both trees here.
            let (update_tx, updates) = sync_channel::<Arc<StateUpdate<'_>>>(UPDATES_AHEAD);
            scope.spawn(|| {
                follow_configuration(openconfig, old, new);
                updates.into_iter().for_each(|update| update.carry_out(openconfig));
            });
            follow_configuration(native, old, new);
            let mut show = |changes| {
                let update = Arc::new(StateUpdate { last, services: &services, changes });
                // When the other thread has panicked, so does this one in the end.
                let _panicked = update_tx.send(Arc::clone(&update));
                update.carry_out(native);
            };
            for portion in changes.chunks(PORTION) {
                show(portion.iter().filter_map(|it| source.configured(it)).collect());
            }
            for portion in objects.chunks(PORTION) {
                show(new_state(source, last, portion, &mut left));
            }
            drop(update_tx);
        });
        Self { next: draft.publish(), has_state: !changes.is_empty() || !objects.is_empty(), left }
    }
}

/// The state of new objects.
fn new_state(
    source: &StateSource,
    last: &Revision,
    objects: &[NewObject],
    left: &mut Vec<Key>,
) -> Vec<StateChange> {
    let mut changes = Vec::with_capacity(objects.len());
    for (key, value, observed) in objects {
        let planes = [Some(value), Some(value), Some(observed)];
        match source.read(last, key.clone(), planes) {
            StateReading { now: now @ Some(_), before: None | Some(None), .. } => {
                changes.push(StateChange { holds_its_entry: false, before: None, now });
            }
            StateReading { key, .. } => left.push(key),
        }
    }
    changes
}
