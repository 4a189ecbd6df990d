//! The revision that shows a commit, built from the newest one.
//!
//! Its configuration goes into the trees, then the state that is configuration in force, and that of its objects. A
//! large one is built by a thread beside the core, which reads the engine in pieces, and lays on it what was shown
//! meanwhile. Changes of the commit itself meanwhile are shown by the core: the latest with the commit, the rest by
//! later revisions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::{iter, thread};

use holdfast_common::parallel;
use holdfast_config::Configuration;
use holdfast_platform::objects::state::StateEntry;
use holdfast_scheduler::{Key, sort_keys};
use holdfast_telemetry::{Draft, DraftTree, LeafVersion, PreparedTree, Revision};

use super::chain::RevisionChain;
use super::derived::{NewEntries, NewState};
use super::prepared::PreparedEntries;
use super::service_transactions;
use super::state::{
    Others, StateChange, StateSource, StateUpdate, clear, follow_configuration, in_both, is_applied,
};
use crate::changes::AppliedChange;
use crate::examination::EntryChange;
use crate::shared_engine::SharedEngine;

/// Objects that are shown at a time: what is in between stays in the processor's caches, and the engine is read for some
/// hundred microseconds.
const PORTION: usize = 256;
/// Portions by which one tree may be ahead of the other, beside those of derived entries: these are pointers that the
/// trees have to hold anyway.
const UPDATES_AHEAD: usize = 4;

/// Builder of the revision of one commit.
#[derive(Debug)]
pub(crate) struct RevisionBuilder {
    pub(super) source: StateSource,
    pub(super) engine: SharedEngine,
    pub(super) chain: Arc<RevisionChain>,
    /// Revision that the new one is made from.
    pub(super) base: Arc<Revision>,
    pub(super) applied: Arc<AppliedChange>,
    /// The configuration after the commit.
    pub(super) configuration: Configuration,
    /// Entries that were laid out while the commit was carried out.
    pub(crate) prepared: Option<Box<PreparedEntries>>,
    /// Keys that the commit has changed, ascending.
    pub(super) keys: Arc<Vec<Key>>,
    /// State that is shown of them, apart from objects that are shown as applied.
    pub(super) shown: HashMap<Key, StateEntry>,
    pub(super) others: Others,
}

/// A revision to which the core adds what is left.
#[derive(Debug)]
pub(crate) struct BuiltRevision {
    pub(crate) base: Arc<Revision>,
    pub(crate) next: Revision,
    /// Keys that the commit has changed, and the state that is shown of them.
    pub(crate) keys: Arc<Vec<Key>>,
    pub(crate) shown: HashMap<Key, StateEntry>,
    /// Keys that the core shows with the commit.
    pub(crate) left: Vec<Key>,
}

/// Changes of state that are shown together.
enum Portion<'a> {
    Derived(Cow<'a, [NewState]>),
    Stored(StateUpdate<'a>),
}

impl Portion<'_> {
    /// Shows the changes in a tree. With `has_entries`, the derived ones are there.
    fn apply_to(&self, tree: &mut DraftTree<'_>, has_entries: bool) {
        match self {
            Self::Derived(_) if has_entries => {}
            Self::Derived(states) => NewState::show_all(tree, states),
            Self::Stored(update) => update.apply_to(tree),
        }
    }
}

/// End of a builder by a panic. The core builds the revision itself.
#[derive(Debug)]
pub(crate) struct BuilderPanicked;

impl RevisionBuilder {
    /// True for a commit whose revision is better built by several threads.
    fn is_large(&self) -> bool {
        self.keys.len().max(self.applied.changes.len()) > parallel::FEW
    }

    /// Builds the revision. Takes as long as the difference is large.
    pub(crate) fn build(mut self) -> BuiltRevision {
        let number = self.applied.stamp.revision;
        let time_ns = self.applied.stamp.time_ns;
        let annotation = self.configuration.layers().annotation.clone();
        let base = Arc::clone(&self.base);
        let models = Arc::clone(self.configuration.shared_models());
        let mut draft =
            base.resume(Revision { models, number, time_ns, annotation, ..(*base).clone() });
        let version = draft.version();
        let mut shown = std::mem::take(&mut self.shown);
        let prepared = self.prepared.take();
        prepared.iter().for_each(|prepared| prepared.version.give(version));
        let updates = self.updates(version, prepared.as_deref(), &mut shown);
        if self.is_large() {
            let [openconfig, native] = draft.trees_mut();
            self.show_side_by_side(openconfig, native, prepared.as_deref(), updates);
        } else {
            in_both(&mut draft, false, |tree| {
                self.show_configuration(tree, None);
            });
            for update in updates {
                in_both(&mut draft, false, |tree| update.apply_to(tree, false));
            }
        }
        self.mark_new_entries(&mut draft);
        let left = self.left();
        let next = draft.publish();
        // The state that was shown meanwhile may be large. The core lays later state on it.
        let (base, next) =
            if self.is_large() { self.chain.rebase(&base, next) } else { (base, next) };
        BuiltRevision { next, base, keys: self.keys, shown, left }
    }

