//! Complete readings of the system, or of a part of it: only differences become operations.
//!
//! To take in a reading of a hundred thousand objects takes longer than an event may wait. So it is done in portions: the
//! first when the reading comes, the others by [`Engine::due`], between events.
//!
//! ```text
//! items of a reading:  facts | values in its scope that it does not name | check of all values in its scope
//!                      ===== portion ====== portion ===== ...
//!                            ^  an event on a key: what the reading says of that key is taken in first
//! ```
//!
//! *Invariant:* an event that comes meanwhile is judged as one that comes after the whole reading.
//!
//! * A fact, or the answer to an operation, finds what the reading says of its keys taken in.
//! * Nothing is planned from the half of a reading: no transaction begins, and none that failed is undone. Those in flight
//!   go on.
//! * Values that lost a dependency are looked at in the end: the rest of the reading may have another provider.
//! * While a plan is being taken over, a reading waits.

use crate::engine::{Engine, EngineOutput, Scope};
use crate::graph::NodeIdx;
use crate::key::{FixedMap, Key};
use crate::operation::{Fact, Now};

/// A complete set of facts that is being taken in.
#[derive(Debug)]
pub(crate) struct Reading {
    scope: Scope,
    facts: Vec<Option<Fact>>,
    /// Nodes of the facts that are taken in.
    named: FixedMap<NodeIdx, ()>,
    /// Places of the facts that are left, made for the first event that comes meanwhile.
    places: Option<FixedMap<Key, usize>>,
    /// Keys that later events have told of.
    ahead: FixedMap<Key, ()>,
    /// Values in the scope, once all facts are taken in: those without a fact first.
    values: Option<Vec<NodeIdx>>,
    /// Number of values without a fact.
    unnamed: usize,
    /// Items that are done.
    done: usize,
}

/// An item of a reading.
enum Item {
    Fact(usize),
    Unnamed(NodeIdx),
    Check(NodeIdx),
}

impl Reading {
    fn new(scope: Scope, facts: Vec<Fact>) -> Self {
        let mut named: FixedMap<NodeIdx, ()> = FixedMap::default();
        named.reserve(facts.len());
        Self {
            scope,
            facts: facts.into_iter().map(Some).collect(),
            named,
            places: None,
            ahead: FixedMap::default(),
            values: None,
            unnamed: 0,
            done: 0,
        }
    }

    /// Takes the latest fact of a key that is not taken in yet.
    fn take_fact(&mut self, key: &Key) -> Option<Fact> {
        let Self { facts, places, .. } = self;
        let places = places.get_or_insert_with(|| {
            let left = facts.iter().enumerate();
            left.filter_map(|(at, fact)| Some((fact.as_ref()?.key.clone(), at))).collect()
        });
        facts[places.remove(key)?].take()
    }
}

impl Engine {
    /// Begins to take in a complete set of facts, and does the first portion: keys in `scope` without a fact are absent, and
    /// every difference is planned for.
    pub(crate) fn begin_reading(
        &mut self,
        scope: Scope,
        facts: Vec<Fact>,
        now: Now,
        step: &mut EngineOutput,
    ) {
        self.read_portion(usize::MAX, now, step); // the one before
        self.reading = Some(Box::new(Reading::new(scope, facts)));
        self.continue_reading(now, step);
    }

    /// Does the next portion of the reading that is under way, if there is one.
    pub(crate) fn continue_reading(&mut self, now: Now, step: &mut EngineOutput) {
        if self.running.in_take_over().is_none() {
            self.read_portion(self.portion, now, step);
        }
    }

