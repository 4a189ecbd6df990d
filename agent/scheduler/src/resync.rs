//! The ways to bring intent, planes and system together again.
//!
//! *Downstream*: everything is retrieved ([`Engine::resync`], [`Engine::retrieved`]) and differences are repaired; on
//! request, after an overrun, and by the clock ([`Engine::resync_every`]). *Upstream*: the intent of one source is given
//! completely ([`Engine::completing`]), nothing is retrieved. *Full*: both at once ([`Engine::full_resync`]).

use std::time::Duration;

use crate::descriptor::AnyDescriptor;
use crate::engine::{Engine, Outcome, Scope, Step};
use crate::graph::{Idx, Source};
use crate::history::Origin;
use crate::key::{FixedMap, Key};
use crate::operation::{Fact, Now, TxnId};
use crate::options::IntentSource;
use crate::plan::Delta;
use crate::planner;
use crate::value::{SharedValue, same};
use crate::{Registry, RegistryError};

impl Engine {
    /// The change that makes this the whole intent of a source: what it intended beside goes, what is equal is left out.
    /// That of other sources stays. Best effort, like every resync; to be planned and started like any change.
    pub fn completing(
        &self,
        source: IntentSource,
        intent: impl IntoIterator<Item = (Key, SharedValue)>,
    ) -> Delta {
        let mut wanted: FixedMap<Key, SharedValue> = intent.into_iter().collect();
        let mut changes = Vec::new();
        for (_, node) in self.graph.nodes() {
            let Some(has) = node.sources.iter().find(|(by, _)| *by == Source::Direct(source))
            else {
                continue;
            };
            match wanted.remove(&node.key) {
                Some(value) if same(Some(&value), Some(&has.1)) => {}
                other => changes.push((node.key.clone(), other)),
            }
        }
        changes.extend(wanted.into_iter().map(|(key, value)| (key, Some(value))));
        changes.sort_by(|a, b| a.0.cmp(&b.0));
        Delta::new(changes).best_effort().from_source(source)
    }

    /// Takes in the whole intent of a source and all facts: one transaction leads from the one to the other.
    pub fn full_resync(
        &mut self,
        source: IntentSource,
        intent: Vec<(Key, SharedValue)>,
        facts: Vec<Fact>,
        now: Now,
    ) -> (TxnId, Step) {
        let mut step = Step::default();
        self.take_stock(&Scope::Everything, facts, now, &mut step);
        let delta = self.completing(source, intent).described("full resync");
        let free = self.graph.take_woken();
        let (held, free): (Vec<Idx>, Vec<Idx>) =
            free.into_iter().partition(|&idx| self.graph.node(idx).owner().is_some());
        let plan = match planner::plan(&self.graph, delta, free.clone()) {
            Ok(plan) if self.in_the_way(&plan, None).is_none() => {
                let txn = self.next_number();
                self.begin(txn, Origin::Resync, (plan, false), now, &mut step);
                Ok(txn)
            }
            Ok(plan) => Err(plan),
            Err(reason) => {
                let txn = self.next_number();
                self.conclude(Outcome::Refused { txn, reason }, &mut step);
                Ok(txn)
            }
        };
        for idx in held.into_iter().chain(free.into_iter().filter(|_| plan.is_err())) {
            self.graph.wake(idx);
        }
        match plan {
            Ok(txn) => (txn, self.advance(step, now)),
            // Somebody is in the way: the facts are repaired as far as possible, and the intent follows in its turn.
            Err(plan) => (self.enqueue(Origin::Resync, plan), self.advance(step, now)),
        }
    }

    /// Has everything retrieved by the clock: [`Step::retrieve`] says when. None turns it off, which is the default.
    pub fn resync_every(&mut self, period: Option<Duration>, now: Now) -> Step {
        self.resync_period = period;
        self.resync_due = period.map(|period| now.monotonic + period);
        self.advance(Step::default(), now)
    }

    pub(crate) fn expire_resync(&mut self, now: Now, step: &mut Step) {
        if self.resync_due.is_some_and(|due| due <= now.monotonic) {
            step.retrieve = true;
            self.resync_due = self.resync_period.map(|period| now.monotonic + period);
        }
    }

    /// Teaches the engine another kind. Values of it that were intended before, and unimplemented, are planned for now.
    ///
    /// # Errors
    /// When a descriptor with the same kind or name is there already.
    pub fn register(
        &mut self,
        descriptor: impl AnyDescriptor + 'static,
        now: Now,
    ) -> Result<Step, RegistryError> {
        let kind = descriptor.kind();
        let mut registry = Registry::clone(&self.graph.registry);
        registry.register(descriptor)?;
        self.graph.registry = registry.into();
        self.graph.revision += 1;
        let mut by_source: FixedMap<IntentSource, Vec<(Key, Option<SharedValue>)>> =
            FixedMap::default();
        for (_, node) in self.graph.nodes().filter(|(_, node)| node.key.kind() == kind) {
            if let Some((Source::Direct(source), value)) = node.sources.first()
                && node.goal.is_unimplemented()
            {
                let change = (node.key.clone(), Some(value.clone()));
                by_source.entry(*source).or_default().push(change);
            }
        }
        let mut waiting: Vec<_> = by_source.into_iter().collect();
        waiting.sort_by_key(|(source, _)| *source);
        for (source, changes) in waiting {
            let delta = Delta::new(changes).best_effort().from_source(source);
            if let Ok(plan) = self.plan(delta.described("a kind was taught")) {
                self.enqueue(Origin::Convergence, plan);
            }
        }
        Ok(self.advance(Step::default(), now))
    }
}
