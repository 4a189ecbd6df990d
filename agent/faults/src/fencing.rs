//! Wishes to shut or drain something because of alarms and latches, and until when.
//!
//! This is a level: whoever carries it out compares it with what is fenced. A fence goes some time after the last alarm that
//! wanted it has ended; an alarm that comes again in between keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use holdfast_config::FenceOwner;
use holdfast_scheduler::Now;
use smol_str::SmolStr;

use crate::alarm::Alarm;
use crate::condition::Condition;
use crate::faults::Faults;
use crate::resource::Resource;

/// Work of a policy while an alarm that fits it is open and has no cause, and of an uplink group while too few of its members
/// are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The interface is shut.
    Shut,
    /// Static routes that have another way leave the interface or next hop.
    Drain,
}

/// A resource that is to be fenced, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceTarget {
    pub resource: Resource,
    pub action: Action,
}

/// The wish that a resource is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// True to do it even if that takes the last way of something.
    pub allows_isolation: bool,
    /// How long it stays after the last alarm that wants it has ended.
    delay: Duration,
    by: BTreeSet<Condition>,
    /// When it goes; `None` while an alarm wants it.
    release_at: Option<Duration>,
}

/// Wishes by what they are for.
type Wishes = BTreeMap<FenceTarget, Wish>;

/// All that is to be fenced, by owner.
#[derive(Debug, Default)]
pub(crate) struct Fencing {
    wishes: BTreeMap<FenceOwner, Wishes>,
    /// Wishes by alarm.
    by_alarm: BTreeMap<Condition, BTreeSet<(FenceOwner, FenceTarget)>>,
    /// Owners that want something else than before.
    changed: BTreeSet<FenceOwner>,
}

/// The wish of one alarm.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) owner: FenceOwner,
    pub(crate) target: FenceTarget,
    pub(crate) delay: Duration,
    pub(crate) allows_isolation: bool,
}

impl Action {
    pub const ALL: [Self; 2] = [Self::Shut, Self::Drain];

    pub fn name(self) -> &'static str {
        match self {
            Self::Shut => "shut",
            Self::Drain => "drain",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Fencing {
    /// Takes in all that an alarm wants now; nothing, once it has ended.
    pub(crate) fn set(&mut self, condition: &Condition, wanted: Vec<Wanted>, now: Duration) {
        let before = self.by_alarm.remove(condition).unwrap_or_default();
        let after: BTreeSet<(FenceOwner, FenceTarget)> =
            wanted.iter().map(|it| (it.owner.clone(), it.target.clone())).collect();
        for (owner, target) in before.difference(&after) {
            self.release(owner, target, condition, now);
        }
        for Wanted { owner, target, delay, allows_isolation } in wanted {
            let wishes = self.wishes.entry(owner.clone()).or_default();
            let is_new = !wishes.contains_key(&target);
            let wish = wishes.entry(target).or_insert_with(|| Wish {
                allows_isolation,
                delay,
                by: BTreeSet::new(),
                release_at: None,
            });
            wish.delay = delay;
            wish.allows_isolation = allows_isolation;
            wish.by.insert(condition.clone());
            wish.release_at = None;
            if is_new {
                self.changed.insert(owner);
            }
        }
        if !after.is_empty() {
            self.by_alarm.insert(condition.clone(), after);
        }
    }

    fn release(
        &mut self,
        owner: &FenceOwner,
        target: &FenceTarget,
        condition: &Condition,
        now: Duration,
    ) {
        let wish = self.wishes.get_mut(owner).and_then(|wishes| wishes.get_mut(target));
        if let Some(wish) = wish
            && wish.by.remove(condition)
            && wish.by.is_empty()
        {
            wish.release_at = Some(now + wish.delay);
        }
    }

    /// When the next fence goes.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.wishes.values().flat_map(BTreeMap::values).filter_map(|wish| wish.release_at).min()
    }

    /// Forgets what is due. Returns the owners that want something else than before.
    pub(crate) fn take_changed(&mut self, now: Duration) -> BTreeSet<FenceOwner> {
        for (owner, wishes) in &mut self.wishes {
            let before = wishes.len();
            wishes.retain(|_, wish| wish.release_at.is_none_or(|at| at > now));
            if wishes.len() != before {
                self.changed.insert(owner.clone());
            }
        }
        self.wishes.retain(|_, wishes| !wishes.is_empty());
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn wishes(&self) -> &BTreeMap<FenceOwner, Wishes> {
        &self.wishes
    }
}

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
