//! Routes of other programs: what of them the engine is shown, and what is logged.

use holdfast_platform::Destination;
use holdfast_platform::kinds;
use holdfast_platform::transport::Event;
use holdfast_platform::values::{KernelRoute, MAIN_TABLE};
use holdfast_scheduler::{Fact, Key, Scope};
use tracing::warn;

use super::CoreTask;
use crate::examination::EntryChange;
use crate::state::{as_route, preferred_of, warn_of_shadow};

/// Routes of ours for which the kernel is asked after a reading of everything, whether it prefers another program's: ten milliseconds
/// beside everything else. `show pending` asks for all.
const ROUTES_LOOKED_UP: usize = 1_000;

/// Prefixes that are logged one by one; of further ones the number alone.
const LOGGED_PREFIXES: usize = 32;

impl CoreTask {
    /// Shows the engine the equal routes of other programs that new routes of a change take over.
    pub(crate) fn show_routes_to_take_over(&mut self, changes: &[EntryChange]) {
        if self.routes.known().is_empty() {
            return;
        }
        let values = changes.iter().flat_map(|change| &change.values);
        let routes = values.filter_map(|(_, value)| value.as_any().downcast_ref::<KernelRoute>());
        let facts = self.routes_to_take_over(routes);
        self.report_facts(facts);
    }

    /// Adds to a report of the transports the equal routes that intended routes of ours take over, unless ours are there.
    /// `changed` are the destinations of foreign routes that it changes.
    pub(crate) fn with_routes_to_take_over(
        &mut self,
        event: Event,
        changed: &[Destination],
    ) -> Event {
        if self.routes.known().is_empty() {
            return event;
        }
        match event {
            Event::Retrieved { scope, facts } => {
                let all: Vec<_> = self.routes.known().destinations().collect();
                let is_there = |key: &Key| facts.binary_search_by(|it| it.key.cmp(key)).is_ok();
                let added = self.intended_routes_to_take_over(&all, is_there);
                if added.is_empty() {
                    return Event::Retrieved { scope, facts };
                }
                let facts: Vec<Fact> = facts.into_iter().chain(added).collect();
                Event::Retrieved { scope, facts: facts.into() }
            }
            Event::Observed(mut facts) if !changed.is_empty() => {
                let is_there = |key: &Key| facts.iter().any(|fact| fact.key == *key);
                let added = self.intended_routes_to_take_over(changed, is_there);
                facts.extend(added);
                Event::Observed(facts)
            }
            other => other,
        }
    }

    fn intended_routes_to_take_over(
        &mut self,
        destinations: &[Destination],
        is_there: impl Fn(&Key) -> bool,
    ) -> Vec<Fact> {
        let routes: Vec<KernelRoute> = self.intended_routes_to(destinations).collect();
        let mut facts = self.routes_to_take_over(routes.iter());
        facts.retain(|fact| !is_there(&fact.key));
        facts
    }

    fn routes_to_take_over<'r>(
        &mut self,
        routes: impl Iterator<Item = &'r KernelRoute>,
    ) -> Vec<Fact> {
        self.routes.facts_to_take_over(&self.engine.read(), routes)
    }

    /// Follows routes of other programs that came or went: withdraws those that were shown to be taken over and are gone,
    /// and logs those that win over routes of ours.
    pub(crate) fn follow_foreign_routes(&mut self, changed: &[Destination]) {
        if changed.is_empty() {
            return;
        }
        self.withdraw_routes_shown();
        self.intended_routes_to(changed).for_each(|route| self.log_shadow(&route));
    }

    /// Logs that a route of ours is not used.
    fn log_shadow(&self, ours: &KernelRoute) {
        if self.routes.known().taken_over_by(ours).is_some() {
            return;
        }
        if let Some(theirs) = self.routes.known().preferred_to(ours) {
            warn_of_shadow(ours, theirs);
        }
    }

    /// Withdraws routes that were shown to be taken over, and that are gone or that no change took over.
    fn withdraw_routes_shown(&mut self) {
        let facts = self.routes.withdraw(&self.engine.read());
        self.report_facts(facts);
    }

    fn report_facts(&mut self, facts: Vec<Fact>) {
        if !facts.is_empty() {
            let now = self.now();
            let step = self.engine.write().observed(facts, now);
            self.follow(step);
        }
    }

    /// Routes of the configuration in force to some destinations.
    fn intended_routes_to<'a>(
        &'a self,
        destinations: &'a [Destination],
    ) -> impl Iterator<Item = KernelRoute> + 'a {
        let registry = &self.examiner.registry;
        let effective = self.in_force.configuration().effective();
        let main = destinations.iter().filter(|destination| destination.table == MAIN_TABLE);
        main.flat_map(|it| registry.static_routes_to(effective, it.prefix))
    }
}

impl CoreTask {
    /// After a reading of everything, asks the kernel which routes of daemons it prefers to ours, and logs them. The kernel does not
    /// announce these to us. The loop goes on meanwhile.
    pub(crate) fn log_routes_of_daemons(&self, event: &Event) {
        let Event::Retrieved { scope: Scope::Everything, facts } = event else { return };
        let routes = facts.iter().filter(|fact| fact.key.kind() == kinds::ROUTE);
        let routes = routes.filter_map(|fact| as_route(fact.value.as_ref()?));
        let ours = routes.filter(|route| route.foreign.is_none()).take(ROUTES_LOOKED_UP);
        let ours: Vec<KernelRoute> = ours.cloned().collect();
        if ours.is_empty() {
            return;
        }
        let lookup = self.routes.lookup();
        tokio::spawn(async move {
            let mut destinations: Vec<Destination> = ours.iter().map(Destination::of).collect();
            destinations.dedup();
            let best = lookup.of_daemons(&destinations).await;
            for route in &ours {
                if let Some(theirs) = preferred_of(&best, route) {
                    warn_of_shadow(route, theirs);
                }
            }
        });
    }
}

impl CoreTask {
    /// Logs the prefixes whose next hops get another order of preference by the metrics of this version. They are known by
    /// routes of ours that nothing intends, which an earlier version has left; later starts find none.
    pub(crate) fn log_changed_order(&self, event: &Event) {
        let Event::Retrieved { scope: Scope::Everything, facts } = event else { return };
        if !self.start.is_reading() {
            return;
        }
        let engine = self.engine.read();
        let of_ours = facts.iter().filter(|fact| fact.key.kind() == kinds::ROUTE);
        let of_ours = of_ours.filter_map(|fact| Some((&fact.key, as_route(fact.value.as_ref()?)?)));
        let left = of_ours
            .filter(|(key, route)| route.foreign.is_none() && engine.planes(key)[0].is_none());
        let mut destinations: Vec<Destination> = left
            .map(|(_, route)| Destination { table: route.table, prefix: route.prefix })
            .collect();
        destinations.sort_unstable();
        destinations.dedup();
        destinations.retain(|destination| {
            let routes: Vec<_> =
                self.intended_routes_to(std::slice::from_ref(destination)).collect();
            KernelRoute::order_has_changed(&routes)
        });
        for Destination { prefix, .. } in destinations.iter().take(LOGGED_PREFIXES) {
            warn!(%prefix, "its next hops have another order of preference in this version: without a metric, the metric is 20");
        }
        let more = destinations.len().saturating_sub(LOGGED_PREFIXES);
        if more > 0 {
            warn!(more, "further prefixes have another order of preference among their next hops");
        }
    }
}
