//! Settings of reconciliation, which concern the agent and not the kernel.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Settings for the box as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// Seconds between two readings of the whole box; `None` disables them.
    pub resync_interval: Option<u32>,
}

/// Policy for objects that were changed by other programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftRule {
    /// Name of an object, or a common prefix of names: `address/eth0`.
    pub object: SmolStr,
    /// Reaction to drift.
    pub action: DriftAction,
}

/// Reaction to drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriftAction {
    /// Restore the configured state.
    Repair,
    /// Show the drift and leave the object.
    Report,
}
