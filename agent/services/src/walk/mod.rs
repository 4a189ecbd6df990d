//! One walk: the evaluation of one instance, from its service plan to the next one.
//!
//! ```text
//! pre-modification call of a handler; without its answer no component goes on
//!    |
//!    v
//! synthesis: new components join, missing ones back out
//!    |
//!    v   while something moves
//! back-tracking components, the youngest first: last state first, down to the goal
//!    |
//!    v
//! the others: a reached state whose gate is false -> its component backs out to it
//!             the work of reached states is done again
//!             then state after state, until one has to wait
//!    |
//!    v
//! post-modification call of a handler
//! ```
//!
//! A walk does not enter a state again that it has backed out, so every walk ends. The state `ready` of a component waits
//! until all claims of the component are settled. The state `ready` of `self` waits until all other components are ready.
//!
//! Section 4 of `agent/services/SERVICES.md` is the specification. Calls of handlers are in [`calls`], those about the
//! instance as a whole in [`modification`].

mod actions;
mod calls;
pub(crate) mod conditions;
mod facts;
mod modification;
mod progress;
mod ready;
pub(crate) mod record;
mod replacement;
mod totals;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Applied, BackTrack, CallPlace, ComponentPlan, Conditions, ForcedBackTrack, HandlerCall,
    PlanTotals, Reads, ServicePlan, StatePlan, StateStatus, WalkRequest, WalkWork,
};
use holdfast_config::{Claim, ClaimChange, ClaimKey, PersistedOutput, ServiceTag};
use smol_str::SmolStr;

use self::conditions::ConditionRecord;
use self::facts::{Place, WalkFacts};
use self::replacement::{Replacement, id};
use crate::component::{Component, Variables};
use crate::error::Position;
use crate::outline::{ComponentType, INIT, LocatedText, OUTLINE, READY, SELF, StateOutline};
use crate::package::Package;
use crate::package::tree::Synthesis;
use crate::parameters::Parameters;
use crate::scope::Scope;
use crate::work::{WorkError, WorkErrorKind};
use crate::{Facts, Output};

pub(crate) use self::actions::CallIds;
pub(crate) use self::totals::Totals;

/// Reason for which an instance waits whose type is switched off.
const SWITCHED_OFF: &str = "its type to be switched on";

/// Instance to be walked.
#[derive(Debug)]
pub(crate) struct Instance<'a> {
    pub(crate) package: &'a Package,
    pub(crate) tag: &'a ServiceTag,
    pub(crate) calls: &'a CallIds,
    pub(crate) totals: &'a Totals,
    pub(crate) parameters: Parameters,
    /// Parameters as a document, of an instance that is deleted or un-deployed.
    pub(crate) leaving: Option<Arc<str>>,
    /// It was left behind at another version than the newest one of its package, and stays failed for that.
    pub(crate) is_left_behind: bool,
}

/// Result of one walk.
#[derive(Debug, Default)]
pub(crate) struct WalkResult {
    /// Content of every claim that the walk made or dropped.
    pub(crate) claims: BTreeMap<ClaimKey, Option<Claim>>,
    /// Outputs of handlers that outlast what they were asked for.
    pub(crate) persisted: Vec<PersistedOutput>,
    /// The next service plan; `None` when nothing is left of the instance.
    pub(crate) plan: Option<ServicePlan>,
    pub(crate) reads: Reads,
    /// Calls of handlers that have no answer yet. All else is preliminary then.
    pub(crate) calls: Vec<HandlerCall>,
    /// Time at which a state becomes late, in nanoseconds since 1970.
    pub(crate) wake_at_ns: Option<u64>,
    /// A limit of the box keeps the instance from going on.
    pub(crate) is_over_limit: bool,
    /// Results of the conditions of a walk that changed nothing, unless something has failed.
    pub(crate) conditions: Option<Conditions>,
    pub(crate) work: WalkWork,
}

