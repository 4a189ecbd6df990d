//! Conditions that probes of next hops report.

use std::collections::BTreeSet;

use holdfast_scheduler::Now;

use super::Faults;
use crate::condition::Condition;
use crate::report::{Report, Source};

impl Faults {
    pub(crate) fn is_probed(&self, condition: &Condition) -> bool {
        self.settings.probes().any(|(_, it)| it == *condition)
    }

    /// Ends what probes have said that are configured no more.
    pub(crate) fn forget_probes(&mut self, now: Now) {
        let settings = self.settings.clone();
        let probed: BTreeSet<Condition> = settings.probes().map(|(_, it)| it).collect();
        let held = self.conditions.iter();
        let held = held.filter(|(_, tracked)| tracked.holders.contains_key(&Source::Probes));
        let gone: Vec<Condition> =
            held.map(|(it, _)| it).filter(|it| !probed.contains(it)).cloned().collect();
        for condition in gone {
            self.report(Source::Probes, Report::ended(condition, now.unix_ns), now);
        }
    }
}
