//! Changes of service instances, as a dry run shows them.

use std::collections::BTreeMap;

use holdfast_config::services::{Book, ComponentPlan, READY, ServicePlan, StatePlan};
use holdfast_config::{Claims, Configuration};
use smol_str::{SmolStr, format_smolstr};

use super::differences::{BoundedList, ConfigChange, list_differences};

/// Effect of a change on one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceChange {
    /// Name of the instance, or of a claim that no instance owns.
    pub service: String,
    /// States that would be reached, left, or still be waited for, in the order of the plan.
    pub states: Vec<StateChange>,
    /// Leaves that its claims would gain, change or lose.
    pub leaves: BoundedList<ConfigChange>,
    /// Reason for which nothing of it could be evaluated.
    pub failure: Option<String>,
    /// Reason for which stages would follow that the dry run does not show.
    pub partial: Option<String>,
}

/// Effect of a change on one state of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Type and name of the component.
    pub component: [String; 2],
    pub state: String,
    pub effect: StateEffect,
    /// Condition or object that it would wait for, or the reason for which it would fail.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateEffect {
    Reached,
    Left,
    Waiting,
    Failed,
}

// Name in texts.
holdfast_config::enum_names!(StateEffect {
    Reached = "reached",
    Left = "left",
    Waiting = "waiting",
    Failed = "failed",
});

/// The instances whose service plans differ after a change. For a dry run, after these also those whose claims alone do, and
/// the claims without an owner that do; and all with the leaves.
pub(crate) fn changes(
    old: &Configuration,
    new: &Configuration,
    is_dry_run: bool,
) -> BoundedList<ServiceChange> {
    let [mut found, mut of_claims] = [const { BTreeMap::<SmolStr, ServiceChange>::new() }; 2];
    let old_layers = old.layers();
    let new_layers = new.layers();
    for (tag, before, after) in Book::differences(&old_layers.book, &new_layers.book) {
        let service = format_smolstr!("{tag}");
        let change = ServiceChange {
            service: service.to_string(),
            states: states(before, after),
            failure: after.and_then(|plan| plan.failure.as_ref()).map(ToString::to_string),
            partial: after.and_then(partial),
            ..ServiceChange::default()
        };
        found.insert(service, change);
    }
    if is_dry_run {
        for (key, before, after) in Claims::differences(old_layers.claims(), new_layers.claims()) {
            let owner = key.owner();
            let change = match found.get_mut(&owner) {
                Some(change) => change,
                None => of_claims.entry(owner.clone()).or_default(),
            };
            change.service = owner.to_string();
            let before = before.cloned();
            let after = after.cloned();
            let claims = [before.unwrap_or_default(), after.unwrap_or_default()];
            list_differences(
                new.models(),
                |origin| claims.each_ref().map(|it| it.tree(origin)),
                &mut change.leaves,
            );
        }
    }
    let mut listed = BoundedList::default();
    for change in found.into_values().chain(of_claims.into_values()) {
        listed.push(|| change);
    }
    listed
}

/// Text of the states for the hash of a plan. It is the same for a dry run and for the change itself, which does not list
/// claims.
pub(crate) fn text(changes: &BoundedList<ServiceChange>) -> String {
    let text = |ServiceChange { service, states, failure, partial, .. }: &ServiceChange| {
        let is_of_claims = states.is_empty() && failure.is_none() && partial.is_none();
        (!is_of_claims).then(|| format!("{service} {states:?} {failure:?} {partial:?};"))
    };
    changes.first.iter().filter_map(text).collect()
}

fn states(before: Option<&ServicePlan>, after: Option<&ServicePlan>) -> Vec<StateChange> {
    let state_of = |plan: Option<&ServicePlan>, component: &ComponentPlan, name: &str| {
        let component = plan?.component(&component.component_type, &component.name)?;
        component.state(name).cloned()
    };
    let mut changes = Vec::new();
    for (component, state) in all_states(after) {
        let was = state_of(before, component, &state.name);
        changes.extend(effect(was.as_ref(), state).map(|it| state_change(component, state, it)));
    }
    // Components that are gone have left all of their states.
    for (component, state) in all_states(before).filter(|(_, state)| state.is_reached) {
        if state_of(after, component, &state.name).is_none() {
            let gone = StatePlan { failure: None, waits_for: None, ..state.clone() };
            changes.push(state_change(component, &gone, StateEffect::Left));
        }
    }
    changes
}

fn all_states(plan: Option<&ServicePlan>) -> impl Iterator<Item = (&ComponentPlan, &StatePlan)> {
    let components = plan.into_iter().flat_map(|plan| &plan.components);
    components.flat_map(|component| component.states.iter().map(move |state| (component, state)))
}

fn effect(before: Option<&StatePlan>, after: &StatePlan) -> Option<StateEffect> {
    let was_reached = before.is_some_and(|state| state.is_reached);
    match (was_reached, after.is_reached) {
        _ if after.failure.is_some() => Some(StateEffect::Failed),
        (false, true) => Some(StateEffect::Reached),
        (true, false) => Some(StateEffect::Left),
        (false, false) if after.waits_for.is_some() => Some(StateEffect::Waiting),
        (false, false) | (true, true) => None,
    }
}

fn state_change(component: &ComponentPlan, state: &StatePlan, effect: StateEffect) -> StateChange {
    let reason = state.failure.as_ref().or(state.waits_for.as_ref());
    StateChange {
        component: [&component.component_type, &component.name].map(ToString::to_string),
        state: state.name.to_string(),
        effect,
        reason: reason.map(ToString::to_string),
    }
}

/// Reason for which an instance would go on after the change: a state beside `ready` that waits, or what backs out.
fn partial(plan: &ServicePlan) -> Option<String> {
    let waiting = all_states(Some(plan)).find_map(|(component, state)| {
        let waits_for = state.waits_for.as_ref().filter(|_| state.name != READY)?;
        let ComponentPlan { component_type, name, .. } = component;
        Some(format!("{component_type} {name}, {} waits for {waits_for}", state.name))
    });
    let backs_out = || plan.leaving.as_ref().map(|_| "it still backs out".to_owned());
    waiting.or_else(backs_out)
}
