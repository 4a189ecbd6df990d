//! Alarms, sessions and entries of the log as they survive a restart: in JSON.

use crate::alarm::{Alarm, Transition};
use crate::condition::Condition;
use crate::latch::Latch;
use crate::log::LogEntry;
use crate::session::{Session, SessionStep};

/// Beginning of the names of rows with latches.
pub(crate) const LATCH_ROWS: &str = "latch/";

/// Beginning of the names of rows with maintenance sessions.
pub(crate) const SESSION_ROWS: &str = "session/";

/// A row to write, or to remove when its content is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Id of the alarm; those of latches and sessions have a prefix.
    pub name: String,
    pub content: Option<Vec<u8>>,
}

impl Row {
    /// The row of an open alarm.
    pub(crate) fn of(alarm: &Alarm) -> Self {
        // Only a map whose keys are not texts cannot be written.
        Self { name: alarm.condition.to_string(), content: serde_json::to_vec(alarm).ok() }
    }

    /// The row of a latch that is set.
    pub(crate) fn of_latch(latch: &Latch) -> Self {
        let name = format!("{LATCH_ROWS}{}", latch.condition());
        Self { name, content: serde_json::to_vec(latch).ok() }
    }

    /// The row of a latch that was lifted.
    pub(crate) fn without_latch(condition: &Condition) -> Self {
        Self { name: format!("{LATCH_ROWS}{condition}"), content: None }
    }

    /// The row of a maintenance session.
    pub(crate) fn of_session(session: &Session) -> Self {
        let name = format!("{SESSION_ROWS}{}", session.id);
        Self { name, content: serde_json::to_vec(session).ok() }
    }

    /// The row of a session that is forgotten.
    pub(crate) fn without_session(id: &str) -> Self {
        Self { name: format!("{SESSION_ROWS}{id}"), content: None }
    }

    /// The row of an alarm that has ended.
    pub(crate) fn without(condition: &Condition) -> Self {
        Self { name: condition.to_string(), content: None }
    }
}

impl LogEntry {
    /// The entry as the log on disk has it.
    pub fn to_stored(&self) -> Vec<u8> {
        let stored = match self {
            Self::Alarm(transition) => serde_json::to_vec(&**transition),
            Self::Step(step) => serde_json::to_vec(&**step),
        };
        // Only a map whose keys are not texts cannot be written.
        stored.unwrap_or_default()
    }

    /// Reads what [`Self::to_stored`] has written; `None` for what this version does not know.
    pub fn from_stored(content: &[u8]) -> Option<Self> {
        let transition = serde_json::from_slice::<Transition>(content);
        let entry = transition.map(|transition| Self::Alarm(transition.into()));
        let step = || serde_json::from_slice::<SessionStep>(content);
        entry.or_else(|_| step().map(|step| Self::Step(step.into()))).ok()
    }
}
