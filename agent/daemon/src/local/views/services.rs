//! `holdfast show services NAME`: the plan of service instances, a line for each state.

use holdfast_base::Caller;
use holdfast_config::schema::Origin;
use holdfast_config::services::{ComponentPlan, ServicePlan, StatePlan};
use holdfast_config::{ClaimKey, Elem, Path, ServiceTag};
use holdfast_core::Datastore as _;
use serde_json::{Value, json};

use super::look::{Look, Readable};
use super::{list, word};
use crate::local::faults::time_text;
use crate::local::rights::LookError;
use crate::local::table::{Cell, Column, Ink, Table, Tone};
use crate::services::{action_wait, is_undeployed};

/// The plan of the named instance, or of all.
pub(super) async fn document(
    look: &Look,
    caller: &Caller,
    name: Option<&str>,
) -> Result<Value, LookError> {
    let wanted = name.map(parse_tag).transpose()?;
    let readable = look.readable(caller, &[]).await;
    let revision = look.core.current_revision().await;
    let configuration = look.core.configuration();
    let book = &configuration.layers().book;
    let is_shown = |tag: &ServiceTag| {
        wanted.as_ref().is_none_or(|wanted| wanted == tag) && permits(&readable, tag)
    };
    let wait = |state: &ClaimKey| action_wait(&revision, state);
    let plans = book.iter().filter(|(tag, _)| is_shown(tag));
    let mut services: Vec<Value> = plans.map(|(tag, plan)| entry(tag, plan, &wait)).collect();
    for tag in configuration.instances() {
        if is_undeployed(&configuration, &tag) && is_shown(&tag) {
            services.push(json!({ "service": tag.to_string(), "status": "not deployed" }));
        }
    }
    match wanted {
        Some(tag) if services.is_empty() => {
            Err(LookError::Missing(format!("there is no instance `{tag}`")))
        }
        _ => Ok(json!({ "services": services })),
    }
}

fn parse_tag(name: &str) -> Result<ServiceTag, LookError> {
    name.parse().map_err(|_| {
        LookError::Invalid(format!(
            "`{name}` is not the name of an instance, as in access[name='acme']"
        ))
    })
}

fn permits(readable: &Readable, tag: &ServiceTag) -> bool {
    let plan = Elem::new("plan").key("service", tag.to_string());
    let path = Path { elems: vec![Elem::new("service-state"), plan] };
    let schema = readable.models.schema(Origin::Native);
    schema.resolve_write(&path).is_ok_and(|path| readable.permits(&path))
}

fn entry(
    tag: &ServiceTag,
    plan: &ServicePlan,
    wait: &impl Fn(&ClaimKey) -> Option<String>,
) -> Value {
    let states = plan.components.iter().flat_map(|component| {
        component.states.iter().map(move |state| state_entry(tag, component, state, wait))
    });
    json!({
        "service": tag.to_string(),
        "version": plan.version,
        "status": plan.status().name(),
        "failure": plan.failure.as_deref(),
        "states": states.collect::<Vec<_>>(),
    })
}

fn state_entry(
    tag: &ServiceTag,
    component: &ComponentPlan,
    state: &StatePlan,
    wait: &impl Fn(&ClaimKey) -> Option<String>,
) -> Value {
    let of = [component.component_type.clone(), component.name.clone()];
    let key = ClaimKey { tag: tag.clone(), component: of, state: state.name.clone() };
    let action = state.action.as_ref();
    let backs_out = component.back_track.is_some() && state.is_reached;
    let status = if backs_out { "backs out" } else { component.status_of(state).name() };
    json!({
        "component-type": component.component_type,
        "component": component.name,
        "state": state.name,
        "status": status,
        "since": time_text(state.since_ns),
        "post-action": action.map(|action| action.status()),
        "action-failure": action.and_then(|action| action.failure()).map(|it| it.to_string()),
        "action-waits-for": action.and_then(|_| wait(&key)),
        "waits-for": state.waits_for.as_deref(),
        "failure": state.failure.as_deref(),
    })
}

pub(super) fn table(document: &Value, ink: Ink) -> String {
    let mut text = String::new();
    for it in list(document, "services") {
        let failure = word(it, "failure");
        let failure = if failure.is_empty() { failure } else { format!("  ({failure})") };
        let heading = [word(it, "service"), word(it, "version"), word(it, "status")];
        let heading: Vec<String> = heading.into_iter().filter(|word| !word.is_empty()).collect();
        text += &format!("{}{failure}\n", heading.join("  "));
        let mut table = Table::new(&[
            Column::left("TYPE"),
            Column::left("NAME"),
            Column::left("STATE"),
            Column::left("STATUS"),
            Column::left("SINCE"),
            Column::left("POST ACTION"),
            Column::left("NOTE"),
        ]);
        table.rows = list(it, "states").map(row).collect();
        text += &table.text(ink);
    }
    text
}

fn row(state: &Value) -> Vec<Cell> {
    let status = word(state, "status");
    let tone = match status.as_str() {
        "reached" => Tone::Good,
        "failed" => Tone::Bad,
        _ => Tone::Waiting,
    };
    let notes =
        [("waits-for", "waits for "), ("failure", ""), ("action-failure", "action failed: ")];
    let notes = notes.into_iter().chain([("action-waits-for", "action waits for ")]);
    let notes = notes.filter(|(name, _)| state[*name].is_string());
    let notes: Vec<String> =
        notes.map(|(name, what)| format!("{what}{}", word(state, name))).collect();
    vec![
        word(state, "component-type").into(),
        word(state, "component").into(),
        word(state, "state").into(),
        Cell::toned(status, tone),
        word(state, "since").into(),
        word(state, "post-action").into(),
        notes.join("; ").into(),
    ]
}

/// Names of the instances that a caller may read.
pub(in crate::local) fn names(look: &Look, readable: &Readable) -> Vec<String> {
    let tags = look.core.configuration().instances().into_iter();
    tags.filter(|tag| permits(readable, tag)).map(|tag| tag.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_table_with_times() {
        let state = |name: &str, status: &str, waits: Option<&str>, action: Option<&str>| {
            json!({
                "component-type": "port", "component": "eth1", "state": name, "status": status,
                "since": "2026-11-27T11:00:00Z", "post-action": action, "waits-for": waits,
            })
        };
        let document = json!({ "services": [{
            "service": "access[name='acme']", "version": "1.0.0", "status": "not-reached", "failure": null,
            "states": [
                state("init", "reached", None, Some("create-reached")),
                state("sized", "not-reached", Some("gate `up`"), None),
            ],
        }] });
        let want = "\
access[name='acme']  1.0.0  not-reached
TYPE  NAME  STATE  STATUS       SINCE                 POST ACTION     NOTE
port  eth1  init   reached      2026-11-27T11:00:00Z  create-reached
port  eth1  sized  not-reached  2026-11-27T11:00:00Z                  waits for gate `up`
";
        assert_eq!(table(&document, Ink::Plain), want);
    }
}
