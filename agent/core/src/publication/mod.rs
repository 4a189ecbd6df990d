//! From a commit, and from what changes without one, to the next revision.
//!
//! Configuration comes from the views of the layers, state from the engine's planes, both in native and OpenConfig. The
//! cost is in proportion to what changed.
//!
//! A small commit is published before it is answered. The revision of a large one takes longer to build than the answer
//! has to wait: later readers wait for it instead, and so do questions and the next commit.

mod builder;
mod deferral;
mod state;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::{Configuration, InstancePath, Layers, Value, parallel};
use holdfast_platform::Collector;
use holdfast_platform::objects::state::StateEntry;
use holdfast_platform::objects::{GrpcEndpoint, Registry};
use holdfast_scheduler::{Engine, Key, sort_keys};
use holdfast_telemetry::{Boundary, Draft, Revision};
use imbl::OrdMap;
use tokio::task::spawn_blocking;

use self::builder::NewObject;
pub(super) use self::builder::{BuilderPanicked, RevisionBuilder};
use self::deferral::{Deferral, DeferredKeys};
pub(super) use self::state::as_planes;
use self::state::{
    FEW_KEYS, HOLDS_ITS_ENTRY, SHOWN_AS_APPLIED, StateChange, StateReading, StateSource,
    StateUpdate, clear, follow_configuration, in_both, remove_state, show, show_leaf,
};
use super::ServiceState;
use super::commit::{AppliedChange, BuildResult, Input};
use super::examination::EntryChange;
use super::task::{CoreTask, JobResult};

/// Keys whose state is read, and shown in both trees, at a time.
const PORTION_KEYS: usize = 8192;

/// Makes revisions.
#[derive(Debug)]
pub(super) struct Publisher {
    source: StateSource,
    revision: Arc<Revision>,
    /// Keys whose state changed since the last revision, some of them twice.
    dirty: Vec<Key>,
    /// Keys of the commit in flight.
    deferred: DeferredKeys,
    /// Those of them whose state has changed, which is shown when the commit ends.
    deferred_changes: Vec<Key>,
    /// State that is shown of objects that come and go without a change of configuration.
    shown: HashMap<Key, StateEntry>,
    /// State leaves of services, by native path; no key of the engine has them.
    services: OrdMap<InstancePath, Value>,
}

impl Publisher {
    /// The first revision: configuration, and what is always true of the box.
    pub(super) fn new(
        registry: Arc<Registry>,
        (configuration, configured): (&Configuration, &[EntryChange]),
        listening: &GrpcEndpoint,
        software_version: &str,
    ) -> Self {
        let source = StateSource { registry };
        let models = configuration.shared_models();
        let first = Revision::new(Arc::clone(models));
        let mut draft = first.draft(models, now_ns());
        let empty = Configuration::new(Arc::clone(models), Layers::new());
        draft.annotate(configuration.layers().annotation.clone());
        let boot_time = Collector::boot_time_ns().unwrap_or_default();
        let system = source.registry.system_state(boot_time, software_version);
        let server = source.registry.server_state(listening);
        in_both(&mut draft, true, |tree| {
            follow_configuration(tree, &empty, configuration);
            for entry in [&system, &server] {
                show(tree, &models.map, std::iter::once(entry));
            }
        });
        show_configured(&mut draft, &source, (&first, &OrdMap::new()), configured);
        let revision = Arc::new(draft.publish());
        Self {
            source,
            revision,
            dirty: Vec::new(),
            deferred: DeferredKeys::default(),
            deferred_changes: Vec::new(),
            shown: HashMap::new(),
            services: OrdMap::new(),
        }
    }

    pub(super) fn revision(&self) -> Arc<Revision> {
        Arc::clone(&self.revision)
    }

    /// Defers the state of the keys of a commit until it ends.
    pub(super) fn defer(&mut self, keys: Vec<Key>) {
        self.deferred = DeferredKeys::new(keys);
    }

    /// Notes keys of which a plane changed.
    pub(super) fn mark_dirty(&mut self, keys: Vec<Key>) {
        if self.deferred.is_empty() && self.dirty.is_empty() {
            self.dirty = keys;
            return;
        }
        if self.deferred.is_empty() {
            return self.dirty.extend(keys);
        }
        for key in keys {
            match self.deferred.report(&key) {
                Deferral::First => self.deferred_changes.push(key),
                Deferral::Repeated => {}
                Deferral::None => self.dirty.push(key),
            }
        }
    }

