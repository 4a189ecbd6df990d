//! Programs that report faults, and what they may report.

use std::time::Duration;

use smol_str::SmolStr;

use crate::condition::Condition;
use crate::glob::Glob;
use crate::types::Severity;

/// A program that may report faults, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    pub name: SmolStr,
    /// The user who reports; without one, the local command alone does.
    pub identity: Option<SmolStr>,
    /// Types and resources that it may report; without any, all.
    pub kinds: Vec<Glob>,
    pub resources: Vec<Glob>,
    pub max_severity: Severity,
    pub max_ttl: Duration,
    /// Reports a second.
    pub rate: u32,
}

/// The statement of a reporter about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The condition holds. The word has to be repeated within its ttl.
    Raised,
    /// The condition has ended.
    Cleared,
    /// The condition happened, and has no end: it counts for its ttl.
    Occurred,
}

/// A report from outside of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideReport {
    pub condition: Condition,
    pub word: Word,
    /// Without one, that of the type.
    pub severity: Option<Severity>,
    pub text: SmolStr,
    /// When it was seen, in nanoseconds since 1970.
    pub seen_ns: u64,
    pub ttl: Option<Duration>,
}

/// Reason for which a report is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    #[error("there is no monitor `{0}` in /fault-management")]
    Unknown(SmolStr),
    #[error(
        "the monitor `{monitor}` does not report the type `{kind}`: its `types` are {patterns}"
    )]
    Kind { monitor: SmolStr, kind: SmolStr, patterns: String },
    #[error(
        "the monitor `{monitor}` does not report of `{resource}`: its `resources` are {patterns}"
    )]
    Resource { monitor: SmolStr, resource: String, patterns: String },
    #[error("the monitor `{monitor}` reports at most {most}, not {severity}")]
    Severity { monitor: SmolStr, most: Severity, severity: Severity },
    #[error("the monitor `{monitor}` reports for at most {most} s, not {ttl} s")]
    Ttl { monitor: SmolStr, most: u64, ttl: u64 },
    #[error(
        "`{condition}` was not raised by the monitor `{monitor}`, so `{monitor}` does not end it"
    )]
    OfAnother { monitor: SmolStr, condition: Condition },
}

impl Monitor {
    /// # Errors
    /// When the entry does not permit the report.
    pub fn check(&self, report: &OutsideReport) -> Result<(), MonitorError> {
        let monitor = || self.name.clone();
        let kind = &report.condition.kind.name;
        if !fits(&self.kinds, kind) {
            let patterns = listed(&self.kinds);
            return Err(MonitorError::Kind { monitor: monitor(), kind: kind.clone(), patterns });
        }
        let resource = report.condition.resource.to_string();
        if !fits(&self.resources, &resource) {
            let patterns = listed(&self.resources);
            return Err(MonitorError::Resource { monitor: monitor(), resource, patterns });
        }
        let severity = report.severity.unwrap_or(report.condition.kind.row.severity);
        if severity > self.max_severity {
            let most = self.max_severity;
            return Err(MonitorError::Severity { monitor: monitor(), most, severity });
        }
        if let Some(ttl) = report.ttl.filter(|ttl| *ttl > self.max_ttl) {
            let [most, ttl] = [self.max_ttl, ttl].map(|time| time.as_secs());
            return Err(MonitorError::Ttl { monitor: monitor(), most, ttl });
        }
        Ok(())
    }
}

/// True when one of the patterns fits, or there is none.
fn fits(patterns: &[Glob], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}

fn listed(patterns: &[Glob]) -> String {
    let patterns: Vec<String> = patterns.iter().map(|pattern| format!("`{pattern}`")).collect();
    patterns.join(", ")
}
