//! Service plans: how far the components of each service instance are, and what they wait for.
//!
//! The *book* has the plan of each instance, beside the claims in the layers: both are stored, rolled back and rebased
//! together. Section 4 of `agent/services/SERVICES.md` is the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use smol_str::SmolStr;

use super::action::{ActionPlan, ActionProgress, CallRef};
use super::call::{AnswerInput, CallPhase};
use super::record::InstanceRecord;
use crate::claims::ServiceTag;

/// Progress of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePlan {
    /// Version of the package that the instance was walked with.
    pub version: SmolStr,
    /// Parameters of an instance that is deleted or un-deployed and still backs out: an RFC 7951 document.
    pub leaving: Option<Arc<str>>,
    /// Reason for which nothing could be evaluated.
    pub failure: Option<Arc<str>>,
    /// Values that actions have saved, as JSON documents, by the names that expressions use.
    pub saved: BTreeMap<SmolStr, Arc<str>>,
    /// Results of the modification calls, by their phases.
    pub modifications: BTreeMap<CallPhase, ModificationPlan>,
    pub record: InstanceRecord,
    /// Components in the order in which they joined, `self` first.
    pub components: Vec<ComponentPlan>,
}

/// Result of the last modification call of an instance, and what stands against the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModificationPlan {
    /// Input of the last answer. While it is the same, the handler is not asked.
    pub answer: Option<AnswerInput>,
    /// Values that its handler keeps with it: a JSON object, empty for none.
    pub opaque: Arc<str>,
    /// Reason for which the handler has not done its work.
    pub failure: Option<Arc<str>>,
    /// The handler that it waits for.
    pub waits_for: Option<Arc<str>>,
}

/// Progress of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentPlan {
    pub component_type: SmolStr,
    pub name: SmolStr,
    /// Variables of the tree nodes that made it: a JSON object, empty for none.
    pub vars: Arc<str>,
    /// Set while it backs out.
    pub back_track: Option<BackTrack>,
    pub states: Vec<StatePlan>,
}

/// Extent to which a component backs out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackTrack {
    /// All states, then the component itself.
    Whole,
    /// This state, and all after it.
    To(SmolStr),
}

/// Progress of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePlan {
    pub name: SmolStr,
    /// Its work is done, and its claim in force.
    pub is_reached: bool,
    /// Reason for which its work, or what the work asked for, failed.
    pub failure: Option<Arc<str>>,
    /// Condition or object that it waits for.
    pub waits_for: Option<Arc<str>>,
    /// Time of the last change of its status, in nanoseconds since 1970.
    pub since_ns: u64,
    /// The action that was asked for last; `None` when none was since the state was last entered.
    pub action: Option<ActionPlan>,
    /// Values that its handler keeps with it: a JSON object, empty for none.
    pub opaque: Arc<str>,
    /// Input of the answer that its claim stems from, where a handler does its work.
    pub answer: Option<AnswerInput>,
    /// Paths that `gone` asked for, and that were there since the state was first waited for.
    pub seen: BTreeSet<Arc<str>>,
}

/// Status of a state, as readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateStatus {
    NotReached,
    Reached,
    Failed,
}

impl StatePlan {
    pub fn new(name: SmolStr, now_ns: u64) -> Self {
        let is_reached = false;
        let failure = None;
        let waits_for = None;
        let action = None;
        let since_ns = now_ns;
        let opaque = "".into();
        let answer = None;
        let seen = BTreeSet::new();
        Self { name, is_reached, failure, waits_for, since_ns, action, opaque, answer, seen }
    }

    pub fn status(&self) -> StateStatus {
        match (&self.failure, self.is_reached) {
            (Some(_), _) => StateStatus::Failed,
            (None, true) => StateStatus::Reached,
            (None, false) => StateStatus::NotReached,
        }
    }
}

/// Status of a whole instance, as readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceStatus {
    /// It is deleted or un-deployed, and some of what it made is still there.
    Zombie,
    Failed,
    Ready,
    NotReached,
}

impl InstanceStatus {
    pub const ALL: [Self; 4] = [Self::Zombie, Self::Failed, Self::Ready, Self::NotReached];

