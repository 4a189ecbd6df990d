//! Latches: a reporter's or an operator's word that a resource is down, kept until it is lifted.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::resource::Resource;

/// The statement of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatchKind {
    /// The resource is down, whatever the kernel says.
    ForcedDown,
    /// The resource forwards nothing. Its operational status stays as the kernel has it.
    DataPlaneDown,
}

impl LatchKind {
    /// The type of the alarm that is open while the latch is set.
    pub fn alarm_type(self) -> &'static str {
        match self {
            Self::ForcedDown => "forced-down",
            Self::DataPlaneDown => "data-plane-down",
        }
    }
}

/// A latch that is set. A latch is not configuration: no Set changes it, and no rollback takes it away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latch {
    pub kind: LatchKind,
    pub resource: Resource,
    /// The user who has set it, and may lift it.
    pub by: SmolStr,
    pub reason: SmolStr,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// The interface is shut, too.
    #[serde(default)]
    pub is_fenced: bool,
}

/// A request to set or lift a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatchRequest {
    pub kind: LatchKind,
    pub resource: Resource,
    pub is_set: bool,
    pub by: SmolStr,
    pub reason: SmolStr,
    /// An administrator lifts what others have set.
    pub overrides: bool,
    /// The interface is shut, too.
    pub is_fenced: bool,
}

/// Reason for which a latch is neither set nor lifted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LatchError {
    #[error(
        "{resource} is latched by `{by}`: only `{by}` lifts that, or an administrator with `override`"
    )]
    OfAnother { resource: Resource, by: SmolStr },
    #[error(
        "{resource} is latched by `{by}` without a fence: lift that latch first, and set one with a fence"
    )]
    Unfenced { resource: Resource, by: SmolStr },
    #[error("{0} cannot be latched: only interfaces and next hops can")]
    Kind(Resource),
    #[error("{0} resources are latched already, which is the limit: lift one first")]
    TooMany(usize),
}

impl Latch {
    /// The condition that holds while the latch is set.
    pub fn condition(&self) -> Condition {
        Condition::new(self.kind.alarm_type(), self.resource.clone())
    }
}

impl fmt::Display for LatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.alarm_type())
    }
}
