//! Trie of the patterns of leaves that somebody watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::tree::ListEntry;
use holdfast_config::{
    Branch, Child, KeyPattern, Keys, LeafMeta, List, NodeId, PatternStep, Value,
};

/// A place in the schema, or a list entry, with what is watched at it and below.
#[derive(Debug)]
pub(super) struct Trie<W> {
    /// Watchers of the leaf at this place.
    watchers: BTreeSet<W>,
    children: BTreeMap<NodeId, Trie<W>>,
    /// Entries of a list that are watched by their keys.
    entries: BTreeMap<Keys, Trie<W>>,
    /// Entries of a list that are watched by patterns with an open key. Each is compared with every entry that differs.
    patterns: BTreeMap<KeyPattern, Trie<W>>,
}

impl<W> Default for Trie<W> {
    fn default() -> Self {
        Self {
            watchers: BTreeSet::new(),
            children: BTreeMap::new(),
            entries: BTreeMap::new(),
            patterns: BTreeMap::new(),
        }
    }
}

impl<W: Ord + Clone> Trie<W> {
    pub(super) fn is_empty(&self) -> bool {
        let is_unwatched = self.watchers.is_empty() && self.children.is_empty();
        is_unwatched && self.entries.is_empty() && self.patterns.is_empty()
    }

    /// Adds a watcher of the leaves at the end of these steps.
    pub(super) fn insert(&mut self, steps: &[PatternStep], watcher: W) {
        let Some((step, rest)) = steps.split_first() else {
            self.watchers.insert(watcher);
            return;
        };
        let child = self.children.entry(step.node).or_default();
        let below = match &step.keys {
            None => child,
            Some(pattern) => match pattern.concrete() {
                Some(keys) => child.entries.entry(keys).or_default(),
                None => child.patterns.entry(pattern.clone()).or_default(),
            },
        };
        below.insert(rest, watcher);
    }

    /// Removes a watcher from the end of these steps, and what nobody watches any more.
    pub(super) fn remove(&mut self, steps: &[PatternStep], watcher: &W) {
        let Some((step, rest)) = steps.split_first() else {
            self.watchers.remove(watcher);
            return;
        };
        prune(&mut self.children, &step.node, |child| match &step.keys {
            None => child.remove(rest, watcher),
            Some(pattern) => match pattern.concrete() {
                Some(keys) => prune(&mut child.entries, &keys, |it| it.remove(rest, watcher)),
                None => prune(&mut child.patterns, pattern, |it| it.remove(rest, watcher)),
            },
        });
    }
}

/// Changes the part of a trie under a key, and removes it when nothing is watched there any more.
fn prune<K: Ord, W: Ord + Clone>(
    parts: &mut BTreeMap<K, Trie<W>>,
    key: &K,
    change: impl FnOnce(&mut Trie<W>),
) {
    let Some(part) = parts.get_mut(key) else { return };
    change(part);
    if part.is_empty() {
        parts.remove(key);
    }
}

/// Walk of a trie beside two versions of a tree, cut wherever both are the same memory.
#[derive(Debug)]
pub(super) struct Comparison<'c, W> {
    /// Watchers of leaves whose values differ.
    pub(super) changed: &'c mut BTreeSet<W>,
    /// Number of nodes and entries that were looked at.
    pub(super) visits: usize,
}

type Optional<'b, M> = Option<&'b Arc<Branch<M>>>;

impl<W: Ord + Clone> Comparison<'_, W> {
    pub(super) fn branches<M: LeafMeta>(
        &mut self,
        trie: &Trie<W>,
        old: Optional<'_, M>,
        new: Optional<'_, M>,
    ) {
        match (old, new) {
            (None, None) => return,
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => return,
            _ => {}
        }
        for (node, watched) in &trie.children {
            self.visits += 1;
            let [old, new] = [old, new].map(|branch| branch.and_then(|it| it.child(*node)));
            self.nodes(watched, old, new);
        }
    }

    fn nodes<M: LeafMeta>(
        &mut self,
        trie: &Trie<W>,
        old: Option<&Child<M>>,
        new: Option<&Child<M>>,
    ) {
        match old.or(new) {
            Some(Child::Leaf(_)) if value(old) != value(new) => {
                self.changed.extend(trie.watchers.iter().cloned());
            }
            Some(Child::Container(_)) => self.branches(trie, container(old), container(new)),
            Some(Child::List(_)) => {
                let empty = List::default();
                let [old, new] = [old, new].map(|it| list(it).unwrap_or(&empty));
                self.lists(trie, old, new);
            }
            Some(Child::Leaf(_)) | None => {}
        }
    }

    fn lists<M: LeafMeta>(&mut self, trie: &Trie<W>, old: &List<M>, new: &List<M>) {
        if old.is_same(new) {
            return;
        }
        if trie.patterns.is_empty() {
            return self.watched_entries(trie, old, new);
        }
        for difference in List::differences(old, new) {
            self.visits += 1;
            let patterns = trie.patterns.iter().filter(|(it, _)| it.matches(difference.keys));
            let watched = patterns.map(|(_, watched)| watched);
            for watched in watched.chain(trie.entries.get(difference.keys)) {
                self.entries::<M>(watched, difference.old, difference.new);
            }
        }
    }

    /// Compares the watched entries that differ. They are looked for among those that differ and among those that are
    /// watched at the same time, so that this takes as long as the shorter of both.
    fn watched_entries<M: LeafMeta>(&mut self, trie: &Trie<W>, old: &List<M>, new: &List<M>) {
        let mut differences = List::differences(old, new);
        let mut watched = trie.entries.iter();
        let mut by_difference = Vec::new();
        let mut by_watch = Vec::new();
        let found = loop {
            let Some(difference) = differences.next() else { break by_difference };
            self.visits += 1;
            if let Some(trie) = trie.entries.get(difference.keys) {
                by_difference.push((trie, difference.old, difference.new));
            }
            let Some((keys, trie)) = watched.next() else { break by_watch };
            self.visits += 1;
            let old = old.get(keys);
            let new = new.get(keys);
            let is_same = match (old, new) {
                (Some(old), Some(new)) => old.is_same(new),
                (old, new) => old.is_none() && new.is_none(),
            };
            if !is_same {
                by_watch.push((trie, old, new));
            }
        };
        for (trie, old, new) in found {
            self.entries::<M>(trie, old, new);
        }
    }

    fn entries<M: LeafMeta>(
        &mut self,
        trie: &Trie<W>,
        old: Option<&M::Entry>,
        new: Option<&M::Entry>,
    ) {
        let [old, new] = [old, new].map(|entry| entry.map(ListEntry::branch));
        self.branches(trie, old.as_deref(), new.as_deref());
    }
}

fn value<M: LeafMeta>(child: Option<&Child<M>>) -> Option<&Value> {
    match child? {
        Child::Leaf(leaf) => Some(&leaf.value),
        Child::Container(_) | Child::List(_) => None,
    }
}

fn container<M: LeafMeta>(child: Option<&Child<M>>) -> Optional<'_, M> {
    match child? {
        Child::Container(branch) => Some(branch),
        Child::Leaf(_) | Child::List(_) => None,
    }
}

fn list<M: LeafMeta>(child: Option<&Child<M>>) -> Option<&List<M>> {
    match child? {
        Child::List(list) => Some(list),
        Child::Leaf(_) | Child::Container(_) => None,
    }
}
