//! Published snapshots of configuration and state, and the positions of their readers.
//!
//! Start at [`revision`] for the snapshots, at [`selection`] for the part that a request selects, at [`cursor`]
//! for the updates of a subscriber, at [`commits`] for the boundaries of commits. A reader holds a snapshot
//! instead of a queue, so a slow one costs a pointer.

pub mod commits;
pub mod cursor;
pub mod entry;
mod leaf_version;
pub mod polled;
pub mod polled_entry;
pub mod revision;
pub mod selection;
#[cfg(test)]
mod tests;
mod visibility;

pub use commits::{Boundary, BoundaryReceiver, BoundarySender};
pub use cursor::{Compare, Cursor, DerivedCursor, TreeUpdate, Walk, WalkProgress};
pub use entry::{DerivedLists, EntryState, EntryVersion, MarkPlace, ViewEntry};
pub use polled::{PolledList, PolledReading};
pub use revision::{
    ConfigOrState, Draft, DraftTree, LeafVersion, ListStates, Mutation, PreparedTree, Revision,
    RevisionChange, TreeWriter,
};
pub use selection::{ChangeDetection, Filter, LeafSetCache, Lists, ReadType, Selection};