    /// Name as shown on the box.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zombie => "zombie",
            Self::Failed => StateStatus::Failed.name(),
            Self::Ready => READY,
            Self::NotReached => StateStatus::NotReached.name(),
        }
    }
}

// Name in the model.
crate::enum_names!(StateStatus {
    NotReached = "not-reached",
    Reached = "reached",
    Failed = "failed",
});

impl ComponentPlan {
    /// True when it is of this type and has this name.
    pub fn is(&self, component_type: &str, name: &str) -> bool {
        self.component_type == component_type && self.name == name
    }

    pub fn state(&self, name: &str) -> Option<&StatePlan> {
        self.states.iter().find(|state| state.name == name)
    }

    /// Status of one of its states, as readers see it. `self` is not ready while it waits for anything, also if all that was
    /// asked of the instance earlier is made; a state of a component stays reached while its work cannot be done again.
    pub fn status_of(&self, state: &StatePlan) -> StateStatus {
        match state.status() {
            StateStatus::Reached if self.component_type == SELF && state.waits_for.is_some() => {
                StateStatus::NotReached
            }
            status => status,
        }
    }

    /// True when its last state is reached.
    pub fn is_ready(&self) -> bool {
        self.states.last().is_some_and(|state| state.status() == StateStatus::Reached)
    }
}

/// Type and name of the component that stands for the whole instance.
pub const SELF: &str = "self";
/// Last state of every component.
pub const READY: &str = "ready";

impl ServicePlan {
    /// True when all of the instance is done that was walked. The gates of others go by it: while its type is switched off,
    /// what it made stays, and so does what others made because of it.
    pub fn is_ready(&self) -> bool {
        let is_there = self.leaving.is_none() && self.failure.is_none();
        is_there && self.component(SELF, SELF).is_some_and(ComponentPlan::is_ready)
    }

    /// Status of the instance, as readers see it.
    pub fn status(&self) -> InstanceStatus {
        let Some(itself) = self.component(SELF, SELF) else { return InstanceStatus::NotReached };
        let is_failed = self.failure.is_some()
            || self.components.iter().any(|it| it.states.iter().any(|it| it.failure.is_some()));
        let whole = itself.states.last().map(|ready| itself.status_of(ready));
        match whole {
            _ if self.leaving.is_some() => InstanceStatus::Zombie,
            _ if is_failed => InstanceStatus::Failed,
            Some(StateStatus::Reached) => InstanceStatus::Ready,
            _ => InstanceStatus::NotReached,
        }
    }

    /// Text for what the instance as a whole waits for.
    pub fn waits_for(&self) -> Option<&str> {
        let ready = self.component(SELF, SELF)?.states.last()?;
        ready.waits_for.as_deref()
    }

    /// True when some state is reached, or has asked for an action.
    pub fn has_begun(&self) -> bool {
        let mut states = self.components.iter().flat_map(|it| &it.states);
        states.any(|state| state.is_reached || state.action.is_some())
    }

    pub fn component(&self, component_type: &str, name: &str) -> Option<&ComponentPlan> {
        self.components.iter().find(|component| component.is(component_type, name))
    }

    /// The call of each state that has asked for an action.
    pub fn calls(&self) -> impl Iterator<Item = CallRef<'_>> {
        self.components.iter().flat_map(|component| {
            component.states.iter().filter_map(move |state| {
                let action = state.action.as_ref()?;
                Some(CallRef { component, state, action })
            })
        })
    }

    /// The calls that are in the queue: one that has succeeded leaves it.
    pub fn queued_calls(&self) -> impl Iterator<Item = CallRef<'_>> {
        self.calls().filter(|it| it.action.progress != ActionProgress::Succeeded)
    }
}

/// New plan of an instance; `None` when nothing is left of it.
pub type PlanChange = (ServiceTag, Option<ServicePlan>);

/// Totals of service plans; a limit of the box bounds each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanTotals {
    pub instances: usize,
    /// States of all components.
    pub states: usize,
    /// Actions in the queue.
    pub actions: usize,
}

