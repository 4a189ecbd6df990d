//! Alarms, and what is told of them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::faults::Source;
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

impl OperatorState {
    pub const ALL: [Self; 3] = [Self::None, Self::Ack, Self::Closed];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ack => "ack",
            Self::Closed => "closed",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for OperatorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    /// Listeners were told that it was raised, so they are told of its end, shelved or not.
    pub is_told: bool,
}

/// A kind of change of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Raised,
    /// Its severity or text is another one, or its condition began again.
    Changed,
    Cleared,
    /// An operator has said something of it.
    Operator,
    Shelved,
    /// Taken off its shelf.
    Unshelved,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Changed => "changed",
            Self::Cleared => "cleared",
            Self::Operator => "operator",
            Self::Shelved => "shelved",
            Self::Unshelved => "unshelved",
        }
    }
}

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
    /// True when listeners are told: it is about an alarm that they know, or that they are to know now. Of one on a shelf, they
    /// are told that it was put there, and of its end.
    pub fn is_told(&self) -> bool {
        let is_shelved = self.alarm.shelf.is_some();
        self.alarm.is_told
            && (!is_shelved || matches!(self.change, Change::Shelved | Change::Cleared))
    }

    /// The worse one of the severities before and after.
    pub fn worst_severity(&self) -> Severity {
        self.severity_before.map_or(self.alarm.severity, |before| before.max(self.alarm.severity))
    }
}
