//! Wishes of alarms and latches to shut or drain something.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_config::FenceOwner;
use holdfast_scheduler::Now;
use smol_str::SmolStr;

use super::Faults;
use crate::alarm::Alarm;
use crate::condition::Condition;
use crate::fencing::{Action, FenceTarget, Wanted, Wishes};
use crate::resource::Resource;

impl Faults {
    /// All that is to be fenced, by owner.
    pub fn fences(&self) -> &BTreeMap<FenceOwner, Wishes> {
        self.fencing.wishes()
    }

    /// Takes in what an alarm wants now.
    pub(crate) fn refence(&mut self, condition: &Condition, now: Now) {
        let tracked = self.conditions.get(condition);
        let is_known = tracked.is_some_and(|it| it.is_impact_known);
        let alarm = tracked.and_then(|it| it.alarm.as_ref()).filter(|it| !it.is_aside());
        // An object that does not work because of the alarm loses nothing by the fence, so these objects have to be
        // known first.
        let alarm = alarm.filter(|it| is_known || it.impact.is_none());
        let by_policy = alarm.and_then(|alarm| self.wanted_by_policy(alarm));
        let by_group = alarm.map(|_| self.wanted_by_group(condition)).unwrap_or_default();
        let latch = self.latches.get(condition).filter(|latch| latch.is_fenced);
        let latch = latch.map(|latch| Wanted {
            owner: FenceOwner::Latch(latch.by.clone()),
            target: FenceTarget { resource: condition.resource.clone(), action: Action::Shut },
            delay: Duration::ZERO,
            allows_isolation: true, // it was asked for when the latch was set
        });
        let wanted = by_policy.into_iter().chain(by_group).chain(latch).collect();
        self.fencing.set(condition, wanted, now.monotonic);
    }

    fn wanted_by_policy(&self, alarm: &Alarm) -> Option<Wanted> {
        let condition = &alarm.condition;
        let policy = self.settings.policy(condition)?;
        // An alarm about a failed fence does not cause another fence.
        if alarm.cause.is_some() || condition.kind.name == "fence-failed" {
            return None;
        }
        Some(Wanted {
            owner: FenceOwner::Policy(policy.name.clone()),
            target: FenceTarget { resource: condition.resource.clone(), action: policy.action? },
            delay: policy.recovery_delay,
            allows_isolation: policy.allows_isolation,
        })
    }

    /// Wishes of an uplink group while its alarm is open, with or without a cause.
    fn wanted_by_group(&self, condition: &Condition) -> Vec<Wanted> {
        let Resource::Group(name) = &condition.resource else { return Vec::new() };
        let group = self.settings.group(name).filter(|it| it.condition() == *condition);
        let Some((group, action)) = group.and_then(|it| Some((it, it.action?))) else {
            return Vec::new();
        };
        let wanted = |dependent: &SmolStr| Wanted {
            owner: FenceOwner::Group(name.clone()),
            target: FenceTarget { resource: Resource::Interface(dependent.clone()), action },
            delay: group.recovery_delay,
            allows_isolation: group.allows_isolation,
        };
        group.dependents.iter().map(wanted).collect()
    }
}
