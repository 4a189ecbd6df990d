//! Index from objects of the box to those who have to do with them.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_scheduler::Key;

/// Instances that have to do with an object, by the key of its value.
#[derive(Debug)]
pub(in crate::services) struct ObjectIndex<T>(BTreeMap<Key, BTreeSet<T>>);

impl<T> Default for ObjectIndex<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Clone> ObjectIndex<T> {
    pub(in crate::services) fn insert(&mut self, object: &Key, holder: &T) {
        self.0.entry(object.clone()).or_default().insert(holder.clone());
    }

    pub(in crate::services) fn remove(&mut self, object: &Key, holder: &T) {
        if let Some(holders) = self.0.get_mut(object) {
            holders.remove(holder);
            if holders.is_empty() {
                self.0.remove(object);
            }
        }
    }

    pub(in crate::services) fn holders(&self, object: &Key) -> impl Iterator<Item = &T> {
        self.0.get(object).into_iter().flatten()
    }
}