    /// Works the changes of state out on this thread, and shows them by two.
    fn show_side_by_side<'a>(
        &'a self,
        openconfig: &mut DraftTree<'_>,
        native: &mut DraftTree<'_>,
        prepared: Option<&'a PreparedEntries>,
        updates: impl Iterator<Item = Portion<'a>>,
    ) {
        let new = self.new_entries();
        let derived = self.applied.changes.iter().filter(|change| new.contains(change)).count();
        let ahead = UPDATES_AHEAD + derived.div_ceil(PORTION);
        thread::scope(|scope| {
            let (update_tx, update_rx) = sync_channel::<Arc<Portion<'a>>>(ahead);
            scope.spawn(move || {
                let prepared = prepared.and_then(|it| it.openconfig.as_ref());
                let has_entries = self.show_configuration(openconfig, prepared);
                update_rx.into_iter().for_each(|update| update.apply_to(openconfig, has_entries));
            });
            let prepared = prepared.and_then(|it| it.native.as_ref());
            let has_entries = self.show_configuration(native, prepared);
            for update in updates.map(Arc::new) {
                // When the other thread has panicked, so does this one in the end.
                let _panicked = update_tx.send(Arc::clone(&update));
                update.apply_to(native, has_entries);
            }
            drop(update_tx);
        });
    }

    /// Brings the configuration of a tree up to date, and takes the state away that goes with changed entries. True if the
    /// prepared entries are in the tree then.
    fn show_configuration(
        &self,
        tree: &mut DraftTree<'_>,
        prepared: Option<&PreparedTree>,
    ) -> bool {
        let configurations = [&self.applied.old, &self.configuration];
        let has_entries = follow_configuration(tree, configurations, prepared);
        let map = &self.configuration.models().map;
        self.cleared().for_each(|change| clear(tree, map, &self.others, &change.path));
        service_transactions::follow(tree, &self.applied.history);
        has_entries
    }

    /// Shows the marks of entries that were there before, and come back.
    fn mark_new_entries(&self, draft: &mut Draft<'_>) {
        let marks = &self.others.marks;
        if marks.is_empty() {
            return;
        }
        let [_, native] = draft.trees_mut();
        let new = self.applied.changes.iter().filter(|change| !change.existed);
        new.for_each(|change| marks.show_again(native, &change.path));
    }

    /// Changed entries that were there before, and whose state is their configuration in force.
    fn cleared(&self) -> impl Iterator<Item = &EntryChange> {
        let registry = &self.source.registry;
        let changes = self.applied.changes.iter();
        changes.filter(|change| change.existed && registry.has_configured_state(&change.path))
    }

    /// Changes of state, in portions. `shown` is what is shown of each key, before and after.
    fn updates<'a>(
        &'a self,
        version: LeafVersion,
        prepared: Option<&'a PreparedEntries>,
        shown: &'a mut HashMap<Key, StateEntry>,
    ) -> impl Iterator<Item = Portion<'a>> {
        let changes = || self.applied.changes.chunks(PORTION);
        let new = self.new_entries();
        let entry_version = version.into();
        let mut left = prepared.map(|prepared| prepared.states.as_slice());
        let derived = changes().map(move |portion| {
            let states = match &mut left {
                Some(left) => {
                    let count = portion.iter().filter(|change| new.contains(change)).count();
                    Cow::Borrowed(left.split_off(..count).unwrap_or_default())
                }
                None => Cow::Owned(new.states(portion, &entry_version)),
            };
            let engine = self.engine.read();
            new.fill(&states, portion, version, |key| engine.planes(key));
            Portion::Derived(states)
        });
        let new = self.new_entries();
        let configured = changes().map(move |portion| {
            let stored = portion.iter().filter(|change| !new.contains(change));
            stored.filter_map(|change| self.source.configured(change)).collect()
        });
        // The keys are worked out when all entries are on their way.
        let keys = iter::once_with(|| self.stored_keys(&self.new_entries()));
        let portions =
            keys.flat_map(|keys| keys.chunks(PORTION).map(<[Key]>::to_vec).collect::<Vec<_>>());
        let of_objects = portions.map(move |keys| self.state(&keys, &mut *shown));
        let changes = configured.chain(of_objects).map(|changes| {
            Portion::Stored(StateUpdate { last: &self.base, others: &self.others, changes })
        });
        derived.chain(changes)
    }

    fn new_entries(&self) -> NewEntries<'_> {
        let models = self.configuration.shared_models();
        NewEntries { registry: &self.source.registry, models }
    }

    /// Keys whose state is stored, ascending: all but those of new entries, which are derived.
    fn stored_keys(&self, new: &NewEntries<'_>) -> Vec<Key> {
        let added = self.applied.changes.iter().filter(|change| new.contains(change));
        let mut derived: Vec<&Key> = added.flat_map(keys_of).collect();
        derived.sort(); // mostly in order
        // The engine may have left the values of entries as they were whose state is cleared.
        let cleared = self.cleared().flat_map(keys_of);
        let cleared = cleared.filter(|key| is_applied(key) && derived.binary_search(key).is_err());
        let mut keys: Vec<Key> = cleared.cloned().collect();
        let mut ahead = derived.iter().copied().peekable();
        for key in self.keys.iter() {
            while ahead.next_if(|derived| *derived < key).is_some() {}
            if ahead.peek() != Some(&key) || !is_applied(key) {
                keys.push(key.clone());
            }
        }
        sort_keys(&mut keys);
        keys
    }

    /// Keys whose state is cleared and that the commit does not change: others may show them while this is built.
    fn left(&self) -> Vec<Key> {
        let is_left = |key: &&Key| !is_applied(key) && self.keys.binary_search(key).is_err();
        self.cleared().flat_map(keys_of).filter(is_left).cloned().collect()
    }

    /// State of objects.
    fn state(&self, keys: &[Key], shown: &mut HashMap<Key, StateEntry>) -> Vec<StateChange> {
        let engine = self.engine.read();
        let read = |key: &Key| self.source.read(&self.base, key.clone(), engine.planes(key));
        keys.iter().map(|key| read(key).note(shown)).collect()
    }
}

fn keys_of(change: &EntryChange) -> impl Iterator<Item = &Key> {
    change.values.iter().map(|(key, _)| key)
}
