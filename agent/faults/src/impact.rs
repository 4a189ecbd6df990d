//! Impact of alarms: the objects that do not work because of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use holdfast_config::{EffectiveStatus, InstancePath};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::report::Impact;
use crate::resource::Resource;
use crate::types::Effect;

/// The objects of the configuration that a resource is: entries of the native model.
pub trait Objects: Debug + Send + Sync {
    fn of(&self, resource: &Resource) -> BTreeSet<InstancePath>;
}

impl<O: Objects> Objects for Arc<O> {
    fn of(&self, resource: &Resource) -> BTreeSet<InstancePath> {
        O::of(self, resource)
    }
}

/// A caller without objects.
impl Objects for () {
    fn of(&self, _: &Resource) -> BTreeSet<InstancePath> {
        BTreeSet::new()
    }
}

/// How far the impact of an alarm is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImpactState {
    Pending,
    Complete,
    /// There are more objects than are counted.
    Truncated,
}

impl ImpactState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Complete => "complete",
            Self::Truncated => "truncated",
        }
    }
}

/// The impact of an alarm in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpactCount {
    pub state: ImpactState,
    pub down: usize,
    pub degraded: usize,
}

impl ImpactCount {
    pub(crate) const PENDING: Self = Self { state: ImpactState::Pending, down: 0, degraded: 0 };
}

/// An entry of the native model. Several lists share it.
pub(crate) type Object = Arc<InstancePath>;

/// Objects by the alarms that they suffer from.
#[derive(Debug, Default)]
pub(crate) struct Impacts {
    alarms: BTreeMap<Condition, Affected>,
    objects: BTreeMap<Object, Vec<(u32, EffectiveStatus)>>,
    /// Alarms by the objects that their resources are.
    resources: BTreeMap<Object, BTreeSet<Condition>>,
    conditions: BTreeMap<u32, Condition>,
    last_number: u32,
    /// Objects whose alarms somebody wants to follow.
    watched: BTreeSet<InstancePath>,
}

/// The objects that an alarm affects.
#[derive(Debug, Default)]
struct Affected {
    /// Stands for the alarm in the lists of objects.
    number: u32,
    own: BTreeSet<Object>,
    own_status: Option<EffectiveStatus>,
    others: BTreeMap<Object, EffectiveStatus>,
}

impl Affected {
    fn all(&self) -> BTreeMap<Object, EffectiveStatus> {
        let mut all = self.others.clone();
        if let Some(status) = self.own_status {
            all.extend(self.own.iter().map(|key| (key.clone(), status)));
        }
        all
    }
}

/// Differences after a change of impacts.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) marks: BTreeMap<InstancePath, Option<EffectiveStatus>>,
    /// Alarms whose causes may differ.
    pub(crate) alarms: BTreeSet<Condition>,
    /// Objects that are watched, and that an alarm affects in another way than before.
    pub(crate) watched: BTreeSet<InstancePath>,
}

impl Impacts {
    /// Takes in that an alarm is open, with the objects that its resource is. Its impact stays as it is known.
    pub(crate) fn open(
        &mut self,
        condition: &Condition,
        own: BTreeSet<InstancePath>,
        own_status: Option<EffectiveStatus>,
    ) -> Difference {
        let own: BTreeSet<Object> = own.into_iter().map(Arc::new).collect();
        if !self.alarms.contains_key(condition) {
            self.last_number += 1;
            self.conditions.insert(self.last_number, condition.clone());
            let affected = Affected { number: self.last_number, ..Affected::default() };
            self.alarms.insert(condition.clone(), affected);
        }
        let known = self.alarms.get(condition).map(|affected| affected.own.clone());
        if known.is_some_and(|known| known != own) {
            self.forget_resource(condition);
            for key in &own {
                self.resources.entry(Arc::clone(key)).or_default().insert(condition.clone());
            }
        }
        self.exchange(condition, |affected| {
            affected.own = own;
            affected.own_status = own_status;
        })
    }

    /// Takes in the impact that was found for an open alarm.
    pub(crate) fn set(
        &mut self,
        condition: &Condition,
        effect: Effect,
        impact: &Impact,
    ) -> Difference {
        let [down, degraded] = match effect {
            Effect::Down => [Some(EffectiveStatus::Down), Some(EffectiveStatus::Degraded)],
            Effect::Degrade => [Some(EffectiveStatus::Degraded); 2],
            Effect::Warn => [None; 2],
        };
        let mut found: BTreeMap<Object, EffectiveStatus> = BTreeMap::new();
        for (objects, status) in [(&impact.degraded, degraded), (&impact.down, down)] {
            let Some(status) = status else { continue };
            found.extend(objects.iter().map(|object| (Arc::new(object.clone()), status)));
        }
        self.exchange(condition, |affected| {
            found.retain(|key, _| !affected.own.contains(key));
            affected.others = found;
        })
    }

    /// Takes in that an alarm has ended.
    pub(crate) fn close(&mut self, condition: &Condition) -> Difference {
        let difference = self.exchange(condition, |affected| {
            affected.own_status = None;
            affected.others.clear();
        });
        self.forget_resource(condition);
        if let Some(affected) = self.alarms.remove(condition) {
            self.conditions.remove(&affected.number);
        }
        difference
    }

