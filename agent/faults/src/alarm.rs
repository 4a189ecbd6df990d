//! Alarms, and what is told of them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::faults::Source;
use crate::types::Severity;

/// What operators say of an alarm; the names are those of RFC 8632.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorState {
    #[default]
    None,
    /// Somebody takes care of it.
    Ack,
    /// Somebody holds it to be done. It stays open until its condition ends.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
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
    /// How often the condition began since the alarm is open.
    pub occurrences: u64,
    /// Who says that the condition holds.
    pub sources: BTreeSet<Source>,
    pub operator_state: OperatorState,
    /// Who said so last, and what.
    pub operator: SmolStr,
    pub operator_text: SmolStr,
    /// Shelf that it is put aside on.
    pub shelf: Option<SmolStr>,
    /// Listeners were told that it was raised, so they are told of its end, shelved or not.
    pub is_told: bool,
}

/// What happened to an alarm.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Ascends, also over restarts of the agent.
    pub id: u64,
    pub time_ns: u64,
    pub change: Change,
    pub alarm: Alarm,
}

impl Transition {
    /// True when listeners are told: it is about an alarm that they know, or that they are to know now.
    pub fn is_told(&self) -> bool {
        self.alarm.is_told
    }
}
