//! The cursor of derived lists, beside one of everything else.

use std::sync::Arc;

use holdfast_config::tree::Tree;
use holdfast_config::{InstancePath, Schema};

use super::{Compare, Cursor, Walk};
use crate::revision::LeafVersion;
use crate::selection::Selection;

/// The position of a subscriber in the lists whose entries are derived, with the walk that is under way. It may be behind the
/// cursor of everything else, and is never ahead of it.
#[derive(Debug)]
pub struct DerivedCursor {
    cursor: Cursor,
    walk: Option<Walk>,
}

impl DerivedCursor {
    /// A cursor that has sent `tree`, or is about to.
    pub fn new(selection: Arc<Selection>, tree: Tree<LeafVersion>) -> Self {
        Self { cursor: Cursor::new(selection, tree), walk: None }
    }

    /// Replaces the selection by one for models with more nodes. A walk that is under way goes on in the old one: its tree has
    /// none of these nodes.
    pub fn select(&mut self, selection: Arc<Selection>) {
        self.cursor.select(selection);
    }

    /// Begins the walk of the difference between the last tree sent and `tree`, which becomes the last one.
    pub fn begin_next(&mut self, tree: &Tree<LeafVersion>, compare: Compare) {
        self.walk = Some(self.cursor.next(tree, compare));
    }

    /// Begins a walk of everything selected in the last tree sent.
    pub fn begin_again(&mut self) {
        self.walk = Some(self.cursor.again());
    }

    /// The walk that is under way.
    pub fn walk(&mut self) -> Option<&mut Walk> {
        self.walk.as_mut()
    }

    pub fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Ends the walk, which has told everything.
    pub fn finish(&mut self) {
        self.walk = None;
    }

    /// Notes that the client has lost all derived entries in these branches, by [`Walk::take_deleted`] of the other cursor. They
    /// are gone from every tree up to the one of that cursor, so what the walk under way would tell of them is void.
    pub fn forget(&mut self, schema: &Schema, branches: &[InstancePath]) {
        self.cursor.forget(schema, branches);
        if let Some(walk) = &mut self.walk {
            branches.iter().for_each(|branch| walk.skip(branch));
        }
    }
}