/// One walk under way.
struct Walk<'a> {
    instance: &'a Instance<'a>,
    request: &'a WalkRequest<'a>,
    scope: Scope,
    own: Arc<WalkFacts>,
    facts: Arc<dyn Facts>,
    /// Outlines of the component types, `self` among them.
    outlines: BTreeMap<SmolStr, ComponentType>,
    /// Components with their variables: those that go, then those of the tree in its order.
    parts: Vec<Component>,
    /// Number of the former.
    going: usize,
    /// Components of the tree wait for others, which they replace, to have backed out.
    has_waiting: bool,
    /// Components that are dropped without being undone.
    dropped: BTreeSet<[SmolStr; 2]>,
    claims: BTreeMap<ClaimKey, Option<Claim>>,
    /// Outputs of handlers that outlast what they were asked for.
    persisted: BTreeMap<CallPlace, PersistedOutput>,
    /// Components may join and go on: the call before them, if there is one, is answered.
    has_begun: bool,
    /// States that were backed out.
    left: BTreeSet<ClaimKey>,
    /// Components whose work was done again.
    redone: BTreeSet<[SmolStr; 2]>,
    /// Components whose way ended with this state, because what follows has a transaction of its own.
    ended: BTreeMap<[SmolStr; 2], SmolStr>,
    /// Calls of handlers without an answer. Their components go no further in this walk.
    calls: BTreeMap<CallPlace, HandlerCall>,
    wake_at_ns: Option<u64>,
    /// A limit of the box keeps the instance from going on.
    is_over_limit: Cell<bool>,
    conditions: RefCell<ConditionRecord>,
    /// Extents to which claims were found to be in the kernel.
    applied: RefCell<BTreeMap<ClaimKey, Applied>>,
}

/// The service plan of an instance that cannot be evaluated: as it was, with the reason and what came of its actions.
pub(crate) fn failed_plan(
    instance: &Instance<'_>,
    request: &WalkRequest<'_>,
    reason: Arc<str>,
) -> ServicePlan {
    let mut walk = Walk::new(instance, request);
    walk.fail(reason);
    walk.own.plan().clone()
}

/// The service plan of a new instance whose first walk has a transaction of its own.
pub(crate) fn stored_plan(package: &Package, now_ns: u64) -> ServicePlan {
    let mut itself = new_component(&outlines(package), &itself(), now_ns);
    let first = itself.states.first_mut();
    first.into_iter().for_each(|state| state.waits_for = Some("its first walk".into()));
    let version = package.version().to_string().into();
    ServicePlan { version, components: vec![itself], ..ServicePlan::default() }
}

/// Walks an instance.
///
/// # Errors
/// When work or a condition fails, unless the request is lenient: failures are states then.
pub(crate) fn walk(
    instance: &Instance<'_>,
    request: &WalkRequest<'_>,
) -> Result<WalkResult, WorkError> {
    let mut walk = Walk::new(instance, request);
    let failed = walk.run().and_then(|()| walk.answered()).and_then(|()| walk.check_states());
    // The answers may mend the failure.
    if let Some(error) = failed.err().filter(|_| walk.calls.is_empty()) {
        if !request.surroundings.is_lenient {
            return Err(error);
        }
        walk.fail(walk.text_of(&error));
    }
    walk.claims.extend(walk.unowned());
    walk.claims.retain(|key, claim| request.claims.get(key) != claim.as_ref());
    let plan = walk.own.plan().clone();
    let plan = (!plan.components.is_empty()).then_some(plan);
    Ok(WalkResult {
        conditions: walk.settled_conditions(plan.as_ref()),
        work: walk.conditions.borrow().work,
        plan,
        reads: walk.own.take_reads(),
        wake_at_ns: walk.wake_at_ns,
        is_over_limit: walk.is_over_limit.get(),
        calls: walk.calls.into_values().collect(),
        claims: walk.claims,
        persisted: walk.persisted.into_values().collect(),
    })
}

/// Judges `ready` of an instance, without any work. The result has its plan, and what conditions have read.
///
/// # Errors
/// When a condition asks for something that nothing answers.
pub(crate) fn judge_ready(
    instance: &Instance<'_>,
    request: &WalkRequest<'_>,
) -> Result<WalkResult, WorkError> {
    let mut walk = Walk::new(instance, request);
    walk.judge_ready()?;
    walk.answered()?;
    let plan = walk.own.plan().clone();
    let reads = walk.own.take_reads();
    Ok(WalkResult { plan: Some(plan), reads, ..WalkResult::default() })
}

/// Notes what came of the actions of an instance whose type is switched off. Nothing else of its service plan moves.
///
/// # Errors
/// When an action is asked for again whose parameters cannot be evaluated.
pub(crate) fn rest(
    instance: &Instance<'_>,
    request: &WalkRequest<'_>,
) -> Result<ServicePlan, WorkError> {
    let mut walk = Walk::new(instance, request);
    walk.parts = walk.own.plan().components.iter().map(part).collect();
    walk.update_actions()?;
    walk.answered()?;
    Ok(walk.own.plan().clone())
}

