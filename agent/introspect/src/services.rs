//! `GET services`: how far each service instance is, what it waits for, and the objects that it asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract;
use axum::response::Response;
use holdfast_config::services::{
    ActionPlan, ComponentPlan, InstanceStatus, ServicePlan, StatePlan, StateStatus,
};
use holdfast_config::{ClaimKey, ServiceTag};
use holdfast_core::{CoreView, Datastore, ObservedBox};
use holdfast_scheduler::Key;
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::arguments::{Arguments, format_time};
use super::http_error::HttpError;
use super::{Introspect, page};

/// Label and state of a value.
pub(super) type Shown = (String, String);

/// `GET services`: `after`, `limit`.
pub(super) async fn services(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["after", "limit"], &[])?;
    let limit = arguments.limit()?;
    let after = arguments.text("after").unwrap_or_default();
    let configuration = introspect.core.configuration();
    let later = configuration.layers().book.iter().map(|(tag, plan)| (tag.to_string(), tag, plan));
    let mut plans: Vec<_> = later.filter(|(name, ..)| **name > *after).collect();
    plans.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let more = plans.len() > limit;
    plans.truncate(limit);
    let next = plans.last().filter(|_| more).map(|(name, ..)| arguments.next_page("after", name));

    let instances = Instances::of(&introspect.core.observed_box(), plans.iter().map(|it| it.1));
    let keys = instances.keys();
    let question = move |view: &CoreView<'_>| {
        let states = |key: &Key| (view.engine.label(key), view.engine.state(key).to_string());
        keys.into_iter().map(|key| (key.clone(), states(&key))).collect()
    };
    let states: BTreeMap<Key, Shown> = introspect.core.inspect(question).await?;
    let document = |(_, tag, plan): &(_, &ServiceTag, &Arc<ServicePlan>)| {
        instances.document(&introspect, &states, tag, plan)
    };
    Ok(page::list(&plans.iter().map(document).collect::<Vec<_>>(), next))
}

/// The objects that each claim asks for.
pub(super) struct Instances(BTreeMap<ClaimKey, Vec<SharedObject>>);

/// Values of one object, and the names of others that ask for it.
struct SharedObject {
    keys: Vec<Key>,
    others: BTreeSet<SmolStr>,
}

impl Instances {
    pub(super) fn of<'t>(state: &ObservedBox, tags: impl Iterator<Item = &'t ServiceTag>) -> Self {
        let configuration = state.configuration();
        let models = configuration.models();
        let claims = configuration.layers().claims();
        let mut found = BTreeMap::new();
        let of_states = |tag| claims.of_instance(tag).map(|(key, _)| key.clone());
        for key in tags.flat_map(|tag| of_states(tag).chain(claims.left_by(tag))) {
            let objects = claims.shared_objects(models, &key).into_iter();
            let objects = objects.map(|(path, others)| {
                let keys = state.keys_of_object(&path);
                SharedObject { keys, others }
            });
            found.insert(key, objects.collect());
        }
        Self(found)
    }

    pub(super) fn keys(&self) -> BTreeSet<Key> {
        self.0.values().flatten().flat_map(|object| object.keys.iter().cloned()).collect()
    }

    pub(super) fn document(
        &self,
        introspect: &Introspect,
        key_states: &BTreeMap<Key, Shown>,
        tag: &ServiceTag,
        plan: &ServicePlan,
    ) -> Value {
        let ServicePlan { version, leaving, failure, components, .. } = plan;
        let component = |component: &ComponentPlan| {
            let ComponentPlan { component_type, name, back_track, states, .. } = component;
            let state = |state: &StatePlan| {
                let place = [component_type.clone(), name.clone()];
                let state_name = state.name.clone();
                let claim = ClaimKey { tag: tag.clone(), component: place, state: state_name };
                let objects = self.objects(introspect, key_states, &claim);
                state_document(state, component.status_of(state), objects)
            };
            json!({
                "Type": component_type,
                "Name": name,
                "BackTracking": back_track.is_some(),
                "States": states.iter().map(state).collect::<Vec<_>>(),
            })
        };
        let left = |claim: &ClaimKey| {
            let objects = self.objects(introspect, key_states, claim);
            json!({ "Claim": claim.to_string(), "Objects": objects })
        };
        json!({
            "Service": tag.to_string(),
            "Version": version,
            "Zombie": leaving.is_some(),
            "Ready": plan.status() == InstanceStatus::Ready,
            "Status": plan.status().name(),
            "Failure": failure.as_deref(),
            "Components": components.iter().map(component).collect::<Vec<_>>(),
            "Left": self.0.keys().filter(|key| key.is_left() && key.tag == *tag).map(left).collect::<Vec<_>>(),
        })
    }

    /// The values of the objects of a claim, with their states.
    fn objects(
        &self,
        introspect: &Introspect,
        key_states: &BTreeMap<Key, Shown>,
        claim: &ClaimKey,
    ) -> Vec<Value> {
        let objects = self.0.get(claim).into_iter().flatten();
        let values = objects.flat_map(|it| it.keys.iter().map(|key| (key, &it.others)));
        let value = |(key, others): (&Key, &BTreeSet<SmolStr>)| {
            let (label, state) = key_states.get(key)?;
            let key = introspect.render.key(key);
            Some(json!({ "Key": key, "Label": label, "State": state, "Others": others }))
        };
        values.filter_map(value).collect()
    }
}

fn state_document(state: &StatePlan, status: StateStatus, objects: Vec<Value>) -> Value {
    let action = state.action.as_ref();
    json!({
        "Name": state.name,
        "Status": status.name(),
        "Since": format_time(state.since_ns),
        "WaitsFor": state.waits_for.as_deref(),
        "Failure": state.failure.as_deref(),
        "Action": action.map(ActionPlan::status),
        "ActionFailure": action.and_then(ActionPlan::failure).map(|it| &**it),
        "Objects": objects,
    })
}