impl PlanTotals {
    /// The numbers of one plan.
    pub fn of(plan: &ServicePlan) -> Self {
        let states = plan.components.iter().map(|it| it.states.len()).sum();
        Self { instances: 1, states, actions: plan.queued_calls().count() }
    }

    /// These numbers once one plan has taken the place of another one.
    #[must_use]
    pub fn replaced(self, before: Option<&ServicePlan>, after: Option<&ServicePlan>) -> Self {
        let [before, after] = [before, after].map(|it| it.map(Self::of).unwrap_or_default());
        Self {
            instances: self.instances + after.instances - before.instances,
            states: self.states + after.states - before.states,
            actions: self.actions + after.actions - before.actions,
        }
    }

    /// The numbers by which others are larger than these, added up.
    pub fn less_than(self, other: Self) -> usize {
        let instances = other.instances.saturating_sub(self.instances);
        let states = other.states.saturating_sub(self.states);
        instances + states + other.actions.saturating_sub(self.actions)
    }
}

/// The service plans of all instances. A clone shares all memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    plans: OrdMap<ServiceTag, Arc<ServicePlan>>,
    /// Number of plans by type and version of its package.
    versions: OrdMap<[SmolStr; 2], usize>,
    totals: PlanTotals,
}

impl Book {
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    pub fn get(&self, tag: &ServiceTag) -> Option<&Arc<ServicePlan>> {
        self.plans.get(tag)
    }

    /// All plans, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ServiceTag, &Arc<ServicePlan>)> {
        self.plans.iter()
    }

    /// The plans of the instances of a type, ascending by name.
    pub fn of_type<'b>(
        &'b self,
        service: &'b str,
    ) -> impl Iterator<Item = (&'b ServiceTag, &'b Arc<ServicePlan>)> {
        let first = ServiceTag::of_type(service.into());
        self.plans.range(first..).take_while(move |(tag, _)| tag.service == service)
    }

    /// True when some instance of a type was last walked with this version of its package.
    pub fn uses(&self, service: &str, version: &str) -> bool {
        self.versions.contains_key(&[service.into(), version.into()])
    }

    /// Numbers of what all plans hold. A change of a plan costs what that plan has.
    pub fn totals(&self) -> PlanTotals {
        self.totals
    }

    pub fn set(&mut self, (tag, plan): PlanChange) {
        let before = self.plans.get(&tag).map(|plan| &**plan);
        self.totals = self.totals.replaced(before, plan.as_ref());
        if let Some(plan) = &plan {
            *self.versions.entry([tag.service.clone(), plan.version.clone()]).or_default() += 1;
        }
        let before = match plan {
            Some(plan) => self.plans.insert(tag.clone(), Arc::new(plan)),
            None => self.plans.remove(&tag),
        };
        let Some(before) = before else { return };
        let version = [tag.service, before.version.clone()];
        match self.versions.get_mut(&version) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.versions.remove(&version)),
        }
    }

    /// True when both are known to be equal, by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.plans.ptr_eq(&other.plans)
    }

    /// The plans that differ, with both versions, ascending by name.
    pub fn differences<'b>(
        old: &'b Self,
        new: &'b Self,
    ) -> impl Iterator<Item = (&'b ServiceTag, Option<&'b ServicePlan>, Option<&'b ServicePlan>)>
    {
        old.plans.diff(&new.plans).map(|item| match item {
            DiffItem::Add(tag, new) => (tag, None, Some(&**new)),
            DiffItem::Update { old: (_, old), new: (tag, new) } => {
                (tag, Some(&**old), Some(&**new))
            }
            DiffItem::Remove(tag, old) => (tag, Some(&**old), None),
        })
    }

    /// This book with all that differs between `base` and `theirs` laid under its own changes.
    pub(crate) fn merged(&self, base: &Self, theirs: &Self) -> Self {
        if self.is_same(base) {
            return theirs.clone();
        }
        let mut merged = theirs.clone();
        for (tag, _, new) in Self::differences(base, self) {
            merged.set((tag.clone(), new.cloned()));
        }
        merged
    }
}