/// Notes that a plan waits for its type to be switched on, or does not any more. A reached state stays so for the
/// gates of others, since its output stays; to readers, an instance that waits is not ready.
pub(crate) fn note_switch(plan: &mut ServicePlan, is_on: bool, now_ns: u64) {
    if is_switched_off(plan) != is_on {
        return;
    }
    let itself = plan.components.iter_mut().find(|it| it.is(SELF, SELF));
    let Some(last) = itself.and_then(|it| it.states.last_mut()) else { return };
    last.waits_for = (!is_on).then(|| SWITCHED_OFF.into());
    if last.is_reached {
        last.since_ns = now_ns;
    }
}

/// True for a plan that waits for its type to be switched on.
pub(crate) fn is_switched_off(plan: &ServicePlan) -> bool {
    let itself = plan.component(SELF, SELF).and_then(|it| it.states.last());
    itself.is_some_and(|last| last.waits_for.as_deref() == Some(SWITCHED_OFF))
}

/// The component types of a package by name. Of `self`, packages with components say nothing.
fn outlines(package: &Package) -> BTreeMap<SmolStr, ComponentType> {
    let position = package.outline.name.position;
    let states = [INIT, READY].map(|name| StateOutline::unnamed(name, position)).into();
    let itself = ComponentType { name: SELF.into(), states };
    let types = std::iter::once(&itself).chain(&package.outline.components);
    types.map(|it| (it.name.clone(), it.clone())).collect()
}

impl<'a> Walk<'a> {
    fn new(instance: &'a Instance<'a>, request: &'a WalkRequest<'a>) -> Self {
        let before = request.book.get(instance.tag).map(|plan| (**plan).clone());
        let models = Arc::clone(&instance.package.list.models);
        let own = Arc::new(WalkFacts::new(request, models, before.unwrap_or_default()));
        Walk {
            instance,
            request,
            scope: Scope::of_instance(&instance.parameters, instance.leaving.is_some()),
            facts: own.clone(),
            own,
            outlines: outlines(instance.package),
            parts: Vec::new(),
            going: 0,
            has_waiting: false,
            dropped: BTreeSet::new(),
            claims: BTreeMap::new(),
            persisted: BTreeMap::new(),
            has_begun: false,
            left: BTreeSet::new(),
            redone: BTreeSet::new(),
            ended: BTreeMap::new(),
            calls: BTreeMap::new(),
            wake_at_ns: None,
            is_over_limit: Cell::new(false),
            conditions: RefCell::default(),
            applied: RefCell::default(),
        }
    }

    fn run(&mut self) -> Result<(), WorkError> {
        {
            let mut plan = self.own.plan();
            plan.version = self.instance.package.version().to_string().into();
            plan.leaving.clone_from(&self.instance.leaving);
            plan.failure = plan.failure.take().filter(|_| self.instance.is_left_behind);
            note_switch(&mut plan, true, self.request.surroundings.now_ns);
        }
        if self.instance.leaving.is_some() {
            self.leave();
        } else {
            self.has_begun = self.begin_modification()?;
            if self.has_begun { self.synthesize()? } else { self.stay() }
        }
        self.force();
        // The tree may depend on what an action has saved.
        if self.update_actions()? && self.has_begun {
            self.synthesize()?;
        }
        loop {
            let mut moved = self.back_track()?;
            if moved && self.has_waiting {
                self.synthesize()?;
            }
            if self.has_begun {
                moved |= self.advance()?;
            }
            if !moved {
                self.cancel_calls();
                break;
            }
        }
        if self.instance.leaving.is_none() { self.end_modification() } else { Ok(()) }
    }

    /// Notes a failure of the whole walk, which leaves all states as they are. Results of actions are noted
    /// nevertheless: nobody reports them twice.
    fn fail(&mut self, reason: Arc<str>) {
        let package = self.instance.package;
        let before = self.request.book.get(self.instance.tag).map(|plan| (**plan).clone());
        let mut plan = before.unwrap_or_default();
        plan.failure = Some(reason);
        plan.version = package.version().to_string().into();
        if plan.components.is_empty() {
            plan.components.push(self.new_component(&itself()));
        }
        self.parts = plan.components.iter().map(part).collect();
        *self.own.plan() = plan;
        self.claims.clear();
        self.persisted.clear();
        self.note_actions(&self.state_actions());
    }

    /// Refuses what asks for something that nothing answers.
    fn answered(&self) -> Result<(), WorkError> {
        let Some(reason) = self.own.take_unanswered() else { return Ok(()) };
        Err(WorkError { kind: WorkErrorKind::Failed, file: OUTLINE.into(), position: None, reason })
    }

