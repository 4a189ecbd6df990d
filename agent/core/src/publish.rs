//! From what changed to the next revision.
//!
//! Configuration comes from the views of the layers, state from the engine's planes, both in native and OpenConfig.
//! Costs what changed.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, InstancePath, Layers, Map, NodeId, Step, Value, parallel};
use holdfast_platform::Collector;
use holdfast_platform::descriptors::kinds;
use holdfast_platform::objects::Listening;
use holdfast_platform::objects::state::{Planes, StateEntry, StateGroup};
use holdfast_scheduler::{Engine, Key, KindId, SharedValue, sort_keys};
use holdfast_telemetry::{Draft, DraftTree, Mutation, Plane, Revision, TreeWriter};
use imbl::OrdMap;
use smallvec::SmallVec;

use super::ServiceState;
use super::making::{Made, Told};
use super::startup::Objects;
use super::transaction::{Changed, Held, Withheld};

/// Objects whose state is what was applied. It goes with their configuration, whose path says where it is.
pub(super) const SHOWN_AS_APPLIED: [KindId; 5] = [
    kinds::USER,
    kinds::NETWORK_INSTANCE,
    kinds::STATIC_PROTOCOL,
    kinds::STATIC_ROUTE,
    kinds::ROUTE,
];

/// Objects whose state is a list entry of its own: with the object goes the entry.
const HOLDS_ITS_ENTRY: [KindId; 3] = [kinds::LINK, kinds::ADDRESS, kinds::NEIGHBOR];

/// Keys up to which both trees of a revision are made one after the other: to wake a thread costs more.
const FEW_KEYS: usize = 1000;

/// Keys whose state is looked at, and shown in both trees, at a time.
const PORTION_KEYS: usize = 8192;

/// Makes revisions.
#[derive(Debug)]
pub(super) struct Publisher {
    objects: Arc<Objects>,
    revision: Arc<Revision>,
    /// Keys whose state changed since the last revision, some of them twice.
    dirty: Vec<Key>,
    /// Keys whose state changed while a transaction works on them; shown when it ends.
    withheld: Vec<Key>,
    /// State that is shown of objects that come and go without a change of configuration.
    shown: HashMap<Key, StateEntry>,
    /// State leaves of services, by native path; no key of the engine has them.
    services: OrdMap<InstancePath, Value>,
}

/// Changes of the state that is shown.
pub(super) struct Update<'a> {
    pub(super) objects: &'a Objects,
    pub(super) last: &'a Revision,
    /// State leaves of services, which stay where other state is removed.
    pub(super) services: &'a OrdMap<InstancePath, Value>,
    pub(super) shown: Vec<Shown>,
}

/// A key, its present state and, for objects that are shown as applied, the state that was shown before.
pub(super) type Looked = (Key, Option<StateEntry>, Option<Option<StateEntry>>);

/// One object, as it was shown and as it is shown from now on.
pub(super) struct Shown {
    pub(super) kind: KindId,
    pub(super) before: Option<StateEntry>,
    pub(super) now: Option<StateEntry>,
}

impl Publisher {
    /// The first revision: configuration, and what is always true of the box.
    pub(super) fn new(
        objects: Arc<Objects>,
        configuration: &Configuration,
        listening: &Listening,
        software_version: &str,
    ) -> Self {
        let models = Arc::clone(&objects.models);
        let first = Revision::default();
        let mut draft = first.draft(&models.openconfig, &models.native, now_ns());
        let empty = Configuration::new(Arc::clone(&models), Layers::new());
        draft.annotate(configuration.layers().annotation.clone());
        let boot_time = Collector::boot_time_ns().unwrap_or_default();
        let system = objects.registry.system_state(boot_time, software_version);
        let server = objects.registry.server_state(listening);
        in_both(&mut draft, true, |tree| {
            follow(tree, &empty, configuration);
            for entry in [&system, &server] {
                show(tree, &objects.models.map, std::iter::once(entry));
            }
        });
        let revision = Arc::new(draft.publish());
        Self {
            objects,
            revision,
            dirty: Vec::new(),
            withheld: Vec::new(),
            shown: HashMap::new(),
            services: OrdMap::new(),
        }
    }

    pub(super) fn revision(&self) -> Arc<Revision> {
        Arc::clone(&self.revision)
    }

    /// Notes keys of which a plane changed; those of the transaction under way are `busy`.
    pub(super) fn touch(&mut self, keys: Vec<Key>, busy: Option<&mut Withheld>) {
        match busy {
            None if self.dirty.is_empty() => self.dirty = keys,
            None => self.dirty.extend(keys),
            Some(busy) => {
                for key in keys {
                    match busy.hold(&key) {
                        Held::First => self.withheld.push(key),
                        Held::Again => {}
                        Held::No => self.dirty.push(key),
                    }
                }
            }
        }
    }

