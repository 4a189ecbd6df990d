//! The extension of this agent for dry runs, and for Sets that are carried out with the expected plan only.
//!
//! `holdfast.Plan`, in `proto/protos/holdfast/plan.proto`.

use holdfast_core::{
    BoundedList, ConfigChange, InvalidPlanHash, ObjectChange, ObjectEffect, PendingObject,
    PlanHash, Preview, ServiceChange, StateChange, StateEffect,
};
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{Extension, RegisteredExtension};
use holdfast_proto::holdfast::plan::Content;
use holdfast_proto::holdfast::{self, Plan};
use holdfast_scheduler::Cause;
use prost::Message;

use super::super::status::Refusal;

/// Number of the extension. Upstream assigns numbers from below; this one is private to this agent.
pub(in super::super) const ID: i32 = 26150;

/// Request of a client in the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanOption {
    DryRun,
    Expected(PlanHash),
}

impl PlanOption {
    pub(super) fn read(message: &[u8]) -> Result<Self, Refusal> {
        let plan = Plan::decode(message).map_err(|error| {
            Refusal::invalid(format!("the extension {ID} is not a holdfast.Plan: {error}"))
        })?;
        match plan.content {
            Some(Content::DryRun(_)) => Ok(Self::DryRun),
            Some(Content::Expected(expected)) => {
                let hash: Result<_, InvalidPlanHash> = expected.hash.parse();
                hash.map(Self::Expected).map_err(|error| Refusal::invalid(error.to_string()))
            }
            Some(Content::Preview(_)) => {
                Err(Refusal::invalid("a preview belongs to an answer: leave it out of the request"))
            }
            None => Err(Refusal::invalid("holdfast.Plan must have `dry_run` or `expected`")),
        }
    }
}

/// The answer to a dry run.
pub(in super::super) fn answer(preview: Preview) -> Extension {
    let content = Some(Content::Preview(preview_message(preview)));
    let msg = Plan { content }.encode_to_vec().into();
    Extension { ext: Some(Ext::RegisteredExt(RegisteredExtension { id: ID, msg })) }
}

/// The effects of a change on the wire.
pub(in super::super) fn preview_message(preview: Preview) -> holdfast::Preview {
    let Preview { hash, configuration, operations, pending, services } = preview;
    let total = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let totals = holdfast::Totals {
        configuration: total(configuration.total),
        operations: total(operations.total),
        pending: total(pending.total),
        services: total(services.total),
    };
    holdfast::Preview {
        hash: hash.to_string(),
        configuration: listed(configuration, configuration_change),
        operations: listed(operations, operation),
        pending: listed(pending, pending_object),
        services: listed(services, service_change),
        totals: Some(totals),
    }
}

fn listed<T, W>(listed: BoundedList<T>, message: fn(T) -> W) -> Vec<W> {
    listed.first.into_iter().map(message).collect()
}

fn configuration_change(change: ConfigChange) -> holdfast::ConfigurationChange {
    let ConfigChange { origin, path, before, after } = change;
    let before = before.unwrap_or_default();
    let after = after.unwrap_or_default();
    holdfast::ConfigurationChange { origin: origin.as_str().to_owned(), path, before, after }
}

fn pending_object(waiting: PendingObject) -> holdfast::Pending {
    let PendingObject { object, waits_for } = waiting;
    holdfast::Pending { object, waits_for }
}

fn service_change(change: ServiceChange) -> holdfast::ServiceChange {
    let ServiceChange { service, states, leaves, failure, partial } = change;
    holdfast::ServiceChange {
        service,
        states: states.into_iter().map(state_change).collect(),
        leaves: listed(leaves, configuration_change),
        partial: partial.unwrap_or_default(),
        failure: failure.unwrap_or_default(),
    }
}

fn state_change(change: StateChange) -> holdfast::StateChange {
    let StateChange { component: [component_type, component_name], state, effect, reason } = change;
    let effect = match effect {
        StateEffect::Reached => holdfast::StateEffect::Reached,
        StateEffect::Left => holdfast::StateEffect::Left,
        StateEffect::Waiting => holdfast::StateEffect::Waiting,
        StateEffect::Failed => holdfast::StateEffect::Failed,
    };
    let effect = effect as i32;
    let reason = reason.unwrap_or_default();
    holdfast::StateChange { component_type, component_name, state, effect, reason }
}

fn operation(change: ObjectChange) -> holdfast::Operation {
    let ObjectChange { object, effect, cause, interrupts, takes_link_down } = change;
    let effect = match effect {
        ObjectEffect::Created => holdfast::Effect::Created,
        ObjectEffect::ChangedInPlace => holdfast::Effect::ChangedInPlace,
        ObjectEffect::Recreated => holdfast::Effect::Recreated,
        ObjectEffect::Removed => holdfast::Effect::Removed,
        ObjectEffect::Adopted => holdfast::Effect::Adopted,
        ObjectEffect::GivenBack => holdfast::Effect::GivenBack,
    };
    let cause = match cause {
        Cause::Requested => holdfast::Cause::Asked,
        Cause::Parked | Cause::Unparked => holdfast::Cause::DependsOnWhatGoes,
        Cause::Unblocked => holdfast::Cause::Woken,
        Cause::Drift => holdfast::Cause::Drift,
        Cause::Orphan => holdfast::Cause::Orphan,
    };
    let effect = effect as i32;
    holdfast::Operation { object, effect, cause: cause as i32, interrupts, takes_link_down }
}
