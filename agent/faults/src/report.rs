//! Words of sources on conditions.

use std::time::Duration;

use holdfast_config::SharedPath;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::types::Severity;

/// A part that reports conditions. A condition holds while any source says so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The newest revision.
    Revision,
    /// Statuses of values.
    Engine,
    /// The disk with the database.
    Disk,
    /// Sockets and the certificate that clients are shown.
    Server,
    /// Packages and handlers of services.
    Services,
    /// Leases of DHCP clients.
    Leases,
    /// Probes of next hops.
    Probes,
    /// Alarm rules that fit an open alarm.
    Rules,
    /// Conclusions from other conditions.
    Diagnosis,
    /// Interfaces that are to be shut, and are not.
    Fences,
    /// Drains that were refused.
    Drains,
    /// Members of uplink groups.
    Groups,
    /// Latches that reporters and operators have set.
    Latches,
    /// Maintenance sessions.
    Sessions,
    /// A program, by the name of its `monitor` entry.
    Reporter(SmolStr),
}

impl Source {
    /// True for what a restart finds in the rows of alarms. Other conclusions are drawn anew.
    pub(crate) fn is_restored(&self) -> bool {
        *self != Self::Diagnosis
    }

    /// The name of the source for people and models.
    pub fn name(&self) -> SmolStr {
        match self {
            Self::Revision => "revision".into(),
            Self::Engine => "engine".into(),
            Self::Disk => "disk".into(),
            Self::Server => "server".into(),
            Self::Services => "services".into(),
            Self::Leases => "leases".into(),
            Self::Probes => "probes".into(),
            Self::Rules => "rules".into(),
            Self::Diagnosis => "diagnosis".into(),
            Self::Fences => "fences".into(),
            Self::Drains => "drains".into(),
            Self::Groups => "groups".into(),
            Self::Latches => "latches".into(),
            Self::Sessions => "sessions".into(),
            Self::Reporter(name) => name.clone(),
        }
    }
}

/// The end of a word that its source does not repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Silence {
    /// The condition has ended after this time.
    Ends(Duration),
    /// The condition holds on, but its source counts as silent after this time.
    Lingers(Duration),
}

impl Silence {
    pub(crate) fn time(self) -> Duration {
        match self {
            Self::Ends(time) | Self::Lingers(time) => time,
        }
    }
}

/// The word of a source on a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub condition: Condition,
    pub holds: bool,
    /// How often it began since the last report of this source. Without a figure, one that begins to hold has begun once.
    pub begins: Option<u64>,
    /// Severity in place of that of its type.
    pub severity: Option<Severity>,
    pub text: SmolStr,
    /// When this was seen, in nanoseconds since 1970.
    pub seen_ns: u64,
    /// How long it has to hold at least before an alarm is raised, whatever policies say.
    pub raise_after: Duration,
    /// Without it, the report counts until the source says something else.
    pub silence: Option<Silence>,
}

impl Report {
    /// A condition that holds.
    pub fn holding(condition: Condition, text: impl Into<SmolStr>, seen_ns: u64) -> Self {
        Self {
            condition,
            holds: true,
            begins: None,
            severity: None,
            text: text.into(),
            seen_ns,
            raise_after: Duration::ZERO,
            silence: None,
        }
    }

    /// A condition that does not hold.
    pub fn ended(condition: Condition, seen_ns: u64) -> Self {
        Self { holds: false, ..Self::holding(condition, "", seen_ns) }
    }
}

/// The objects, as entries of the native model, that do not work, or work worse, because of a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impact {
    pub down: Vec<SharedPath>,
    pub degraded: Vec<SharedPath>,
    /// There are more than were counted.
    pub is_truncated: bool,
}
