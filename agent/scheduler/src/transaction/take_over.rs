//! Rest of a plan that is being taken over.

use crate::graph::{Graph, NodeIdx};
use crate::key::Key;
use crate::overlay::{OverlayNode, ReadSet, Readings, TargetRef};
use crate::plan::Unmet;
use crate::planned_operation::OverlayIdx;
use crate::value::SharedValue;

/// Most items of one portion: some five milliseconds of work, half of it for memory that is touched for the first time.
pub(crate) const ITEMS_MOST: usize = 2048;

/// Rest of a plan that is being taken over.
#[derive(Debug)]
pub(crate) struct TakeOver {
    pub(crate) restores: Vec<(Key, SharedValue)>,
    pub(crate) nodes: Vec<OverlayNode>,
    pub(crate) found: Vec<OverlayIdx>,
    pub(crate) operations: usize,
    pub(crate) waiting: Vec<(OverlayIdx, Unmet)>,
    pub(crate) target_refs: Vec<TargetRef>,
    pub(crate) reads: ReadSet,
    /// Nodes of the graph for those of the plan; `None` before a value is taken over.
    pub(crate) indexes: Vec<Option<NodeIdx>>,
    /// True for values found in place that are not recorded as applied yet.
    pub(crate) is_found: Vec<bool>,
    /// Items that are done, in the order of [`Item`].
    pub(crate) done: usize,
    /// Revision of the graph at the end of the last portion.
    pub(crate) revision: u64,
    /// True once anything has changed between two portions.
    pub(crate) is_disturbed: bool,
}

/// Kinds of items, in the order in which they are taken over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Restore,
    Value,
    Found,
    Operation,
    Waiting,
}

impl TakeOver {
    /// The next item, with its place in the list of its kind.
    pub(crate) fn next(&mut self) -> Option<(Item, usize)> {
        let lists = [
            (Item::Restore, self.restores.len()),
            (Item::Value, self.nodes.len()),
            (Item::Found, self.found.len()),
            (Item::Operation, self.operations),
            (Item::Waiting, self.waiting.len()),
        ];
        let mut at = self.done;
        for (item, len) in lists {
            if at < len {
                self.done += 1;
                return Some((item, at));
            }
            at -= len;
        }
        None
    }

    /// Value of the plan with this key.
    pub(crate) fn find(&self, graph: &Graph, key: &Key) -> Option<OverlayIdx> {
        let Self { reads, nodes, target_refs, .. } = self;
        Readings { reads, nodes, target_refs }.touched(graph, key)
    }
}
