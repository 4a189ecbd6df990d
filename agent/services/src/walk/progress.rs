//! The two ways of a component: out, from its last state down to a goal, and on, state after state.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::Claim;
use holdfast_config::limits::excerpt;
use holdfast_config::services::{
    ActionPhase, ActionPlan, Applied, BackTrack, CallPlace, ComponentPlan, ServicePlan, StatePlan,
};
use smol_str::SmolStr;

use super::calls::{LeaveVerdict, StateWork};
use super::{Walk, actions, is_reached};
use crate::component::Component;
use crate::outline::{LocatedText, READY, SELF, StateOutline};
use crate::work::WorkError;

/// Verdict on one step of a component.
#[derive(Clone)]
enum Step {
    Moved,
    /// End of the component's way in this walk, with the reason if it waits.
    Stopped(Option<Arc<str>>),
    /// As stopped, and its time is over.
    Late {
        timeout: Duration,
        waits_for: Option<Arc<str>>,
    },
    Failed(Arc<str>),
    /// Nothing can be said yet: the state stays as it is.
    Open,
}

impl Walk<'_> {
    /// Backs components out, the youngest first. True when something moved.
    pub(super) fn back_track(&mut self) -> Result<bool, WorkError> {
        let components = self.own.plan().components.clone();
        let flagged = components.iter().rev().filter(|it| it.back_track.is_some());
        let flagged: Vec<[_; 2]> =
            flagged.map(|it| [it.component_type.clone(), it.name.clone()]).collect();
        let mut moved = false;
        for component in flagged {
            let part = self.parts.iter().find(|it| it.is(&component)).cloned();
            let Some(part) = part else { continue };
            self.forget_waits(&part);
            // All other components go before `self` does.
            let alone = part.component_type != SELF || self.own.plan().components.len() == 1;
            while alone && self.step_back(&part)? {
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Forgets what the states of a component waited for that are not reached: as long as it backs out, none is entered.
    fn forget_waits(&self, part: &Component) {
        let mut plan = self.own.plan();
        let states = component_mut(&mut plan, part).into_iter().flat_map(|it| &mut it.states);
        states.filter(|it| !it.is_reached).for_each(|it| it.waits_for = None);
    }

    /// Leaves the last reached state of a component, or ends its way out. False when it goes no further.
    fn step_back(&mut self, part: &Component) -> Result<bool, WorkError> {
        let Some((goal, last)) = self.way_back(part) else { return Ok(false) };
        let is_last = last.is_none() && goal == BackTrack::Whole;
        let left = self.ended.get(&part.id()).map(|left| commit_text(left));
        if let Some(text) = left.or_else(|| self.delete_action_in_the_way(part, is_last)) {
            let waits_for = Step::Stopped(Some(text));
            last.iter().for_each(|state| self.update(part, state, waits_for.clone()));
            return Ok(false);
        }
        let Some(state) = last else {
            self.end_of_way_back(part, goal);
            return Ok(true);
        };
        let outline = self.outlines.get(&part.component_type).and_then(|it| it.state(&state));
        let outline = outline.filter(|_| !self.is_forced(part, &state)).cloned();
        let delete = outline.as_ref().map(|it| it.delete.clone()).unwrap_or_default();
        if let Some(gate) = delete.when {
            let is_open = match self.is_true(&gate, part, &state) {
                Ok(is_open) => is_open,
                Err(error) if self.request.surroundings.is_lenient => {
                    self.update(part, &state, Step::Failed(self.text_of(&error)));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            if !is_open {
                let text = format!("delete {}", gate_text(&gate));
                self.update(part, &state, Step::Stopped(Some(text.into())));
                return Ok(false);
            }
        }
        let mut output = None;
        if let Some(outline) = outline.as_ref().filter(|it| it.delete.handler) {
            match self.call_to_leave(part, outline)? {
                Ok(lasting) => output = Some(lasting),
                Err(step) => {
                    self.update(part, &state, step);
                    return Ok(false);
                }
            }
        }
        let call = outline.map(|it| self.call(part, &it, ActionPhase::Delete)).transpose();
        let action = match call {
            Ok(action) => action.flatten(),
            Err(error) if self.request.surroundings.is_lenient => {
                self.update(part, &state, Step::Failed(self.text_of(&error)));
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if let Some((place, claim)) = output {
            self.persist(&place, claim);
        }
        let key = self.key(part, &state);
        self.claims.insert(key.clone(), None);
        self.left.insert(key);
        if delete.commit_after {
            self.ended.insert(part.id(), state.clone());
        }
        self.change(part, &state, |state| {
            (state.is_reached, state.failure, state.waits_for) = (false, None, None);
            (state.action, state.opaque, state.answer) = (action, "".into(), None);
        });
        self.forget_seen(part, &state);
        Ok(true)
    }

    /// Forgets what `gone` has seen for a state that is left, and for those after it, which are not waited for any more.
    fn forget_seen(&self, part: &Component, left: &str) {
        let mut plan = self.own.plan();
        let states = component_mut(&mut plan, part).into_iter().flat_map(|it| &mut it.states);
        states.skip_while(|it| it.name != *left).for_each(|it| it.seen.clear());
    }

    /// The goal of a component that backs out, and its last reached state from the goal on.
    fn way_back(&self, part: &Component) -> Option<(BackTrack, Option<SmolStr>)> {
        let plan = self.own.plan();
        let component = plan.component(&part.component_type, &part.name)?;
        let goal = component.back_track.clone()?;
        let from = match &goal {
            BackTrack::Whole => 0,
            BackTrack::To(goal) => component.states.iter().position(|it| it.name == *goal)?,
        };
        let last = component.states[from..].iter().rev().find(|state| state.is_reached);
        Some((goal, last.map(|state| state.name.clone())))
    }

    fn end_of_way_back(&mut self, part: &Component, goal: BackTrack) {
        let mut plan = self.own.plan();
        match goal {
            BackTrack::Whole => {
                plan.components.retain(|it| !it.is(&part.component_type, &part.name));
            }
            BackTrack::To(_) => {
                component_mut(&mut plan, part).into_iter().for_each(|it| it.back_track = None);
            }
        }
    }

    /// Takes the components that do not back out as far as they come. True when something moved that others may see.
    pub(super) fn advance(&mut self) -> Result<bool, WorkError> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.parts.clone().into_iter().partition(|part| part.component_type == SELF);
        let mut moved = self.join();
        for part in own.iter().chain(&others) {
            if self.is_backing_out(part) {
                continue;
            }
            if let Some(goal) = self.closed_gate(part)? {
                self.flag(part, BackTrack::To(goal));
                moved = true;
                continue;
            }
            if self.redone.insert(part.id()) {
                self.redo(part)?;
            }
            moved |= self.go_on(part)?;
        }
        for part in &own {
            moved |= self.judge_whole(part);
        }
        Ok(moved)
    }

    pub(super) fn is_backing_out(&self, part: &Component) -> bool {
        let plan = self.own.plan();
        let component = plan.component(&part.component_type, &part.name);
        component.is_none_or(|it| it.back_track.is_some())
    }

    /// The first reached state whose gate is closed, unless that state is sticky.
    pub(super) fn closed_gate(&self, part: &Component) -> Result<Option<SmolStr>, WorkError> {
        for (outline, state) in self.states(part) {
            let Some(gate) = outline.when.as_ref().filter(|_| state.is_reached && !outline.sticky)
            else {
                continue;
            };
            match self.is_true(gate, part, &state.name) {
                Ok(true) => {}
                Ok(false) => return Ok(Some(state.name)),
                // A gate that cannot be judged neither opens nor closes.
                Err(error) if self.request.surroundings.is_lenient => {
                    self.update(part, &state.name, Step::Failed(self.text_of(&error)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn flag(&self, part: &Component, goal: BackTrack) {
        if let Some(component) = component_mut(&mut self.own.plan(), part) {
            component.back_track = Some(goal);
        }
    }

    /// Does the work of all reached states again.
    fn redo(&mut self, part: &Component) -> Result<(), WorkError> {
        for (outline, state) in self.states(part) {
            if state.is_reached {
                let step = self.do_work(part, &outline)?;
                self.update(part, &state.name, step);
            }
            if self.is_asking(part) {
                break;
            }
        }
        Ok(())
    }

    /// Enters state after state. True when one was entered.
    pub(super) fn go_on(&mut self, part: &Component) -> Result<bool, WorkError> {
        let mut moved = false;
        while !self.is_asking(part) {
            let mut states = self.states(part);
            if part.component_type == SELF {
                states.pop(); // `ready`, which is judged in the end
            }
            let Some(at) = states.iter().position(|(_, state)| !state.is_reached) else { break };
            let step = self.try_enter(part, &states, at)?;
            let step = self.judge_time(&states, at, step);
            let has_moved = matches!(step, Step::Moved);
            let (outline, state) = &states[at];
            if has_moved && outline.commit_after {
                self.ended.insert(part.id(), state.name.clone());
            }
            self.update(part, &state.name, step);
            if !has_moved {
                // States behind it wait only for this one.
                let behind = states[at + 1..].iter().filter(|(_, behind)| !behind.is_reached);
                behind.for_each(|(_, it)| self.update(part, &it.name, Step::Stopped(None)));
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Enters a state, if nothing is in its way.
    fn try_enter(
        &mut self,
        part: &Component,
        states: &[(StateOutline, StatePlan)],
        at: usize,
    ) -> Result<Step, WorkError> {
        let (outline, state) = &states[at];
        if self.left.contains(&self.key(part, &state.name)) {
            return Ok(Step::Stopped(outline.when.as_ref().map(gate_text)));
        }
        for (_, earlier) in &states[..at] {
            if !is_reached(earlier) || earlier.waits_for.is_some() {
                let text = format!("state {}", earlier.name);
                return Ok(Step::Stopped(Some(text.into())));
            }
        }
        if let Some(reached) = self.ended.get(&part.id()) {
            return Ok(Step::Stopped(Some(commit_text(reached))));
        }
        let is_last = outline.name == READY;
        for (outline, earlier) in &states[..at] {
            let unsettled = self.unsettled(part, &earlier.name, is_last);
            if let Some(text) = unsettled.or_else(|| actions::in_the_way(outline, earlier)) {
                return Ok(Step::Stopped(Some(text)));
            }
        }
        if let Some(gate) = &outline.when {
            match self.is_true(gate, part, &state.name) {
                Ok(true) => {}
                Ok(false) => return Ok(Step::Stopped(Some(gate_text(gate)))),
                Err(error) => return self.failed(&error),
            }
        }
        let action = match self.call(part, outline, ActionPhase::Create) {
            Ok(action) => action,
            Err(error) => return self.failed(&error),
        };
        let step = self.do_work(part, outline)?;
        if matches!(step, Step::Moved) {
            self.change(part, &outline.name, |state| state.action = action);
        }
        Ok(step)
    }

    /// Has a state fail that waits for too long. It goes on waiting, and is late until it is entered.
    fn judge_time(&mut self, states: &[(StateOutline, StatePlan)], at: usize, step: Step) -> Step {
        let (outline, state) = &states[at];
        let (Step::Stopped(waits_for), Some(timeout)) = (&step, outline.timeout) else {
            return step;
        };
        let waits_for = waits_for.clone();
        // It waits since the state before it was reached, or since it was left itself.
        let before = at.checked_sub(1).map_or(0, |before| states[before].1.since_ns);
        let end = before.max(state.since_ns).saturating_add(duration_ns(timeout));
        let is_late = state.failure.as_deref() == Some(&*late_text(timeout));
        if is_late || end <= self.request.surroundings.now_ns {
            return Step::Late { timeout, waits_for };
        }
        self.wake_at_ns = self.wake_at_ns.into_iter().chain([end]).min();
        step
    }

    /// Object that a state waits for: of `ready`, those of claims that this walk makes, too.
    fn unsettled(&self, part: &Component, state: &str, is_last: bool) -> Option<Arc<str>> {
        let key = self.key(part, state);
        let before = self.request.claims.get(&key);
        let now = self.claims.get(&key).map_or(before, Option::as_ref);
        if now != before {
            return is_last.then(|| "the objects of this change".into());
        }
        match self.applied(&key) {
            Applied::Done => None,
            Applied::Pending(text) | Applied::Failed(text) => Some(text),
        }
    }

    /// Does the work of a state, and replaces its claim. The claim stays where the work fails.
    fn do_work(&mut self, part: &Component, outline: &StateOutline) -> Result<Step, WorkError> {
        let key = self.key(part, &outline.name);
        let claim = match self.work(part, outline) {
            Ok(StateWork::Output(claim)) => claim.filter(|claim| !claim.is_empty()),
            Ok(StateWork::Waits(text)) => return Ok(Step::Stopped(Some(text))),
            Ok(StateWork::Open) => return Ok(Step::Open),
            Err(error) => return self.failed(&error),
        };
        let before = self.request.claims.get(&key);
        if claim.as_ref() == before {
            self.claims.remove(&key);
            return Ok(match self.applied(&key) {
                Applied::Failed(text) => Step::Failed(text),
                Applied::Done | Applied::Pending(_) => Step::Moved,
            });
        }
        if let Some(reason) = self.request.surroundings.refused.get(self.instance.tag) {
            return Ok(Step::Failed(Arc::clone(reason)));
        }
        self.claims.insert(key, claim);
        Ok(Step::Moved)
    }

    /// Calls the handler of a state that is left, and drops the claim of one that is not to be left yet. Returns what
    /// outlasts the state, or the step that it comes to while it is not left.
    fn call_to_leave(
        &mut self,
        part: &Component,
        outline: &StateOutline,
    ) -> Result<Result<(CallPlace, Claim), Step>, WorkError> {
        Ok(Err(match self.answer_to_leave(part, outline) {
            Ok(LeaveVerdict::Leave(place, claim)) => return Ok(Ok((place, claim))),
            Ok(LeaveVerdict::Keep(reason)) => {
                self.claims.insert(self.key(part, &outline.name), None);
                // The state has nothing from that answer any more.
                self.change(part, &outline.name, |state| state.answer = None);
                Step::Stopped(Some(reason))
            }
            Ok(LeaveVerdict::Waits(text)) => Step::Stopped(Some(text)),
            Ok(LeaveVerdict::Open) => Step::Open,
            Err(error) => self.failed(&error)?,
        }))
    }

    fn failed(&self, error: &WorkError) -> Result<Step, WorkError> {
        match self.request.surroundings.is_lenient {
            true => Ok(Step::Failed(self.text_of(error))),
            false => Err(error.clone()),
        }
    }

    /// Judges `ready` of `self`: that of all components.
    pub(super) fn judge_whole(&mut self, part: &Component) -> bool {
        let (was_ready, failure, behind) = {
            let plan = self.own.plan();
            let Some(itself) = plan.component(SELF, SELF) else { return false };
            // A reached state waits for its handler, where nobody could do its work again.
            let waits =
                |it: &ComponentPlan| it.states.iter().any(|state| state.waits_for.is_some());
            let behind = plan.components.iter().find(|it| {
                let is_behind = it.back_track.is_some() || !it.is_ready() || waits(it);
                it.component_type != SELF && is_behind
            });
            let behind = behind.map(|it| format!("component {} {}", it.component_type, it.name));
            let waits = plan.modifications.values().find_map(|it| it.waits_for.clone());
            let behind = waits.or(behind.map(Arc::from));
            (itself.is_ready(), first_failure(&plan), behind)
        };
        let first = self.states(part).first().map(|(_, state)| state.clone());
        let unsettled = |first: &StatePlan| match is_reached(first) {
            true if was_ready => None,
            true => self.unsettled(part, &first.name, true),
            false => Some("state init".into()),
        };
        let waits_for = behind.or_else(|| first.as_ref().and_then(unsettled));
        let waits_for = waits_for.or_else(|| self.action_under_way());
        let is_reached = failure.is_none() && waits_for.is_none();
        self.change(part, READY, |state| {
            (state.is_reached, state.failure, state.waits_for) = (is_reached, failure, waits_for);
        });
        is_reached != was_ready
    }

    /// The states of a component with their outlines, as they are now.
    pub(super) fn states(&self, part: &Component) -> Vec<(StateOutline, StatePlan)> {
        let plan = self.own.plan();
        let component = plan.component(&part.component_type, &part.name);
        let outline = self.outlines.get(&part.component_type);
        let (Some(component), Some(outline)) = (component, outline) else { return Vec::new() };
        outline.states.iter().cloned().zip(component.states.iter().cloned()).collect()
    }

    /// Notes the result of a step of a state.
    fn update(&self, part: &Component, state: &str, step: Step) {
        self.change(part, state, |state| match step {
            Step::Moved => {
                (state.is_reached, state.failure, state.waits_for) = (true, None, None);
            }
            Step::Stopped(waits_for) => (state.failure, state.waits_for) = (None, waits_for),
            Step::Late { timeout, waits_for } => {
                (state.failure, state.waits_for) = (Some(late_text(timeout)), waits_for);
            }
            Step::Failed(text) => (state.failure, state.waits_for) = (Some(text), None),
            Step::Open => {}
        });
    }

    /// Changes a state; a change of its status has the time of the walk.
    pub(super) fn change(&self, part: &Component, name: &str, change: impl FnOnce(&mut StatePlan)) {
        let mut plan = self.own.plan();
        let mut states = component_mut(&mut plan, part).into_iter().flat_map(|it| &mut it.states);
        let Some(state) = states.find(|state| state.name == *name) else { return };
        let before = state.status();
        change(state);
        if state.status() != before {
            state.since_ns = self.request.surroundings.now_ns;
        }
    }
}

/// The first failure of a modification call or a state, but of `ready` of `self`, which has it from the others.
fn first_failure(plan: &ServicePlan) -> Option<Arc<str>> {
    let mut modifications = plan.modifications.iter();
    let of_instance = modifications.find_map(|(phase, it)| {
        Some(Arc::from(format!("{}: {}", phase.name(), it.failure.as_ref()?)))
    });
    let mut components = plan.components.iter();
    of_instance.or_else(|| {
        components.find_map(|component| {
            let is_whole =
                |state: &StatePlan| component.component_type == SELF && state.name == READY;
            let states = component.states.iter().filter(|state| !is_whole(state));
            let action = |it: &StatePlan| it.action.as_ref().and_then(ActionPlan::failure).cloned();
            let failure = |it: &StatePlan| {
                let action = action(it).map(|text| format!("action: {text}").into());
                it.failure.clone().or(action)
            };
            let (state, text) = states.filter_map(|it| Some((it, failure(it)?))).next()?;
            let of = format!("{} {}", component.component_type, component.name);
            Some(format!("{of}, {}: {text}", state.name).into())
        })
    })
}

/// Text for a state that comes in a later walk, because another one was reached or left in this.
fn commit_text(other: &str) -> Arc<str> {
    format!("the commit of {other}").into()
}

/// Text for a state that waits for longer than its timeout.
fn late_text(timeout: Duration) -> Arc<str> {
    format!("not reached within {} s", timeout.as_secs()).into()
}

fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Text for a state that waits for its gate.
pub(super) fn gate_text(gate: &LocatedText) -> Arc<str> {
    format!("gate `{}`", excerpt(&gate.text)).into()
}

fn component_mut<'p>(plan: &'p mut ServicePlan, part: &Component) -> Option<&'p mut ComponentPlan> {
    plan.components.iter_mut().find(|it| it.is(&part.component_type, &part.name))
}