    /// Ends the deferral for a commit that is final: all of its keys are shown with it.
    fn end_deferral(&mut self) {
        self.deferred_changes.extend(std::mem::take(&mut self.deferred).unreported());
    }

    /// Takes out the deferred keys of new objects that are as intended, for the thread that builds the revision.
    fn take_new_objects(&mut self, engine: &Engine) -> Vec<NewObject> {
        let new_object = |key: &Key| {
            let [Some(intended), Some(applied), Some(observed)] = engine.planes(key) else {
                return None;
            };
            let is_done = SHOWN_AS_APPLIED.contains(&key.kind()) && Arc::ptr_eq(intended, applied);
            is_done.then(|| (key.clone(), Arc::clone(applied), Arc::clone(observed)))
        };
        let mut objects = Vec::with_capacity(self.deferred_changes.len());
        self.deferred_changes.retain(|key| {
            let object = new_object(key);
            let stays = object.is_none();
            objects.extend(object);
            stays
        });
        objects
    }

    /// Ends the deferral for a commit that is not made: its keys are like all others.
    pub(super) fn release(&mut self) {
        self.deferred = DeferredKeys::default();
        self.dirty.append(&mut self.deferred_changes);
    }

    /// The state of what changed, but for what a commit still works on. `None` when there is nothing to show.
    pub(super) fn state(&mut self, engine: &Engine) -> Option<Arc<Revision>> {
        if self.dirty.is_empty() {
            return None;
        }
        let last = Arc::clone(&self.revision);
        let mut draft = last.draft(&last.models, now_ns());
        self.show_dirty(&mut draft, engine, &last);
        self.revision = Arc::new(draft.publish());
        Some(self.revision())
    }

    /// Sets state leaves of services. `None` when nothing differs.
    pub(super) fn show_services(&mut self, leaves: ServiceState) -> Option<Arc<Revision>> {
        let services = &mut self.services;
        let news: ServiceState = leaves
            .into_iter()
            .filter(|(path, value)| services.get(path) != value.as_ref())
            .collect();
        if news.is_empty() {
            return None;
        }
        let last = Arc::clone(&self.revision);
        let map = &last.models.map;
        let mut draft = last.draft(&last.models, now_ns());
        for (path, value) in news {
            match value {
                Some(value) => {
                    in_both(&mut draft, false, |tree| show_leaf(tree, map, &path, &value));
                    services.insert(path, value);
                }
                None => {
                    in_both(&mut draft, false, |tree| remove_state(tree, map, &path));
                    services.remove(&path);
                }
            }
        }
        self.revision = Arc::new(draft.publish());
        Some(self.revision())
    }

    /// Publishes a commit with all the state that goes with it, as a draft on top of the newest revision; `built` is
    /// that draft, where a builder has made it.
    fn commit(
        &mut self,
        engine: &Engine,
        applied: &AppliedChange,
        new: &Configuration,
        built: Option<RevisionBuilder>,
    ) -> Arc<Revision> {
        let last = Arc::clone(&self.revision);
        let models = new.shared_models();
        let (is_built, mut so_far) = (built.is_some(), Arc::clone(&last));
        let has_configured = built.as_ref().is_some_and(|built| built.has_state);
        let mut draft = match built {
            Some(RevisionBuilder { next, has_state, left }) => {
                self.dirty.extend(left);
                if has_state {
                    so_far = Arc::new(next.clone());
                }
                last.resume(next)
            }
            None => last.draft(models, applied.stamp.time_ns),
        };
        draft.annotate(new.layers().annotation.clone());
        self.release();
        // State shown of these is cleared; so is that of their values, which the engine may have left as they were.
        let registry = Arc::clone(&self.source.registry);
        let goes_along = |it: &&EntryChange| it.existed && registry.has_configured_state(&it.path);
        let cleared = || applied.changes.iter().filter(goes_along);
        for change in cleared() {
            self.dirty.extend(change.values.iter().map(|(key, _)| key.clone()));
        }
        let (map, services) = (&models.map, &self.services);
        in_both(&mut draft, applied.changes.len() > FEW_KEYS, |tree| {
            if !is_built {
                follow_configuration(tree, &applied.old, new);
            }
            cleared().for_each(|change| clear(tree, map, services, &change.path));
        });
        if !has_configured {
            show_configured(&mut draft, &self.source, (&last, services), &applied.changes);
        }
        self.show_dirty(&mut draft, engine, &so_far);
        self.revision = Arc::new(draft.publish());
        self.revision()
    }

