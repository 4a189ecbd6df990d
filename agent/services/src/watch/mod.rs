//! Watch trie of the service instances. It holds what each instance read in its last walk, and the values that it got.
//! When a new revision gives other values, the trie finds the instances that have to be walked again.
//!
//! ```text
//! old and new tree --trie of all patterns--> reads whose leaves differ --answers--> instances to be walked
//! ```
//!
//! The patterns of all reads of one plane and model hang in one trie of schema nodes and keys. The trie is
//! walked together with two versions of a tree. The walk skips every part where both versions share their memory.
//! So the cost of a revision depends on how many watched nodes changed, and not on the number of instances.

mod due;
mod trie;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::services::{Plane, Read, Reads};
use holdfast_config::{LeafMeta, ServiceTag, Tree, Value};

pub use self::due::{DueInstances, DueRound};
use self::trie::{Comparison, Trie};

/// Answer to a read: the values of the leaves that exist, in the order of their paths.
pub type Answer = Vec<Value>;

/// Reads of all instances, with their last answers.
#[derive(Debug, Default)]
pub struct Watches {
    tries: BTreeMap<(Plane, Origin), Trie<Arc<Read>>>,
    records: BTreeMap<Arc<Read>, Record>,
    instances: BTreeMap<ServiceTag, BTreeMap<Arc<Read>, Places>>,
}

/// Places in the package that ask.
pub type Places = BTreeSet<Arc<str>>;

/// One read, for all instances that have it.
#[derive(Debug)]
struct Record {
    answer: Answer,
    /// Number of times at which another answer woke each instance.
    fired: BTreeMap<ServiceTag, u64>,
}

/// Reads whose answers may differ.
#[derive(Debug, Default)]
pub struct TouchedReads {
    reads: BTreeSet<Arc<Read>>,
    /// Number of nodes and entries that were looked at to find them.
    pub visits: usize,
}

/// Another answer to a read, and the instances that it wakes, each with the places of its package that ask.
#[derive(Debug)]
pub struct AnswerChange {
    pub read: Arc<Read>,
    pub before: Answer,
    pub after: Answer,
    pub woken: BTreeMap<ServiceTag, Places>,
}

/// One read of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'w> {
    pub read: &'w Read,
    /// Places in the package that ask.
    pub places: &'w BTreeSet<Arc<str>>,
    pub answer: &'w Answer,
    /// Number of times at which another answer woke the instance.
    pub fired: u64,
}

impl Watches {
    /// Replaces what an instance waits for. Of reads that stay, answer and count stay.
    pub fn replace(&mut self, tag: &ServiceTag, reads: Reads, answer: impl Fn(&Read) -> Answer) {
        let reads = reads.into_iter().map(|(read, places)| (Arc::new(read), places));
        let reads: BTreeMap<Arc<Read>, Places> = reads.collect();
        let before = self.instances.remove(tag).unwrap_or_default();
        for read in before.keys().filter(|read| !reads.contains_key(*read)) {
            self.forget(tag, read);
        }
        for read in reads.keys().filter(|read| !before.contains_key(*read)) {
            self.note(tag, read, &answer);
        }
        if !reads.is_empty() {
            self.instances.insert(tag.clone(), reads);
        }
    }

    /// Replaces what these places of an instance wait for. Watches of others stay.
    pub fn replace_at(
        &mut self,
        tag: &ServiceTag,
        places: &Places,
        reads: Reads,
        answer: impl Fn(&Read) -> Answer,
    ) {
        let known = self.instances.get(tag).into_iter().flatten();
        let others = known.map(|(read, at)| ((**read).clone(), at - places));
        let mut all: Reads = others.filter(|(_, at)| !at.is_empty()).collect();
        for (read, at) in reads {
            all.entry(read).or_default().extend(at);
        }
        self.replace(tag, all, answer);
    }

    /// Removes what an instance waits for.
    pub fn remove(&mut self, tag: &ServiceTag) {
        for read in self.instances.remove(tag).unwrap_or_default().keys() {
            self.forget(tag, read);
        }
    }

    /// Reads of an instance, in a fixed order.
    pub fn of_instance(&self, tag: &ServiceTag) -> impl Iterator<Item = Wait<'_>> {
        let reads = self.instances.get(tag).into_iter().flatten();
        reads.filter_map(move |(read, places)| {
            let record = self.records.get(read)?;
            let fired = record.fired.get(tag).copied().unwrap_or_default();
            Some(Wait { read, places, answer: &record.answer, fired })
        })
    }

    /// Finds the reads of leaves that differ between two versions of a tree.
    pub fn compare<M: LeafMeta>(
        &self,
        plane: Plane,
        origin: Origin,
        (old, new): (&Tree<M>, &Tree<M>),
        touched: &mut TouchedReads,
    ) {
        let Some(trie) = self.tries.get(&(plane, origin)) else { return };
        let mut comparison = Comparison { changed: &mut touched.reads, visits: 0 };
        comparison.branches(trie, Some(old.root()), Some(new.root()));
        touched.visits += comparison.visits;
    }

    /// Adds the reads of the readiness of an instance.
    pub fn touch_service(&self, tag: &ServiceTag, touched: &mut TouchedReads) {
        let read = Read::Service(tag.clone());
        let found = self.records.get_key_value(&read);
        touched.reads.extend(found.map(|(read, _)| Arc::clone(read)));
    }

    /// Answers these reads anew, and returns those whose answer is another one.
    pub fn wake(
        &mut self,
        touched: &TouchedReads,
        answer: impl Fn(&Read) -> Answer,
    ) -> Vec<AnswerChange> {
        let mut changes = Vec::new();
        for read in &touched.reads {
            let Some(record) = self.records.get_mut(read) else { continue };
            let after = answer(read);
            if after == record.answer {
                continue;
            }
            let before = std::mem::replace(&mut record.answer, after.clone());
            record.fired.values_mut().for_each(|fired| *fired += 1);
            let places = |tag: &ServiceTag| {
                let places = self.instances.get(tag).and_then(|reads| reads.get(read));
                (tag.clone(), places.cloned().unwrap_or_default())
            };
            let woken = record.fired.keys().map(places).collect();
            changes.push(AnswerChange { read: Arc::clone(read), before, after, woken });
        }
        changes
    }

    fn note(&mut self, tag: &ServiceTag, read: &Arc<Read>, answer: impl Fn(&Read) -> Answer) {
        if let Some(record) = self.records.get_mut(read) {
            record.fired.insert(tag.clone(), 0);
            return;
        }
        if let Read::Leaves(leaves) = &**read {
            let trie = self.tries.entry((leaves.plane, leaves.origin)).or_default();
            leaves.patterns.iter().for_each(|it| trie.insert(&it.0, Arc::clone(read)));
        }
        let fired = BTreeMap::from([(tag.clone(), 0)]);
        self.records.insert(Arc::clone(read), Record { answer: answer(read), fired });
    }

    fn forget(&mut self, tag: &ServiceTag, read: &Arc<Read>) {
        let Some(record) = self.records.get_mut(read) else { return };
        record.fired.remove(tag);
        if !record.fired.is_empty() {
            return;
        }
        self.records.remove(read);
        if let Read::Leaves(leaves) = &**read
            && let Some(trie) = self.tries.get_mut(&(leaves.plane, leaves.origin))
        {
            leaves.patterns.iter().for_each(|it| trie.remove(&it.0, read));
        }
    }
}
