//! Makes the next revision, from a commit or from a change that happens without a commit.
//!
//! Configuration comes from the views of the layers, state from the engine's planes, both in native and OpenConfig. The
//! cost is in proportion to what changed.
//!
//! A small commit is published before it is answered. The revision of a large commit takes longer to build
//! than its answer should wait. So a thread builds that revision, and the commit is answered earlier. Readers that have
//! to see the commit wait for the revision. Meanwhile the state of other objects is published ([`chain`]), in portions that leave the core time for events.
//!
//! The status of a link is shown as it is told ([`told`]), which may differ from what the kernel shows.
//!
//! Static routes are many, and are not written leaf by leaf: a revision takes the pointers from which a reader's
//! branch is derived ([`derived`]).

mod builder;
mod chain;
mod deferral;
mod derived;
mod marks;
mod prepared;
mod service_plans;
mod service_transactions;
mod state;
#[cfg(test)]
mod tests;
mod told;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_common::parallel;
use holdfast_config::{Configuration, InstancePath, Layers, Value};
use holdfast_platform::BoxClock;
use holdfast_platform::kinds;
use holdfast_platform::objects::state::StateEntry;
use holdfast_platform::objects::{LinkStatusSettings, Registry};
use holdfast_platform::values::{Link, OperState};
use holdfast_scheduler::{Engine, Key, Now, SharedValue, sort_keys};
use holdfast_store::Ticket;
use holdfast_telemetry::{Boundary, BoundarySender, Draft, Revision};
use smol_str::SmolStr;
use tokio::sync::watch;

use crate::changes::{AppliedChange, PlannedChange};
use crate::examination::EntryChange;
use crate::service_history::HistoryChange;
use crate::shared_engine::SharedEngine;

pub(crate) use builder::{BuilderPanicked, BuiltRevision, RevisionBuilder};
pub(crate) use chain::RevisionChain;
pub(crate) use deferral::Deferrals;
pub(crate) use derived::{DerivedChanges, NewEntries, NewState, derived_lists};
pub(crate) use prepared::{EntryPreparation, PreparedEntries};
pub(crate) use state::{
    FEW_KEYS, Others, StateSource, StateUpdate, as_planes, follow_configuration, in_both,
    is_applied, show,
};
pub(crate) use told::{LinkObservation, ToldLinks};

/// Keys whose state is shown in one turn of the loop: some ten milliseconds of work, for which an event waits at most.
const TURN_KEYS: usize = 2048;

/// State leaves of one service, by native path; `None` removes a leaf.
pub type ServiceState = Vec<(InstancePath, Option<Value>)>;

/// Result of building the revision of a large commit.
pub(crate) type BuildResult = Result<Box<BuiltRevision>, BuilderPanicked>;

/// Makes revisions.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(crate) source: StateSource,
    chain: Arc<RevisionChain>,
    /// Keys whose state changed since the last revision, some of them twice.
    dirty: Vec<Key>,
    /// True until the box is known as a whole: nobody reads before.
    is_held: bool,
    pub(crate) deferrals: Deferrals,
    /// State that is shown of objects that come and go without a change of configuration.
    shown: HashMap<Key, StateEntry>,
    /// True while a commit was answered that the newest revision does not show.
    behind_tx: watch::Sender<bool>,
    boundary_tx: BoundarySender,
}

