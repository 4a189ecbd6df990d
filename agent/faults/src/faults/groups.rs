//! Uplink groups as they are now, and their alarms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::{EffectiveStatus, InstancePath};
use holdfast_scheduler::Now;
use smol_str::SmolStr;

use super::Faults;
use crate::alarm::Alarm;
use crate::condition::{Condition, Kind};
use crate::group::{UplinkGroup, condition_of, condition_of_bond};
use crate::report::{Report, Source};
use crate::resource::Resource;
use crate::types::REPORTED;

/// Name for what a group does to its dependents while only some members are lost. It is not a type, so nobody reports
/// it.
const UPLINKS_DEGRADED: &str = "uplinks-degraded";

/// A group as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Members that are lost.
    pub lost: BTreeSet<SmolStr>,
    /// `None` while all of them are there.
    pub status: Option<EffectiveStatus>,
    /// When the group lost the member that it has one too few without, in nanoseconds since 1970.
    down_since_ns: Option<u64>,
}

/// Working members of a group, and the number that must work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    pub name: SmolStr,
    pub left: BTreeSet<SmolStr>,
    pub least: usize,
}

/// All that is known of groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Groups by the entries of their members.
    by_member: BTreeMap<InstancePath, BTreeSet<SmolStr>>,
    /// Groups whose members may be lost by each group: itself, and those that come after it.
    behind: BTreeMap<SmolStr, BTreeSet<SmolStr>>,
    /// Members that are neither configured nor on the box; `None` until somebody has looked.
    missing: Option<BTreeSet<SmolStr>>,
    states: BTreeMap<SmolStr, GroupState>,
    /// Groups that are to be judged.
    outdated: BTreeSet<SmolStr>,
}

impl Groups {
    /// Notes that the status of an object may be another one.
    pub(crate) fn outdate(&mut self, object: &InstancePath) {
        self.outdated.extend(self.by_member.get(object).into_iter().flatten().cloned());
    }
}

/// The stand-in for a group in the impacts while only some of its members are lost.
fn degraded_of(group: &SmolStr) -> Condition {
    let kind = Kind { name: UPLINKS_DEGRADED.into(), row: &REPORTED };
    Condition { kind, qualifier: SmolStr::default(), resource: Resource::Group(group.clone()) }
}

impl Faults {
    /// The group as it is now; `None` for one that is not configured, or not judged yet.
    pub fn group_state(&self, name: &str) -> Option<&GroupState> {
        self.groups.states.get(name)
    }

    /// Groups with the members that they have left.
    pub fn group_standings(&self) -> Vec<GroupStanding> {
        let standing = |group: &Arc<UplinkGroup>| {
            let state = self.groups.states.get(&group.name)?;
            let left = group.members.difference(&state.lost).cloned().collect();
            Some(GroupStanding { name: group.name.clone(), left, least: group.least })
        };
        self.settings.groups().iter().filter_map(standing).collect()
    }

    /// The objects that a resource is.
    pub(crate) fn objects_of(&self, resource: &Resource) -> BTreeSet<InstancePath> {
        let Resource::Group(name) = resource else { return self.objects.of(resource) };
        let dependents = self.settings.group(name).map(|group| group.dependents.clone());
        let dependents = dependents.into_iter().flatten().map(Resource::Interface);
        dependents.flat_map(|dependent| self.objects.of(&dependent)).collect()
    }

    /// Takes in which of the groups' members are not there at all.
    pub(crate) fn take_missing(&mut self, missing: BTreeSet<SmolStr>) {
        self.groups.missing = Some(missing);
        self.groups.outdated.extend(self.settings.groups().iter().map(|it| it.name.clone()));
    }

