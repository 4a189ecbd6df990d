//! State of the entries that are derived when somebody reads them: those of lists whose objects are shown as applied.
//!
//! A large commit adds a hundred thousand of them, and takes only pointers to them. See
//! [`holdfast_telemetry::entry`].

use std::any::Any;
use std::sync::{Arc, OnceLock};

use holdfast_common::parallel;
use holdfast_config::schema::{NodeKind, Origin};
use holdfast_config::{Branch, InstancePath, Keys, Models, NodeId, Provenance, Schema, Step};
use holdfast_platform::objects::state::{Planes, StateEntry};
use holdfast_platform::objects::{Registry, StatusNodes};
use holdfast_scheduler::{Engine, Key, SharedValue};
use holdfast_telemetry::{
    DerivedLists, DraftTree, EntryState, EntryVersion, LeafVersion, ListStates, MarkPlace,
    TreeWriter,
};
use smallvec::SmallVec;

use super::state::{show, show_within};
use crate::examination::EntryChange;

/// The lists of objects that are shown as applied, in both models, and where entries are marked.
pub(crate) fn derived_lists(registry: &Registry, models: &Models) -> DerivedLists {
    let native = registry.applied_list();
    let openconfig = models.map.list_to_openconfig(native);
    let mark = |it: StatusNodes| {
        let StatusNodes { list, container, leaf } = it;
        MarkPlace { origin: Origin::Native, list, container, leaf }
    };
    let marks = registry.status_nodes().into_iter().map(mark).collect();
    DerivedLists { openconfig: openconfig.into_iter().collect(), native: vec![native], marks }
}

/// Where an entry is, and by which rules its state is made. Entries of one list share it.
#[derive(Debug)]
struct EntryPlace {
    registry: Arc<Registry>,
    models: Arc<Models>,
    /// Path above the entry in the native model, and its list there.
    above: InstancePath,
    list: NodeId,
}

/// State of one entry, as the pointers that it is made from.
#[derive(Clone, Debug)]
pub(super) struct AppliedState {
    place: Arc<EntryPlace>,
    /// The entry in force; some of its leaves are state.
    configured: Arc<Branch<Provenance>>,
    version: EntryVersion,
    /// Filled before a revision shows the entry.
    values: OnceLock<SmallVec<[AppliedValue; 1]>>,
}

/// State of an entry that a commit adds, with the native keys of the entry.
#[derive(Clone, Debug)]
pub(crate) struct NewState {
    keys: Keys,
    state: Arc<AppliedState>,
}

/// One object of an entry, which has been applied and observed.
#[derive(Clone, Debug)]
struct AppliedValue {
    key: Key,
    applied: SharedValue,
    observed: SharedValue,
    version: LeafVersion,
}

/// State of an entry after one of its objects has changed.
enum NextState {
    Same,
    Derived(AppliedState),
    /// Some leaves change and others stay, so the entry is to be stored as a branch.
    Stored,
}

/// Derived entries that a change of configuration adds.
pub(crate) struct NewEntries<'a> {
    pub(super) registry: &'a Arc<Registry>,
    pub(super) models: &'a Arc<Models>,
}

impl NewEntries<'_> {
    /// True when the entry of this change is one of them.
    pub(super) fn contains(&self, change: &EntryChange) -> bool {
        let list = self.registry.applied_list();
        !change.existed
            && change.entry.is_some()
            && change.path.last().is_some_and(|step| step.node == list && step.keys.is_some())
    }

    /// States of those that are among `changes`, without values.
    pub(super) fn states(&self, changes: &[EntryChange], version: &EntryVersion) -> Vec<NewState> {
        let mut states: Vec<NewState> = Vec::with_capacity(changes.len());
        for change in changes.iter().filter(|change| self.contains(change)) {
            let keys = change.path.last().and_then(|step| step.keys.clone());
            let (Some(configured), Some(keys)) = (change.entry.clone(), keys) else { continue };
            let last = states.last().map(|last| &last.state.place);
            let place = match last.filter(|place| place.is_beside(&change.path)) {
                Some(place) => Arc::clone(place),
                None => EntryPlace::of(self.registry, self.models, &change.path),
            };
            let version = version.clone();
            let values = OnceLock::new();
            let state = Arc::new(AppliedState { place, configured, version, values });
            states.push(NewState { keys, state });
        }
        states
    }

    /// Fills the states of the entries that are among `changes` with the planes of their objects.
    pub(super) fn fill<'p>(
        &self,
        states: &[NewState],
        changes: &[EntryChange],
        version: LeafVersion,
        planes: impl Fn(&Key) -> [Option<&'p SharedValue>; 3],
    ) {
        let changes = changes.iter().filter(|change| self.contains(change));
        for (NewState { state, .. }, change) in states.iter().zip(changes) {
            let keys = change.values.iter().map(|(key, _)| key);
            let values = keys.filter_map(|key| AppliedValue::of(key, planes(key), version));
            let _filled_before = state.values.set(values.collect());
        }
    }
}

