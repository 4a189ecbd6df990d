//! Selections of alarms and transitions.

use std::slice::from_ref;

use holdfast_faults::{Alarm, Filter, Glob, Severity, Transition};

use super::check::{PatternError, check_patterns};

/// A selection of alarms.
#[derive(Clone, Debug)]
pub struct AlarmFilter {
    subject: Filter,
    least_severity: Option<Severity>,
    /// Shelved alarms as well.
    shelved: bool,
    /// Alarms without a cause alone.
    roots: bool,
    /// Nanoseconds since 1970 before which nothing is selected.
    since_ns: u64,
}

impl AlarmFilter {
    /// A selection; an empty pattern selects everything.
    ///
    /// # Errors
    /// For a pattern that no alarm can fit.
    pub fn new(
        kind: &str,
        resource: &str,
        least_severity: Option<Severity>,
        shelved: bool,
        roots: bool,
        since_ns: u64,
    ) -> Result<Self, PatternError> {
        let glob = |pattern: &str| match pattern {
            "" => Glob::default(),
            pattern => Glob::new(pattern),
        };
        let subject = Filter { kind: glob(kind), resource: glob(resource) };
        check_patterns(from_ref(&subject.kind), from_ref(&subject.resource))?;
        Ok(Self { subject, least_severity, shelved, roots, since_ns })
    }

    /// The selection of all alarms, also of shelved ones.
    pub fn all() -> Self {
        Self {
            subject: Filter::default(),
            least_severity: None,
            shelved: true,
            roots: false,
            since_ns: 0,
        }
    }

    pub fn matches(&self, alarm: &Alarm) -> bool {
        (self.shelved || !alarm.is_aside())
            && (!self.roots || alarm.cause.is_none())
            && alarm.created_ns >= self.since_ns
            && self.is_severe(alarm.severity)
            && self.subject.matches(&alarm.condition)
    }

    /// Shelving stops raises; the end of what was told is told in any case. A change of severity is told to those who know the
    /// alarm by the one before.
    pub fn matches_transition(&self, transition: &Transition) -> bool {
        (self.shelved || transition.is_told())
            && (!self.roots || transition.is_of_root())
            && transition.time_ns >= self.since_ns
            && self.is_severe(transition.worst_severity())
            && self.subject.matches(&transition.alarm.condition)
    }

    fn is_severe(&self, severity: Severity) -> bool {
        self.least_severity.is_none_or(|least| severity >= least)
    }
}
