//! State of objects, from the planes of their keys to the leaves of both trees.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_common::parallel;
use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, InstancePath, Map, NodeId, Step, Value};
use holdfast_platform::kinds;
use holdfast_platform::kinds::row::Shown;
use holdfast_platform::objects::Registry;
use holdfast_platform::objects::state::{Planes, StateEntry, StateGroup};
use holdfast_scheduler::{Engine, Key, SharedValue};
use holdfast_telemetry::{
    ConfigOrState, Draft, DraftTree, Mutation, PreparedTree, Revision, TreeWriter,
};
use imbl::OrdMap;
use smallvec::SmallVec;

use super::marks::Marks;
use super::service_plans;
use super::told::ToldLinks;
use crate::examination::EntryChange;

/// Keys up to which both trees of a revision are made one after the other: to wake a thread costs more.
pub(crate) const FEW_KEYS: usize = 1000;

/// Rules by which state is made of planes: the registry of kinds of objects, and what is told of links.
#[derive(Clone, Debug)]
pub(crate) struct StateSource {
    pub(super) registry: Arc<Registry>,
    pub(super) told: ToldLinks,
}

/// True for a value whose state is what was applied.
pub(crate) fn is_applied(key: &Key) -> bool {
    kinds::shown(key.kind()) == Shown::AsApplied
}

/// State of one key, as the planes of the engine give it.
pub(super) struct StateReading {
    pub(super) key: Key,
    pub(super) now: Option<StateEntry>,
    /// For objects that are shown as applied, the state that was shown before.
    pub(super) before: Option<Option<StateEntry>>,
}

/// One object, as it was shown and as it is shown from now on.
pub(super) struct StateChange {
    /// True when the list entry goes with the object.
    pub(super) holds_its_entry: bool,
    pub(super) before: Option<StateEntry>,
    pub(super) now: Option<StateEntry>,
}

/// Changes of the state that is shown.
pub(crate) struct StateUpdate<'a> {
    pub(super) last: &'a Revision,
    pub(super) others: &'a Others,
    pub(super) changes: Vec<StateChange>,
}

/// State that others than the core show, and state that stays where other state is removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    /// State leaves of services.
    pub(super) services: OrdMap<InstancePath, Value>,
    /// Marks of entries.
    pub(super) marks: Marks,
}

impl StateReading {
    /// Notes the state that is shown of the key from now on.
    pub(super) fn note(self, shown: &mut HashMap<Key, StateEntry>) -> StateChange {
        let Self { key, now, before } = self;
        let holds_its_entry = kinds::shown(key.kind()) == Shown::AsEntry;
        let before = match (before, &now) {
            (Some(before), _) => before,
            (None, Some(now)) => shown.insert(key, now.clone()),
            (None, None) => shown.remove(&key),
        };
        StateChange { holds_its_entry, before, now }
    }
}

impl StateSource {
    /// The state of an object that is its configuration in force.
    pub(super) fn configured(&self, change: &EntryChange) -> Option<StateChange> {
        let entry = change.entry.as_ref()?;
        let now = self.registry.configured_state(&change.path, entry);
        now.map(|now| StateChange { holds_its_entry: false, before: None, now: Some(now) })
    }

    /// State to be shown of these keys.
    pub(super) fn read_all(
        &self,
        engine: &Engine,
        last: &Revision,
        keys: Vec<Key>,
    ) -> Vec<StateReading> {
        parallel::map(keys, |key| {
            let planes = engine.planes(&key);
            self.read(last, key, planes)
        })
    }

    /// State to be shown of one key, whose `planes` the engine holds.
    pub(super) fn read(
        &self,
        last: &Revision,
        key: Key,
        planes: [Option<&SharedValue>; 3],
    ) -> StateReading {
        let status = self.told.status(&key);
        let now = self.registry.state_as_told(&key, as_planes(planes), status);
        let applied = is_applied(&key);
        let before = || self.applied_before(last, &key, planes[0], now.as_ref());
        let before = applied.then(before);
        StateReading { key, now, before }
    }

    /// State that may have been shown of an object that is shown as applied, unless all of it is replaced.
    fn applied_before(
        &self,
        last: &Revision,
        key: &Key,
        intended: Option<&SharedValue>,
        now: Option<&StateEntry>,
    ) -> Option<StateEntry> {
        if now.is_some_and(|now| !last.native.contains(&now.path)) {
            return None; // it is new
        }
        let most = self.registry.most_of(key, &**intended?)?;
        let replaced = now.is_some_and(|now| now.has_leaves_of(&most));
        (!replaced).then_some(most)
    }
}

