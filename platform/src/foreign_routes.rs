//! Routes of other programs that are watched, by destination.
//!
//! The engine knows a route by destination and metric. An equal route of another metric is found here: see
//! [`ForeignRoutes::taken_over_by`]. Pure.

use std::collections::BTreeMap;

use holdfast_scheduler::{Fact, Key, Scope, Segment};

use crate::kinds::{self, route};
use crate::transport::Event;
use crate::values::{Destination, KernelRoute};

/// Routes of other programs: by destination, then by metric.
#[derive(Clone, Debug, Default)]
pub struct ForeignRoutes(BTreeMap<Destination, BTreeMap<u32, KernelRoute>>);

impl ForeignRoutes {
    /// True when no other program has a route that is watched.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Destinations of the routes.
    pub fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.0.keys().copied()
    }

    /// Routes to a destination.
    pub fn to(&self, destination: &Destination) -> impl Iterator<Item = &KernelRoute> {
        self.0.get(destination).into_iter().flat_map(BTreeMap::values)
    }

    /// Takes in an event of the transports. Returns the destinations whose foreign routes came or went.
    pub fn note(&mut self, event: &Event) -> Vec<Destination> {
        let before = match event {
            Event::Retrieved { scope, .. } => self.forget(scope),
            Event::Observed(_) | Event::Completed(_) => Self::default(),
        };
        let mut changed = Vec::new();
        let facts: &[Fact] = match event {
            Event::Retrieved { facts, .. } => facts,
            Event::Observed(facts) => facts,
            Event::Completed(_) => &[],
        };
        for fact in facts.iter().filter(|fact| fact.key.kind() == kinds::ROUTE) {
            let value = fact.value.as_ref().and_then(|value| value.as_any().downcast_ref());
            match value.filter(|route: &&KernelRoute| route.foreign.is_some()) {
                Some(route) => {
                    let place = Destination::of(route);
                    if self.0.entry(place).or_default().insert(route.metric, route.clone()).as_ref()
                        != Some(route)
                    {
                        changed.push(place);
                    }
                }
                None if self.is_empty() => {}
                None => changed.extend(self.remove(&fact.key)),
            }
        }
        let of_before = before.0.into_keys();
        changed.extend(of_before.filter(|place| !self.0.contains_key(place)));
        changed
    }

    /// Drops the routes that a complete reading lists if they are there, and returns them.
    fn forget(&mut self, scope: &Scope) -> Self {
        let is_read = |route: &KernelRoute| match scope {
            Scope::Everything => true,
            Scope::Kinds(read) => read.contains(&kinds::ROUTE),
            Scope::Under(prefix) => {
                route::key(route.table, route.prefix, route.metric).starts_with(prefix)
            }
            Scope::On { kind, object } => *kind == kinds::ROUTE && route::is_on_link(route, object),
        };
        let mut dropped = Self::default();
        for (place, routes) in &mut self.0 {
            let gone: BTreeMap<u32, KernelRoute> =
                routes.extract_if(.., |_, route| is_read(route)).collect();
            if !gone.is_empty() {
                dropped.0.insert(*place, gone);
            }
        }
        self.0.retain(|_, routes| !routes.is_empty());
        dropped
    }

    fn remove(&mut self, key: &Key) -> Option<Destination> {
        let (place, metric) = place_of(key)?;
        let routes = self.0.get_mut(&place)?;
        routes.remove(&metric)?;
        if routes.is_empty() {
            self.0.remove(&place);
        }
        Some(place)
    }

    /// The best equal route of another metric that a route of ours takes over: it has the same next hops, and a person
    /// or an installer may have made it. It is returned under the key of ours, as the object that is to be adopted.
    pub fn taken_over_by(&self, ours: &KernelRoute) -> Option<KernelRoute> {
        let others = self.0.get(&Destination::of(ours))?;
        if others.contains_key(&ours.metric) {
            return None; // the engine sees it
        }
        let equal = others.values().find(|other| route::is_equal_and_adoptable(ours, other))?;
        Some(KernelRoute { metric: ours.metric, ..equal.clone() })
    }

    /// The route of another program that the kernel prefers to a route of ours, because its metric is lower.
    pub fn preferred_to(&self, ours: &KernelRoute) -> Option<&KernelRoute> {
        let others = self.0.get(&Destination::of(ours))?;
        others.range(..ours.metric).next().map(|(_, route)| route)
    }

    /// True when another program has a route to the destination of a key.
    pub fn has_destination_of(&self, key: &Key) -> bool {
        !self.is_empty() && place_of(key).is_some_and(|(place, _)| self.0.contains_key(&place))
    }
}