    fn read_portion(&mut self, items: usize, now: Now, step: &mut EngineOutput) {
        let Some(mut reading) = self.reading.take() else { return };
        for _ in 0..items {
            let Some(item) = self.next_item(&mut reading) else {
                return self.end_reading(&reading, step);
            };
            self.graph.counters.read_in += 1;
            match item {
                Item::Fact(at) => {
                    let fact = reading.facts[at].take();
                    let fact = fact.filter(|fact| !reading.ahead.contains_key(&fact.key));
                    fact.into_iter().for_each(|it| self.take_in(it, &mut reading, now, step));
                }
                Item::Unnamed(idx) if reading.ahead.contains_key(&self.graph.node(idx).key) => {}
                Item::Unnamed(idx) => self.take_in_absence(idx, now, step),
                Item::Check(idx) if self.graph.is_out_of_place(idx) => self.graph.mark_dirty(idx),
                Item::Check(_) => {}
            }
        }
        self.reading = Some(reading);
    }

    fn next_item(&self, reading: &mut Reading) -> Option<Item> {
        let at = reading.done;
        reading.done += 1;
        let Some(at) = at.checked_sub(reading.facts.len()) else { return Some(Item::Fact(at)) };
        if reading.values.is_none() {
            let (mut values, named) = self.values_in(reading);
            reading.unnamed = values.len();
            values.extend(named);
            reading.values = Some(values);
        }
        let values = reading.values.as_ref()?;
        match at.checked_sub(reading.unnamed) {
            None => Some(Item::Unnamed(values[at])),
            Some(at) => values.get(at).copied().map(Item::Check),
        }
    }

    /// Values in the scope of a reading: those without a fact, and the others.
    fn values_in(&self, reading: &Reading) -> (Vec<NodeIdx>, Vec<NodeIdx>) {
        let registry = &self.graph.registry;
        let nodes = self.graph.nodes().filter(|(_, node)| reading.scope.holds(node, registry));
        nodes.map(|(idx, _)| idx).partition(|idx| !reading.named.contains_key(idx))
    }

    fn take_in(&mut self, fact: Fact, reading: &mut Reading, now: Now, step: &mut EngineOutput) {
        let key = fact.key.clone();
        self.observe(fact, now, true, step);
        reading.named.extend(self.graph.find(&key).map(|idx| (idx, ())));
    }

    /// Takes in that a value is not there.
    fn take_in_absence(&mut self, idx: NodeIdx, now: Now, step: &mut EngineOutput) {
        if self.running.in_take_over().is_some() {
            self.take_over_key(&self.graph.node(idx).key.clone(), step);
        }
        self.end_operation_ahead(idx, step);
        let node = self.graph.node(idx);
        let descriptor = self.graph.registry.descriptor(node.key.kind());
        if !descriptor.is_some_and(|descriptor| descriptor.observable()) {
            return;
        }
        match node.running_op() {
            Some(op) => {
                self.graph.set_observed(idx, None);
                self.try_verify(op, now, step);
            }
            None => self.record_fact(idx, None, now, true, step),
        }
    }

    /// Takes in what the reading that is under way says of a key, before an event on that key.
    pub(crate) fn read_ahead(&mut self, key: &Key, now: Now, step: &mut EngineOutput) {
        let Some(mut reading) = self.reading.take() else { return };
        if reading.ahead.insert(key.clone(), ()).is_none() {
            let idx = self.graph.find(key);
            let is_named = idx.is_some_and(|idx| reading.named.contains_key(&idx));
            let is_unnamed = |idx: &NodeIdx| {
                !is_named && reading.scope.holds(self.graph.node(*idx), &self.graph.registry)
            };
            let absent = idx.filter(is_unnamed);
            match reading.take_fact(key) {
                Some(fact) => self.take_in(fact, &mut reading, now, step),
                None => absent.into_iter().for_each(|idx| self.take_in_absence(idx, now, step)),
            }
        }
        self.reading = Some(reading);
    }

    fn end_reading(&mut self, reading: &Reading, step: &mut EngineOutput) {
        for idx in std::mem::take(&mut self.graph.lost_dependency) {
            if self.graph.is_out_of_place(idx) {
                self.graph.mark_dirty(idx);
            }
        }
        step.is_complete |= reading.scope == Scope::Everything;
    }
}
