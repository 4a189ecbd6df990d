//! Entries of leaf-lists without duplicates, found by order instead of comparing every pair.

use std::collections::BTreeSet;

use crate::limits::{LEAF_LIST_ENTRIES, LimitExceeded};

/// Entries of a leaf-list under construction. Adding `m` entries to `n` takes O(m log(n + m)).
#[derive(Debug)]
pub(crate) struct LeafListBuilder<T> {
    in_order: Vec<T>,
    present: BTreeSet<T>,
}

impl<T: Ord + Clone> LeafListBuilder<T> {
    pub(crate) fn of(values: &[T]) -> Self {
        Self { in_order: values.to_vec(), present: values.iter().cloned().collect() }
    }

    /// Appends the entries that are not present yet.
    ///
    /// # Errors
    /// When the leaf-list would exceed its limit. Entries up to the limit are added.
    pub(crate) fn add(&mut self, more: &[T]) -> Result<(), LimitExceeded> {
        for value in more {
            if self.present.contains(value) {
                continue;
            }
            LEAF_LIST_ENTRIES.check(self.in_order.len() + 1)?;
            self.present.insert(value.clone());
            self.in_order.push(value.clone());
        }
        Ok(())
    }

    /// All entries, in the order of addition if the schema is user-ordered, else sorted.
    pub(crate) fn all(&self, user_ordered: bool) -> Vec<T> {
        let mut all = self.in_order.clone();
        if !user_ordered {
            all.sort_unstable();
        }
        all
    }
}

/// The first value that occurs earlier too.
pub(crate) fn first_repeated<T: Ord>(values: &[T]) -> Option<&T> {
    let mut earlier = BTreeSet::new();
    values.iter().find(|value| !earlier.insert(*value))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// A number that counts its comparisons.
    #[derive(Clone, Debug)]
    struct CountingValue(usize);

    impl PartialEq for CountingValue {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for CountingValue {}

    impl PartialOrd for CountingValue {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for CountingValue {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    /// Comparisons per value that `act` makes.
    fn comparisons_each(count: usize, act: impl FnOnce(&[CountingValue])) -> usize {
        // Neither ascending nor descending: 7919 is coprime to every power of ten.
        let values: Vec<_> = (0..count).map(|at| CountingValue(at * 7919 % count)).collect();
        COMPARISONS.set(0);
        act(&values);
        COMPARISONS.get() / count
    }

    #[test]
    fn a_long_leaf_list_takes_no_more_for_each_entry_than_its_logarithm() {
        const MOST: usize = LEAF_LIST_ENTRIES.figure;
        /// Twice the logarithm of the largest size, for each of three steps.
        const FOR_EACH: usize = 3 * 2 * MOST.ilog2() as usize;
        let repeated = |values: &[CountingValue]| assert!(first_repeated(values).is_none());
        let in_halves = |values: &[CountingValue]| {
            let (first, second) = values.split_at(values.len() / 2);
            let mut all = LeafListBuilder::of(first);
            all.add(second).unwrap();
            assert_eq!(all.all(false).len(), values.len());
        };
        let one_by_one = |values: &[CountingValue]| {
            let mut all = LeafListBuilder::of(&[]);
            values.iter().for_each(|value| all.add(std::slice::from_ref(value)).unwrap());
            assert_eq!(all.all(true).len(), values.len());
        };
        for (name, each) in [
            ("repeated", comparisons_each(MOST, repeated)),
            ("in halves", comparisons_each(MOST, in_halves)),
            ("one by one", comparisons_each(MOST, one_by_one)),
        ] {
            assert!(each <= FOR_EACH, "{name}: {each} comparisons for each of {MOST}");
        }
    }

    #[test]
    fn leaf_lists_are_joined() {
        for (user_ordered, present, more, want) in [
            (false, "bc", "ab", "abc"),
            (true, "cb", "ab", "cba"),
            (false, "", "b", "b"),
            (true, "b", "", "b"),
        ] {
            let mut all = LeafListBuilder::of(present.as_bytes());
            all.add(more.as_bytes()).unwrap();
            assert_eq!(all.all(user_ordered), want.as_bytes(), "{present} and {more}");
        }
    }

    #[test]
    fn no_more_are_added_than_a_leaf_list_may_have() {
        const MOST: usize = LEAF_LIST_ENTRIES.figure;
        let present: Vec<usize> = (0..MOST).collect();
        let mut all = LeafListBuilder::of(&present);
        assert_eq!(all.add(&[0, 1]), Ok(()));
        assert_eq!(all.add(&[MOST]), Err(LimitExceeded { limit: &LEAF_LIST_ENTRIES }));
        assert_eq!(all.all(true), present);
    }
}