/// Destination and metric of the key of a route.
fn place_of(key: &Key) -> Option<(Destination, u32)> {
    let mut segments = (key.kind() == kinds::ROUTE).then(|| key.segments())?;
    let number = |segment| match segment {
        Some(Segment::Int(number)) => u32::try_from(number).ok(),
        _ => None,
    };
    let table = number(segments.next())?;
    let Some(Segment::Prefix(prefix)) = segments.next() else { return None };
    Some((Destination { table, prefix }, number(segments.next())?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_scheduler::SharedValue;

    use super::*;
    use crate::values::{ForeignRoute, Hop, MAIN_TABLE, RouteTarget};

    fn route(metric: u32, gateway: &str, protocol: Option<u8>) -> KernelRoute {
        let hop = Hop { gateway: Some(gateway.parse().unwrap()), link: Some("eth0".into()) };
        KernelRoute {
            table: MAIN_TABLE,
            prefix: "0.0.0.0/0".parse().unwrap(),
            metric,
            target: RouteTarget::Hops(vec![hop]),
            source: None,
            foreign: protocol
                .map(|protocol| Box::new(ForeignRoute { protocol, message: Vec::new() })),
            unusable: None,
        }
    }

    fn seen(routes: &[KernelRoute]) -> Event {
        Event::Observed(routes.iter().map(|route| fact(route, true)).collect())
    }

    fn fact(route: &KernelRoute, present: bool) -> Fact {
        let key = route::key(route.table, route.prefix, route.metric);
        let value = present.then(|| Arc::new(route.clone()) as SharedValue);
        Fact { key, value, time_ns: 0 }
    }

    #[test]
    fn an_equal_route_of_a_person_is_taken_over_whatever_its_metric() {
        const BOOT: u8 = 3;
        const ZEBRA: u8 = 11;
        let check = |theirs: &[KernelRoute], taken: bool, preferred: bool| {
            let mut foreign = ForeignRoutes::default();
            foreign.note(&seen(theirs));
            let ours = route(20, "10.0.0.254", None);
            let found = foreign.taken_over_by(&ours);
            assert_eq!(found.is_some(), taken, "{theirs:?}");
            assert!(found.is_none_or(|found| found.metric == ours.metric));
            assert_eq!(foreign.preferred_to(&ours).is_some(), preferred, "{theirs:?}");
        };
        check(&[], false, false);
        check(&[route(0, "10.0.0.254", Some(BOOT))], true, true);
        check(&[route(100, "10.0.0.254", Some(BOOT))], true, false);
        check(&[route(0, "10.0.0.253", Some(BOOT))], false, true);
        check(&[route(0, "10.0.0.254", Some(ZEBRA))], false, true);
        check(&[route(20, "10.0.0.254", Some(BOOT))], false, false);
        check(&[route(20, "10.0.0.254", None)], false, false);
    }

    #[test]
    fn routes_that_go_are_forgotten() {
        let theirs = route(0, "10.0.0.254", Some(3));
        let place = Destination::of(&theirs);
        let on =
            |link: &str| Scope::On { kind: kinds::ROUTE, object: crate::kinds::link::key(link) };
        let nothing = |scope| Event::Retrieved { scope, facts: Vec::new().into() };
        let check = |event: &Event, goes: bool| {
            let mut foreign = ForeignRoutes::default();
            assert_eq!(foreign.note(&seen(std::slice::from_ref(&theirs))), [place]);
            assert_eq!(foreign.note(&seen(std::slice::from_ref(&theirs))), [], "as before");
            let want: &[_] = if goes { &[place] } else { &[] };
            assert_eq!(foreign.note(event), want, "{event:?}");
            assert_eq!(foreign.is_empty(), goes, "{event:?}");
        };
        check(&Event::Observed(vec![fact(&theirs, false)]), true);
        check(&seen(&[route(0, "10.0.0.254", None)]), true);
        check(&nothing(Scope::Everything), true);
        check(&nothing(Scope::Kinds(vec![kinds::ROUTE])), true);
        check(&nothing(Scope::Kinds(vec![kinds::LINK])), false);
        check(&nothing(on("eth0")), true);
        check(&nothing(on("eth1")), false);
    }
}