/// Changes of the state of derived entries.
#[derive(Default)]
pub(crate) struct DerivedChanges {
    pub(super) states: Vec<NewState>,
    /// Keys whose entries are not derived, or not any more.
    pub(super) stored: Vec<Key>,
}

impl DerivedChanges {
    /// Works out what changes in the native tree, for keys of objects that are shown as applied, ascending.
    pub(super) fn of(
        registry: &Registry,
        keys: Vec<Key>,
        engine: &Engine,
        tree: &DraftTree<'_>,
    ) -> Self {
        let mut changes = Self::default();
        for applied in parallel::map(keys, |key| AppliedKey::read(registry, key, engine, tree)) {
            let changed = changes.states.last().map(|last| &*last.state);
            let changed = changed.filter(|state| applied.is_of(state));
            let has_changed = changed.is_some();
            match applied.next_state(changed) {
                NextState::Same => {}
                NextState::Derived(state) => {
                    if has_changed {
                        changes.states.pop();
                    }
                    changes.states.push(NewState { keys: state.keys(), state: Arc::new(state) });
                }
                NextState::Stored => changes.stored.push(applied.key),
            }
        }
        changes
    }
}

/// One object that is shown as applied, with its entry and the state of that so far.
struct AppliedKey {
    key: Key,
    /// The entry that asked for it.
    path: Option<InstancePath>,
    /// State of that entry so far, where it is derived.
    shown: Option<Arc<dyn EntryState>>,
    value: Option<AppliedValue>,
}

impl AppliedKey {
    fn read(registry: &Registry, key: Key, engine: &Engine, tree: &DraftTree<'_>) -> Self {
        let planes = engine.planes(&key);
        let [intended, applied, _] = planes;
        let path = applied.or(intended).and_then(|value| registry.applied_entry(&**value));
        let shown = path.as_ref().and_then(|path| tree.derived_state(path));
        let value = AppliedValue::of(&key, planes, tree.version());
        Self { key, path, shown, value }
    }

    /// True if this is the state of its entry.
    fn is_of(&self, state: &AppliedState) -> bool {
        self.path.as_ref().is_some_and(|path| state.is_at(path))
    }

    /// The next state of its entry: from the one so far, or from one that another object has changed.
    fn next_state(&self, changed: Option<&AppliedState>) -> NextState {
        let shown = || self.shown.as_deref()?.as_any().downcast_ref();
        let state: Option<&AppliedState> = changed.or_else(shown);
        state.map_or(NextState::Stored, |state| state.with_value(&self.key, self.value.clone()))
    }
}

impl EntryPlace {
    /// Place of the entries beside this one.
    fn of(registry: &Arc<Registry>, models: &Arc<Models>, entry: &InstancePath) -> Arc<Self> {
        let registry = Arc::clone(registry);
        let models = Arc::clone(models);
        let list = registry.applied_list();
        let above = entry.0.split_last().map_or(&[][..], |(_, above)| above);
        Arc::new(Self { registry, models, above: InstancePath(above.to_vec()), list })
    }

    /// Path above the list in a model, and the list.
    fn list_in(&self, origin: Origin) -> Option<(Vec<Step>, NodeId)> {
        match origin {
            Origin::Native => Some((self.above.0.clone(), self.list)),
            Origin::OpenConfig => {
                let map = &self.models.map;
                let mut above = map.up_entry(&self.above.0)?.0;
                above.extend_from_slice(map.steps_to_openconfig_list(self.list)?);
                Some((above, map.list_to_openconfig(self.list)?))
            }
        }
    }

    /// True for a sibling of the entries here.
    fn is_beside(&self, entry: &InstancePath) -> bool {
        let last = entry.0.split_last();
        last.is_some_and(|(last, above)| last.node == self.list && above == self.above.0)
    }
}

impl AppliedValue {
    /// The object of `key`, if there is something to show of it.
    fn of(
        key: &Key,
        [_, applied, observed]: [Option<&SharedValue>; 3],
        version: LeafVersion,
    ) -> Option<Self> {
        let applied = Arc::clone(applied?);
        let observed = Arc::clone(observed?);
        Some(Self { key: key.clone(), applied, observed, version })
    }

    fn state(&self, registry: &Registry) -> Option<StateEntry> {
        let applied = Some(&*self.applied);
        let observed = Some(&*self.observed);
        registry.state(&self.key, Planes { intended: None, applied, observed })
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.applied, &other.applied) && Arc::ptr_eq(&self.observed, &other.observed)
    }
}