impl StateUpdate<'_> {
    pub(super) fn is_large(&self) -> bool {
        self.changes.len() > FEW_KEYS
    }

    /// Does in one tree what is to be done.
    pub(super) fn apply_to(&self, tree: &mut DraftTree<'_>) {
        let models = Arc::clone(tree.models());
        for run in self.changes.chunk_by(StateChange::is_beside) {
            if let Some(before) = run.first().and_then(|change| change.before.as_ref()) {
                self.withdraw(tree, run[0].holds_its_entry, before, run[0].now.as_ref());
            }
            show(tree, &models.map, run.iter().filter_map(|change| change.now.as_ref()));
        }
        let new = self.changes.iter().filter(|change| change.before.is_none());
        let new = new.filter_map(|change| change.now.as_ref());
        new.for_each(|entry| self.others.marks.show_again(tree, &entry.path));
    }

    /// Takes away what was shown of an object and is not shown now.
    fn withdraw(
        &self,
        tree: &mut DraftTree<'_>,
        holds_its_entry: bool,
        before: &StateEntry,
        now: Option<&StateEntry>,
    ) {
        if now.is_none() && holds_its_entry {
            return self.clear(tree, &before.path);
        }
        // At start most of what could have been shown was not: nothing needs to be looked up for it.
        if !self.last.native.contains(&before.path) {
            return;
        }
        let kept = |path: &InstancePath| {
            now.is_some_and(|now| now.leaves().any(|(leaf, _)| leaf == *path))
        };
        for (path, _) in before.leaves() {
            if self.last.native.contains(&path) && !kept(&path) {
                self.clear(tree, &path);
            }
        }
    }

    fn clear(&self, tree: &mut DraftTree<'_>, path: &InstancePath) {
        let models = Arc::clone(tree.models());
        clear(tree, &models.map, self.others, path);
    }
}

/// Takes all state away at and below a native path, except state that others show there.
pub(super) fn clear(tree: &mut DraftTree<'_>, map: &Map, others: &Others, path: &InstancePath) {
    remove_state(tree, map, path);
    let from = others.services.range::<_, InstancePath>(path..);
    let below = from.take_while(|(leaf, _)| leaf.starts_with(path));
    below.for_each(|(leaf, value)| show_leaf(tree, map, leaf, value));
    others.marks.show_below(tree, path);
}

/// Takes all state away at and below a native path, or at what OpenConfig calls it.
pub(super) fn remove_state(tree: &mut DraftTree<'_>, map: &Map, path: &InstancePath) {
    let gone = || Mutation::Gone(ConfigOrState::State);
    match tree.origin() {
        Origin::Native => tree.apply(path, gone()),
        Origin::OpenConfig => {
            map.up_path(path).iter().for_each(|path| tree.apply(path, gone()));
        }
    }
}

/// Shows one native leaf, or what OpenConfig calls it.
pub(super) fn show_leaf(tree: &mut DraftTree<'_>, map: &Map, path: &InstancePath, value: &Value) {
    match tree.origin() {
        Origin::Native => tree.apply(path, Mutation::Set(value.clone())),
        Origin::OpenConfig => {
            for (path, value) in map.up(&[(path.clone(), value.clone())]) {
                tree.apply(&path, Mutation::Set(value));
            }
        }
    }
}

/// Brings the configuration of a tree from one to another. True if prepared entries fit, and are in the tree then.
pub(crate) fn follow_configuration(
    tree: &mut DraftTree<'_>,
    [old, new]: [&Configuration; 2],
    prepared: Option<&PreparedTree>,
) -> bool {
    let origin = tree.origin();
    let fits = tree.follow([old, new].map(|it| it.config_view(origin)), prepared);
    if origin == Origin::Native {
        service_plans::follow(tree, old.layers(), new);
    }
    fits
}

impl StateChange {
    /// Both only come, in entries of the same list.
    fn is_beside(&self, other: &Self) -> bool {
        match [self, other].map(|it| it.now.as_ref().filter(|_| it.before.is_none())) {
            [Some(one), Some(other)] => parent(one) == parent(other),
            _ => false,
        }
    }
}

/// Path above the entry of an object; the whole path for objects outside of lists.
fn parent(entry: &StateEntry) -> &[Step] {
    match entry.path.0.split_last() {
        Some((last, above)) if last.keys.is_some() => above,
        _ => &entry.path.0,
    }
}

