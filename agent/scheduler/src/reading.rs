//! Complete readings of the system, or of a part of it: only differences become operations.
//!
//! To take in a reading of a hundred thousand objects takes longer than an event may wait. So it is done in portions: the
//! first when the reading comes, the others by [`Engine::due`], between events.
//!
//! ```text
//! items of a reading:  facts | list of values | values in its scope     | check of all values
//!                            | in its scope   | that it does not name   | in its scope
//!                      ===== portion ====== portion ===== ...
//!                            ^  an event on a key: what the reading says of that key is taken in first
//! ```
//!
//! *Invariant:* an event that comes meanwhile is judged as one that comes after the whole reading.
//!
//! * A fact, or the answer to an operation, finds what the reading says of its keys taken in.
//! * Nothing is planned from the half of a reading: no transaction begins, and none that failed is undone.
//!   Transactions in flight go on.
//! * Values that lost a dependency are looked at in the end: the rest of the reading may have another provider.
//! * While a plan is being taken over, a reading waits.

use std::ops::{Deref, Range};

use crate::engine::{Engine, EngineOutput, Scope};
use crate::graph::NodeIdx;
use crate::key::{FixedMap, Key, sort_by_keys};
use crate::operation::{Fact, Now};
use crate::overlay::to_u32;
use crate::transaction::drop_beside;

/// Slots of the graph that are looked through in the time that one item takes.
const SLOTS_PER_ITEM: usize = 8;

/// Facts ascending by key, one for each. Make them where it delays no event: of several facts of a key, the last one counts.
#[derive(Clone, Debug, Default)]
pub struct SortedFacts(Vec<Fact>);

impl From<Vec<Fact>> for SortedFacts {
    fn from(mut facts: Vec<Fact>) -> Self {
        sort_by_keys(&mut facts, |fact| &fact.key);
        facts.dedup_by(|later, first| {
            let is_same = later.key == first.key;
            if is_same {
                std::mem::swap(later, first);
            }
            is_same
        });
        Self(facts)
    }
}

impl Deref for SortedFacts {
    type Target = [Fact];

    fn deref(&self) -> &[Fact] {
        &self.0
    }
}

impl IntoIterator for SortedFacts {
    type Item = Fact;
    type IntoIter = std::vec::IntoIter<Fact>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A complete set of facts that is being taken in.
#[derive(Debug)]
pub(crate) struct Reading {
    scope: Scope,
    /// Facts that are taken in have no value any more.
    facts: SortedFacts,
    /// Nodes of the facts that are taken in.
    named: FixedMap<NodeIdx, ()>,
    /// Keys that later events have told of.
    ahead: FixedMap<Key, ()>,
    /// Slots of the graph that are left to be looked through for values in the scope, once all facts are taken in.
    unlisted: Option<Range<u32>>,
    /// Values in the scope: those without a fact, and the others.
    unnamed: Vec<NodeIdx>,
    others: Vec<NodeIdx>,
    /// Items that are done.
    done: usize,
}

/// Next item of a reading.
enum Item {
    Fact(usize),
    /// The values in the scope are to be listed.
    List,
    Unnamed(NodeIdx),
    Check(NodeIdx),
}

impl Reading {
    fn new(scope: Scope, facts: SortedFacts) -> Self {
        let mut named: FixedMap<NodeIdx, ()> = FixedMap::default();
        named.reserve(facts.len());
        Self {
            scope,
            facts,
            named,
            ahead: FixedMap::default(),
            unlisted: None,
            unnamed: Vec::new(),
            others: Vec::new(),
            done: 0,
        }
    }

    /// The next item; `slots` are those of the graph.
    fn next(&mut self, slots: u32) -> Option<Item> {
        let at = self.done;
        if at < self.facts.len() {
            self.done += 1;
            return Some(Item::Fact(at));
        }
        if !self.list_slots(slots).is_empty() {
            return Some(Item::List);
        }
        self.done += 1;
        let at = at - self.facts.len();
        if let Some(&idx) = self.unnamed.get(at) {
            return Some(Item::Unnamed(idx));
        }
        let mut values = self.unnamed.iter().chain(&self.others);
        values.nth(at - self.unnamed.len()).copied().map(Item::Check)
    }

