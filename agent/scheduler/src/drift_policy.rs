//! Drift policies: the reaction when the system differs from what was applied, by key prefix.

/// Reaction to drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DriftPolicy {
    /// Restores the intent; the more often that was necessary, the later.
    #[default]
    Repair,
    /// Shows the drift in the status and leaves it.
    Report,
}
