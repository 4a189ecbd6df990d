//! Actions: calls for work outside of the configuration, and what comes of them.
//!
//! ```text
//! state is reached, or left --> queued --> dispatched --> ended: `result` decides --> succeeded, `save`
//!                                  |            |                        ` failed
//!                                  |            ` failed, or in doubt after a restart
//!                                  ` cancelled
//! ```
//!
//! A walk asks for an action and notes what came of it, also where it cannot be evaluated otherwise. The queue of the agent
//! carries the action out, and reports by a walk.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::services::{
    ActionEvent, ActionPhase, ActionPlan, ActionProgress as Progress, Applied, CallRef, StatePlan,
};
use minijinja::Value as TemplateValue;
use smol_str::SmolStr;

use super::{Instance, Walk};
use crate::component::Component;
use crate::limits::OPAQUE_SIZE;
use crate::outline::{Action, SELF, StateOutline};
use crate::work::WorkError;

/// Name of the result of an action in expressions.
const RESULT: &str = "result";

/// Identifiers of the calls of one change, which no two calls of the box share.
#[derive(Debug)]
pub(crate) struct CallIds(Cell<u64>);

impl CallIds {
    /// Identifiers from the time of the walks on. Instances are walked in one change at a time, which takes longer than
    /// there are nanoseconds for each of its calls.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self(Cell::new(now_ns))
    }

    fn next(&self) -> u64 {
        let next = self.0.get();
        self.0.set(next.saturating_add(1));
        next
    }
}

/// Action that a state has asked for.
pub(super) struct StateAction {
    part: Component,
    /// `None` for a state that the outline does not have any more.
    outline: Option<StateOutline>,
    state: SmolStr,
    action: ActionPlan,
    /// News that fits the call.
    event: Option<ActionEvent>,
}

