//! The metadata of leaves in revisions.

/// Time and count of a leaf's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafVersion {
    /// Time of the last change of the value, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of changes of the value since the leaf appeared, including its first. The count wraps around at
    /// 2^32: only the difference of two stamps of one leaf matters, and no client lags 2^32 changes behind.
    pub changes: u32,
    /// Revision in which the leaf last appeared, modulo 2^32. It serves only to tell whether two stamps at one
    /// path belong to the same leaf. The test would fail for a leaf that was deleted and created again exactly
    /// 2^32 revisions later, between two readings.
    pub incarnation: u32,
}

/// Part of the model that a node belongs to. Configuration and state share list entries, and are added and removed
/// independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOrState {
    Config,
    State,
    Both,
}