    /// Shows the present state of the keys that changed, in portions, so that intermediate results stay small.
    fn show_dirty(&mut self, draft: &mut Draft<'_>, engine: &Engine, last: &Revision) {
        let mut keys = std::mem::take(&mut self.dirty);
        sort_keys(&mut keys);
        let (source, services) = (self.source.clone(), self.services.clone());
        let (source, services) = (&source, &services);
        let read = |keys| source.read_all(engine, last, keys);
        let mut keys = keys.into_iter();
        let mut portion = || keys.by_ref().take(PORTION_KEYS).collect();
        let mut readings = read(portion());
        while !readings.is_empty() {
            let changes = readings.into_iter().map(|it| self.note(it)).collect();
            let (update, next) = (StateUpdate { last, services, changes }, portion());
            let [openconfig, native] = draft.trees_mut();
            // The OpenConfig tree takes longer than the other one.
            let aside = || {
                update.carry_out(native);
                read(next)
            };
            ((), readings) =
                parallel::both(update.is_large(), || update.carry_out(openconfig), aside);
        }
    }

    /// Notes the state that is shown of a key from now on.
    fn note(&mut self, StateReading { key, now, before }: StateReading) -> StateChange {
        let holds_its_entry = HOLDS_ITS_ENTRY.contains(&key.kind());
        let before = match (before, &now) {
            (Some(before), _) => before,
            (None, Some(now)) => self.shown.insert(key, now.clone()),
            (None, None) => self.shown.remove(&key),
        };
        StateChange { holds_its_entry, before, now }
    }
}

/// Shows the state of changed objects that is their configuration in force, in portions.
fn show_configured(
    draft: &mut Draft<'_>,
    source: &StateSource,
    (last, services): (&Revision, &OrdMap<InstancePath, Value>),
    changes: &[EntryChange],
) {
    for portion in changes.chunks(PORTION_KEYS) {
        let changes = parallel::map(portion.iter().collect(), |it| source.configured(it));
        let changes = changes.into_iter().flatten().collect();
        let update = StateUpdate { last, services, changes };
        in_both(draft, update.is_large(), |tree| update.carry_out(tree));
    }
}

impl CoreTask {
    /// Has a thread build the revision of a commit that was answered.
    pub(super) fn build_revision(&mut self, applied: &Arc<AppliedChange>) {
        self.publisher.end_deferral();
        // Of what was there before, state has to be taken away first.
        let is_new = applied.changes.iter().all(|change| !change.existed);
        let objects =
            if is_new { self.publisher.take_new_objects(&self.engine) } else { Vec::new() };
        let objects = Arc::new(objects);
        let (applied, handed_over) = (Arc::clone(applied), Arc::clone(&objects));
        let (source, last) = (self.publisher.source.clone(), self.publisher.revision());
        let new = self.configuration.clone();
        let built = spawn_blocking(move || {
            let time_ns = applied.stamp.time_ns;
            let changes = if is_new { &*applied.changes } else { &[] };
            let news = (changes, &**handed_over);
            RevisionBuilder::build(&source, &last, time_ns, (&applied.old, &new), news)
        });
        self.jobs.push(async move {
            let built = built.await.map(Box::new).map_err(|_| BuilderPanicked(objects));
            JobResult::Commit(Input::Built(built))
        });
    }

    /// Publishes a commit, and its boundary. Where the builder of its revision has panicked, it is made now.
    pub(super) fn publish_commit(
        &mut self,
        transaction: u64,
        applied: &AppliedChange,
        built: Option<BuildResult>,
    ) {
        let is_answered = built.is_some();
        self.publisher.end_deferral();
        let built = built.and_then(|built| match built {
            Ok(built) => Some(*built),
            Err(BuilderPanicked(objects)) => {
                self.publisher.deferred_changes.extend(objects.iter().map(|(key, ..)| key.clone()));
                None
            }
        });
        let revision = self.publisher.commit(&self.engine, applied, &self.configuration, built);
        self.revision_tx.send_replace(revision.clone());
        let confirm_id = applied.confirm_id.clone();
        self.boundary_tx.tell(Boundary { revision, transaction, confirm_id });
        if is_answered {
            self.behind_tx.send_replace(false);
        }
    }

    /// Publishes state that changed without a change of configuration.
    pub(super) fn publish_state(&mut self) {
        if self.is_publishing() {
            return; // the next revision is the commit's
        }
        if let Some(revision) = self.publisher.state(&self.engine) {
            self.revision_tx.send_replace(revision);
        }
    }

    /// True while a commit was answered that no revision shows.
    pub(super) fn is_publishing(&self) -> bool {
        self.commit.as_ref().is_some_and(|commit| commit.machine.is_publishing())
    }
}