    /// Notes keys that are shown with the commit under way.
    pub(super) fn hold_back(&mut self, keys: impl Iterator<Item = Key>) {
        self.withheld.extend(keys);
    }

    /// Takes out the held-back keys of new objects that are as intended, for the thread that makes the revision.
    pub(super) fn hand_over(&mut self, engine: &Engine) -> Arc<Vec<Told>> {
        let told_of = |key: &Key| {
            let [Some(intended), Some(applied), Some(observed)] = engine.planes(key) else {
                return None;
            };
            let is_done = SHOWN_AS_APPLIED.contains(&key.kind()) && Arc::ptr_eq(intended, applied);
            is_done.then(|| (key.clone(), Arc::clone(applied), Arc::clone(observed)))
        };
        let mut told = Vec::with_capacity(self.withheld.len());
        self.withheld.retain(|key| {
            let it = told_of(key);
            let stays = it.is_none();
            told.extend(it);
            stays
        });
        Arc::new(told)
    }

    /// The transaction under way has ended without a commit: its keys are like all others.
    pub(super) fn release(&mut self) {
        self.dirty.append(&mut self.withheld);
    }

    /// The state of what changed, but for what a transaction still works on. `None` when there is nothing to tell.
    pub(super) fn state(&mut self, engine: &Engine) -> Option<Arc<Revision>> {
        if self.dirty.is_empty() {
            return None;
        }
        let last = Arc::clone(&self.revision);
        let objects = Arc::clone(&self.objects);
        let models = &objects.models;
        let mut draft = last.draft(&models.openconfig, &models.native, now_ns());
        self.show_dirty(&mut draft, engine, &last);
        self.revision = Arc::new(draft.publish());
        Some(self.revision())
    }

    /// Sets state leaves of services. `None` when nothing differs.
    pub(super) fn show_services(&mut self, leaves: ServiceState) -> Option<Arc<Revision>> {
        let (services, map) = (&mut self.services, &self.objects.models.map);
        let news: ServiceState = leaves
            .into_iter()
            .filter(|(path, value)| services.get(path) != value.as_ref())
            .collect();
        if news.is_empty() {
            return None;
        }
        let (last, objects) = (Arc::clone(&self.revision), &self.objects);
        let models = &objects.models;
        let mut draft = last.draft(&models.openconfig, &models.native, now_ns());
        for (path, value) in news {
            match value {
                Some(value) => {
                    in_both(&mut draft, false, |tree| show_leaf(tree, map, &path, &value));
                    services.insert(path, value);
                }
                None => {
                    in_both(&mut draft, false, |tree| take_away(tree, map, &path));
                    services.remove(&path);
                }
            }
        }
        self.revision = Arc::new(draft.publish());
        Some(self.revision())
    }

    /// A committed change of configuration with all the state that goes with it. It becomes a draft on top of the
    /// newest revision.
    pub(super) fn commit(
        &mut self,
        engine: &Engine,
        (old, new, time_ns): (&Configuration, &Configuration, u64),
        changes: &[Changed],
        made: Option<Made>,
    ) -> Arc<Revision> {
        let last = Arc::clone(&self.revision);
        let objects = Arc::clone(&self.objects);
        let models = &objects.models;
        let (followed, mut so_far) = (made.is_some(), Arc::clone(&last));
        let mut draft = match made {
            Some(Made { next, is_told, left }) => {
                self.dirty.extend(left);
                if is_told {
                    so_far = Arc::new(next.clone());
                }
                last.resume(&models.openconfig, &models.native, next)
            }
            None => last.draft(&models.openconfig, &models.native, time_ns),
        };
        draft.annotate(new.layers().annotation.clone());
        self.release();
        // State shown of these is cleared; so is that of their parts, which the engine may have left as they were.
        let applied = |change: &&Changed| SHOWN_AS_APPLIED.contains(&change.key.kind());
        let cleared = || changes.iter().filter(applied).filter(|change| change.existed);
        for change in cleared() {
            parts(engine, &change.key, change.value.as_ref(), &mut self.dirty);
        }
        let (map, services) = (&models.map, &self.services);
        in_both(&mut draft, changes.len() > FEW_KEYS, |tree| {
            if !followed {
                follow(tree, old, new);
            }
            cleared().for_each(|change| clear(tree, map, services, &change.path));
        });
        self.show_dirty(&mut draft, engine, &so_far);
        self.revision = Arc::new(draft.publish());
        self.revision()
    }