    /// Takes in which groups there are. `before` are those of the settings before.
    pub(crate) fn take_groups(&mut self, before: &[Arc<UplinkGroup>], now: Now) {
        let settings = Arc::clone(&self.settings);
        let groups = settings.groups();
        self.groups.by_member.clear();
        for group in groups {
            for member in &group.members {
                for entry in self.objects.of(&Resource::Interface(member.clone())) {
                    let of_entry = self.groups.by_member.entry(entry).or_default();
                    of_entry.insert(group.name.clone());
                }
            }
        }
        self.impacts.watch(self.groups.by_member.keys().cloned().collect());
        self.groups.behind =
            groups.iter().map(|group| (group.name.clone(), behind(groups, group))).collect();
        // A stored alarm may be of a group that is gone.
        let held =
            self.conditions.iter().filter(|(_, it)| it.holders.contains_key(&Source::Groups));
        let held = held.filter_map(|(condition, _)| match &condition.resource {
            Resource::Group(name) => Some(name.clone()),
            _ => None,
        });
        let known: BTreeSet<SmolStr> =
            held.chain(before.iter().map(|it| it.name.clone())).collect();
        for name in known {
            if settings.group(&name).is_none() {
                self.forget_group(&name, now);
            }
        }
        for group in groups.iter().filter(|group| !before.contains(group)) {
            self.groups.outdated.insert(group.name.clone());
            if !group.is_bond && self.alarm(&group.condition()).is_some() {
                self.open_impact(&group.condition(), now);
            }
        }
    }

    fn forget_group(&mut self, name: &SmolStr, now: Now) {
        self.groups.outdated.remove(name);
        self.groups.states.remove(name);
        self.effects.shown_groups.insert(name.clone());
        let difference = self.impacts.close(&degraded_of(name));
        self.take_difference(difference, now);
        self.report(Source::Groups, Report::ended(condition_of(name), now.unix_ns), now);
        // It may have been a bond.
        self.judge_cause(&condition_of_bond(name), now);
    }

    /// Judges the groups whose members may have another status, and those that come after them.
    pub(crate) fn judge_groups(&mut self, now: Now) {
        if self.groups.missing.is_none() {
            return;
        }
        while let Some(name) = self.groups.outdated.pop_first() {
            let settings = Arc::clone(&self.settings);
            if let Some(group) = settings.group(&name) {
                self.judge_group(group, now);
            }
        }
    }

    fn judge_group(&mut self, group: &UplinkGroup, now: Now) {
        let is_lost = |member: &&SmolStr| {
            let is_missing = self.groups.missing.as_ref().is_some_and(|it| it.contains(*member));
            let is_lost = self.losses(group, member).next().is_some();
            is_missing || is_lost || self.is_maintained(member)
        };
        let lost: BTreeSet<SmolStr> = group.members.iter().filter(is_lost).cloned().collect();
        let left = group.members.len() - lost.len();
        let is_down = !group.members.is_empty() && left < group.least;
        let status = match (is_down, lost.is_empty()) {
            (true, _) => Some(EffectiveStatus::Down),
            (false, false) => Some(EffectiveStatus::Degraded),
            (false, true) => None,
        };
        let condition = group.condition();
        let difference = match status {
            Some(EffectiveStatus::Degraded) => {
                let own = self.objects_of(&Resource::Group(group.name.clone()));
                self.impacts.open(&degraded_of(&group.name), own, status)
            }
            _ => self.impacts.close(&degraded_of(&group.name)),
        };
        self.take_difference(difference, now);
        let down_since_ns = self.down_since(group).filter(|_| is_down);
        let report = match is_down {
            true => {
                let since_ns = down_since_ns.unwrap_or(now.unix_ns);
                Report::holding(condition.clone(), group.text(&lost), since_ns)
            }
            false => Report::ended(condition.clone(), now.unix_ns),
        };
        // The kernel says whether a bond is down.
        let report = (!group.is_bond).then_some(report);
        let state = GroupState { lost, status, down_since_ns };
        if self.groups.states.get(&group.name) != Some(&state) {
            self.groups.states.insert(group.name.clone(), state);
            self.effects.shown_groups.insert(group.name.clone());
            let behind = self.groups.behind.get(&group.name).into_iter().flatten();
            self.groups.outdated.extend(behind.filter(|name| **name != group.name).cloned());
        }
        if let Some(report) = report {
            self.report(Source::Groups, report, now);
        }
        self.judge_cause(&condition, now);
    }

