//! How the agent holds the box to its configuration. The kernel knows nothing of it.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// What counts for the box as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// Seconds between two readings of the whole box; `None` for no such readings.
    pub resync_interval: Option<u32>,
}

/// What happens to objects that somebody else changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftRule {
    /// The name of an object, or how the names of several begin: `address/eth0`.
    pub object: SmolStr,
    /// What to do.
    pub action: DriftAction,
}

/// What to do about drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriftAction {
    /// Bring the object back to its configuration.
    Repair,
    /// Show it and leave the object.
    Report,
}
