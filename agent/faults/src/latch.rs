//! Latches: a reporter's or an operator's word that a resource is down, kept until it is lifted.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::resource::Resource;

/// The word of a latch.
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

/// A latch that is set. It is no configuration: no Set changes it, and no rollback takes it away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latch {
    pub kind: LatchKind,
    #[serde(with = "resource_text")]
    pub resource: Resource,
    /// User or program that has set it, and may lift it.
    pub by: SmolStr,
    pub reason: SmolStr,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
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
}

/// Reason for which a latch is neither set nor lifted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LatchError {
    #[error(
        "{resource} is latched by `{by}`: only `{by}` lifts that, or an administrator with `override`"
    )]
    OfAnother { resource: Resource, by: SmolStr },
    #[error("{0} cannot be latched: only interfaces and next hops can")]
    Kind(Resource),
    #[error("{0} resources are latched, which is the most that are kept")]
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

mod resource_text {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::resource::Resource;

    pub(super) fn serialize<S: Serializer>(
        resource: &Resource,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(resource)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Resource, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
