//! Leaves `apply` and `apply-detail` of `/service-state/plan`: the extent to which the objects of each state are in the
//! system.
//!
//! The plan itself says how far an instance has come, and is stored. These leaves say what the system shows of it now, also
//! long after the instance was ready: an object that is gone, drifts or is refused. They are in no plan, so nothing is
//! written for them and no walk follows from them.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::services::{Applied, Book, BoxState};
use holdfast_config::{ClaimKey, InstancePath, Name, ServiceTag, Value};
use holdfast_core::{CoreEvent, CoreHandle, Datastore, ObservedBox, ServiceState};
use holdfast_scheduler::Key;
use smol_str::SmolStr;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::AbortOnDropHandle;

use super::object_index::ObjectIndex;
use crate::services::shown::leaf_of_state;

/// Shows the leaves for as long as the handle is kept.
pub(in crate::services) fn show(core: CoreHandle) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(AppliedStates::new(core).run()))
}

/// A claim whose state has the leaves, with their values.
struct ShownClaim {
    /// Values of the objects of the claim.
    keys: BTreeSet<Key>,
    /// The leaves `apply` and `apply-detail`.
    paths: [InstancePath; 2],
    values: [Option<Value>; 2],
}

struct AppliedStates {
    core: CoreHandle,
    book: Book,
    claims: BTreeMap<ClaimKey, ShownClaim>,
    /// Claims by the values of their objects.
    by_key: ObjectIndex<ClaimKey>,
    /// Claims to be looked at.
    dirty: BTreeSet<ClaimKey>,
}

impl AppliedStates {
    fn new(core: CoreHandle) -> Self {
        Self {
            core,
            book: Book::default(),
            claims: BTreeMap::new(),
            by_key: ObjectIndex::default(),
            dirty: BTreeSet::new(),
        }
    }

    async fn run(mut self) {
        let mut events = self.core.listen();
        let mut revisions = self.core.watch();
        loop {
            self.round().await;
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => self.note_event(&event),
                    Err(RecvError::Lagged(_)) => self.dirty.extend(self.claims.keys().cloned()),
                    Err(RecvError::Closed) => return,
                },
                changed = revisions.changed() => if changed.is_err() { return },
            }
        }
    }

    fn note_event(&mut self, event: &CoreEvent) {
        let CoreEvent::Statuses { changed, omitted } = event else { return };
        if *omitted > 0 {
            self.dirty.extend(self.claims.keys().cloned());
            return;
        }
        let claims = changed.iter().flat_map(|status| self.by_key.holders(&status.key));
        self.dirty.extend(claims.cloned());
    }

    /// Shows what differs of the claims whose plans or objects have changed.
    async fn round(&mut self) {
        let observed = self.core.observed_box();
        let new = observed.configuration().layers().book.clone();
        let tags: Vec<ServiceTag> =
            Book::differences(&self.book, &new).map(|(tag, ..)| tag.clone()).collect();
        self.book = new;
        let removed: Vec<_> = tags.iter().flat_map(|tag| self.follow(tag, &observed)).collect();
        if !removed.is_empty() {
            self.core.show_state(removed).await;
        }
        let dirty = std::mem::take(&mut self.dirty);
        let changed: Vec<_> =
            dirty.iter().flat_map(|claim| self.changes(claim, &observed)).collect();
        if !changed.is_empty() {
            self.core.show_state(changed).await;
        }
    }

    /// Notes the claims of an instance whose plan has changed. Returns the leaves to take away: those of states that are
    /// gone, and those that were taken away with an earlier plan of the instance.
    fn follow(&mut self, tag: &ServiceTag, observed: &ObservedBox) -> ServiceState {
        let mut before = self.take_claims(tag);
        let configuration = observed.configuration();
        for (key, _) in configuration.layers().claims().of_instance(tag) {
            let Some(paths) = self.paths(key, observed) else { continue };
            let keys: BTreeSet<Key> = observed.keys(key).into_iter().collect();
            keys.iter().for_each(|object| self.by_key.insert(object, key));
            let is_shown = paths.iter().any(|path| observed.shows(path));
            let values = match before.get_mut(key).filter(|_| is_shown) {
                Some(earlier) => std::mem::take(&mut earlier.values),
                None => [None, None],
            };
            self.claims.insert(key.clone(), ShownClaim { keys, paths, values });
            self.dirty.insert(key.clone());
        }
        let gone = before.into_values().flat_map(|it| it.paths.into_iter().zip(it.values));
        gone.filter(|(_, value)| value.is_some()).map(|(path, _)| (path, None)).collect()
    }

    /// Takes the claims of an instance out.
    fn take_claims(&mut self, tag: &ServiceTag) -> BTreeMap<ClaimKey, ShownClaim> {
        let none = SmolStr::default;
        let first = ClaimKey { tag: tag.clone(), component: [none(), none()], state: none() };
        let keys = self.claims.range(first..).map(|(key, _)| key);
        let keys: Vec<ClaimKey> = keys.take_while(|key| key.tag == *tag).cloned().collect();
        let mut taken = BTreeMap::new();
        for key in keys {
            let Some(claim) = self.claims.remove(&key) else { continue };
            claim.keys.iter().for_each(|object| self.by_key.remove(object, &key));
            taken.insert(key, claim);
        }
        taken
    }

    /// Paths of the two leaves of a state, if the plan has it.
    fn paths(&self, key: &ClaimKey, observed: &ObservedBox) -> Option<[InstancePath; 2]> {
        let [component_type, name] = &key.component;
        self.book.get(&key.tag)?.component(component_type, name)?.state(&key.state)?;
        let native = &observed.configuration().models().native;
        let leaf = |name| leaf_of_state(native, key, name);
        Some([leaf("apply")?, leaf("apply-detail")?])
    }

    /// Leaves of a claim that differ from those that are shown. While an operation on an object is under way there are
    /// none: its end is an event.
    fn changes(&mut self, key: &ClaimKey, observed: &ObservedBox) -> ServiceState {
        let Some(claim) = self.claims.get_mut(key) else { return ServiceState::new() };
        if observed.is_any_in_progress(&claim.keys) {
            return ServiceState::new();
        }
        let (name, detail) = match observed.applied(key) {
            Applied::Done => ("done", None),
            Applied::Pending(text) => ("pending", Some(text)),
            Applied::Failed(text) => ("failed", Some(text)),
        };
        let values =
            [Some(Value::Enum(Name::of(name))), detail.map(|text| Value::Str((&*text).into()))];
        let before = std::mem::replace(&mut claim.values, values.clone());
        let leaves = claim.paths.iter().cloned().zip(values).zip(before);
        leaves.filter(|((_, value), before)| value != before).map(|(leaf, _)| leaf).collect()
    }
}
