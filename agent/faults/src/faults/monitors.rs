//! Reports of programs outside of the agent.

use std::time::Duration;

use holdfast_scheduler::Now;

use super::{Effects, Faults, Input};
use crate::monitor::{MonitorError, OutsideReport, Word};
use crate::report::{Report, Silence, Source};

/// How long something that occurred is shown, unless its reporter says otherwise.
const OCCURRED_TIME: Duration = Duration::from_secs(300);
/// How long a report counts that comes without a time: as long as its monitor permits, and no longer than this.
const RAISED_TIME: Duration = Duration::from_secs(300);

impl Faults {
    /// Takes in what a reporter says.
    ///
    /// # Errors
    /// When its `monitor` entry does not permit that.
    pub fn report_from_outside(
        &mut self,
        monitor: &str,
        report: OutsideReport,
        now: Now,
    ) -> Result<Effects, MonitorError> {
        let entry = self.settings().monitor(monitor);
        let entry = entry.ok_or_else(|| MonitorError::Unknown(monitor.into()))?;
        entry.check(&report)?;
        let max_ttl = entry.max_ttl;
        let source = Source::Reporter(monitor.into());
        let OutsideReport { condition, word, severity, text, seen_ns, ttl } = report;
        let silence = match word {
            Word::Raised => Some(Silence::Lingers(ttl.unwrap_or(RAISED_TIME.min(max_ttl)))),
            Word::Occurred => Some(Silence::Ends(ttl.unwrap_or(OCCURRED_TIME.min(max_ttl)))),
            Word::Cleared if self.holds(&condition) && !self.holds_by(&condition, &source) => {
                return Err(MonitorError::OfAnother { monitor: monitor.into(), condition });
            }
            Word::Cleared => None,
        };
        let report = Report {
            holds: word != Word::Cleared,
            begins: (word == Word::Occurred).then_some(1),
            severity,
            silence,
            ..Report::holding(condition, text, seen_ns)
        };
        Ok(self.on(Input::Reports(source, vec![report]), now))
    }
}
