//! Complete readings of the system, or of a part of it, while they are taken in.

use std::ops::{Deref, Range};

use crate::descriptor::Registry;
use crate::graph::{Node, NodeIdx};
use crate::key::{FixedMap, Key, KindId, sort_by_keys};
use crate::operation::Fact;

/// Slots of the graph that are looked through in the time that one item takes.
pub(crate) const SLOTS_PER_ITEM: usize = 8;

/// Part of the system that a complete set of facts covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Kinds(Vec<KindId>),
    Under(Key),
    /// Values of a kind that are on an object, as [`Descriptor::is_on`](crate::Descriptor::is_on) says of the observed ones.
    On {
        kind: KindId,
        object: Key,
    },
}

impl Scope {
    pub(crate) fn holds(&self, node: &Node, registry: &Registry) -> bool {
        let key = &node.key;
        match self {
            Self::Everything => true,
            Self::Kinds(kinds) => kinds.contains(&key.kind()),
            Self::Under(prefix) => key.starts_with(prefix),
            Self::On { kind, object } if key.kind() == *kind => {
                let descriptor = registry.descriptor(*kind);
                let observed = node.observed.as_deref();
                descriptor.zip(observed).is_some_and(|(it, value)| it.is_on(value, object))
            }
            Self::On { .. } => false,
        }
    }
}

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
    pub(crate) scope: Scope,
    /// Facts that are taken in have no value any more.
    pub(crate) facts: SortedFacts,
    /// Nodes of the facts that are taken in.
    pub(crate) named: FixedMap<NodeIdx, ()>,
    /// Keys that later events have told of.
    pub(crate) ahead: FixedMap<Key, ()>,
    /// Slots of the graph that are left to be looked through for values in the scope, once all facts are taken in.
    pub(crate) unlisted: Option<Range<u32>>,
    /// Values in the scope: those without a fact, and the others.
    pub(crate) unnamed: Vec<NodeIdx>,
    pub(crate) others: Vec<NodeIdx>,
    /// Items that are done.
    pub(crate) done: usize,
}

/// Next item of a reading.
pub(crate) enum Item {
    Fact(usize),
    /// The values in the scope are to be listed.
    List,
    Unnamed(NodeIdx),
    Check(NodeIdx),
}

impl Reading {
    pub(crate) fn new(scope: Scope, facts: SortedFacts) -> Self {
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
    pub(crate) fn next(&mut self, slots: u32) -> Option<Item> {
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
    pub(crate) fn list_slots(&mut self, slots: u32) -> Range<u32> {
        self.unlisted.get_or_insert(0..slots).clone()
    }

    /// Takes a fact out to be taken in.
    pub(crate) fn take_fact(&mut self, at: usize) -> Fact {
        let fact = &mut self.facts.0[at];
        Fact { key: fact.key.clone(), value: fact.value.take(), time_ns: fact.time_ns }
    }

    /// Takes the fact of a key out, if it is not taken in yet.
    pub(crate) fn take_fact_of(&mut self, key: &Key) -> Option<Fact> {
        let at = self.facts.binary_search_by(|fact| fact.key.cmp(key)).ok()?;
        (at >= self.done).then(|| self.take_fact(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
