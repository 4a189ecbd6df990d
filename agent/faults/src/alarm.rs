//! Alarms, and what is told of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::impact::ImpactCount;
use crate::report::{Silence, Source};
use crate::types::Severity;

/// An operator's word on an alarm; the names are those of RFC 8632.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorState {
    #[default]
    None,
    /// An operator takes care of it.
    Ack,
    /// An operator considers it done. It stays open until its condition ends.
    Closed,
}

holdfast_config::enum_names!(OperatorState {
    None = "none",
    Ack = "ack",
    Closed = "closed",
});

/// A condition that was raised and has not ended. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    #[serde(rename = "id")]
    pub condition: Condition,
    pub severity: Severity,
    pub text: SmolStr,
    /// When the condition began.
    pub created_ns: u64,
    /// When it was seen to begin again last, while the alarm was open.
    pub raised_ns: u64,
    /// Time and id of its last transition.
    pub changed_ns: u64,
    pub transition: u64,
    /// How often the condition has begun since the alarm was raised.
    pub occurrences: u64,
    /// Sources that say that the condition holds.
    pub sources: BTreeSet<Source>,
    pub operator_state: OperatorState,
    /// Operator who said so last, and the words.
    pub operator: SmolStr,
    pub operator_text: SmolStr,
    /// Shelf that it is put aside on.
    pub shelf: Option<SmolStr>,
    /// Session that has its resource in maintenance.
    #[serde(default)]
    pub suppressed_by: Option<SmolStr>,
    /// Listeners were told that it was raised, so they are told of its end, shelved or not.
    pub is_told: bool,
    /// True for an alarm that was told as a root cause, so that its end is told, too.
    #[serde(default)]
    pub was_root: bool,
    /// The open alarm by whose impact this resource does not work.
    #[serde(default)]
    pub cause: Option<Condition>,
    /// How many objects do not work because of this; `None` where the effect is but an alarm.
    #[serde(default)]
    pub impact: Option<ImpactCount>,
    /// Words of sources that count for a time.
    #[serde(default)]
    pub expiries: Vec<Expiry>,
}

impl Alarm {
    /// True when nobody is told of it now, and nothing comes of it: a shelf or a session puts it aside.
    pub fn is_aside(&self) -> bool {
        self.shelf.is_some() || self.suppressed_by.is_some()
    }
}

/// When a source's word on a condition does not count any more, or does so without being sure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    pub source: Source,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    pub silence: Silence,
}

/// A kind of change of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Raised,
    /// Its severity or text is another one, or its condition began again.
    Changed,
    Cleared,
    /// Another alarm is its cause now, or none is.
    Cause,
    /// The number of objects that do not work because of it is another one.
    Impact,
    /// An operator has said something of it.
    Operator,
    Shelved,
    /// Taken off its shelf.
    Unshelved,
    /// Its resource is in maintenance.
    Suppressed,
    /// The maintenance of its resource is over.
    Unsuppressed,
}

holdfast_config::enum_names!(Change {
    Raised = "raised",
    Changed = "changed",
    Cleared = "cleared",
    Cause = "cause",
    Impact = "impact",
    Operator = "operator",
    Shelved = "shelved",
    Unshelved = "unshelved",
    Suppressed = "suppressed",
    Unsuppressed = "unsuppressed",
});

/// One line of the log: a change of an alarm, and the alarm afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Ascends, also over restarts of the agent.
    pub id: u64,
    pub time_ns: u64,
    pub change: Change,
    /// Severity before; `None` for an alarm that is raised.
    pub severity_before: Option<Severity>,
    pub alarm: Alarm,
}

impl Transition {
    /// True when listeners are told: it is about an alarm that they know, or that they are to know now. Of one that is put aside,
    /// they are told that it was, and of its end.
    pub fn is_told(&self) -> bool {
        let is_told_aside =
            matches!(self.change, Change::Shelved | Change::Suppressed | Change::Cleared);
        self.alarm.is_told && (!self.alarm.is_aside() || is_told_aside)
    }

    /// True when those are told who want to hear of root causes alone: of the beginning and the end of alarms without a cause, of the end
    /// of those that had none when they were raised, and of what gets a cause or loses it.
    pub fn is_of_root(&self) -> bool {
        self.alarm.cause.is_none()
            || matches!(self.change, Change::Cause)
            || (self.change == Change::Cleared && self.alarm.was_root)
    }

    /// The worse one of the severities before and after.
    pub fn worst_severity(&self) -> Severity {
        self.severity_before.map_or(self.alarm.severity, |before| before.max(self.alarm.severity))
    }
}
