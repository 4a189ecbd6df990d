//! A revision combined with what was read for a request.

use std::sync::Arc;

use holdfast_config::map::Map;
use holdfast_config::schema::Schema;
use holdfast_config::tree::{Child, Leaf, Tree};
use holdfast_config::{InstancePath, Keys, NodeId, Step, Value};

use super::entry::{DerivedEntry, EntryState, EntryVersion, ViewEntry};
use super::revision::LeafVersion;

/// Leaves and lists that were read for a request, by the paths of one model.
#[derive(Clone, Debug, Default)]
pub struct PolledReading {
    pub leaves: Vec<(InstancePath, Value)>,
    pub lists: Vec<PolledList>,
}

/// A list whose entries exist only in readings. They are derived when they are looked at, because there may be a hundred
/// thousand of them.
#[derive(Clone, Debug)]
pub struct PolledList {
    /// Path of the container or entry that holds the list.
    pub above: InstancePath,
    pub list: NodeId,
    pub entries: Arc<[(Keys, Arc<dyn EntryState>)]>,
}

impl From<Vec<(InstancePath, Value)>> for PolledReading {
    fn from(leaves: Vec<(InstancePath, Value)>) -> Self {
        Self { leaves, lists: Vec::new() }
    }
}

impl PolledReading {
    /// Number of leaves and of entries of lists.
    pub fn size(&self) -> usize {
        self.leaves.len() + self.lists.iter().map(|it| it.entries.len()).sum::<usize>()
    }

    /// Appends another reading.
    pub fn extend(&mut self, other: Self) {
        self.leaves.extend(other.leaves);
        self.lists.extend(other.lists);
    }

    /// The reading by OpenConfig paths, of one by native paths, with the leaves of nodes that are wanted.
    #[must_use]
    pub fn to_openconfig(&self, map: &Map, is_wanted: &dyn Fn(NodeId) -> bool) -> Self {
        let lists = self.lists.iter().filter_map(|list| list.to_openconfig(map));
        Self { leaves: map.up_wanted(&self.leaves, is_wanted), lists: lists.collect() }
    }
}

impl PolledList {
    fn to_openconfig(&self, map: &Map) -> Option<Self> {
        let mut above = map.up_entry(&self.above.0)?;
        above.0.extend_from_slice(map.steps_to_openconfig_list(self.list)?);
        let list = map.list_to_openconfig(self.list)?;
        let keys = |own: &Keys| map.openconfig_keys(self.list, own);
        let entry = |(own, state): &(Keys, Arc<dyn EntryState>)| Some((keys(own)?, state.clone()));
        Some(Self { above, list, entries: self.entries.iter().filter_map(entry).collect() })
    }
}

/// The tree with a reading added, as it was at `time_ns`.
///
/// A leaf whose entry is missing in the tree is left out: the entry was deleted while the leaf was read. So is a leaf that
/// the schema lacks: its node was appended while it was read. Polled lists bring their entries with them.
pub fn with_polled_leaves(
    schema: &Schema,
    tree: &Tree<LeafVersion>,
    polled: PolledReading,
    time_ns: u64,
) -> Tree<LeafVersion> {
    let mut view = tree.clone();
    let knows = |step: &Step| (step.node.0 as usize) < schema.nodes().len();
    for (path, value) in polled.leaves.into_iter().filter(|(path, _)| path.0.iter().all(knows)) {
        if let Some(born) = entry_incarnation(tree, &path) {
            let stamp = LeafVersion { time_ns, changes: 1, incarnation: born };
            view.set_leaf(schema, &path, Leaf::new(value, stamp));
        }
    }
    for polled in polled.lists.iter().filter(|it| !it.entries.is_empty()) {
        put_list(&mut view, schema, polled, time_ns);
    }
    view
}

fn put_list(view: &mut Tree<LeafVersion>, schema: &Schema, polled: &PolledList, time_ns: u64) {
    let stamp = LeafVersion { time_ns, changes: 1, incarnation: 0 };
    let version = EntryVersion::from(stamp);
    let list = view.branch_mut(schema, &polled.above.0, &stamp).list_mut(polled.list);
    for (keys, state) in &*polled.entries {
        let state = Some(Arc::clone(state));
        let derived = DerivedEntry::new(schema.origin(), None, state, &version);
        list.put(keys.clone(), ViewEntry::Derived(derived));
    }
}

/// Revision in which the entry of the leaf appeared; 0 outside of lists. A leaf of an entry that was created again
/// thus counts as another leaf.
fn entry_incarnation(tree: &Tree<LeafVersion>, leaf: &InstancePath) -> Option<u32> {
    let Some(last) = leaf.0.iter().rposition(|step| step.keys.is_some()) else { return Some(0) };
    let entry = tree.find_branch(&leaf.0[..=last])?;
    let stamp = entry.children().iter().find_map(|(_, child)| match child {
        Child::Leaf(leaf) => Some(leaf.meta.incarnation),
        Child::Container(_) | Child::List(_) => None,
    });
    Some(stamp.unwrap_or_default())
}