    /// Shows the present state of the keys that changed, in portions, so that intermediate results stay small.
    fn show_dirty(&mut self, draft: &mut Draft<'_>, engine: &Engine, last: &Revision) {
        let mut keys = std::mem::take(&mut self.dirty);
        sort_keys(&mut keys);
        let (objects, services) = (Arc::clone(&self.objects), self.services.clone());
        let (objects, services) = (&*objects, &services);
        let look = |keys| look(objects, engine, last, keys);
        let mut keys = keys.into_iter();
        let mut portion = || keys.by_ref().take(PORTION_KEYS).collect();
        let mut looked = look(portion());
        while !looked.is_empty() {
            let shown = looked.into_iter().map(|it| self.note(it)).collect();
            let (update, next) = (Update { objects, last, services, shown }, portion());
            let [openconfig, native] = draft.trees_mut();
            // The OpenConfig tree takes longer than the other one.
            let aside = || {
                update.carry_out(native);
                look(next)
            };
            ((), looked) =
                parallel::both(update.is_large(), || update.carry_out(openconfig), aside);
        }
    }

    /// Notes what is shown of a key from now on.
    fn note(&mut self, (key, now, before): Looked) -> Shown {
        let kind = key.kind();
        let before = match (before, &now) {
            (Some(before), _) => before,
            (None, Some(now)) => self.shown.insert(key, now.clone()),
            (None, None) => self.shown.remove(&key),
        };
        Shown { kind, before, now }
    }
}

/// State to be shown of these keys.
fn look(objects: &Objects, engine: &Engine, last: &Revision, keys: Vec<Key>) -> Vec<Looked> {
    parallel::map(keys, |key| {
        let planes = engine.planes(&key);
        look_at(objects, last, key, planes)
    })
}

/// State to be shown of one key, of which the engine holds `planes`.
pub(super) fn look_at(
    objects: &Objects,
    last: &Revision,
    key: Key,
    planes: [Option<&SharedValue>; 3],
) -> Looked {
    let now = objects.registry.state(&key, seen(planes));
    let applied = SHOWN_AS_APPLIED.contains(&key.kind());
    let before = || applied_before(objects, last, &key, planes[0], now.as_ref());
    let before = applied.then(before);
    (key, now, before)
}

/// State that may have been shown of an object that is shown as applied, unless all of it is replaced.
fn applied_before(
    objects: &Objects,
    last: &Revision,
    key: &Key,
    intended: Option<&SharedValue>,
    now: Option<&StateEntry>,
) -> Option<StateEntry> {
    if now.is_some_and(|now| last.native.branch(&now.path).is_none()) {
        return None; // it is new
    }
    let most = objects.registry.most_of(key, &**intended?)?;
    let replaced = now.is_some_and(|now| now.has_leaves_of(&most));
    (!replaced).then_some(most)
}

impl Update<'_> {
    fn is_large(&self) -> bool {
        self.shown.len() > FEW_KEYS
    }

    /// Does in one tree what is to be done.
    pub(super) fn carry_out(&self, tree: &mut DraftTree<'_>) {
        for run in self.shown.chunk_by(Shown::is_beside) {
            if let Some(before) = run.first().and_then(|shown| shown.before.as_ref()) {
                self.withdraw(tree, run[0].kind, before, run[0].now.as_ref());
            }
            show(tree, &self.objects.models.map, run.iter().filter_map(|shown| shown.now.as_ref()));
        }
    }

    /// Takes away what was shown of an object and is not shown now.
    fn withdraw(
        &self,
        tree: &mut DraftTree<'_>,
        kind: KindId,
        before: &StateEntry,
        now: Option<&StateEntry>,
    ) {
        if now.is_none() && HOLDS_ITS_ENTRY.contains(&kind) {
            return self.clear(tree, &before.path);
        }
        // At start most of what could have been shown was not: nothing needs to be looked up for it.
        if self.last.native.branch(&before.path).is_none() {
            return;
        }
        let kept = |path: &InstancePath| {
            now.is_some_and(|now| now.leaves().any(|(leaf, _)| leaf == *path))
        };
        for (path, _) in before.leaves() {
            if self.last.native.leaf(&path).is_some() && !kept(&path) {
                self.clear(tree, &path);
            }
        }
    }

    fn clear(&self, tree: &mut DraftTree<'_>, path: &InstancePath) {
        clear(tree, &self.objects.models.map, self.services, path);
    }
}

/// Takes all state away at and below a native path, but for what services keep there.
fn clear(
    tree: &mut DraftTree<'_>,
    map: &Map,
    services: &OrdMap<InstancePath, Value>,
    path: &InstancePath,
) {
    take_away(tree, map, path);
    let from = services.range::<_, InstancePath>(path..);
    let below = from.take_while(|(leaf, _)| leaf.starts_with(path));
    below.for_each(|(leaf, value)| show_leaf(tree, map, leaf, value));
}