    /// Refuses more states than the box may have.
    fn check_states(&self) -> Result<(), WorkError> {
        let before = self.request.book.get(self.instance.tag).map(|plan| PlanTotals::of(plan));
        let counts = [before.unwrap_or_default(), PlanTotals::of(&self.own.plan())];
        let checked =
            self.instance.totals.check_states(counts.map(|it| it.states), self.instance.tag);
        checked.map_err(|reason| self.over_limit(reason, None))
    }

    /// Failure for a limit of the box.
    fn over_limit(&self, reason: String, position: Option<Position>) -> WorkError {
        self.is_over_limit.set(true);
        WorkError { kind: WorkErrorKind::Limit, file: OUTLINE.into(), position, reason }
    }

    /// Claims of earlier walks that no state of a component has. Claims of dropped components get no owner.
    fn unowned(&self) -> Vec<ClaimChange> {
        let plan = self.own.plan();
        let is_of_state = |key: &ClaimKey| {
            let [component_type, name] = &key.component;
            let component = plan.component(component_type, name);
            component.is_some_and(|it| it.state(&key.state).is_some())
        };
        let keys = || self.request.claims.of_instance(self.instance.tag).map(|(key, _)| key);
        let gone = keys().filter(|key| !is_of_state(key)).map(|key| (key.clone(), None));
        let dropped = keys().filter(|key| self.dropped.contains(&key.component));
        gone.chain(self.request.claims.orphaned(self.instance.tag, dropped)).collect()
    }

    /// Has every component back out.
    fn leave(&mut self) {
        self.clear_modification_failures();
        let mut plan = self.own.plan();
        for component in &mut plan.components {
            component.back_track = Some(BackTrack::Whole);
        }
        self.parts = plan.components.iter().map(part).collect();
        self.going = self.parts.len();
    }

    /// Has the component back out that an operator names, unless it does so already.
    fn force(&self) {
        let forced = self.request.surroundings.forced.get(self.instance.tag);
        let Some(ForcedBackTrack { component: [component_type, name], state }) = forced else {
            return;
        };
        let mut plan = self.own.plan();
        let found = plan.components.iter_mut().find(|it| it.is(component_type, name));
        let Some(component) = found else { return };
        let first = component.states.first().map(|first| &first.name);
        let goal = state.as_ref().or(first).cloned().map(BackTrack::To);
        component.back_track = component.back_track.take().or(goal);
    }

    /// True for a state that an operator has a component leave, whatever stands against it.
    fn is_forced(&self, part: &Component, state: &str) -> bool {
        let forced = self.request.surroundings.forced.get(self.instance.tag);
        let Some(forced) = forced.filter(|it| part.is(&it.component)) else { return false };
        let Some(goal) = &forced.state else { return true };
        let states = self.outlines.get(&part.component_type).map(|it| it.states.as_slice());
        let position =
            |name: &str| states.unwrap_or_default().iter().position(|state| state.name == *name);
        position(state) >= position(goal)
    }

    /// Compares the components of the tree with those that are there.
    fn synthesize(&mut self) -> Result<(), WorkError> {
        let tree = self.evaluate_tree()?;
        self.note_tree(&tree);
        let wanted = tree.components;
        let mut plan = self.own.plan().clone();
        let is_of = |it: &ComponentPlan, part: &Component| it.is(&part.component_type, &part.name);
        let replacement = Replacement::of(&plan, &wanted);
        plan.components.retain(|it| !replacement.handed_over.contains(&id(it)));
        self.drop_unknown(&mut plan, &replacement)?;
        let wanted: Vec<Component> =
            wanted.into_iter().filter(|part| !replacement.waiting.contains(&part.id())).collect();
        self.has_waiting = !replacement.waiting.is_empty();
        let comes_back = self.request.surroundings.resurrected.as_ref() == Some(self.instance.tag);
        for component in &mut plan.components {
            if replacement.held.contains(&id(component)) {
                continue;
            }
            let part = wanted.iter().find(|part| is_of(component, part));
            let same_states = self.has_states_of_outline(component);
            match part {
                Some(part) if same_states => {
                    component.vars = part.vars.to_text().into();
                    component.back_track = component.back_track.take().filter(|_| !comes_back);
                }
                _ => component.back_track = Some(BackTrack::Whole),
            }
        }
        let goes = |it: &ComponentPlan| {
            let is_wanted = wanted.iter().any(|part| is_of(it, part));
            !is_wanted && !replacement.held.contains(&id(it))
        };
        self.parts = plan.components.iter().filter(|it| goes(it)).map(part).collect();
        self.going = self.parts.len();
        self.parts.extend(wanted);
        *self.own.plan() = plan;
        self.join();
        Ok(())
    }