/// Shows objects that have the same parent. No branch is made for an object without leaves.
pub(crate) fn show<'e>(
    tree: &mut DraftTree<'_>,
    map: &Map,
    entries: impl Iterator<Item = &'e StateEntry>,
) {
    let origin = tree.origin();
    let mut entries = entries.filter(|entry| has_leaves(origin, map, entry)).peekable();
    let Some(parent) = entries.peek().map(|entry| parent(entry)) else { return };
    match origin {
        Origin::Native => {
            let mut above = tree.at(parent);
            for entry in entries {
                above.again().within(&entry.path.0[parent.len()..], |own| show_native(own, entry));
            }
        }
        Origin::OpenConfig => {
            let Some(path) = map.up_entry(parent) else { return };
            let mut above = tree.at(&path.0);
            for entry in entries {
                show_openconfig(above.again(), map, entry, &entry.path.0[parent.len()..]);
            }
        }
    }
}

/// True when a model has a leaf for any of the state.
fn has_leaves(origin: Origin, map: &Map, entry: &StateEntry) -> bool {
    let mut leaves = entry.groups.iter().flat_map(|group| openconfig_leaves(map, entry, group));
    match origin {
        Origin::Native => entry.groups.iter().any(|group| !group.leaves.is_empty()),
        Origin::OpenConfig => leaves.next().is_some(),
    }
}

/// Shows the state of an object in the branch of its entry.
pub(super) fn show_within(own: TreeWriter<'_>, map: &Map, entry: &StateEntry) {
    match own.origin() {
        Origin::Native => show_native(own, entry),
        Origin::OpenConfig => show_own_openconfig(own, map, entry),
    }
}

fn show_native(mut own: TreeWriter<'_>, entry: &StateEntry) {
    for group in entry.groups.iter().filter(|group| !group.leaves.is_empty()) {
        let place = own.again().below(group.entry.as_slice());
        let mut place = group.containers.iter().fold(place, |at, node| at.container(*node));
        place.expect(group.leaves.len());
        group.leaves.iter().for_each(|(leaf, value)| place.set(*leaf, value.clone()));
    }
}

/// `last` is the native way from `above` to the entry.
fn show_openconfig(above: TreeWriter<'_>, map: &Map, entry: &StateEntry, last: &[Step]) {
    let Some(own) = openconfig_way(map, last) else { return };
    above.within(&own, |own| show_own_openconfig(own, map, entry));
}

fn show_own_openconfig(mut own: TreeWriter<'_>, map: &Map, entry: &StateEntry) {
    for group in &entry.groups {
        let Some(inner) = openconfig_way(map, group.entry.as_slice()) else { continue };
        let leaves: OpenConfigLeaves<'_> =
            openconfig_leaves(map, entry, group).filter_map(split_leaf).collect();
        if !leaves.is_empty() {
            show_leaves(own.again().below(&inner), leaves);
        }
    }
}

/// Steps in OpenConfig for a native step, or for none.
fn openconfig_way(map: &Map, native: &[Step]) -> Option<Vec<Step>> {
    native.first().map_or(Some(Vec::new()), |step| map.up_within(step))
}

fn show_leaves(mut place: TreeWriter<'_>, leaves: OpenConfigLeaves<'_>) {
    for beside in leaves.chunk_by(|one, other| one.0 == other.0) {
        let mut place = place.again().below(beside[0].0);
        place.expect(beside.len());
        beside.iter().for_each(|(_, leaf, value)| place.set(*leaf, value.clone()));
    }
}

/// Leaves of a group in OpenConfig: the way to the branch that holds each, its node, its value. Few groups have more.
type OpenConfigLeaves<'m> = SmallVec<[(&'m [Step], NodeId, Value); 8]>;

/// Splits the way to a leaf into the way to its branch and its node.
fn split_leaf((steps, value): (&[Step], Value)) -> Option<(&[Step], NodeId, Value)> {
    let (leaf, above) = steps.split_last()?;
    Some((above, leaf.node, value))
}

/// OpenConfig counterparts of the leaves of a group, relative to the entry they are in.
fn openconfig_leaves<'m>(
    map: &'m Map,
    entry: &'m StateEntry,
    group: &'m StateGroup,
) -> impl Iterator<Item = (&'m [Step], Value)> {
    let own = || entry.path.0.iter().rev().find_map(|step| step.keys.as_ref());
    let keys = group.entry.as_ref().map_or_else(own, |step| step.keys.as_ref());
    group.leaves.iter().flat_map(move |(leaf, value)| map.up_inside(*leaf, keys, value))
}

/// Does the same in both trees; side by side when there is much to do.
pub(crate) fn in_both(draft: &mut Draft<'_>, much: bool, act: impl Fn(&mut DraftTree<'_>) + Sync) {
    let [openconfig, native] = draft.trees_mut();
    parallel::both(much, || act(openconfig), || act(native));
}

/// The three planes of a key, as the registry takes them.
pub(crate) fn as_planes(planes: [Option<&SharedValue>; 3]) -> Planes<'_> {
    let [intended, applied, observed] = planes.map(|plane| plane.map(|value| &**value));
    Planes { intended, applied, observed }
}
