//! Sorted maps of offers and parts, which versions of a value share once they are long.

use std::cmp::Ordering;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use smallvec::SmallVec;

/// Number of entries up to which a plain list is kept: one node of the persistent map takes the memory of sixteen.
const FEW: usize = 32;

/// Map ascending by key. Of a long one, a version that differs in one entry costs one entry, and so does comparing the
/// two versions.
#[derive(Clone, Debug)]
pub(crate) enum SortedMap<K: Ord, V> {
    Few(Box<[(K, V)]>),
    Many(OrdMap<K, V>),
}

/// Entry in which two versions differ: removed, added, or with another value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference<'t, K, V> {
    pub(crate) key: &'t K,
    pub(crate) old: Option<&'t V>,
    pub(crate) new: Option<&'t V>,
}

/// Differences, mostly few: listed without an allocation.
pub(crate) type Differences<'t, K, V> = SmallVec<[Difference<'t, K, V>; 4]>;

impl<K: Ord + Clone, V: PartialEq + Clone> SortedMap<K, V> {
    /// Builds a map. Of entries with the same key, the first one counts.
    pub(crate) fn new(mut entries: Vec<(K, V)>) -> Self {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
        if entries.len() <= FEW { Self::Few(entries.into()) } else { Self::Many(entries.into()) }
    }

    /// Returns a version with the entries of `set` and without the keys of `removed`.
    pub(crate) fn changed(
        &self,
        set: impl IntoIterator<Item = (K, V)>,
        removed: impl IntoIterator<Item = K>,
    ) -> Self {
        let mut entries = match self {
            Self::Many(entries) => entries.clone(),
            Self::Few(entries) => entries.iter().cloned().collect(),
        };
        for key in removed {
            entries.remove(&key);
        }
        entries.extend(set);
        if entries.len() > FEW {
            Self::Many(entries)
        } else {
            Self::Few(entries.into_iter().collect())
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Few(entries) if entries.is_empty())
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        match self {
            Self::Few(entries) => entries.binary_search_by(|(other, _)| other.cmp(key)).is_ok(),
            Self::Many(entries) => entries.contains_key(key),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (few, many) = match self {
            Self::Few(entries) => (&entries[..], None),
            Self::Many(entries) => (&[][..], Some(entries)),
        };
        few.iter().map(|(key, value)| (key, value)).chain(many.into_iter().flatten())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Differences of `new` from `old`, ascending.
    pub(crate) fn difference<'t>(
        old: Option<&'t Self>,
        new: Option<&'t Self>,
    ) -> Differences<'t, K, V> {
        let filled = |list: &&'t Self| !list.is_empty();
        match (old.filter(filled), new.filter(filled)) {
            (None, None) => Differences::new(),
            (None, Some(new)) => new.each(|key, new| Difference { key, old: None, new: Some(new) }),
            (Some(old), None) => old.each(|key, old| Difference { key, old: Some(old), new: None }),
            (Some(Self::Many(old)), Some(Self::Many(new))) => {
                old.diff(new).map(differing).collect()
            }
            (Some(old), Some(new)) => merged(old, new),
        }
    }

    fn each<'t>(
        &'t self,
        differing: impl Fn(&'t K, &'t V) -> Difference<'t, K, V>,
    ) -> Differences<'t, K, V> {
        match self {
            Self::Few(entries) => {
                entries.iter().map(|(key, value)| differing(key, value)).collect()
            }
            Self::Many(entries) => {
                entries.iter().map(|(key, value)| differing(key, value)).collect()
            }
        }
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> PartialEq for SortedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::Few(Box::default())
    }
}

fn differing<'t, K, V>(item: DiffItem<'t, 't, K, V>) -> Difference<'t, K, V> {
    match item {
        DiffItem::Add(key, new) => Difference { key, old: None, new: Some(new) },
        DiffItem::Remove(key, old) => Difference { key, old: Some(old), new: None },
        DiffItem::Update { old: (key, old), new: (_, new) } => {
            Difference { key, old: Some(old), new: Some(new) }
        }
    }
}

/// Differences by merging, if at least one version is short.
fn merged<'t, K: Ord + Clone, V: PartialEq + Clone>(
    old: &'t SortedMap<K, V>,
    new: &'t SortedMap<K, V>,
) -> Differences<'t, K, V> {
    let mut differences = Differences::new();
    let mut old = old.iter().peekable();
    let mut new = new.iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return differences,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.0.cmp(b.0),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        let Some((key, _)) = before.or(after) else { return differences };
        let old = before.map(|entry| entry.1);
        let new = after.map(|entry| entry.1);
        if old != new {
            differences.push(Difference { key, old, new });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Numbers = SortedMap<u32, u32>;

    /// Numbers below `count`, each tripled.
    fn numbers(count: usize) -> Vec<(u32, u32)> {
        (0..).map(|number| (number, 3 * number)).take(count).collect()
    }

    #[test]
    fn short_and_long_lists_are_alike() {
        for before in [0, 1, FEW - 1, FEW, FEW + 1, 10 * FEW] {
            let old = Numbers::new(numbers(before));
            for (set, removed) in [
                (vec![(5, 1)], vec![]),
                (vec![(7000, 1), (7001, 1)], vec![0, 3]),
                (vec![], (0..).take(before).collect()),
                (numbers(3 * FEW), vec![]),
            ] {
                let new = old.changed(set.clone(), removed.clone());
                let mut want: BTreeMap<u32, u32> = numbers(before).into_iter().collect();
                want.retain(|key, _| !removed.contains(key));
                want.extend(set);
                assert!(new.iter().map(|(&key, &value)| (key, value)).eq(want.clone()));
                assert!(want.keys().all(|key| new.contains(key)));
                check_difference(&old, &new);
                check_difference(&new, &old);
            }
            check_difference(&old, &Numbers::new(numbers(before)));
        }
    }

    #[track_caller]
    fn check_difference(old: &Numbers, new: &Numbers) {
        let find = |list: &Numbers, number: u32| {
            list.iter().find(|(key, _)| **key == number).map(|(_, &value)| value)
        };
        let mut keys: Vec<u32> = old.keys().chain(new.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|&key| find(old, key) != find(new, key));
        let found = Numbers::difference(Some(old), Some(new));
        assert!(found.iter().all(|it| find(old, *it.key) == it.old.copied()));
        assert!(found.iter().all(|it| find(new, *it.key) == it.new.copied()));
        assert_eq!(found.iter().map(|it| *it.key).collect::<Vec<_>>(), keys);
        assert_eq!(Numbers::difference(Some(old), None).len(), old.iter().count());
    }

    #[test]
    fn the_first_of_equal_keys_counts() {
        let list = Numbers::new(vec![(2, 1), (1, 1), (2, 9)]);
        assert!(list.iter().eq([(&1, &1), (&2, &1)]));
    }
}