impl Walk<'_> {
    /// Notes what came of actions, and asks again for those that an operator wants again. True when one has saved a value.
    pub(super) fn update_actions(&mut self) -> Result<bool, WorkError> {
        let before = self.own.plan().saved.clone();
        let actions = self.state_actions();
        self.note_actions(&actions);
        self.ask_again(&actions)?;
        Ok(self.own.plan().saved != before)
    }

    /// The actions that the components of this walk have asked for.
    pub(super) fn state_actions(&self) -> Vec<StateAction> {
        let plan = self.own.plan();
        let updates = &self.request.surroundings.actions;
        let mut actions = Vec::new();
        for part in &self.parts {
            let component = plan.component(&part.component_type, &part.name);
            let outline = self.outlines.get(&part.component_type);
            for state in component.into_iter().flat_map(|it| &it.states) {
                let Some(action) = &state.action else { continue };
                let key = self.key(part, &state.name);
                let mut updates = updates.iter().filter(|it| it.id == action.id && it.state == key);
                let update = updates.find(|it| it.event.fits(&action.progress));
                actions.push(StateAction {
                    part: part.clone(),
                    outline: outline.and_then(|it| it.state(&state.name)).cloned(),
                    state: state.name.clone(),
                    action: action.clone(),
                    event: update.map(|it| it.event.clone()),
                });
            }
        }
        actions
    }

    /// Notes what came of actions. One whose result cannot be evaluated has failed.
    pub(super) fn note_actions(&self, actions: &[StateAction]) {
        for it in actions {
            let Some(event) = it.event.as_ref().filter(|it| **it != ActionEvent::Rescheduled)
            else {
                continue;
            };
            let after = self.after(it, event);
            self.change(&it.part, &it.state, |state| state.action = Some(after));
        }
    }

    /// Asks again for actions that an operator wants again.
    fn ask_again(&self, actions: &[StateAction]) -> Result<(), WorkError> {
        for StateAction { part, outline, state, action, event } in actions {
            let is_open = matches!(action.progress, Progress::Failed(_) | Progress::Cancelled(_));
            let retries = self.request.surroundings.retries_actions && is_open;
            let is_wanted = match event {
                Some(event) => *event == ActionEvent::Rescheduled,
                None => retries,
            };
            let Some(outline) = outline.as_ref().filter(|_| is_wanted) else { continue };
            let next = self.call(part, outline, action.phase)?;
            let next = next.map(|next| ActionPlan { attempts: action.attempts, ..next });
            self.change(part, state, |state| state.action = next);
        }
        Ok(())
    }

    /// The call after an event that fits it.
    fn after(&self, of: &StateAction, event: &ActionEvent) -> ActionPlan {
        let action = &of.action;
        let progress = match event {
            ActionEvent::Dispatched => Progress::Dispatched,
            ActionEvent::Failed(reason) | ActionEvent::Resolved(Err(reason)) => {
                Progress::Failed(Arc::clone(reason))
            }
            ActionEvent::Lost(reason) => Progress::InDoubt(Arc::clone(reason)),
            ActionEvent::Cancelled(reason) => Progress::Cancelled(Arc::clone(reason)),
            ActionEvent::Resolved(Ok(())) => Progress::Succeeded,
            ActionEvent::Ended(result) => match self.judge(of, result) {
                Ok(()) => Progress::Succeeded,
                Err(reason) => Progress::Failed(reason),
            },
            ActionEvent::Rescheduled => return action.clone(),
        };
        let attempts = action.attempts + u64::from(progress == Progress::Dispatched);
        let since_ns = self.request.surroundings.now_ns;
        ActionPlan { progress, attempts, since_ns, ..action.clone() }
    }

    /// Judges the result of an action by the expression of its state, and saves what is to be kept of one that succeeds.
    fn judge(&self, of: &StateAction, result: &str) -> Result<(), Arc<str>> {
        let outline = of.outline.as_ref();
        let Some(action) = outline.and_then(|it| action_of(it, of.action.phase)) else {
            return Ok(());
        };
        // A question that nothing answers is a matter of this action alone.
        let of_walk = self.own.take_unanswered();
        self.begin(&of.part, &of.state, "action");
        let judged = self.evaluate_result(&of.part, action, result);
        let unanswered = self.own.take_unanswered();
        of_walk.into_iter().for_each(|reason| self.own.note_unanswered(reason));
        let saved = judged?;
        if let Some(reason) = unanswered {
            return Err(reason.into());
        }
        self.own.plan().saved = saved;
        Ok(())
    }

    /// The values that an action of a component saves with those before it, if its result is that of a success.
    fn evaluate_result(
        &self,
        part: &Component,
        action: &Action,
        result: &str,
    ) -> Result<BTreeMap<SmolStr, Arc<str>>, Arc<str>> {
        let value = serde_json::from_str::<TemplateValue>(result).unwrap_or_default();
        let scope = self.scope_of(part).with(RESULT, value);
        let package = self.instance.package;
        if let Some(condition) = &action.result {
            let is_success = package.condition(condition, &scope, &self.facts);
            if !is_success.map_err(|error| self.text_of(&error))? {
                return Err(format!("`{}` is false of {result}", condition.text).into());
            }
        }
        let mut saved = self.own.plan().saved.clone();
        for (name, expression) in &action.save {
            let value = package.evaluate(expression, &scope, &self.facts);
            let value = value.map_err(|error| self.text_of(&error))?;
            let text = serde_json::to_string(&value)
                .map_err(|error| Arc::from(format!("`{name}` cannot be saved: {error}")))?;
            saved.insert(name.clone(), text.into());
        }
        let size = saved.iter().map(|(name, value)| name.len() + value.len()).sum();
        OPAQUE_SIZE.check(size).map_err(|error| Arc::from(error.to_string()))?;
        Ok(saved)
    }

    /// Cancels the calls of the instance that were not dispatched, if an object of it was refused. Calls that this
    /// walk has asked for stay until the next one.
    pub(super) fn cancel_calls(&self) {
        let Some(refused) = self.refused_object() else { return };
        let now_ns = self.request.surroundings.now_ns;
        let is_earlier = |it: &&mut ActionPlan| it.progress == Progress::Queued && it.id < now_ns;
        let mut plan = self.own.plan();
        let states = plan.components.iter_mut().flat_map(|it| &mut it.states);
        for action in states.filter_map(|it| it.action.as_mut()).filter(is_earlier) {
            (action.progress, action.since_ns) = (Progress::Cancelled(refused.clone()), now_ns);
        }
    }

    /// The first object of claims that stay as they are which was refused.
    fn refused_object(&self) -> Option<Arc<str>> {
        self.parts
            .iter()
            .flat_map(|part| self.states(part).into_iter().map(move |it| (part, it)))
            .filter(|(_, (_, state))| state.is_reached)
            .map(|(part, (_, state))| self.key(part, &state.name))
            .filter(|key| !self.claims.contains_key(key))
            .find_map(|key| match self.applied(&key) {
                Applied::Failed(text) => Some(text),
                Applied::Done | Applied::Pending(_) => None,
            })
    }

    /// The call of the action that a state has for this phase, with its parameters as they are now.
    pub(super) fn call(
        &self,
        part: &Component,
        outline: &StateOutline,
        phase: ActionPhase,
    ) -> Result<Option<ActionPlan>, WorkError> {
        let Some(action) = action_of(outline, phase) else { return Ok(None) };
        self.check_queue(part, outline)?;
        self.begin(part, &outline.name, "action");
        let call = self.instance.package.action_call(action, &self.scope_of(part), &self.facts)?;
        let id = self.instance.calls.next();
        let since_ns = self.request.surroundings.now_ns;
        let progress = Progress::Queued;
        let attempts = 0;
        let origin = &self.request.surroundings.origin;
        let cause = Some(Arc::new(origin.action_cause(self.instance.tag)));
        Ok(Some(ActionPlan { id, phase, progress, attempts, since_ns, call, cause }))
    }

    /// Refuses one more action in the queue than the box may have. The state has one at a time.
    fn check_queue(&self, part: &Component, outline: &StateOutline) -> Result<(), WorkError> {
        let Instance { tag, totals, .. } = *self.instance;
        let before = self.request.book.get(tag).map_or(0, |plan| plan.queued_calls().count());
        let is_other = |it: &CallRef<'_>| {
            !it.component.is(&part.component_type, &part.name) || it.state.name != outline.name
        };
        let others = self.own.plan().queued_calls().filter(is_other).count();
        let checked = totals.check_actions([before, others + 1], tag);
        checked.map_err(|reason| self.over_limit(reason, Some(outline.position)))
    }

    /// Delete action that keeps a component from backing out further: one that is `sync`, and where no state is left to be
    /// backed out of, any that has not succeeded.
    pub(super) fn delete_action_in_the_way(
        &self,
        part: &Component,
        is_last: bool,
    ) -> Option<Arc<str>> {
        let in_the_way = |(outline, state): (StateOutline, StatePlan)| {
            let action = state.action.filter(|it| it.phase == ActionPhase::Delete)?;
            let is_sync = outline.delete.action.is_some_and(|it| it.sync);
            let is_waited_for = is_last || is_sync;
            let is_in_the_way = action.progress != Progress::Succeeded && is_waited_for;
            (is_in_the_way && !self.is_forced(part, &state.name)).then(|| waits_text(&state.name))
        };
        self.states(part).into_iter().find_map(in_the_way)
    }

    /// Action of a component that is under way.
    pub(super) fn action_under_way(&self) -> Option<Arc<str>> {
        let plan = self.own.plan();
        let mut states =
            plan.components.iter().flat_map(|it| it.states.iter().map(move |state| (it, state)));
        let is_under_way =
            |state: &StatePlan| state.action.as_ref().is_some_and(ActionPlan::is_under_way);
        let (component, state) = states.find(|(_, state)| is_under_way(state))?;
        let of = match component.component_type == SELF {
            true => String::new(),
            false => format!(" of {} {}", component.component_type, component.name),
        };
        Some(format!("the action of {}{of}", state.name).into())
    }
}

fn action_of(outline: &StateOutline, phase: ActionPhase) -> Option<&Action> {
    match phase {
        ActionPhase::Create => outline.action.as_ref(),
        ActionPhase::Delete => outline.delete.action.as_ref(),
    }
}

/// Action of an earlier state that a later one has to wait for.
pub(super) fn in_the_way(outline: &StateOutline, state: &StatePlan) -> Option<Arc<str>> {
    outline.action.as_ref().filter(|action| action.sync)?;
    let action = state.action.as_ref()?;
    (action.progress != Progress::Succeeded).then(|| waits_text(&state.name))
}

fn waits_text(state: &str) -> Arc<str> {
    format!("the action of {state}").into()
}
