//! Rates and counts of programs that report faults.

use std::collections::BTreeMap;
use std::time::Duration;

use smol_str::SmolStr;

use super::shown::MonitorCounts;

/// The time in which reports are counted against the rate of a monitor.
const RATE_PERIOD: Duration = Duration::from_secs(1);
/// How long it is shown that a reporter sent too many.
pub(super) const OVERFLOW_TIME: Duration = Duration::from_secs(60);

/// All programs that have an entry.
#[derive(Debug, Default)]
pub(super) struct Reporters(BTreeMap<SmolStr, Reporter>);

#[derive(Clone, Copy, Debug, Default)]
struct Reporter {
    counts: MonitorCounts,
    period_began: Duration,
    in_period: u32,
}

impl Reporters {
    /// Keeps those with an entry. Returns those that came and those that went.
    pub(super) fn set(&mut self, names: Vec<SmolStr>) -> Vec<SmolStr> {
        let gone: Vec<SmolStr> =
            self.0.keys().filter(|name| !names.contains(name)).cloned().collect();
        let come: Vec<SmolStr> =
            names.into_iter().filter(|name| !self.0.contains_key(name)).collect();
        self.0.retain(|name, _| !gone.contains(name));
        self.0.extend(come.iter().map(|name| (name.clone(), Reporter::default())));
        come.into_iter().chain(gone).collect()
    }

    /// Counts a report; false when it is over the rate.
    pub(super) fn admit(&mut self, name: &str, rate: u32, now: Duration) -> bool {
        let Some(reporter) = self.0.get_mut(name) else { return true };
        if now.saturating_sub(reporter.period_began) >= RATE_PERIOD {
            reporter.period_began = now;
            reporter.in_period = 0;
        }
        reporter.in_period = reporter.in_period.saturating_add(1);
        reporter.in_period <= rate
    }

    /// Notes whether a report was taken.
    pub(super) fn note(&mut self, name: &str, is_taken: bool, now_ns: u64) {
        let Some(reporter) = self.0.get_mut(name) else { return };
        if is_taken {
            reporter.counts.reports += 1;
            reporter.counts.last_seen_ns = now_ns;
        } else {
            reporter.counts.refused += 1;
        }
    }

    pub(super) fn counts(&self, name: &str) -> Option<MonitorCounts> {
        self.0.get(name).map(|reporter| reporter.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reporter_has_a_rate_for_each_second() {
        let mut reporters = Reporters::default();
        assert_eq!(reporters.set(vec!["one".into(), "two".into()]), ["one", "two"]);
        let admitted =
            |reporters: &mut Reporters, ms| reporters.admit("one", 2, Duration::from_millis(ms));
        assert_eq!([0, 1, 2].map(|ms| admitted(&mut reporters, ms)), [true, true, false]);
        assert!(reporters.admit("two", 2, Duration::ZERO), "each has a rate of its own");
        assert!(admitted(&mut reporters, 1000));
        assert_eq!(reporters.set(vec!["two".into()]), ["one"]);
        assert!(reporters.counts("one").is_none());
    }
}
