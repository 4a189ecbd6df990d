//! Impact of alarms: the objects that do not work because of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use holdfast_config::{EffectiveStatus, InstancePath, SharedPath};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

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

holdfast_config::enum_names!(ImpactState {
    Pending = "pending",
    Complete = "complete",
    Truncated = "truncated",
});

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

/// Alarms by which an object is affected, by their numbers. Most objects have one.
type Affections = SmallVec<[(u32, EffectiveStatus); 1]>;

/// Objects by the alarms that they suffer from.
#[derive(Debug, Default)]
pub(crate) struct Impacts {
    alarms: BTreeMap<Condition, Affected>,
    objects: BTreeMap<SharedPath, Affections>,
    /// Alarms by the objects that their resources are.
    resources: BTreeMap<SharedPath, BTreeSet<Condition>>,
    conditions: BTreeMap<u32, Condition>,
    last_number: u32,
    /// Objects whose alarms somebody wants to follow.
    watched: BTreeSet<SharedPath>,
}

/// The objects that an alarm affects.
#[derive(Debug, Default)]
struct Affected {
    /// Stands for the alarm in the lists of objects.
    number: u32,
    own: BTreeSet<SharedPath>,
    own_status: Option<EffectiveStatus>,
    /// Objects that are not its own, in ascending order.
    others: Box<[(SharedPath, EffectiveStatus)]>,
}

impl Affected {
    fn all(&self) -> BTreeMap<SharedPath, EffectiveStatus> {
        let mut all: BTreeMap<SharedPath, EffectiveStatus> = self.others.iter().cloned().collect();
        if let Some(status) = self.own_status {
            all.extend(self.own.iter().map(|key| (key.clone(), status)));
        }
        all
    }

    /// True for an object that is not its own, and does not work because of the alarm.
    fn affects(&self, object: &SharedPath) -> bool {
        self.others.binary_search_by(|(other, _)| other.cmp(object)).is_ok()
    }
}

