//! Routes of other programs beside ours: what is taken over, and what wins over ours.
//!
//! An equal route of another program is adopted ([decision 008](../../../decisions/008-ownership-marks.md)), as any object that is there before
//! us. The engine finds it under the key of ours where both have the same metric. One of another metric is shown to the
//! engine under that key before the plan is made: the operation that adopts it adds ours first, and then removes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_platform::kinds::route::{self, route_text};
use holdfast_platform::transport::Event;
use holdfast_platform::values::KernelRoute;
use holdfast_platform::{BestRoutes, Destination, ForeignRoutes, RouteLookup};
use holdfast_scheduler::{Engine, Fact, Key, SharedValue};
use tracing::warn;

/// Routes of other programs as the loop knows them.
#[derive(Debug)]
pub(crate) struct RoutesOfOthers {
    /// Routes of other programs; routes of ours may take over some of them.
    known: ForeignRoutes,
    /// Keys under which the engine was shown foreign routes of another metric, to be taken over.
    shown: BTreeSet<Key>,
    lookup: RouteLookup,
}

impl RoutesOfOthers {
    pub(crate) fn new(lookup: RouteLookup) -> Self {
        Self { known: ForeignRoutes::default(), shown: BTreeSet::new(), lookup }
    }

    pub(crate) fn known(&self) -> &ForeignRoutes {
        &self.known
    }

    pub(crate) fn lookup(&self) -> RouteLookup {
        self.lookup.clone()
    }

    /// Takes in a report of the transports. Returns the destinations whose foreign routes it changes.
    pub(crate) fn note(&mut self, event: &Event) -> Vec<Destination> {
        self.known.note(event)
    }

    /// Equal routes of other programs, each under the key of the route that takes it over. A route that is applied already leaves them alone.
    pub(crate) fn facts_to_take_over<'r>(
        &mut self,
        engine: &Engine,
        routes: impl Iterator<Item = &'r KernelRoute>,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        for route in routes {
            let Some(theirs) = self.known.taken_over_by(route) else { continue };
            let key = route::key(route.table, route.prefix, route.metric);
            let [_, applied, observed] = engine.planes(&key);
            if applied.is_none() && observed.is_none() {
                let value: SharedValue = Arc::new(theirs);
                self.shown.insert(key.clone());
                facts.push(Fact { key, value: Some(value), time_ns: now_ns() });
            }
        }
        facts
    }

    /// The end of routes that were shown to be taken over, and that are gone or that no change took over.
    pub(crate) fn withdraw(&mut self, engine: &Engine) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.shown.retain(|key| {
            let [intended, applied, observed] = engine.planes(key);
            let observed = observed.filter(|_| applied.is_none()).and_then(as_route);
            if observed.is_none_or(|route| route.foreign.is_none()) {
                return false;
            }
            let ours = intended.and_then(as_route);
            let stays = ours.is_some_and(|it| self.known.taken_over_by(it).is_some());
            if !stays {
                facts.push(Fact { key: key.clone(), value: None, time_ns: now_ns() });
            }
            stays
        });
        facts
    }
}

pub(crate) fn warn_of_shadow(ours: &KernelRoute, theirs: &KernelRoute) {
    let route = route_text(ours);
    let shadowed_by = route_text(theirs);
    warn!(
        route,
        shadowed_by, "the kernel prefers another program's route, because its metric is lower"
    );
}

/// The route of another program that the kernel prefers to a route of ours, of those that it uses.
pub(crate) fn preferred_of<'b>(
    best: &'b BestRoutes,
    ours: &KernelRoute,
) -> Option<&'b KernelRoute> {
    best.get(&Destination::of(ours)).filter(|theirs| theirs.metric < ours.metric)
}

pub(crate) fn as_route(value: &SharedValue) -> Option<&KernelRoute> {
    value.as_any().downcast_ref()
}
