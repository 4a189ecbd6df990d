//! Which alarms and transitions somebody asks for.

use holdfast_faults::{Alarm, Filter, Glob, Severity, Transition};

/// A selection of alarms.
#[derive(Clone, Debug)]
pub struct AlarmFilter {
    subject: Filter,
    least_severity: Option<Severity>,
    /// Shelved alarms as well.
    shelved: bool,
    /// Nanoseconds since 1970 before which nothing is selected.
    since_ns: u64,
}

impl AlarmFilter {
    /// A selection; an empty pattern selects everything.
    pub fn new(
        kind: &str,
        resource: &str,
        least_severity: Option<Severity>,
        shelved: bool,
        since_ns: u64,
    ) -> Self {
        let glob = |pattern: &str| match pattern {
            "" => Glob::default(),
            pattern => Glob::new(pattern),
        };
        let subject = Filter { kind: glob(kind), resource: glob(resource) };
        Self { subject, least_severity, shelved, since_ns }
    }

    pub fn matches(&self, alarm: &Alarm) -> bool {
        (self.shelved || alarm.shelf.is_none())
            && alarm.created_ns >= self.since_ns
            && self.is_about(alarm)
    }

    /// Shelving stops raises; the end of what was told is told in any case.
    pub fn matches_transition(&self, transition: &Transition) -> bool {
        (self.shelved || transition.is_told())
            && transition.time_ns >= self.since_ns
            && self.is_about(&transition.alarm)
    }

    fn is_about(&self, alarm: &Alarm) -> bool {
        self.least_severity.is_none_or(|least| alarm.severity >= least)
            && self.subject.matches(&alarm.condition)
    }
}
