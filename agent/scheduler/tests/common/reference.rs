//! Reference model: a reconciler too simple to be wrong, made of sets and one rule applied until nothing changes.
//!
//! The model has no order, no operations and no counters: only the set of values that can exist, given the intent and
//! the foreign values.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use holdfast_scheduler::{Key, Target};

use super::thing::{Thing, key, things};

/// Intent, and foreign values.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    pub intent: BTreeMap<Key, Thing>,
    pub foreign: BTreeMap<Key, Thing>,
}

/// A value that shall exist; a part only as long as one of its wholes does.
#[derive(Clone, Debug)]
struct ExpectedValue {
    thing: Thing,
    is_part: bool,
}

impl Reference {
    /// Applies a change of intent: `a =1 <b; -c`.
    pub fn apply(&mut self, change: &str) {
        for item in change.split(';').map(str::trim).filter(|item| !item.is_empty()) {
            match item.strip_prefix('-') {
                Some(name) => {
                    self.intent.remove(&key(name));
                }
                None => {
                    let thing = things(item).remove(0);
                    self.intent.insert(thing.key(), thing);
                }
            }
        }
    }

    /// Compares a system with the model.
    ///
    /// Of values that claim one identity, any may hold it; the values left out must be exactly the others, and nothing
    /// else may be missing.
    pub fn check(&self, system: &BTreeMap<Key, Thing>) -> Result<(), String> {
        let holders = holders(system)?;
        let expected = self.expected_values();
        let left_out = |(key, expected): &(&Key, &ExpectedValue)| {
            let is_held = |(identity, side): (&str, Option<&'static str>)| {
                holders.get(identity).is_some_and(|held| !held.is_shared_with(side))
            };
            !system.contains_key(*key) && expected.thing.claims().into_iter().any(is_held)
        };
        let left_out: BTreeSet<&Key> =
            expected.iter().filter(left_out).map(|(key, _)| key).collect();
        let want = self.closure(&expected, &left_out);
        let all: BTreeSet<&Key> = want.keys().chain(system.keys()).collect();
        for key in all {
            match (want.get(key), system.get(key)) {
                (Some(want), Some(have)) if want == have => {}
                (Some(want), Some(have)) => return Err(format!("`{have}` should be `{want}`")),
                (Some(want), None) => return Err(format!("`{want}` is missing")),
                (None, Some(have)) => return Err(format!("`{have}` should not be there")),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Values that can exist: the foreign ones, and repeatedly all values whose dependencies are met.
    fn closure(
        &self,
        expected: &BTreeMap<Key, ExpectedValue>,
        left_out: &BTreeSet<&Key>,
    ) -> BTreeMap<Key, Thing> {
        let mut there = self.foreign.clone();
        loop {
            let waiting: Vec<&ExpectedValue> = expected
                .iter()
                .filter(|(key, _)| !there.contains_key(*key) && !left_out.contains(*key))
                .map(|(_, expected)| expected)
                .collect();
            let come: Vec<&ExpectedValue> =
                waiting.into_iter().filter(|it| it.is_ready(&there)).collect();
            if come.is_empty() {
                break;
            }
            there.extend(come.into_iter().map(|it| (it.thing.key(), it.thing.clone())));
        }
        // Reducible values have all members that are available in the end.
        let members = |thing: &Thing| {
            if thing.is_reducible() {
                thing.with_members(|target| there.values().any(|it| it.offers(target)))
            } else {
                None
            }
        };
        let parts = there.values().filter_map(members).map(|thing| (thing.key(), thing));
        let parts: BTreeMap<Key, Thing> = parts.collect();
        there.extend(parts);
        there
    }

    /// Values of the intent and their parts, to any depth. A value that the intent names is not a part.
    fn expected_values(&self) -> BTreeMap<Key, ExpectedValue> {
        let of_intent = self.intent.iter();
        let mut all: BTreeMap<Key, ExpectedValue> = of_intent
            .map(|(key, thing)| {
                (key.clone(), ExpectedValue { thing: thing.clone(), is_part: false })
            })
            .collect();
        let mut todo: Vec<Thing> = self.intent.values().cloned().collect();
        while let Some(whole) = todo.pop() {
            for (key, thing) in whole.operation_parts() {
                if let Entry::Vacant(place) = all.entry(key) {
                    todo.push(thing.clone());
                    place.insert(ExpectedValue { thing, is_part: true });
                }
            }
        }
        all
    }
}

impl ExpectedValue {
    /// True when all dependencies are met.
    fn is_ready(&self, there: &BTreeMap<Key, Thing>) -> bool {
        let offered = |target: &Target| there.values().any(|other| other.offers(target));
        let part = self.thing.with_members(offered).filter(|_| self.thing.is_reducible());
        let needs = part.as_ref().unwrap_or(&self.thing).needs();
        let whole = self.is_part.then(|| Target::Whole(self.thing.key()));
        needs.into_iter().map(|need| need.target).chain(whole).all(|target| offered(&target))
    }
}

/// Identity that values of the system hold.
struct Held<'s> {
    /// One of the holders.
    by: &'s Key,
    side: Option<&'static str>,
}

impl Held<'_> {
    /// True when a value that claims the identity for this side holds it together with the holders.
    fn is_shared_with(&self, side: Option<&'static str>) -> bool {
        side.is_some() && side == self.side
    }
}

/// Holders of the identities; an error when two values hold one that cannot hold it together.
fn holders(system: &BTreeMap<Key, Thing>) -> Result<BTreeMap<&str, Held<'_>>, String> {
    let mut holders: BTreeMap<&str, Held<'_>> = BTreeMap::new();
    for (key, thing) in system {
        for (identity, side) in thing.claims() {
            match holders.get(identity) {
                Some(held) if held.is_shared_with(side) => {}
                Some(Held { by, .. }) => {
                    return Err(format!("{by} and {key} both hold {identity}"));
                }
                None => {
                    holders.insert(identity, Held { by: key, side });
                }
            }
        }
    }
    Ok(holders)
}
