//! Calls of handlers, as far as service plans name them.

use std::sync::Arc;

/// Occasion of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallPhase {
    /// The state is reached, or its work is done again.
    Create,
    /// The state is left.
    Delete,
    /// The instance is about to be evaluated, before its components are known.
    PreModification,
    /// The instance has been evaluated, as far as it came.
    PostModification,
}

// Name in the model.
crate::enum_names!(CallPhase {
    Create = "create",
    Delete = "delete",
    PreModification = "pre-modification",
    PostModification = "post-modification",
});

impl CallPhase {
    /// True for the calls about an instance as a whole.
    pub fn is_modification(self) -> bool {
        matches!(self, Self::PreModification | Self::PostModification)
    }
}

/// Input of an answer: while it is the same, the claim of the state counts, and its handler is not asked, also after a
/// restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerInput {
    /// Digest of the input of the call.
    pub call: u64,
    /// Leaves that the handler has read.
    pub reads: Vec<ReadInput>,
}

/// Leaves of one path that a handler has read for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadInput {
    pub plane: Plane,
    /// Path as a handler names it.
    pub path: Arc<str>,
    /// Digest of the values.
    pub values: u64,
}

/// Part of the box that an expression reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plane {
    /// The union of everything but services.
    Ground,
    State,
}

// Name of the function of expressions that reads it.
crate::enum_names!(Plane {
    Ground = "config",
    State = "state",
});
