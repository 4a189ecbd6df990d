//! The way of conditions to alarms: the operator's policies and shelves, and the table of types where none fits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use crate::condition::Condition;
use crate::fencing::Action;
use crate::filter::Filter;
use crate::group::UplinkGroup;
use crate::monitor::Monitor;
use crate::probe::Probe;
use crate::resource::Resource;
use crate::rule::{AlarmRule, MAX_RULES, Threshold};
use crate::session::MaintenanceSettings;
use crate::types::{Effect, Severity};

/// The operator's settings for some conditions. `None` leaves a setting as the type has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: SmolStr,
    pub order: u32,
    pub filter: Filter,
    /// No alarm is raised.
    pub is_ignored: bool,
    pub effect: Option<Effect>,
    pub severity: Option<Severity>,
    pub raise_after: Option<Duration>,
    pub clear_after: Duration,
    /// How often the condition begins within `window` before an alarm is raised.
    pub count: u32,
    pub window: Duration,
    /// Work when an alarm that fits is open and has no cause.
    pub action: Option<Action>,
    /// How long that stays after the alarm has ended.
    pub recovery_delay: Duration,
    /// It is done even if that takes the last way of something.
    pub allows_isolation: bool,
}

/// Alarms that nobody is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf {
    pub name: SmolStr,
    pub filter: Filter,
}

/// The configuration of faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    policies: Vec<Policy>,
    shelves: Vec<Shelf>,
    monitors: Vec<Monitor>,
    probes: Vec<Probe>,
    pub(crate) alarm_rules: Vec<Arc<AlarmRule>>,
    pub maintenance: MaintenanceSettings,
    groups: Vec<Arc<UplinkGroup>>,
    /// An alarm is shown with its impact, not before it.
    pub is_conservative: bool,
}

/// Settings in force for one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) is_ignored: bool,
    pub(crate) effect: Effect,
    pub(crate) severity: Option<Severity>,
    pub(crate) raise_after: Duration,
    pub(crate) clear_after: Duration,
    pub(crate) count: u32,
    pub(crate) window: Duration,
}

impl Settings {
    pub fn new(mut policies: Vec<Policy>, mut shelves: Vec<Shelf>) -> Self {
        policies.sort_by(|one, other| (one.order, &one.name).cmp(&(other.order, &other.name)));
        shelves.sort_by(|one, other| one.name.cmp(&other.name));
        Self { policies, shelves, ..Self::default() }
    }

    pub fn with_monitors(mut self, mut monitors: Vec<Monitor>) -> Self {
        monitors.sort_by(|one, other| one.name.cmp(&other.name));
        self.monitors = monitors;
        self
    }

    pub fn monitors(&self) -> &[Monitor] {
        &self.monitors
    }

    pub fn monitor(&self, name: &str) -> Option<&Monitor> {
        self.monitors.iter().find(|monitor| monitor.name == name)
    }

    /// With more groups. Of two groups of one name, the first one counts.
    pub fn with_groups(mut self, groups: Vec<UplinkGroup>) -> Self {
        self.groups.extend(groups.into_iter().map(Arc::new));
        self.groups.sort_by(|one, other| one.name.cmp(&other.name));
        self.groups.dedup_by(|one, before| one.name == before.name);
        self
    }

    /// Uplink groups and bonds, by name.
    pub fn groups(&self) -> &[Arc<UplinkGroup>] {
        &self.groups
    }

    pub fn group(&self, name: &str) -> Option<&UplinkGroup> {
        self.groups.iter().find(|group| group.name == name).map(|group| &**group)
    }

    /// The first policy that fits a condition.
    pub(crate) fn policy(&self, condition: &Condition) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.filter.matches(condition))
    }

    /// Settings in force for a condition: those of the first policy that fits it, or its type.
    pub(crate) fn rule(&self, condition: &Condition) -> Rule {
        let kind = condition.kind.row;
        let built_in = Rule {
            is_ignored: false,
            effect: kind.effect,
            severity: None,
            raise_after: kind.raise_after,
            clear_after: Duration::ZERO,
            count: kind.count,
            window: kind.window,
        };
        let Some(policy) = self.policy(condition) else { return built_in };
        Rule {
            is_ignored: policy.is_ignored,
            effect: policy.effect.unwrap_or(built_in.effect),
            severity: policy.severity,
            raise_after: policy.raise_after.unwrap_or(built_in.raise_after),
            clear_after: policy.clear_after,
            count: policy.count,
            window: policy.window,
        }
    }

    /// The first shelf that a condition belongs to, by name.
    pub(crate) fn shelf(&self, condition: &Condition) -> Option<&SmolStr> {
        let shelf = self.shelves.iter().find(|shelf| shelf.filter.matches(condition));
        shelf.map(|shelf| &shelf.name)
    }

    /// With more probes. Of two probes of one name, the first one counts.
    pub fn with_probes(mut self, probes: Vec<Probe>) -> Self {
        self.probes.extend(probes);
        self.probes.sort_by(|one, other| one.name.cmp(&other.name));
        self.probes.dedup_by(|one, before| one.name == before.name);
        self
    }

    pub fn probe_entries(&self) -> &[Probe] {
        &self.probes
    }

    /// The probes with the conditions that they report. The name of a probe is in its condition where another one has the same next
    /// hop.
    pub fn probes(&self) -> impl Iterator<Item = (&Probe, Condition)> {
        let mut of_next_hop = BTreeMap::<IpAddr, usize>::new();
        for probe in &self.probes {
            *of_next_hop.entry(probe.next_hop).or_default() += 1;
        }
        self.probes.iter().map(move |probe| {
            let resource = Resource::NextHop(probe.next_hop);
            let condition = Condition::new("next-hop-unreachable", resource);
            match of_next_hop.get(&probe.next_hop) {
                Some(1) | None => (probe, condition),
                Some(_) => (probe, condition.qualified(&probe.name)),
            }
        })
    }

    pub fn with_alarm_rules(mut self, rules: Vec<AlarmRule>) -> Self {
        self.alarm_rules = rules.into_iter().take(MAX_RULES).map(Arc::new).collect();
        self
    }

    /// Rules that are judged at a period.
    pub fn threshold_rules(&self) -> impl Iterator<Item = (&Arc<AlarmRule>, Threshold)> {
        self.alarm_rules.iter().filter_map(|rule| Some((rule, rule.threshold?)))
    }
}