    /// Alarms by which a member is lost. The alarm of the group itself and actions of a group after it do not count as evidence.
    fn losses(&self, group: &UplinkGroup, member: &SmolStr) -> impl Iterator<Item = &Alarm> {
        let behind = self.groups.behind.get(&group.name);
        let own = group.condition();
        let is_own = move |condition: &Condition| match &condition.resource {
            Resource::Group(name) => behind.is_some_and(|behind| behind.contains(name)),
            _ => *condition == own,
        };
        let entries = self.objects.of(&Resource::Interface(member.clone())).into_iter();
        let statuses = entries.flat_map(|entry| self.impacts.statuses_by_alarm(&entry.into()));
        let downs = statuses.filter(|(_, status)| *status >= EffectiveStatus::Down);
        let downs = downs.filter(move |(condition, _)| !is_own(condition));
        downs.filter_map(|(condition, _)| self.alarm(condition))
    }

    /// The alarm of the member that a group has lost last.
    pub(crate) fn cause_of_group(&self, name: &str) -> Option<Condition> {
        let group = self.settings.group(name)?;
        let losses = group.members.iter().filter_map(|member| self.first_loss(group, member));
        let is_shelved = |it: &Condition| self.alarm(it).is_some_and(|it| it.shelf.is_some());
        let last = losses.max_by_key(|(at, it)| (!is_shelved(it), *at, it.clone()));
        last.map(|(_, condition)| condition)
    }

    /// The alarm by which a member was lost first, and when that was.
    fn first_loss(&self, group: &UplinkGroup, member: &SmolStr) -> Option<(u64, Condition)> {
        let losses = self.losses(group, member);
        losses.map(|alarm| (self.lost_at(alarm), alarm.condition.clone())).min()
    }

    /// When the resource of an alarm was lost, by what holds now: for a group the time of looking does not matter. 0
    /// where nobody has seen it.
    fn lost_at(&self, alarm: &Alarm) -> u64 {
        match &alarm.condition.resource {
            Resource::Group(name) => {
                let group = self.settings.group(name);
                group.and_then(|group| self.down_since(group)).unwrap_or_default()
            }
            _ => alarm.created_ns,
        }
    }

    /// When a group lost the member that it has one too few without. `None` where that member was never seen.
    fn down_since(&self, group: &UplinkGroup) -> Option<u64> {
        let is_missing = |member: &SmolStr| {
            self.groups.missing.as_ref().is_some_and(|missing| missing.contains(member))
        };
        let time = |member: &SmolStr| match self.first_loss(group, member) {
            Some((at, _)) => Some(at),
            None => is_missing(member).then_some(0),
        };
        let mut times: Vec<u64> = group.members.iter().filter_map(time).collect();
        times.sort_unstable();
        let spare = group.members.len().checked_sub(group.least)?;
        times.get(spare).copied().filter(|at| *at > 0)
    }

    /// The alarm of a member, for a bond that has too few of them left.
    pub(crate) fn cause_of_bond(&self, alarm: &Alarm) -> Option<Condition> {
        let Resource::Interface(name) = &alarm.condition.resource else { return None };
        let bond = self.settings.group(name)?;
        let is_down = self.group_state(name)?.status == Some(EffectiveStatus::Down);
        let is_of_bond = bond.is_bond && bond.condition() == alarm.condition;
        (is_of_bond && is_down).then(|| self.cause_of_group(name))?
    }

    /// True for a group or bond that has this resource as a member: it is the group that suffers, whatever stands on what.
    pub(crate) fn is_member_of(&self, resource: &Resource, group_resource: &Resource) -> bool {
        let (Resource::Interface(name), Resource::Group(group) | Resource::Interface(group)) =
            (resource, group_resource)
        else {
            return false;
        };
        let is_meant = |it: &&UplinkGroup| it.is_bond || group_resource.is_group();
        let group = self.settings.group(group).filter(is_meant);
        group.is_some_and(|group| group.members.contains(name))
    }
}

/// The group, and all whose members are its dependents or those of one of these.
fn behind(groups: &[Arc<UplinkGroup>], group: &UplinkGroup) -> BTreeSet<SmolStr> {
    let mut found = BTreeSet::from([group.name.clone()]);
    let mut dependents = group.dependents.clone();
    loop {
        let more = groups.iter().filter(|it| !it.members.is_disjoint(&dependents));
        let more: Vec<&Arc<UplinkGroup>> = more.filter(|it| !found.contains(&it.name)).collect();
        if more.is_empty() {
            return found;
        }
        for group in more {
            found.insert(group.name.clone());
            dependents.extend(group.dependents.iter().cloned());
        }
    }
}
