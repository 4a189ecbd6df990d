//! Restoring of shared memory after a tree was rebuilt.
//!
//! A request may repeat a whole configuration without changing anything. The cost of all later steps depends on
//! the memory that differs, so equal parts must be the same memory again.

use std::sync::Arc;

use super::{Branch, Child, LeafMeta, List, ListEntry as _, Tree};
use crate::instance::Keys;

impl<M: LeafMeta> Tree<M> {
    /// This tree with the memory of `old` wherever the two are equal, including marks. The cost depends on the
    /// memory that they do not share yet.
    #[must_use]
    pub fn sharing(self, old: &Self) -> Self {
        Self { root: branch(&old.root, self.root) }
    }
}

impl<M: LeafMeta> Branch<M> {
    /// Takes the containers that `other` has, too, from its memory. Neighbours in a list often differ in their keys
    /// alone, such as routes with the same next hops.
    pub(crate) fn share_containers(&mut self, other: &Self) {
        for (node, theirs) in other.children() {
            let Child::Container(theirs) = theirs else { continue };
            if let Some(Child::Container(ours)) = self.child_mut(*node)
                && *ours == *theirs
            {
                *ours = Arc::clone(theirs);
            }
        }
    }
}

fn branch<M: LeafMeta>(old: &Arc<Branch<M>>, new: Arc<Branch<M>>) -> Arc<Branch<M>> {
    if Arc::ptr_eq(old, &new) {
        return new;
    }
    let mut same = old.given == new.given && old.children().len() == new.children().len();
    let mut shared = Branch::with_capacity(new.children().len());
    shared.given = new.given;
    for (node, child) in new.children() {
        let (child, is_same) = match (old.child(*node), child) {
            (Some(Child::Container(old)), Child::Container(new)) => {
                let new = branch(old, new.clone());
                let is_same = Arc::ptr_eq(old, &new);
                (Child::Container(new), is_same)
            }
            (Some(Child::List(old)), Child::List(new)) => {
                let new = list(old, new);
                let is_same = old.is_same(&new);
                (Child::List(new), is_same)
            }
            (old, new) => (new.clone(), old == Some(new)),
        };
        same &= is_same;
        shared.put(*node, child);
    }
    if same { old.clone() } else { Arc::new(shared) }
}

fn list<M: LeafMeta>(old: &List<M>, new: &List<M>) -> List<M> {
    if old.is_empty() {
        return new.clone();
    }
    let mut patches: Vec<(&Keys, Option<M::Entry>)> = Vec::new();
    for it in List::differences(old, new) {
        match (it.old, it.new) {
            (Some(old), Some(new)) => {
                let old = old.branch();
                let entry = branch(&old, new.branch().into_shared());
                if !Arc::ptr_eq(&old, &entry) {
                    patches.push((it.keys, Some(entry.into())));
                }
            }
            (_, new) => patches.push((it.keys, new.cloned())),
        }
    }
    let mut shared = old.clone();
    for (keys, entry) in patches {
        match entry {
            Some(entry) => drop(shared.put(keys.clone(), entry)),
            None => drop(shared.remove(keys)),
        }
    }
    shared
}
