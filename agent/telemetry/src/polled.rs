//! A revision combined with polled leaves.

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Child, Leaf, Tree};
use holdfast_config::{InstancePath, Step, Value};

use super::revision::LeafVersion;

/// The tree with `polled` leaves added, as they were at `time_ns`.
///
/// A leaf whose entry is missing in the tree is left out: the entry was deleted while the leaf was read. So is a leaf that
/// the schema lacks: its node was appended while it was read.
pub fn with_polled_leaves(
    schema: &Schema,
    tree: &Tree<LeafVersion>,
    polled: Vec<(InstancePath, Value)>,
    time_ns: u64,
) -> Tree<LeafVersion> {
    let mut view = tree.clone();
    let knows = |step: &Step| (step.node.0 as usize) < schema.nodes().len();
    for (path, value) in polled.into_iter().filter(|(path, _)| path.0.iter().all(knows)) {
        if let Some(born) = entry_incarnation(tree, &path) {
            let stamp = LeafVersion { time_ns, changes: 1, incarnation: born };
            view.set_leaf(schema, &path, Leaf::new(value, stamp));
        }
    }
    view
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