    fn evaluate_tree(&self) -> Result<Synthesis, WorkError> {
        self.own.begin(Place::of_tree());
        let scope = self.scope.with_opaque(self.opaque_values());
        self.instance.package.synthesis(&scope, &self.facts)
    }

    /// Adds the components of the tree that are not there: new ones, and those that had to go because they had other
    /// states. True when there were some.
    fn join(&mut self) -> bool {
        let is_there = |part: &&Component| {
            self.own.plan().component(&part.component_type, &part.name).is_some()
        };
        let parts = self.parts[self.going..].iter();
        let new: Vec<Component> = parts.filter(|part| !is_there(part)).cloned().collect();
        for part in &new {
            let component = self.new_component(part);
            self.own.plan().components.push(component);
            // It has the states of the outline, so it does not go for that again.
            self.left.retain(|key| key.component != part.id());
        }
        !new.is_empty()
    }

    fn has_states_of_outline(&self, component: &ComponentPlan) -> bool {
        let outline = self.outlines.get(&component.component_type);
        outline.is_some_and(|outline| {
            let names = outline.states.iter().map(|state| &state.name);
            names.eq(component.states.iter().map(|state| &state.name))
        })
    }

    fn new_component(&self, part: &Component) -> ComponentPlan {
        new_component(&self.outlines, part, self.request.surroundings.now_ns)
    }

    fn scope_of(&self, part: &Component) -> Scope {
        self.scope.with_opaque(self.opaque_values()).of_component(part)
    }

    fn key(&self, part: &Component, state: &str) -> ClaimKey {
        ClaimKey { tag: self.instance.tag.clone(), component: part.id(), state: state.into() }
    }

    /// Judges a gate of a state.
    fn is_true(
        &self,
        gate: &LocatedText,
        part: &Component,
        state: &str,
    ) -> Result<bool, WorkError> {
        self.begin(part, state, &progress::gate_text(gate));
        let result = self.instance.package.condition(gate, &self.scope_of(part), &self.facts);
        self.note_gate(gate, part, state, &result);
        result
    }

    /// Names the place that asks from now on: a condition, the work or the action of a state.
    pub(super) fn begin(&self, part: &Component, state: &str, place: &str) {
        self.own.begin(Place::of_state(part, state, place));
    }

    /// Extent to which the objects of a state that earlier walks have reached are in the kernel.
    fn applied(&self, key: &ClaimKey) -> Applied {
        match &self.request.surroundings.state {
            Some(state) if self.request.claims.get(key).is_some() => {
                let mut known = self.applied.borrow_mut();
                known.entry(key.clone()).or_insert_with(|| state.applied(key)).clone()
            }
            _ => Applied::Done,
        }
    }

    /// Text of a failure, with the package.
    fn text_of(&self, error: &WorkError) -> Arc<str> {
        let package = self.instance.package;
        format!("{} {}: {error}", package.outline.name.text, package.version()).into()
    }
}

/// A component without a reached state.
fn new_component(
    outlines: &BTreeMap<SmolStr, ComponentType>,
    part: &Component,
    now_ns: u64,
) -> ComponentPlan {
    let outline = outlines.get(&part.component_type);
    let names = outline.into_iter().flat_map(|it| &it.states).map(|state| state.name.clone());
    ComponentPlan {
        component_type: part.component_type.clone(),
        name: part.name.clone(),
        vars: part.vars.to_text().into(),
        back_track: None,
        states: names.map(|name| StatePlan::new(name, now_ns)).collect(),
    }
}

/// The component `self`.
fn itself() -> Component {
    let component_type = SELF.into();
    let name = SELF.into();
    Component { component_type, name, replaces: Vec::new(), vars: Variables::default() }
}

/// A component as it was when it was last in the tree.
fn part(plan: &ComponentPlan) -> Component {
    Component {
        component_type: plan.component_type.clone(),
        name: plan.name.clone(),
        replaces: Vec::new(),
        vars: Variables::of_text(&plan.vars),
    }
}

fn claim_of(output: Output) -> Claim {
    match output.origin {
        Origin::Native => Claim { native: output.tree, ..Claim::default() },
        Origin::OpenConfig => Claim { openconfig: output.tree, ..Claim::default() },
    }
}

/// True when a state is reached and nothing of it failed.
fn is_reached(state: &StatePlan) -> bool {
    state.status() == StateStatus::Reached
}