/// Differences after a change of impacts.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) marks: BTreeMap<SharedPath, Option<EffectiveStatus>>,
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
        let own: BTreeSet<SharedPath> = own.into_iter().map(SharedPath::from).collect();
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
                self.resources.entry(key.clone()).or_default().insert(condition.clone());
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
        let mut found: BTreeMap<SharedPath, EffectiveStatus> = BTreeMap::new();
        for (objects, status) in [(&impact.degraded, degraded), (&impact.down, down)] {
            let Some(status) = status else { continue };
            found.extend(objects.iter().map(|object| (object.clone(), status)));
        }
        self.exchange(condition, |affected| {
            found.retain(|key, _| !affected.own.contains(key));
            affected.others = found.into_iter().collect();
        })
    }

    /// Takes in that an alarm has ended.
    pub(crate) fn close(&mut self, condition: &Condition) -> Difference {
        let difference = self.exchange(condition, |affected| {
            affected.own_status = None;
            affected.others = Box::default();
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
        let gone: Vec<(SharedPath, Option<EffectiveStatus>)> =
            gone.map(|key| (key.clone(), None)).collect();
        let come = after.into_iter().filter(|(key, status)| before.get(key) != Some(status));
        let come = come.map(|(key, status)| (key, Some(status)));
        let mut fresh = Vec::new();
        for (key, status) in gone.into_iter().chain(come) {
            let shown_before = self.status(&key);
            let shown = if let Some(status) = status
                && shown_before.is_none()
            {
                fresh.push((key.clone(), smallvec![(number, status)]));
                Some(status)
            } else {
                self.put(&key, number, status);
                self.status(&key)
            };
            if self.watched.contains(&key) {
                difference.watched.insert(key.to_path());
            }
            difference.alarms.extend(self.resources.get(&key).into_iter().flatten().cloned());
            if shown != shown_before {
                difference.marks.insert(key, shown);
            }
        }
        self.add(fresh.into_iter().collect());
        difference
    }

    /// Adds objects that no other alarm affects. A map that is built as a whole has full nodes; one that gets ascending keys one
    /// by one has nodes that are little more than half full.
    fn add(&mut self, mut fresh: BTreeMap<SharedPath, Affections>) {
        if fresh.len() > self.objects.len() {
            self.objects.append(&mut fresh);
        } else {
            self.objects.extend(fresh);
        }
    }

    fn put(&mut self, key: &SharedPath, number: u32, status: Option<EffectiveStatus>) {
        let alarms = self.objects.entry(key.clone()).or_default();
        alarms.retain(|(other, _)| *other != number);
        alarms.extend(status.map(|status| (number, status)));
        if alarms.is_empty() {
            self.objects.remove(key);
        }
    }

    /// Has it told when these objects are affected in another way, and no others.
    pub(crate) fn watch(&mut self, objects: BTreeSet<InstancePath>) {
        self.watched = objects.into_iter().map(SharedPath::from).collect();
    }

    /// The status that an object has by each alarm that affects it.
    pub(crate) fn statuses_by_alarm(&self, key: &SharedPath) -> Vec<(&Condition, EffectiveStatus)> {
        let alarms = self.objects.get(key).into_iter().flatten();
        let known = |(number, status): &(u32, EffectiveStatus)| {
            Some((self.conditions.get(number)?, *status))
        };
        alarms.filter_map(known).collect()
    }

    /// The status to show for an object; `None` while no alarm affects it.
    pub(crate) fn status(&self, key: &SharedPath) -> Option<EffectiveStatus> {
        worst(self.objects.get(key)?)
    }

    /// All objects with a status to show.
    #[cfg(test)]
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (InstancePath, EffectiveStatus)> {
        self.objects.iter().filter_map(|(key, alarms)| Some((key.to_path(), worst(alarms)?)))
    }

    /// How many other objects than its own an alarm affects: those that do not work, and those that work worse.
    pub(crate) fn count(&self, condition: &Condition) -> (usize, usize) {
        let Some(affected) = self.alarms.get(condition) else { return (0, 0) };
        let down =
            affected.others.iter().filter(|(_, status)| *status == EffectiveStatus::Down).count();
        (down, affected.others.len() - down)
    }

    /// Other objects than its own that an alarm affects, by list and key.
    pub(crate) fn affected(
        &self,
        condition: &Condition,
    ) -> impl Iterator<Item = (InstancePath, EffectiveStatus)> {
        let affected = self.alarms.get(condition).into_iter();
        affected.flat_map(|it| it.others.iter().map(|(path, status)| (path.to_path(), *status)))
    }

    /// Other alarms whose impact has all the objects that the resource of this one is. The dependents of an uplink group
    /// belong to its impact.
    pub(crate) fn causes(&self, condition: &Condition) -> Vec<&Condition> {
        let Some(affected) = self.alarms.get(condition) else { return Vec::new() };
        let mut own = affected.own.iter();
        let Some(first) = own.next() else { return Vec::new() };
        let has = |number: u32, key: &SharedPath| {
            let other = self.conditions.get(&number).and_then(|it| self.alarms.get(it));
            let is_group = self.conditions.get(&number).is_some_and(|it| it.resource.is_group());
            other.is_some_and(|other| other.affects(key) || is_group && other.own.contains(key))
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

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use holdfast_config::{Keys, NodeId, Step, Value};

    use super::*;

    #[test]
    fn many_objects_take_some_hundred_bytes_each() {
        const OBJECTS: usize = 10_000;
        /// Bytes of all objects: the marks of the same number may take as much.
        const MOST: i64 = 1_250_000;
        let list = Arc::new(InstancePath(vec![Step::node(NodeId(1)), Step::node(NodeId(2))]));
        let entry = |number: usize| {
            let keys = Keys::single(Value::Str(format!("10.0.{number}.0/24").into()));
            SharedPath::entry(Arc::clone(&list), keys)
        };
        let condition: Condition = "link-down@interface:eth1".parse().unwrap();
        let mut impacts = Impacts::default();
        impacts.open(&condition, BTreeSet::new(), Some(EffectiveStatus::Down));
        let impact = Impact { down: (0..OBJECTS).map(entry).collect(), ..Impact::default() };
        let info = measure(|| {
            impacts.set(&condition, Effect::Down, &impact);
        });
        assert_eq!(impacts.count(&condition), (OBJECTS, 0));
        assert!(info.bytes_current < MOST, "{} bytes", info.bytes_current);
    }
}
