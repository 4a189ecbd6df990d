//! The record of an instance: who had it walked, when, and what came of it.

use holdfast_config::services::{
    CallPhase, ComponentPlan, InstanceRecord, ServicePlan, StatePlan, Surroundings,
};

use super::WalkResult;

/// Notes a walk in the record of its instance, unless nobody asked for it and it changed nothing.
pub(crate) fn note(
    walked: &mut WalkResult,
    before: Option<&ServicePlan>,
    surroundings: &Surroundings,
) {
    let is_changed =
        walked.plan.as_ref() != before || !walked.claims.is_empty() || !walked.persisted.is_empty();
    let Some(plan) = walked.plan.as_mut() else { return };
    let author = surroundings.origin.requester();
    if !is_changed && author.is_none() {
        return;
    }
    let mut record = std::mem::take(&mut plan.record);
    record.note_walk(author, surroundings.now_ns);
    log_changes(&mut record, before, plan, surroundings.now_ns);
    plan.record = record;
}

/// Logs all that differs between the plans before and after a walk.
fn log_changes(
    record: &mut InstanceRecord,
    before: Option<&ServicePlan>,
    after: &ServicePlan,
    now_ns: u64,
) {
    let failure = |plan: &ServicePlan| plan.failure.clone();
    if after.failure != before.and_then(failure)
        && let Some(failure) = &after.failure
    {
        record.log(now_ns, &format!("failed: {failure}"));
    }
    log_modification(record, before, after, now_ns, CallPhase::PreModification);
    for component in &after.components {
        let ComponentPlan { component_type, name, states, .. } = component;
        let earlier = before.and_then(|plan| plan.component(component_type, name));
        for state in states {
            let earlier = earlier.and_then(|it| it.state(&state.name));
            for text in changes(earlier, state) {
                record.log(now_ns, &format!("{component_type} {name}, {}: {text}", state.name));
            }
        }
    }
    let earlier = before.into_iter().flat_map(|plan| &plan.components);
    for ComponentPlan { component_type, name, .. } in earlier {
        if after.component(component_type, name).is_none() {
            record.log(now_ns, &format!("{component_type} {name}: gone"));
        }
    }
    log_modification(record, before, after, now_ns, CallPhase::PostModification);
}

/// Logs another answer to a modification call, or another failure of it.
fn log_modification(
    record: &mut InstanceRecord,
    before: Option<&ServicePlan>,
    after: &ServicePlan,
    now_ns: u64,
    phase: CallPhase,
) {
    let Some(modification) = after.modifications.get(&phase) else { return };
    let earlier = before.and_then(|plan| plan.modifications.get(&phase));
    match &modification.failure {
        Some(text) if earlier.is_none_or(|it| it.failure.as_ref() != Some(text)) => {
            record.log(now_ns, &format!("{} failed: {text}", phase.name()));
        }
        None if modification.answer.is_some()
            && earlier.is_none_or(|it| it.answer != modification.answer) =>
        {
            record.log(now_ns, &format!("{} done", phase.name()));
        }
        _ => {}
    }
}

/// Texts for a status or an action of a state that differs.
fn changes(before: Option<&StatePlan>, after: &StatePlan) -> Vec<String> {
    let mut texts = Vec::new();
    let is_new_failure =
        after.failure.is_some() && before.is_none_or(|before| before.failure != after.failure);
    match before {
        None if !after.is_reached && after.failure.is_none() => {}
        Some(before) if before.status() == after.status() && !is_new_failure => {}
        _ => {
            let reason = after.failure.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            texts.push(format!("{}{reason}", after.status().name()));
        }
    }
    let action = |state: &StatePlan| {
        state.action.as_ref().map(|action| (action.id, action.progress.clone()))
    };
    if let Some((id, progress)) =
        action(after).filter(|it| before.and_then(action).as_ref() != Some(it))
    {
        let reason = progress.failure().map(|it| format!(": {it}")).unwrap_or_default();
        texts.push(format!("action {id} {}{reason}", progress.name()));
    }
    texts
}
