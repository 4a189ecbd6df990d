//! The metadata of leaves in layers.

use std::sync::Arc;

use super::{Branch, LeafMeta};

/// Origin of a leaf in a layer, or in the view of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeafMark {
    /// Set explicitly.
    Explicit,
    /// From the factory configuration.
    Factory,
    /// A default in use. Only views have these, layers do not.
    Default,
    /// Negated by `no X` in a boot text; the value has no meaning. On the keys of an entry, the mark says that the
    /// entry exists for its descendants only, or, when it is given, that it is to be absent.
    Absent,
}

impl LeafMeta for LeafMark {
    type Entry = Arc<Branch<Self>>;
}
