//! Neighbours: IP addresses with their link-layer addresses.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::MacAddr;

/// A neighbour entry of a link. An intended one is permanent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// The link.
    pub link: SmolStr,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its link-layer address. Observed: `None` while it is not resolved.
    pub mac: Option<MacAddr>,
    /// Facts that only the kernel knows; `None` in an intended value.
    pub facts: Option<NeighborFacts>,
}

/// Observed properties of a neighbour that cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborFacts {
    /// The entry carries our protocol number (`NDA_PROTOCOL`): we created it and may delete it.
    pub ours: bool,
    /// State of the entry.
    pub state: NeighborState,
}

/// State of a neighbour entry (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NeighborState {
    /// Configured; never probed, never expires.
    Permanent,
    /// Probed, no answer yet.
    Incomplete,
    /// Confirmed recently.
    Reachable,
    /// Not confirmed recently.
    Stale,
    /// Used while stale; about to be probed again.
    Delay,
    /// Being probed again.
    Probe,
    /// Did not answer probes.
    Failed,
    /// The link needs no resolution.
    NoArp,
}

impl NeighborState {
    /// The enum name of `neighbor-state` (RFC 8344 names plus the kernel's own).
    pub fn name(self) -> &'static str {
        match self {
            Self::Permanent => "PERMANENT",
            Self::Incomplete => "INCOMPLETE",
            Self::Reachable => "REACHABLE",
            Self::Stale => "STALE",
            Self::Delay => "DELAY",
            Self::Probe => "PROBE",
            Self::Failed => "FAILED",
            Self::NoArp => "NOARP",
        }
    }
}
