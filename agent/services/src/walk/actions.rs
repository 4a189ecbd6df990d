//! Actions: calls for work outside of the configuration, and what comes of them.
//!
//! ```text
//! state is reached, or left --> queued --> dispatched --> ended: `result` decides --> succeeded
//!                                                   |                        ` failed
//!                                                   ` failed
//! ```
//!
//! A walk asks for an action and notes what came of it. The queue of the agent carries it out, and reports by a walk.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::services::{
    ActionCall, ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionUpdate, StatePlan,
};
use minijinja::Value as TemplateValue;

use super::Walk;
use crate::convert;
use crate::outline::{Action, ActionTarget, SELF, StateOutline};
use crate::tree::Component;
use crate::work::WorkError;

/// Name of the result of an action in expressions.
const RESULT: &str = "result";

impl Walk<'_> {
    /// Notes what came of actions, and asks again for those that failed where an operator wants that.
    pub(super) fn update_actions(&mut self) -> Result<(), WorkError> {
        for part in self.parts.clone() {
            for (outline, state) in self.states(&part) {
                let Some(action) = &state.action else { continue };
                let key = self.key(&part, &state.name);
                let updates = &self.request.surroundings.actions;
                let update = updates.iter().find(|it| it.id == action.id && it.state == key);
                let progress = match update {
                    Some(update) => self.progress(&part, (&outline, action.phase), update),
                    None if self.request.surroundings.retries_actions
                        && action.failure().is_some() =>
                    {
                        let action = self.call(&part, &outline, action.phase)?;
                        self.change(&part, &state.name, |state| state.action = action);
                        continue;
                    }
                    None => continue,
                };
                self.change(&part, &state.name, |state| {
                    state.action.iter_mut().for_each(|it| it.progress = progress.clone());
                });
            }
        }
        Ok(())
    }

    /// What an event makes of an action: the result is judged by the expression of its state.
    fn progress(
        &self,
        part: &Component,
        (outline, phase): (&StateOutline, ActionPhase),
        update: &ActionUpdate,
    ) -> ActionProgress {
        let result = match &update.event {
            ActionEvent::Dispatched => return ActionProgress::Dispatched,
            ActionEvent::Failed(reason) => return ActionProgress::Failed(Arc::clone(reason)),
            ActionEvent::Ended(result) => result,
        };
        let Some(condition) = action_of(outline, phase).and_then(|it| it.result.as_ref()) else {
            return ActionProgress::Succeeded;
        };
        let value = serde_json::from_str::<TemplateValue>(result).unwrap_or_default();
        let scope = self.scope_of(part).with(RESULT, value);
        match self.instance.package.condition(condition, &scope, &self.facts) {
            Ok(true) => ActionProgress::Succeeded,
            Ok(false) => {
                let text = format!("`{}` is false of {result}", condition.text);
                ActionProgress::Failed(text.into())
            }
            Err(error) => ActionProgress::Failed(self.text_of(&error)),
        }
    }

    /// The call of the action that a state has for this phase, with its parameters as they are now.
    pub(super) fn call(
        &self,
        part: &Component,
        outline: &StateOutline,
        phase: ActionPhase,
    ) -> Result<Option<ActionPlan>, WorkError> {
        let Some(action) = action_of(outline, phase) else { return Ok(None) };
        let ActionTarget::Ping = &action.target else { return Ok(None) };
        self.begin(part, &outline.name, "action");
        let (package, scope) = (self.instance.package, self.scope_of(part));
        let value = |expression| package.evaluate(expression, &scope, &self.facts);
        let params = action.params.iter().map(|(name, it)| Ok((name.as_str(), value(it)?)));
        let params = params.collect::<Result<BTreeMap<_, _>, WorkError>>()?;
        let serial = action.serial.as_ref().map(value).transpose()?;
        let serial = serial.and_then(|it| convert::scalar_text(&it)).unwrap_or_default();
        let call = ActionCall {
            builtin: PING.into(),
            params: serde_json::to_string(&params).unwrap_or_default().into(),
            serial: serial.into(),
            timeout_s: action.timeout.as_secs(),
        };
        let id = self.request.surroundings.now_ns;
        Ok(Some(ActionPlan { id, phase, progress: ActionProgress::Queued, call }))
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
            let is_in_the_way = action.progress != ActionProgress::Succeeded && is_waited_for;
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

/// Name of the builtin action that probes a host.
const PING: &str = "ping";

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
    (action.progress != ActionProgress::Succeeded).then(|| waits_text(&state.name))
}

fn waits_text(state: &str) -> Arc<str> {
    format!("the action of {state}").into()
}