impl AppliedState {
    /// Shows `value` for `key`, or nothing.
    fn with_value(&self, key: &Key, value: Option<AppliedValue>) -> NextState {
        let at = self.values().iter().position(|it| it.key == *key);
        let mut values = SmallVec::from(self.values());
        match (at, value) {
            (None, None) => return NextState::Same,
            (None, Some(value)) => values.push(value),
            (Some(at), None) => drop(values.remove(at)),
            (Some(at), Some(value)) => {
                let shown = &self.values()[at];
                let registry = &self.place.registry;
                let is_same =
                    shown.is_same(&value) || shown.state(registry) == value.state(registry);
                return if is_same { NextState::Same } else { NextState::Stored };
            }
        }
        NextState::Derived(Self { values: OnceLock::from(values), ..self.clone() })
    }

    fn values(&self) -> &[AppliedValue] {
        self.values.get().map_or(&[], |values| values)
    }

    fn keys(&self) -> Keys {
        keys_of(&self.place.models.native, self.place.list, &self.configured)
    }

    fn path(&self) -> InstancePath {
        self.place.above.join(Step::entry(self.place.list, self.keys()))
    }

    /// True if this is the path of the entry.
    fn is_at(&self, path: &InstancePath) -> bool {
        let keys = path.last().and_then(|step| step.keys.as_ref());
        self.place.is_beside(path) && keys == Some(&self.keys())
    }

    /// Leaves with their versions, those of the configuration in force first.
    fn entries(&self) -> impl Iterator<Item = (StateEntry, LeafVersion)> {
        let registry = &self.place.registry;
        let configured = registry.configured_state(&self.path(), &self.configured);
        let values = self.values().iter();
        let values = values.filter_map(|it| Some((it.state(registry)?, it.version)));
        let version = self.version.leaf_version();
        configured.map(|entry| (entry, version)).into_iter().chain(values)
    }
}

impl NewState {
    /// Gives entries their state, in one tree. An entry that is stored as a branch gets the leaves.
    pub(super) fn show_all(tree: &mut DraftTree<'_>, states: &[Self]) {
        let models = Arc::clone(tree.models());
        for ListStates { above, list, states } in Self::by_list(tree.origin(), states) {
            let entries = states.iter().map(|(keys, state)| (keys.clone(), state));
            let stored = tree.derive(&above, list, entries);
            let stored = stored.into_iter().filter_map(|state| state.as_any().downcast_ref());
            for (entry, _) in stored.flat_map(AppliedState::entries) {
                show(tree, &models.map, std::iter::once(&entry));
            }
        }
    }

    /// The states by the lists that their entries are in, in one model.
    pub(super) fn by_list(origin: Origin, states: &[Self]) -> impl Iterator<Item = ListStates> {
        let is_beside =
            |one: &Self, other: &Self| Arc::ptr_eq(&one.state.place, &other.state.place);
        states.chunk_by(is_beside).filter_map(move |run| {
            let place = &run[0].state.place;
            let (above, list) = place.list_in(origin)?;
            let keys = |own: &Keys| match origin {
                Origin::Native => Some(own.clone()),
                Origin::OpenConfig => place.models.map.openconfig_keys(place.list, own),
            };
            let state = |it: &Self| Some((keys(&it.keys)?, Arc::clone(&it.state) as _));
            Some(ListStates { above, list, states: run.iter().filter_map(state).collect() })
        })
    }
}

impl EntryState for AppliedState {
    fn show(&self, origin: Origin, born: LeafVersion, branch: &mut Branch<LeafVersion>) {
        let models = &self.place.models;
        let schema = models.schema(origin);
        for (entry, version) in self.entries() {
            if branch.children().is_empty() {
                let list = self.place.list;
                let keys = self.keys();
                let entry = match origin {
                    Origin::Native => Some((list, keys)),
                    Origin::OpenConfig => {
                        let keys = models.map.openconfig_keys(list, &keys);
                        models.map.list_to_openconfig(list).zip(keys)
                    }
                };
                let Some((list, keys)) = entry else { return };
                *branch = Branch::of_keys(schema, list, &keys, &born);
            }
            show_within(TreeWriter::new(branch, schema, version), &models.map, &entry);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Keys of an entry, from its key leaves.
fn keys_of(schema: &Schema, list: NodeId, entry: &Branch<Provenance>) -> Keys {
    let NodeKind::List { keys } = &schema.node(list).kind else { return Keys::default() };
    keys.iter().filter_map(|key| entry.value(*key).cloned()).collect()
}