impl Publisher {
    /// The first revision: configuration, and what is always true of the box.
    pub(super) fn new(
        registry: Arc<Registry>,
        configuration: &Configuration,
        configured: &[EntryChange],
        history: HistoryChange,
        grpc_services: &[&'static str],
        software_version: &str,
    ) -> Self {
        let source = StateSource { registry, told: ToldLinks::default() };
        let models = configuration.shared_models();
        let derived = derived_lists(&source.registry, models);
        let first = Revision::new(Arc::clone(models), derived);
        let mut draft = first.draft(models, now_ns());
        let empty = Configuration::new(Arc::clone(models), Layers::new());
        draft.annotate(configuration.layers().annotation.clone());
        let boot_time = BoxClock::boot_time_ns().unwrap_or_default();
        let system = source.registry.system_state(boot_time, software_version);
        let server = source.registry.server_state(grpc_services);
        let instance = source.registry.instance_state();
        in_both(&mut draft, true, |tree| {
            follow_configuration(tree, [&empty, configuration], None);
            for entry in [&system, &server, &instance] {
                show(tree, &models.map, std::iter::once(entry));
            }
            service_transactions::follow(tree, &history);
        });
        show_configured(&mut draft, &source, &first, configured);
        let chain = RevisionChain::new(draft.publish());
        Self {
            source,
            chain: Arc::new(chain),
            dirty: Vec::new(),
            is_held: true,
            deferrals: Deferrals::default(),
            shown: HashMap::new(),
            behind_tx: watch::channel(false).0,
            boundary_tx: BoundarySender::default(),
        }
    }

    pub(super) fn chain(&self) -> &Arc<RevisionChain> {
        &self.chain
    }

    /// A receiver of whether a commit was answered that the newest revision does not show.
    pub(crate) fn watch_behind(&self) -> watch::Receiver<bool> {
        self.behind_tx.subscribe()
    }

    pub(crate) fn boundaries(&self) -> BoundarySender {
        self.boundary_tx.clone()
    }

    /// Notes that a commit is about to be answered that the newest revision does not show.
    pub(crate) fn note_behind(&self) {
        self.behind_tx.send_replace(true);
    }

    /// Notes that the newest revision shows all commits that were answered.
    pub(crate) fn note_caught_up(&self) {
        self.behind_tx.send_replace(false);
    }

    /// Tells of a commit that the newest revision shows.
    pub(crate) fn announce(&self, boundary: Boundary) {
        self.boundary_tx.send(boundary);
    }

    /// Defers the state of the keys of a commit, ascending, until it ends.
    pub(super) fn defer(&mut self, ticket: Ticket, keys: Arc<Vec<Key>>) {
        self.deferrals.begin(ticket, keys);
    }

    /// Notes keys with a changed plane.
    pub(super) fn mark_dirty(&mut self, keys: Vec<Key>) {
        if self.deferrals.is_empty() {
            return self.dirty.extend(keys);
        }
        let deferrals = &mut self.deferrals;
        self.dirty.extend(keys.into_iter().filter(|key| !deferrals.report(key)));
    }

    /// Takes what the engine observes of the links among keys that changed.
    pub(super) fn observe_links(&mut self, engine: &Engine, changed: &[Key], now: Now) {
        for key in changed.iter().filter(|key| key.kind() == kinds::LINK) {
            self.source.told.observe(key, link_observation(engine, key, now), now);
        }
    }

    /// Takes the settings of what is told of the status of a link.
    pub(super) fn configure_link_status(
        &mut self,
        link: &str,
        settings: LinkStatusSettings,
        now: Now,
    ) {
        let key = kinds::link::key(link);
        if self.source.told.configure(&key, settings, now) {
            self.mark_dirty(vec![key]);
        }
    }

    /// Tells these links as down, and no others, whatever the kernel shows.
    pub(super) fn force_down(&mut self, links: &BTreeSet<SmolStr>, now: Now) {
        let links = links.iter().map(|link| kinds::link::key(link)).collect();
        let changed = self.source.told.force_down(&links, now);
        self.mark_dirty(changed);
    }

    /// Tells what was held back for long enough.
    pub(super) fn tell_due(&mut self, now: Now) {
        let due = self.source.told.tell_due(now);
        self.mark_dirty(due);
    }

    /// The moment at which [`Self::tell_due`] has work next.
    pub(super) fn due(&self) -> Option<Duration> {
        self.source.told.due()
    }

    /// Ends the deferral for a commit that is not made: its keys are like all others.
    pub(super) fn release(&mut self, ticket: Ticket) {
        self.dirty.append(&mut self.deferrals.end(ticket));
    }

    /// Takes the keys whose state has changed, to be given back sorted when state is shown.
    pub(super) fn take_dirty(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.dirty)
    }

    /// Begins to show state: that of these keys, ascending, and what has changed since they were collected.
    pub(super) fn begin_showing(&mut self, keys: Vec<Key>) {
        self.is_held = false;
        let since = std::mem::replace(&mut self.dirty, keys);
        self.dirty.extend(since);
    }

    /// True while there is state to be shown.
    pub(super) fn has_work(&self) -> bool {
        !self.is_held && !self.dirty.is_empty()
    }

    /// Shows the changed state, except state that a commit still works on: for so many keys that events need not
    /// wait, the latest first.
    pub(super) fn show_portion(&mut self, engine: &Engine) {
        if !self.has_work() {
            return;
        }
        let keys = latest(&mut self.dirty);
        let last = self.chain.begin();
        let mut draft = last.draft(&last.models, now_ns());
        self.show_keys(keys, &mut draft, engine, &last);
        self.chain.advance(&last, draft.publish());
    }

    /// Shows service transactions that have ended without a commit.
    pub(super) fn show_history(&mut self, history: &HistoryChange) {
        let last = self.chain.begin();
        let mut draft = last.draft(&last.models, now_ns());
        in_both(&mut draft, false, |tree| service_transactions::follow(tree, history));
        self.chain.advance(&last, draft.publish());
    }