    /// Forgets the objects that make up the resource of an alarm.
    fn forget_resource(&mut self, condition: &Condition) {
        let own = self.alarms.get(condition).map(|affected| affected.own.clone());
        for key in own.unwrap_or_default() {
            if let Some(alarms) = self.resources.get_mut(&key) {
                alarms.remove(condition);
                if alarms.is_empty() {
                    self.resources.remove(&key);
                }
            }
        }
    }

    fn exchange(
        &mut self,
        condition: &Condition,
        change: impl FnOnce(&mut Affected),
    ) -> Difference {
        let mut difference = Difference::default();
        let Some(affected) = self.alarms.get_mut(condition) else { return difference };
        let before = affected.all();
        change(affected);
        let after = affected.all();
        let number = affected.number;
        // Of two alarms that have each other's object, one is the cause.
        difference.alarms.insert(condition.clone());
        let gone = before.keys().filter(|key| !after.contains_key(*key));
        let gone: Vec<(Object, Option<EffectiveStatus>)> =
            gone.map(|key| (key.clone(), None)).collect();
        let come = after.into_iter().filter(|(key, status)| before.get(key) != Some(status));
        let come = come.map(|(key, status)| (key, Some(status)));
        for (key, status) in gone.into_iter().chain(come) {
            let shown_before = self.status(&key);
            self.put(&key, number, status);
            if self.watched.contains(&*key) {
                difference.watched.insert(InstancePath::clone(&key));
            }
            let shown = self.status(&key);
            difference.alarms.extend(self.resources.get(&key).into_iter().flatten().cloned());
            if shown != shown_before {
                difference.marks.insert(InstancePath::clone(&key), shown);
            }
        }
        difference
    }

    fn put(&mut self, key: &Object, number: u32, status: Option<EffectiveStatus>) {
        let alarms = self.objects.entry(Arc::clone(key)).or_default();
        alarms.retain(|(other, _)| *other != number);
        alarms.extend(status.map(|status| (number, status)));
        if alarms.is_empty() {
            self.objects.remove(key);
        }
    }

    /// Has it told when these objects are affected in another way, and no others.
    pub(crate) fn watch(&mut self, objects: BTreeSet<InstancePath>) {
        self.watched = objects;
    }

    /// The status that an object has by each alarm that affects it.
    pub(crate) fn statuses_by_alarm(
        &self,
        key: &InstancePath,
    ) -> Vec<(&Condition, EffectiveStatus)> {
        let alarms = self.objects.get(key).into_iter().flatten();
        let known = |(number, status): &(u32, EffectiveStatus)| {
            Some((self.conditions.get(number)?, *status))
        };
        alarms.filter_map(known).collect()
    }

    /// The status to show for an object; `None` while no alarm affects it.
    pub(crate) fn status(&self, key: &InstancePath) -> Option<EffectiveStatus> {
        worst(self.objects.get(key)?)
    }

    /// All objects with a status to show.
    #[cfg(test)]
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (&InstancePath, EffectiveStatus)> {
        self.objects.iter().filter_map(|(key, alarms)| Some((&**key, worst(alarms)?)))
    }

    /// How many other objects than its own an alarm affects: those that do not work, and those that work worse.
    pub(crate) fn count(&self, condition: &Condition) -> (usize, usize) {
        let Some(affected) = self.alarms.get(condition) else { return (0, 0) };
        let down =
            affected.others.values().filter(|status| **status == EffectiveStatus::Down).count();
        (down, affected.others.len() - down)
    }

    /// Other objects than its own that an alarm affects, in the order of their paths.
    pub(crate) fn affected(
        &self,
        condition: &Condition,
    ) -> impl Iterator<Item = (&InstancePath, EffectiveStatus)> {
        let affected = self.alarms.get(condition).into_iter();
        affected.flat_map(|it| it.others.iter().map(|(path, status)| (&**path, *status)))
    }

    /// Other alarms whose impact has all the objects that the resource of this one is. The dependents of an uplink group
    /// belong to its impact.
    pub(crate) fn causes(&self, condition: &Condition) -> Vec<&Condition> {
        let Some(affected) = self.alarms.get(condition) else { return Vec::new() };
        let mut own = affected.own.iter();
        let Some(first) = own.next() else { return Vec::new() };
        let has = |number: u32, key: &Object| {
            let other = self.conditions.get(&number).and_then(|it| self.alarms.get(it));
            let is_group = self.conditions.get(&number).is_some_and(|it| it.resource.is_group());
            other.is_some_and(|other| {
                other.others.contains_key(key) || is_group && other.own.contains(key)
            })
        };
        let candidates = self.objects.get(first).into_iter().flatten();
        let candidates = candidates.map(|(number, _)| *number);
        let causes = candidates.filter(|number| {
            *number != affected.number
                && has(*number, first)
                && own.clone().all(|key| has(*number, key))
        });
        causes.filter_map(|number| self.conditions.get(&number)).collect()
    }

    /// Open alarms, for callers who look for their impact again.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = &Condition> {
        self.alarms.keys()
    }
}

fn worst(alarms: &[(u32, EffectiveStatus)]) -> Option<EffectiveStatus> {
    alarms.iter().map(|(_, status)| *status).max()
}
