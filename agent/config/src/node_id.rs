//! Numbers of schema nodes, which paths and trees have instead of names.

/// Number of a node of one [`Schema`](crate::Schema). Valid within one run of the agent, and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);