    /// Publishes the revision of a commit, with the latest of what has changed while it was built: of so many keys
    /// that events need not wait. The others are shown later, in portions, as all other state is.
    pub(crate) fn complete(
        &mut self,
        ticket: Ticket,
        engine: &Engine,
        built: BuiltRevision,
    ) -> Arc<Revision> {
        let BuiltRevision { base, next, keys, shown, mut left } = built;
        stored_kinds(&keys).for_each(|key| drop(self.shown.remove(key)));
        self.shown.extend(shown);
        let mut changed = self.deferrals.end(ticket);
        left.append(&mut latest(&mut changed));
        self.dirty.append(&mut changed);
        let (newest, next) = self.chain.rebase(&base, next);
        let so_far = next.clone();
        let mut draft = newest.resume(next).after_removals();
        self.show_keys(left, &mut draft, engine, &so_far);
        self.chain.advance_to_boundary(&newest, draft.publish())
    }

    /// Builder of the revision of a commit. No key of the commit is left to be shown then, unless it changes once
    /// more.
    pub(crate) fn builder(
        &mut self,
        ticket: Ticket,
        applied: &Arc<AppliedChange>,
        engine: &SharedEngine,
        configuration: &Configuration,
    ) -> RevisionBuilder {
        let keys = self.deferrals.take_all(ticket);
        RevisionBuilder {
            source: self.source.clone(),
            engine: engine.clone(),
            chain: Arc::clone(&self.chain),
            base: self.chain.newest(),
            applied: Arc::clone(applied),
            configuration: configuration.clone(),
            prepared: None,
            shown: self.shown_of(&keys),
            keys,
            others: self.chain.others(),
        }
    }

    /// Preparation of the entries that a large change of a configuration adds to its revision.
    pub(crate) fn preparation(&self, old: &Configuration, new: &PlannedChange) -> EntryPreparation {
        EntryPreparation {
            source: self.source.clone(),
            base: self.chain.newest(),
            old: old.clone(),
            new: new.configuration.clone(),
            changes: Arc::clone(&new.changes),
        }
    }

    /// Shows the present state of keys.
    fn show_keys(
        &mut self,
        mut keys: Vec<Key>,
        draft: &mut Draft<'_>,
        engine: &Engine,
        last: &Revision,
    ) {
        sort_keys(&mut keys);
        let source = self.source.clone();
        let others = self.chain.others();
        let (applied, mut keys): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_applied);
        let derived = DerivedChanges::of(&source.registry, applied, engine, draft.native());
        let DerivedChanges { states, stored } = derived;
        in_both(draft, states.len() > FEW_KEYS, |tree| NewState::show_all(tree, &states));
        keys.extend(stored);
        let readings = source.read_all(engine, last, keys);
        let changes = readings.into_iter().map(|it| it.note(&mut self.shown)).collect();
        let update = StateUpdate { last, others: &others, changes };
        in_both(draft, update.is_large(), |tree| update.apply_to(tree));
    }

    /// State that is shown of the keys of a commit, which nobody else shows before its end.
    pub(crate) fn shown_of(&self, keys: &[Key]) -> HashMap<Key, StateEntry> {
        let shown = stored_kinds(keys).filter_map(|key| self.shown.get_key_value(key));
        shown.map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }
}

/// Takes out the last keys of a list: those whose state is shown in one turn.
fn latest(keys: &mut Vec<Key>) -> Vec<Key> {
    keys.split_off(keys.len().saturating_sub(TURN_KEYS))
}

/// The kernel's word on a link; that it is not present, where it is only configured.
fn link_observation(engine: &Engine, key: &Key, now: Now) -> Option<LinkObservation> {
    let [intended, _, observed] = engine.planes(key);
    let link = |value: Option<&SharedValue>| value?.as_any().downcast_ref::<Link>().cloned();
    let Some(link) = link(observed) else {
        let is_enabled = link(intended)?.enabled;
        return Some(LinkObservation {
            status: OperState::NotPresent,
            is_enabled,
            carrier_changes: 0,
            changed_ns: now.unix_ns,
        });
    };
    let facts = link.facts?;
    Some(LinkObservation {
        status: facts.oper,
        is_enabled: link.enabled,
        carrier_changes: facts.carrier_changes,
        changed_ns: facts.last_change_ns,
    })
}

/// Keys of objects that are not shown as applied: what is shown of these is noted.
fn stored_kinds(keys: &[Key]) -> impl Iterator<Item = &Key> {
    keys.iter().filter(|key| !is_applied(key))
}

/// Shows the state of changed objects that is their configuration in force.
fn show_configured(
    draft: &mut Draft<'_>,
    source: &StateSource,
    last: &Revision,
    changes: &[EntryChange],
) {
    let version = draft.version();
    let models = draft.models();
    let new = NewEntries { registry: &source.registry, models: &models };
    let states = new.states(changes, &version.into());
    in_both(draft, states.len() > FEW_KEYS, |tree| NewState::show_all(tree, &states));
    let stored = changes.iter().filter(|change| !new.contains(change)).collect();
    let changes = parallel::map(stored, |it| source.configured(it));
    let changes = changes.into_iter().flatten().collect();
    let update = StateUpdate { last, others: &Others::default(), changes };
    in_both(draft, update.is_large(), |tree| update.apply_to(tree));
}