/// Takes all state away at and below a native path, or at what OpenConfig calls it.
fn take_away(tree: &mut DraftTree<'_>, map: &Map, path: &InstancePath) {
    let gone = || Mutation::Gone(Plane::State);
    match tree.origin() {
        Origin::Native => tree.apply(path, gone()),
        Origin::OpenConfig => {
            map.up_path(path).iter().for_each(|path| tree.apply(path, gone()));
        }
    }
}

/// Shows one native leaf, or what OpenConfig calls it.
fn show_leaf(tree: &mut DraftTree<'_>, map: &Map, path: &InstancePath, value: &Value) {
    match tree.origin() {
        Origin::Native => tree.apply(path, Mutation::Set(value.clone())),
        Origin::OpenConfig => {
            for (path, value) in map.up(&[(path.clone(), value.clone())]) {
                tree.apply(&path, Mutation::Set(value));
            }
        }
    }
}

pub(super) fn follow(tree: &mut DraftTree<'_>, old: &Configuration, new: &Configuration) {
    let origin = tree.origin();
    tree.follow(old.config_view(origin), new.config_view(origin));
}

impl Shown {
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

/// Shows objects that have the same parent. Nothing is made where nothing is said.
fn show<'e>(tree: &mut DraftTree<'_>, map: &Map, entries: impl Iterator<Item = &'e StateEntry>) {
    let origin = tree.origin();
    let mut entries = entries.filter(|entry| is_said(origin, map, entry)).peekable();
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
fn is_said(origin: Origin, map: &Map, entry: &StateEntry) -> bool {
    let mut leaves = entry.groups.iter().flat_map(|group| said(map, entry, group));
    match origin {
        Origin::Native => entry.groups.iter().any(|group| !group.leaves.is_empty()),
        Origin::OpenConfig => leaves.next().is_some(),
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
    let way = |native: &[Step]| native.first().map_or(Some(Vec::new()), |it| map.up_within(it));
    let Some(own) = way(last) else { return };
    above.within(&own, |mut own| {
        for group in &entry.groups {
            let Some(inner) = way(group.entry.as_slice()) else { continue };
            let leaves: SaidLeaves<'_> = said(map, entry, group).filter_map(said_in).collect();
            if !leaves.is_empty() {
                show_leaves(own.again().below(&inner), leaves);
            }
        }
    });
}

fn show_leaves(mut place: TreeWriter<'_>, leaves: SaidLeaves<'_>) {
    for beside in leaves.chunk_by(|one, other| one.0 == other.0) {
        let mut place = place.again().below(beside[0].0);
        place.expect(beside.len());
        beside.iter().for_each(|(_, leaf, value)| place.set(*leaf, value.clone()));
    }
}

/// Leaves of a group in OpenConfig: the way to the branch that holds each, its node, its value. Few groups have more.
type SaidLeaves<'m> = SmallVec<[(&'m [Step], NodeId, Value); 8]>;

fn said_in((steps, value): (&[Step], Value)) -> Option<(&[Step], NodeId, Value)> {
    let (leaf, above) = steps.split_last()?;
    Some((above, leaf.node, value))
}

/// OpenConfig counterparts of the leaves of a group, relative to the entry they are in.
fn said<'m>(
    map: &'m Map,
    entry: &'m StateEntry,
    group: &'m StateGroup,
) -> impl Iterator<Item = (&'m [Step], Value)> {
    let own = || entry.path.0.iter().rev().find_map(|step| step.keys.as_ref());
    let keys = group.entry.as_ref().map_or_else(own, |step| step.keys.as_ref());
    group.leaves.iter().flat_map(move |(leaf, value)| map.up_inside(*leaf, keys, value))
}

/// Does the same in both trees; side by side when there is much to do.
pub(super) fn in_both(draft: &mut Draft<'_>, much: bool, act: impl Fn(&mut DraftTree<'_>) + Sync) {
    let [openconfig, native] = draft.trees_mut();
    parallel::both(much, || act(openconfig), || act(native));
}

pub(super) fn seen(planes: [Option<&SharedValue>; 3]) -> Planes<'_> {
    let [intended, applied, observed] = planes.map(|plane| plane.map(|value| &**value));
    Planes { intended, applied, observed }
}

/// Adds the key of an object that was configured and those of its parts.
fn parts(engine: &Engine, key: &Key, value: Option<&SharedValue>, keys: &mut Vec<Key>) {
    keys.push(key.clone());
    if let (Some(value), Some(descriptor)) = (value, engine.registry().descriptor(key.kind())) {
        keys.extend(descriptor.parts(&**value).into_iter().map(|(part, _)| part));
    }
}
