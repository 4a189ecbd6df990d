//! Lists: entries by key.

use std::cmp::Ordering;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::{Branch, LeafMeta, ListEntry};
use crate::instance::Keys;

/// Most entries that are kept in a plain vector. One node of the persistent map takes the memory of sixteen
/// entries, most of it unused for 100 000 routes with one next hop each.
const FEW: usize = 8;

/// Entries ascending by key. Clones share memory; a diff skips shared entries.
#[derive(Clone, Debug)]
pub struct List<M: LeafMeta>(EntryMap<M>);

#[derive(Clone, Debug)]
enum EntryMap<M: LeafMeta> {
    Few(Vec<(Keys, ComparedEntry<M>)>),
    /// Boxed, because long lists are few, and the size of this variant would be that of every child of a branch.
    Many(Box<OrdMap<Keys, ComparedEntry<M>>>),
}

/// An entry for the map's diff, which compares entries by address.
#[derive(Debug)]
struct ComparedEntry<M: LeafMeta>(M::Entry);

impl<M: LeafMeta> Clone for ComparedEntry<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: LeafMeta> PartialEq for ComparedEntry<M> {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }
}

/// A key for which two lists differ, or may differ: their entries are not the same memory.
#[derive(Debug)]
pub struct EntryDifference<'a, M: LeafMeta> {
    pub keys: &'a Keys,
    pub old: Option<&'a M::Entry>,
    pub new: Option<&'a M::Entry>,
}

impl<M: LeafMeta> Default for List<M> {
    fn default() -> Self {
        Self(EntryMap::Few(Vec::new()))
    }
}

impl<M: LeafMeta> PartialEq for List<M> {
    fn eq(&self, other: &Self) -> bool {
        let content = |entry: Option<&M::Entry>| entry.map(|it| it.branch().into_shared());
        self.len() == other.len()
            && List::differences(self, other).all(|it| content(it.old) == content(it.new))
    }
}

impl<M: LeafMeta> Eq for List<M> {}

impl<M: LeafMeta> List<M> {
    pub fn len(&self) -> usize {
        match &self.0 {
            EntryMap::Few(few) => few.len(),
            EntryMap::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, keys: &Keys) -> Option<&M::Entry> {
        match &self.0 {
            EntryMap::Few(few) => find(few, keys).ok().map(|at| &few[at].1.0),
            EntryMap::Many(many) => many.get(keys).map(|entry| &entry.0),
        }
    }

    /// Entries ascending by key.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&Keys, &M::Entry)> + '_> {
        match &self.0 {
            EntryMap::Few(few) => Box::new(few.iter().map(|(keys, entry)| (keys, &entry.0))),
            EntryMap::Many(many) => Box::new(many.iter().map(|(keys, entry)| (keys, &entry.0))),
        }
    }

    /// Adds or replaces an entry, and returns the replaced one.
    pub fn put(&mut self, keys: Keys, entry: impl Into<M::Entry>) -> Option<M::Entry> {
        self.grow();
        let entry = ComparedEntry(entry.into());
        match &mut self.0 {
            EntryMap::Few(few) => match find(few, &keys) {
                Ok(at) => Some(std::mem::replace(&mut few[at].1, entry).0),
                Err(at) => {
                    // Most short lists have one entry, while a vector would reserve four.
                    if few.len() == few.capacity() {
                        few.reserve_exact(few.len().max(1));
                    }
                    few.insert(at, (keys, entry));
                    None
                }
            },
            EntryMap::Many(many) => many.insert(keys, entry).map(|old| old.0),
        }
    }

    pub fn remove(&mut self, keys: &Keys) -> Option<M::Entry> {
        match &mut self.0 {
            EntryMap::Few(few) => find(few, keys).ok().map(|at| few.remove(at).1.0),
            EntryMap::Many(many) => many.remove(keys).map(|old| old.0),
        }
    }

    /// True when both lists certainly share every entry. Entries are not compared.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (EntryMap::Few(one), EntryMap::Few(other)) => one == other,
            (EntryMap::Many(one), EntryMap::Many(other)) => one.ptr_eq(other),
            _ => false,
        }
    }

    /// Entries that are not the same memory in both lists, ascending by key. Shared parts are skipped, whole nodes
    /// of the map at a time.
    pub fn differences<'a>(
        old: &'a Self,
        new: &'a Self,
    ) -> Box<dyn Iterator<Item = EntryDifference<'a, M>> + 'a> {
        match (&old.0, &new.0) {
            (EntryMap::Many(old), EntryMap::Many(new)) => Box::new(old.diff(new).map(difference)),
            _ => Box::new(merged(old, new)),
        }
    }

    /// First and last key.
    fn ends(&self) -> Option<(&Keys, &Keys)> {
        match &self.0 {
            EntryMap::Few(few) => Some((&few.first()?.0, &few.last()?.0)),
            EntryMap::Many(many) => Some((&many.get_min()?.0, &many.get_max()?.0)),
        }
    }

    /// True when all keys of one list are before those of the other.
    pub(super) fn are_apart(one: &Self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (one.ends(), other.ends()) else { return true };
        one.1 < other.0 || other.1 < one.0
    }

    /// Lower bound of the number of entries that differ.
    pub fn differ_by(old: &Self, new: &Self) -> usize {
        old.len().abs_diff(new.len())
    }

    /// Switches from the vector to the map when the vector is full.
    fn grow(&mut self) {
        if let EntryMap::Few(few) = &mut self.0
            && few.len() >= FEW
        {
            self.0 = EntryMap::Many(Box::new(std::mem::take(few).into_iter().collect()));
        }
    }
}

