//! Entries that a commit will add, laid out while it is carried out.
//!
//! A commit of a hundred thousand routes adds as many derived entries to its revision. They follow from the configuration
//! and from states that are filled in later, so they can be put into a copy of their list before the commit is final. Its
//! revision then takes the list as a whole:
//!
//! ```text
//!  revision before    [list] ------------------------> still this list? then it is replaced
//!                        |                                     ^
//!                        +--> copy + entries of the commit ----+
//! ```
//!
//! If anything else has changed in the list meanwhile, the entries are added one by one, as those of a small commit are.

use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Branch, LeafMeta, List, Tree};
use holdfast_config::{Keys, LeafMark, NodeId, Step};

use super::LeafVersion;
use crate::entry::{DerivedEntry, EntryState, EntryVersion, ViewEntry};

/// Lists of one tree, with the entries that a commit adds.
#[derive(Debug)]
pub struct PreparedTree(Vec<PreparedList>);

/// States of entries of one list that are not there yet, most of them ascending by key.
#[derive(Debug)]
pub struct ListStates {
    /// Steps to the branch that the list is in.
    pub above: Vec<Step>,
    pub list: NodeId,
    pub states: Vec<(Keys, Arc<dyn EntryState>)>,
}

#[derive(Debug)]
struct PreparedList {
    above: Vec<Step>,
    node: NodeId,
    /// The list in the configuration before and after the commit.
    config: [List<LeafMark>; 2],
    /// The list in the revision before.
    base: List<LeafVersion>,
    next: List<LeafVersion>,
}

impl PreparedTree {
    /// Adds entries to copies of their lists in a tree: those with states, and all others that differ between the
    /// configurations. `None` if one of them is there already.
    pub fn new(
        origin: Origin,
        tree: &Tree<LeafVersion>,
        config: [&Tree<LeafMark>; 2],
        lists: Vec<ListStates>,
        version: &EntryVersion,
    ) -> Option<Self> {
        let prepared = lists.into_iter().map(|ListStates { above, list: node, states }| {
            let config = config.map(|tree| list_in(tree, &above, node));
            let base = list_in(tree, &above, node);
            let mut next = base.clone();
            let mut added = AddedConfig::between(&config);
            for (keys, state) in states {
                let entry = DerivedEntry::new(origin, added.take(&keys), Some(state), version);
                put_new(&mut next, keys, entry)?;
            }
            for (keys, config) in added.left() {
                put_new(&mut next, keys, DerivedEntry::new(origin, Some(config), None, version))?;
            }
            Some(PreparedList { above, node, config, base, next })
        });
        prepared.collect::<Option<_>>().map(Self)
    }

    /// True when its lists are those of the tree and of the configurations.
    pub(super) fn fits(&self, tree: &Tree<LeafVersion>, config: [&Tree<LeafMark>; 2]) -> bool {
        self.0.iter().all(|it| {
            let mut lists = it.config.iter().zip(config);
            list_in(tree, &it.above, it.node).is_same(&it.base)
                && lists.all(|(list, tree)| list_in(tree, &it.above, it.node).is_same(list))
        })
    }

    /// Replaces the lists in the tree.
    pub(super) fn put_into(
        &self,
        tree: &mut Tree<LeafVersion>,
        schema: &Schema,
        stamp: LeafVersion,
    ) {
        for PreparedList { above, node, next, .. } in &self.0 {
            *tree.branch_mut(schema, above, &stamp).list_mut(*node) = next.clone();
        }
    }

    /// True when the entries that are added to a list are there.
    pub(super) fn has_list(&self, above: &[Step], node: NodeId) -> bool {
        self.0.iter().any(|it| it.node == node && it.above == above)
    }

    /// True when a list of the configuration, which was not there before, is one of those that are added.
    pub(super) fn has_all_of(&self, node: NodeId, list: &List<LeafMark>) -> bool {
        self.0.iter().any(|it| it.node == node && it.config[1].is_same(list))
    }
}

/// Entries that a list of the configuration gains, ascending by key.
struct AddedConfig {
    entries: Vec<(Keys, Option<Arc<Branch<LeafMark>>>)>,
    /// Place behind the entry that was taken last.
    next: usize,
}

impl AddedConfig {
    fn between([old, new]: &[List<LeafMark>; 2]) -> Self {
        let added = List::differences(old, new).filter(|it| it.old.is_none());
        let entries = added.map(|it| (it.keys.clone(), it.new.cloned())).collect();
        Self { entries, next: 0 }
    }

    fn take(&mut self, keys: &Keys) -> Option<Arc<Branch<LeafMark>>> {
        let is_next = self.entries.get(self.next).is_some_and(|(next, _)| next == keys);
        let at = if is_next {
            self.next
        } else {
            self.entries.binary_search_by(|(other, _)| other.cmp(keys)).ok()?
        };
        self.next = at + 1;
        self.entries[at].1.take()
    }

    /// Entries that were not taken.
    fn left(self) -> impl Iterator<Item = (Keys, Arc<Branch<LeafMark>>)> {
        self.entries.into_iter().filter_map(|(keys, entry)| Some((keys, entry?)))
    }
}

/// Adds an entry. `None` if the list has one with these keys.
fn put_new(list: &mut List<LeafVersion>, keys: Keys, entry: DerivedEntry) -> Option<()> {
    list.put(keys, ViewEntry::Derived(entry)).is_none().then_some(())
}

/// The list at a place, empty where there is none.
fn list_in<M: LeafMeta>(tree: &Tree<M>, above: &[Step], node: NodeId) -> List<M> {
    let above = tree.find_branch(above);
    above.and_then(|above| above.list(node).cloned()).unwrap_or_default()
}
