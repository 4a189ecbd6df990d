//! Alarms and transitions as they survive a restart.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::alarm::{Alarm, Change, OperatorState, Transition};
use crate::condition::{Condition, ConditionError};
use crate::faults::Source;
use crate::types::Severity;

/// A row to write, or to remove when its content is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Id of the alarm.
    pub name: String,
    pub content: Option<Vec<u8>>,
}

/// An open alarm as it is stored, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredAlarm {
    id: String,
    severity: Severity,
    text: SmolStr,
    created_ns: u64,
    raised_ns: u64,
    #[serde(default)]
    changed_ns: u64,
    #[serde(default)]
    transition: u64,
    occurrences: u64,
    sources: BTreeSet<Source>,
    #[serde(default)]
    shelf: Option<SmolStr>,
    #[serde(default)]
    operator_state: OperatorState,
    #[serde(default)]
    operator: SmolStr,
    #[serde(default)]
    operator_text: SmolStr,
    is_told: bool,
}

/// A transition as the log keeps it, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredTransition {
    id: u64,
    time_ns: u64,
    change: Change,
    #[serde(default)]
    severity_before: Option<Severity>,
    alarm: StoredAlarm,
}

impl Transition {
    /// The transition as the log on disk has it.
    pub fn to_stored(&self) -> Vec<u8> {
        let stored = StoredTransition {
            id: self.id,
            time_ns: self.time_ns,
            change: self.change,
            severity_before: self.severity_before,
            alarm: StoredAlarm::of(&self.alarm),
        };
        // Only a map whose keys are no texts cannot be written.
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    /// Reads what [`Self::to_stored`] has written; `None` for what this version does not know.
    pub fn from_stored(content: &[u8]) -> Option<Self> {
        let stored: StoredTransition = serde_json::from_slice(content).ok()?;
        let StoredTransition { id, time_ns, change, severity_before, alarm } = stored;
        Some(Self { id, time_ns, change, severity_before, alarm: alarm.alarm().ok()? })
    }
}

impl Row {
    /// The row of an open alarm.
    pub(crate) fn of(alarm: &Alarm) -> Self {
        let stored = StoredAlarm::of(alarm);
        // Only a map whose keys are no texts cannot be written.
        Self { name: stored.id.clone(), content: serde_json::to_vec(&stored).ok() }
    }

    /// The row of an alarm that has ended.
    pub(crate) fn without(condition: &Condition) -> Self {
        Self { name: condition.to_string(), content: None }
    }
}

impl StoredAlarm {
    fn of(alarm: &Alarm) -> Self {
        Self {
            id: alarm.condition.to_string(),
            severity: alarm.severity,
            text: alarm.text.clone(),
            created_ns: alarm.created_ns,
            raised_ns: alarm.raised_ns,
            changed_ns: alarm.changed_ns,
            transition: alarm.transition,
            occurrences: alarm.occurrences,
            sources: alarm.sources.clone(),
            shelf: alarm.shelf.clone(),
            operator_state: alarm.operator_state,
            operator: alarm.operator.clone(),
            operator_text: alarm.operator_text.clone(),
            is_told: alarm.is_told,
        }
    }

    /// Reads a row.
    ///
    /// # Errors
    /// When it is no alarm of this version.
    pub fn read(content: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(content)
    }

    pub(crate) fn alarm(self) -> Result<Alarm, ConditionError> {
        Ok(Alarm {
            condition: self.id.parse()?,
            severity: self.severity,
            text: self.text,
            created_ns: self.created_ns,
            raised_ns: self.raised_ns,
            changed_ns: self.changed_ns,
            transition: self.transition,
            occurrences: self.occurrences,
            sources: self.sources,
            operator_state: self.operator_state,
            operator: self.operator,
            operator_text: self.operator_text,
            shelf: self.shelf,
            is_told: self.is_told,
        })
    }
}
