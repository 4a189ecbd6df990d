//! From what changed to the next revision.
//!
//! Configuration comes from the views of the layers, state from the engine's planes, both in native and OpenConfig.
//! Costs what changed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, InstancePath, Layers};
use holdfast_platform::Collector;
use holdfast_platform::descriptors::kinds;
use holdfast_platform::objects::state::{Planes, StateEntry};
use holdfast_scheduler::{Engine, Key, KindId, SharedValue};

use super::startup::Objects;
use super::task::unix_ns;
use super::transaction::Changed;
use crate::telemetry::{Change, Draft, Plane, Revision, What};

/// Objects whose state is what was applied. It goes with their configuration, whose path says where it is.
const SHOWN_AS_APPLIED: [KindId; 4] =
    [kinds::NETWORK_INSTANCE, kinds::STATIC_PROTOCOL, kinds::STATIC_ROUTE, kinds::ROUTE];

/// Objects whose state is a list entry of its own: with the object goes the entry.
const HOLDS_ITS_ENTRY: [KindId; 3] = [kinds::LINK, kinds::ADDRESS, kinds::NEIGHBOR];

/// Makes revisions.
#[derive(Debug)]
pub(super) struct Publisher {
    objects: Arc<Objects>,
    revision: Arc<Revision>,
    /// Keys whose state changed since the last revision.
    dirty: HashSet<Key>,
    /// The same for keys that a transaction works on: told when it ends, and not before.
    withheld: HashSet<Key>,
    /// What is shown of objects that come and go without a change of configuration.
    shown: HashMap<Key, StateEntry>,
}

impl Publisher {
    /// The first revision: configuration, and what is always true of the box.
    pub(super) fn new(objects: Arc<Objects>, configuration: &Configuration) -> Self {
        let models = Arc::clone(&objects.models);
        let first = Revision::default();
        let mut draft = first.draft(&models.openconfig, &models.native, unix_ns());
        let empty = Configuration::new(Arc::clone(&models), Layers::new());
        follow(&mut draft, &empty, configuration);
        let boot_time = Collector::boot_time_ns().unwrap_or_default();
        let system = objects.registry.system_state(boot_time, env!("CARGO_PKG_VERSION"));
        show(&mut draft, &objects, system);
        let revision = Arc::new(draft.publish());
        Self {
            objects,
            revision,
            dirty: HashSet::new(),
            withheld: HashSet::new(),
            shown: HashMap::new(),
        }
    }

    pub(super) fn revision(&self) -> Arc<Revision> {
        Arc::clone(&self.revision)
    }

    /// Notes keys of which a plane changed; those in `busy` belong to the transaction under way.
    pub(super) fn touch(&mut self, keys: Vec<Key>, busy: Option<&HashSet<Key>>) {
        for key in keys {
            let busy = busy.is_some_and(|busy| busy.contains(&key));
            if busy { &mut self.withheld } else { &mut self.dirty }.insert(key);
        }
    }

    /// The transaction under way has ended without a commit: its keys are like all others.
    pub(super) fn release(&mut self) {
        self.dirty.extend(self.withheld.drain());
    }

    /// The state of what changed, but for what a transaction still works on. `None` when there is nothing to tell.
    pub(super) fn state(&mut self, engine: &Engine) -> Option<Arc<Revision>> {
        if self.dirty.is_empty() {
            return None;
        }
        let ready: Vec<Key> = self.dirty.drain().collect();
        let last = Arc::clone(&self.revision);
        let models = Arc::clone(&self.objects.models);
        let mut draft = last.draft(&models.openconfig, &models.native, unix_ns());
        self.update(&mut draft, engine, &ready);
        self.revision = Arc::new(draft.publish());
        Some(self.revision())
    }

    /// A committed change of configuration with all the state that goes with it.
    pub(super) fn commit(
        &mut self,
        engine: &Engine,
        old: &Configuration,
        new: &Configuration,
        changes: &[Changed],
        time_ns: u64,
    ) -> Arc<Revision> {
        let last = Arc::clone(&self.revision);
        let models = Arc::clone(&self.objects.models);
        let mut draft = last.draft(&models.openconfig, &models.native, time_ns);
        follow(&mut draft, old, new);
        self.release();
        let mut dirty: Vec<Key> = self.dirty.drain().collect();
        for change in changes.iter().filter(|change| SHOWN_AS_APPLIED.contains(&change.key.kind()))
        {
            if change.existed {
                self.clear(&mut draft, &change.path);
            }
            dirty.extend(parts(engine, &change.key, change.value.as_ref()));
        }
        self.update(&mut draft, engine, &dirty);
        self.revision = Arc::new(draft.publish());
        self.revision()
    }

    /// Takes all state away at and below a native path, and what OpenConfig calls it.
    fn clear(&self, draft: &mut Draft<'_>, path: &InstancePath) {
        let gone = |origin, path| Change { origin, path, what: What::Gone(Plane::State) };
        for above in self.objects.models.map.up_path(path) {
            draft.apply(gone(Origin::OpenConfig, above));
        }
        draft.apply(gone(Origin::Native, path.clone()));
    }

    fn update(&mut self, draft: &mut Draft<'_>, engine: &Engine, keys: &[Key]) {
        for key in keys {
            let [intended, applied, observed] =
                engine.planes(key).map(|plane| plane.map(|value| &**value));
            let entry = self.objects.registry.state(key, Planes { intended, applied, observed });
            let shown_before = if SHOWN_AS_APPLIED.contains(&key.kind()) {
                // What would be shown if all were as wanted covers what was shown.
                let wanted = Planes { intended, applied: intended, observed: intended };
                if entry.is_some() { None } else { self.objects.registry.state(key, wanted) }
            } else {
                match &entry {
                    Some(entry) => self.shown.insert(key.clone(), entry.clone()),
                    None => self.shown.remove(key),
                }
            };
            if let Some(before) = shown_before {
                self.withdraw(draft, key, &before, entry.as_ref());
            }
            if let Some(entry) = entry {
                show(draft, &self.objects, entry);
            }
        }
    }

    /// Takes away what was shown of an object and is not shown now.
    fn withdraw(
        &self,
        draft: &mut Draft<'_>,
        key: &Key,
        before: &StateEntry,
        now: Option<&StateEntry>,
    ) {
        if now.is_none() && HOLDS_ITS_ENTRY.contains(&key.kind()) {
            return self.clear(draft, &before.path);
        }
        let kept = |path| now.is_some_and(|now| now.leaves.iter().any(|(leaf, _)| leaf == path));
        for (path, _) in before.leaves.iter().filter(|(path, _)| !kept(path)) {
            self.clear(draft, path);
        }
    }
}

fn follow(draft: &mut Draft<'_>, old: &Configuration, new: &Configuration) {
    for origin in [Origin::OpenConfig, Origin::Native] {
        draft.follow(origin, old.config_view(origin), new.config_view(origin));
    }
    draft.annotate(new.layers().annotation.clone());
}

fn show(draft: &mut Draft<'_>, objects: &Objects, entry: StateEntry) {
    draft.set_all(Origin::OpenConfig, objects.models.map.up(&entry.leaves));
    draft.set_all(Origin::Native, entry.leaves);
}

/// The key of an object that was configured and those of its parts.
fn parts(engine: &Engine, key: &Key, value: Option<&SharedValue>) -> Vec<Key> {
    let mut keys = vec![key.clone()];
    if let (Some(value), Some(descriptor)) = (value, engine.registry().descriptor(key.kind())) {
        keys.extend(descriptor.parts(&**value).into_iter().map(|(part, _)| part));
    }
    keys
}
