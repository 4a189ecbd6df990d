//! What the box tells of itself: published snapshots, and how far each reader has got.
//!
//! Start at [`revision`] for what is published, at [`selection`] for which part of it a request
//! wants, at [`cursor`] for what a subscriber is told next, at [`commits`] for where one commit ends. A reader holds a snapshot and never a
//! queue, so a slow one costs a pointer.

pub mod commits;
pub mod cursor;
pub mod revision;
pub mod selection;
mod sight;
#[cfg(test)]
mod tests;
pub mod view;

pub use commits::{Boundaries, Boundary, BoundarySender};
pub use cursor::{Compare, Cursor, Item, Progress, Walk};
pub use revision::{Change, Draft, DraftTree, Place, Plane, Revision, Stamp, What};
pub use selection::{Class, Filter, Kind, LeavesCache, Selection};
