//! Alarm rules: what operators asked to be told of, beside the alarms themselves.
//!
//! An event rule is judged when an alarm changes that it may fit, never by a clock. A threshold rule is judged by the daemon at
//! the rule's period, which reports a [`Verdict`](crate::Verdict). While an alarm fits, or a threshold is passed, the rule has an alarm of its
//! own, `rule-matched.OWNER/NAME@agent`, which is told like every other one.

use std::time::Duration;

use smol_str::{SmolStr, format_smolstr};

use crate::condition::Condition;
use crate::filter::Filter;
use crate::resource::Resource;
use crate::types::Severity;

/// Rules that are judged: as many as conditions are kept.
pub const MAX_RULES: usize = 10_000;
/// The type of the alarms of rules. No rule is judged by one of these.
pub(crate) const RULE_MATCHED: &str = "rule-matched";

/// When a threshold rule is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub period: Duration,
    /// Periods in a row in which the expression is true before there is an alarm.
    pub count: u32,
}

/// Alarms, or values of leaves, that somebody asked to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmRule {
    pub owner: SmolStr,
    pub name: SmolStr,
    pub severity: Severity,
    /// Each alarm that it fits counts as an occurrence, not the first one alone; of a threshold rule, each period.
    pub repeats: bool,
    /// Its alarm stays until an operator ends it.
    pub is_reset_by_hand: bool,
    /// Set for a rule that is judged at a period. Others are judged by changes of alarms.
    pub threshold: Option<Threshold>,
    /// The alarms that an event rule may fit.
    pub filter: Filter,
    /// Without one, type and resource suffice.
    pub expression: Option<SmolStr>,
    pub description: SmolStr,
}

impl AlarmRule {
    /// The condition of its own alarm.
    pub fn condition(&self) -> Condition {
        condition_of(&self.owner, &self.name)
    }

    /// The alarm that it fits is not named, because not everybody who sees this text may know of it.
    pub(crate) fn text(&self) -> SmolStr {
        let Self { owner, name, .. } = self;
        match (self.description.is_empty(), self.threshold) {
            (false, _) => self.description.clone(),
            (true, None) => format_smolstr!("an alarm fits the rule {name} of {owner}"),
            (true, Some(_)) => {
                format_smolstr!("the expression of the rule {name} of {owner} is true")
            }
        }
    }
}

/// The condition of the alarm of a rule.
pub(crate) fn condition_of(owner: &str, name: &str) -> Condition {
    Condition::new(RULE_MATCHED, Resource::Agent).qualified(&format!("{owner}/{name}"))
}
