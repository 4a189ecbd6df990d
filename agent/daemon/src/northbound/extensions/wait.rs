//! The extension of this agent for Sets whose answer waits for what follows the commit.
//!
//! `holdfast.Services`, in `proto/protos/holdfast/wait.proto`. The Set is committed as ever; a client that goes while its
//! answer waits changes nothing.

use std::time::Duration;

use holdfast_config::ServiceTag;
use holdfast_config::services::{ComponentPlan, InstanceStatus, ServicePlan, StatePlan};
use holdfast_core::{Datastore, FollowUp};
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{Extension, RegisteredExtension};
use holdfast_proto::holdfast::{self, ServiceStatus, Services, Wait};
use prost::Message;
use tokio::time::timeout;

use super::super::status::Refusal;

/// Number of the extension; private to this agent.
pub(in super::super) const ID: i32 = 26151;

/// Longest time that an answer waits. A client that needs more subscribes to the state of the instance.
const MAX_WITHIN: Duration = Duration::from_secs(600);

/// Request of a client in the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct WaitOption {
    wait: Wait,
    pub(in super::super) within: Duration,
}

impl WaitOption {
    pub(super) fn read(message: &[u8]) -> Result<Self, Refusal> {
        let services = Services::decode(message).map_err(|error| {
            Refusal::invalid(format!("the extension {ID} is not a holdfast.Services: {error}"))
        })?;
        if services.outcome.is_some() {
            return Err(Refusal::invalid(
                "an outcome belongs to an answer: leave it out of the request",
            ));
        }
        let wait = match Wait::try_from(services.wait) {
            Ok(wait @ (Wait::Settled | Wait::Ready)) => wait,
            Ok(Wait::Unset) | Err(_) => {
                let text = "holdfast.Services must have a `wait`: WAIT_SETTLED or WAIT_READY";
                return Err(Refusal::invalid(text));
            }
        };
        let within = services.within.and_then(|within| Duration::try_from(within).ok());
        match within {
            Some(within) if !within.is_zero() && within <= MAX_WITHIN => Ok(Self { wait, within }),
            _ => Err(Refusal::invalid(format!(
                "the `within` of holdfast.Services must be above zero and at most {MAX_WITHIN:?}"
            ))),
        }
    }

    pub(in super::super) fn answer(self, outcome: holdfast::Outcome) -> Extension {
        let wait = self.wait as i32;
        let msg = Services { wait, within: None, outcome: Some(outcome) }.encode_to_vec().into();
        Extension { ext: Some(Ext::RegisteredExt(RegisteredExtension { id: ID, msg })) }
    }
}

/// Waits for what follows a commit, and lists the instances that it touches as they are then.
pub(in super::super) async fn outcome(
    core: &impl Datastore,
    option: WaitOption,
    follow_up: &FollowUp,
) -> holdfast::Outcome {
    let reached = match option.wait {
        Wait::Settled => timeout(option.within, follow_up.settled()).await.unwrap_or(false),
        _ => timeout(option.within, all_final(core, follow_up.touched())).await.is_ok(),
    };
    let configuration = core.configuration();
    let book = &configuration.layers().book;
    let instance = |tag: &ServiceTag| instance(tag, book.get(tag).map(|plan| &**plan));
    holdfast::Outcome { reached, instances: follow_up.touched().iter().map(instance).collect() }
}

/// Returns when each instance is ready, failed or gone.
async fn all_final(core: &impl Datastore, tags: &[ServiceTag]) {
    let mut revisions = core.watch();
    loop {
        let configuration = core.configuration();
        let book = &configuration.layers().book;
        let is_final = |tag: &ServiceTag| {
            let status = status(book.get(tag).map(|plan| &**plan));
            matches!(status, ServiceStatus::Ready | ServiceStatus::Failed | ServiceStatus::Gone)
        };
        // A core that has stopped changes nothing any more.
        if tags.iter().all(is_final) || revisions.changed().await.is_err() {
            return;
        }
    }
}

fn status(plan: Option<&ServicePlan>) -> ServiceStatus {
    match plan.map(ServicePlan::status) {
        None => ServiceStatus::Gone,
        Some(InstanceStatus::Zombie) => ServiceStatus::Zombie,
        Some(InstanceStatus::Failed) => ServiceStatus::Failed,
        Some(InstanceStatus::Ready) => ServiceStatus::Ready,
        Some(InstanceStatus::NotReached) => ServiceStatus::NotReady,
    }
}

fn instance(tag: &ServiceTag, plan: Option<&ServicePlan>) -> holdfast::ServiceInstance {
    holdfast::ServiceInstance {
        service: tag.to_string(),
        status: status(plan) as i32,
        failure: text(plan.and_then(|plan| plan.failure.as_deref())),
        components: plan
            .map(|it| it.components.iter().map(component).collect())
            .unwrap_or_default(),
    }
}

fn component(component: &ComponentPlan) -> holdfast::ServiceComponent {
    let state = |state: &StatePlan| holdfast::ComponentState {
        name: state.name.to_string(),
        status: component.status_of(state).name().to_owned(),
        waits_for: text(state.waits_for.as_deref()),
        failure: text(state.failure.as_deref()),
    };
    holdfast::ServiceComponent {
        r#type: component.component_type.to_string(),
        name: component.name.to_string(),
        back_tracking: component.back_track.is_some(),
        states: component.states.iter().map(state).collect(),
    }
}

fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}
