//! Neighbours: which link-layer address an IP address has.

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
    /// What only the kernel knows; `None` in an intended value.
    pub facts: Option<NeighborFacts>,
}

/// What the kernel shows of a neighbour beyond what can be configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborFacts {
    /// It carries our protocol number (`NDA_PROTOCOL`): we made it and may delete it.
    pub ours: bool,
    /// State of the entry.
    pub state: NeighborState,
}

/// State of a neighbour entry (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NeighborState {
    /// Configured; never asked for, never forgotten.
    Permanent,
    /// Asked for, no answer yet.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Not confirmed lately.
    Stale,
    /// Used while stale; about to be asked for again.
    Delay,
    /// Being asked for again.
    Probe,
    /// Did not answer.
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