    /// Slots that are to be looked through. Values that are added later belong to later events.
    fn list_slots(&mut self, slots: u32) -> Range<u32> {
        self.unlisted.get_or_insert(0..slots).clone()
    }

    /// Takes a fact out to be taken in.
    fn take_fact(&mut self, at: usize) -> Fact {
        let fact = &mut self.facts.0[at];
        Fact { key: fact.key.clone(), value: fact.value.take(), time_ns: fact.time_ns }
    }

    /// Takes the fact of a key out, if it is not taken in yet.
    fn take_fact_of(&mut self, key: &Key) -> Option<Fact> {
        let at = self.facts.binary_search_by(|fact| fact.key.cmp(key)).ok()?;
        (at >= self.done).then(|| self.take_fact(at))
    }
}

impl Engine {
    /// Begins to take in a complete set of facts, and does the first portion: keys in `scope` without a fact are absent, and
    /// every difference is planned for.
    pub(crate) fn begin_reading(
        &mut self,
        scope: Scope,
        facts: SortedFacts,
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
        let mut left = items;
        while left > 0 {
            let Some(item) = reading.next(self.graph.slots()) else {
                // Values that need what has come or gone are looked at in the end, too.
                self.graph.update_watchers(left);
                if self.graph.watcher_updates.is_empty() {
                    return self.end_reading(reading, step);
                }
                break;
            };
            let cost = match item {
                Item::List => self.list_values(&mut reading, left),
                _ => 1,
            };
            left -= cost;
            self.graph.counters.read_in += cost as u64;
            match item {
                Item::Fact(at) => {
                    let fact = reading.take_fact(at);
                    if !reading.ahead.contains_key(&fact.key) {
                        self.take_in(fact, &mut reading, now, step);
                    }
                }
                Item::List => {}
                Item::Unnamed(idx) if reading.ahead.contains_key(&self.graph.node(idx).key) => {}
                Item::Unnamed(idx) => self.take_in_absence(idx, now, step),
                Item::Check(idx) if self.graph.is_out_of_place(idx) => self.graph.mark_dirty(idx),
                Item::Check(_) => {}
            }
        }
        self.reading = Some(reading);
    }

    /// Lists values in the scope of a reading for as long as some items take. Returns how many.
    fn list_values(&self, reading: &mut Reading, items: usize) -> usize {
        let registry = &self.graph.registry;
        let left = reading.list_slots(self.graph.slots());
        let count = left.len().min(items.saturating_mul(SLOTS_PER_ITEM));
        let end = left.start + to_u32(count);
        reading.unlisted = Some(end..left.end);
        for (idx, node) in self.graph.nodes_in(left.start..end) {
            if reading.scope.holds(node, registry) {
                let is_named = reading.named.contains_key(&idx);
                let list = if is_named { &mut reading.others } else { &mut reading.unnamed };
                list.push(idx);
            }
        }
        count.div_ceil(SLOTS_PER_ITEM)
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
            match reading.take_fact_of(key) {
                Some(fact) => self.take_in(fact, &mut reading, now, step),
                None => absent.into_iter().for_each(|idx| self.take_in_absence(idx, now, step)),
            }
        }
        self.reading = Some(reading);
    }

    fn end_reading(&mut self, reading: Box<Reading>, step: &mut EngineOutput) {
        let lost = std::mem::take(&mut self.graph.lost_dependency).into_iter();
        for idx in lost.chain(std::mem::take(&mut self.graph.lost_by_us)) {
            if self.graph.is_out_of_place(idx) {
                self.graph.mark_dirty(idx);
            }
        }
        step.is_complete |= reading.scope == Scope::Everything;
        drop_beside(reading.done, reading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KindId;

    #[test]
    fn of_several_facts_of_a_key_the_last_one_counts() {
        let fact = |number: u32, time_ns| {
            let key = Key::of(KindId(1)).u32(number);
            Fact { key, value: None, time_ns }
        };
        let facts = [fact(3, 1), fact(1, 2), fact(3, 3), fact(2, 4), fact(1, 5), fact(3, 6)];
        let sorted = SortedFacts::from(facts.to_vec());
        let found: Vec<_> = sorted.iter().map(|fact| (fact.key.clone(), fact.time_ns)).collect();
        let expected = [fact(1, 5), fact(2, 4), fact(3, 6)];
        assert_eq!(found, expected.map(|fact| (fact.key, fact.time_ns)));
    }
}
