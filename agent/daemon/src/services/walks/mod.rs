//! Walks that instances need by themselves, and what the box shows of them.

pub(super) mod applied;
pub(super) mod conductor;
pub(super) mod due_walks;
pub(super) mod hold_back;
pub(super) mod lenient_walk;
pub(super) mod object_index;
pub(super) mod over_limit;
pub(super) mod waits;