impl<M: LeafMeta> List<M> {
    /// The entry with `keys`, created by `make` when absent, copied when shared.
    pub fn entry_mut(&mut self, keys: &Keys, make: impl FnOnce() -> Branch<M>) -> &mut Branch<M> {
        if self.get(keys).is_none() {
            self.put(keys.clone(), Arc::new(make()));
        }
        let entry = match &mut self.0 {
            EntryMap::Few(few) => find(few, keys).ok().map(|at| &mut few[at].1),
            EntryMap::Many(many) => many.get_mut(keys),
        };
        entry.expect("the entry was there or was just put there").0.make_mut()
    }

    /// Runs a function on the entry with `keys` as it is stored; `None` when it is absent.
    pub fn update<R>(&mut self, keys: &Keys, act: impl FnOnce(&mut M::Entry) -> R) -> Option<R> {
        let entry = match &mut self.0 {
            EntryMap::Few(few) => find(few, keys).ok().map(|at| &mut few[at].1),
            EntryMap::Many(many) => many.get_mut(keys),
        };
        entry.map(|entry| act(&mut entry.0))
    }

    /// Runs a function on the entry with `keys`, created by `make` when absent, copied when shared. In a long list
    /// this searches an existing entry once, where [`List::entry_mut`] searches twice; one behind the last entry is not
    /// searched for.
    pub fn in_entry<R>(
        &mut self,
        keys: &Keys,
        make: impl FnOnce() -> Branch<M>,
        act: impl FnOnce(&mut Branch<M>) -> R,
    ) -> R {
        let EntryMap::Many(many) = &mut self.0 else { return act(self.entry_mut(keys, make)) };
        let is_behind = many.get_max().is_some_and(|(last, _)| last < keys);
        if !is_behind && let Some(entry) = many.get_mut(keys) {
            return act(entry.0.make_mut());
        }
        let mut entry = make();
        let result = act(&mut entry);
        self.put(keys.clone(), Arc::new(entry));
        result
    }
}

impl<M: LeafMeta> FromIterator<(Keys, Arc<Branch<M>>)> for List<M> {
    fn from_iter<I: IntoIterator<Item = (Keys, Arc<Branch<M>>)>>(entries: I) -> Self {
        let mut list = Self::default();
        for (keys, entry) in entries {
            list.put(keys, entry);
        }
        list
    }
}

fn find<M: LeafMeta>(few: &[(Keys, ComparedEntry<M>)], keys: &Keys) -> Result<usize, usize> {
    few.binary_search_by(|(other, _)| other.cmp(keys))
}

fn difference<'a, M: LeafMeta>(
    item: DiffItem<'a, 'a, Keys, ComparedEntry<M>>,
) -> EntryDifference<'a, M> {
    match item {
        DiffItem::Add(keys, new) => EntryDifference { keys, old: None, new: Some(&new.0) },
        DiffItem::Remove(keys, old) => EntryDifference { keys, old: Some(&old.0), new: None },
        DiffItem::Update { old: (keys, old), new: (_, new) } => {
            EntryDifference { keys, old: Some(&old.0), new: Some(&new.0) }
        }
    }
}

/// Differences if at least one list is short.
fn merged<'a, M: LeafMeta>(
    old: &'a List<M>,
    new: &'a List<M>,
) -> impl Iterator<Item = EntryDifference<'a, M>> + 'a {
    let mut old = old.iter().peekable();
    let mut new = new.iter().peekable();
    std::iter::from_fn(move || {
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((one, _)), Some((other, _))) => one.cmp(other),
            };
            let removed = if order.is_le() { old.next() } else { None };
            let added = if order.is_ge() { new.next() } else { None };
            let keys = removed.or(added)?.0;
            let old = removed.map(|it| it.1);
            let new = added.map(|it| it.1);
            if let (Some(old), Some(new)) = (old, new)
                && old.is_same(new)
            {
                continue;
            }
            return Some(EntryDifference { keys, old, new });
        }
    })
}
