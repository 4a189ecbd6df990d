//! `holdfast.services.v1.Operations`: operations on service instances.

use futures::StreamExt;
use futures::stream::BoxStream;
use holdfast_base::Caller;
use holdfast_config::ClaimKey;
use holdfast_config::services::{
    ActionProgress, Applied, ComponentPlan, ServicePlan, StatePlan, StateStatus,
};
use holdfast_core::Datastore;
use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::operations_server::Operations as OperationsRpc;
use tonic::{Request, Response, Status};

use super::extensions::plan::preview_message;
use super::status::Refusal;
use crate::services::{
    CallEntry, Modification, OperationError, Operations, Place, Progress, Requester, SyncCheck,
};
use crate::trace::trace_of;

/// Serves the operations from a datastore.
#[derive(Debug)]
pub(super) struct OperationsService<C>(Operations<C>);

impl<C: Datastore> OperationsService<C> {
    pub(super) fn new(core: C) -> Self {
        Self(Operations(core))
    }
}

/// Caller of an operation, and the trace of the request. Their answers show configuration about which no path is asked.
fn requester<T>(request: &Request<T>, operation: &str) -> Result<Requester, Status> {
    let caller = Caller::authenticated(request)?;
    caller.require_admin(operation)?;
    Ok(Requester { caller, trace: trace_of(request.metadata().as_ref()) })
}

#[tonic::async_trait]
impl<C: Datastore> OperationsRpc for OperationsService<C> {
    async fn redeploy(
        &self,
        request: Request<wire::RedeployRequest>,
    ) -> Result<Response<wire::RedeployResponse>, Status> {
        let by = requester(&request, "Redeploy of services")?;
        let walked = self.0.redeploy(&by, &request.into_inner().services).await;
        let instances = walked.map_err(Refusal::from)?.iter().filter_map(instance).collect();
        Ok(Response::new(wire::RedeployResponse { instances }))
    }

    async fn check_sync(
        &self,
        request: Request<wire::CheckSyncRequest>,
    ) -> Result<Response<wire::CheckSyncResponse>, Status> {
        let by = requester(&request, "CheckSync of services")?;
        let wire::CheckSyncRequest { services, deep } = request.into_inner();
        let check = self.0.check_sync(&by, &services, deep).await.map_err(Refusal::from)?;
        let in_sync = check.is_in_sync();
        let SyncCheck { preview, unapplied, left_out } = check;
        let preview = Some(preview_message(preview));
        let unapplied = unapplied.into_iter().filter_map(unapplied_state).collect();
        let switched_off = left_out.iter().map(ToString::to_string).collect();
        Ok(Response::new(wire::CheckSyncResponse { in_sync, preview, unapplied, switched_off }))
    }

    async fn reactive_redeploy(
        &self,
        request: Request<wire::ReactiveRedeployRequest>,
    ) -> Result<Response<wire::ReactiveRedeployResponse>, Status> {
        let by = requester(&request, "ReactiveRedeploy of services")?;
        let tags = self.0.reactive_redeploy(by.trace, &request.into_inner().services);
        let services = tags.map_err(Refusal::from)?.iter().map(ToString::to_string).collect();
        Ok(Response::new(wire::ReactiveRedeployResponse { services }))
    }

    type WatchStream = BoxStream<'static, Result<wire::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        requester(&request, "Watch of services")?;
        let plans = self.0.watch(request.into_inner().services);
        let response = |progress: Progress| {
            let service = progress.tag.to_string();
            let instance = instance(&progress);
            Ok(wire::WatchResponse { service, instance })
        };
        Ok(Response::new(plans.map(response).boxed()))
    }

    async fn get_modifications(
        &self,
        request: Request<wire::GetModificationsRequest>,
    ) -> Result<Response<wire::GetModificationsResponse>, Status> {
        requester(&request, "GetModifications of services")?;
        let wire::GetModificationsRequest { service, component_type, component, state } =
            request.into_inner();
        let place = match (component_type.is_empty(), component.is_empty()) {
            (true, true) if state.is_empty() => None,
            (false, false) => Some(place(&component_type, &component, &state)),
            _ => return Err(Refusal::invalid(PLACE_FORM).into()),
        };
        let found = self.0.modifications(&service, place.as_ref()).map_err(Refusal::from)?;
        let modifications = found.into_iter().map(modification).collect();
        Ok(Response::new(wire::GetModificationsResponse { modifications }))
    }

    async fn undeploy(
        &self,
        request: Request<wire::UndeployRequest>,
    ) -> Result<Response<wire::UndeployResponse>, Status> {
        let by = requester(&request, "Undeploy of services")?;
        let left = self.0.undeploy(&by, &request.into_inner().service).await;
        let instance = instance(&left.map_err(Refusal::from)?);
        Ok(Response::new(wire::UndeployResponse { instance }))
    }

    async fn resurrect(
        &self,
        request: Request<wire::ResurrectRequest>,
    ) -> Result<Response<wire::ResurrectResponse>, Status> {
        let by = requester(&request, "Resurrect of services")?;
        let back = self.0.resurrect(&by, &request.into_inner().service).await;
        let instance = instance(&back.map_err(Refusal::from)?);
        Ok(Response::new(wire::ResurrectResponse { instance }))
    }

    async fn force_back_track(
        &self,
        request: Request<wire::ForceBackTrackRequest>,
    ) -> Result<Response<wire::ForceBackTrackResponse>, Status> {
        let by = requester(&request, "ForceBackTrack of services")?;
        let request = request.into_inner();
        let place = place(&request.component_type, &request.component, &request.state);
        let acknowledged = request.acknowledge_inconsistent;
        let left = self.0.force_back_track(&by, &request.service, place, acknowledged).await;
        let instance = instance(&left.map_err(Refusal::from)?);
        Ok(Response::new(wire::ForceBackTrackResponse { instance }))
    }

    async fn purge(
        &self,
        request: Request<wire::PurgeRequest>,
    ) -> Result<Response<wire::PurgeResponse>, Status> {
        let by = requester(&request, "Purge of services")?;
        self.0.purge(&by, &request.into_inner().claim).await.map_err(Refusal::from)?;
        Ok(Response::new(wire::PurgeResponse {}))
    }

    async fn reschedule(
        &self,
        request: Request<wire::RescheduleRequest>,
    ) -> Result<Response<wire::RescheduleResponse>, Status> {
        let by = requester(&request, "Reschedule of actions")?;
        let entry = self.0.reschedule(&by, request.into_inner().id).await;
        let entry = Some(queue_entry(entry.map_err(Refusal::from)?));
        Ok(Response::new(wire::RescheduleResponse { entry }))
    }

    async fn cancel(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<Response<wire::CancelResponse>, Status> {
        let by = requester(&request, "Cancel of actions")?;
        let entry = self.0.cancel(&by, request.into_inner().id).await;
        let entry = Some(queue_entry(entry.map_err(Refusal::from)?));
        Ok(Response::new(wire::CancelResponse { entry }))
    }

    async fn resolve(
        &self,
        request: Request<wire::ResolveRequest>,
    ) -> Result<Response<wire::ResolveResponse>, Status> {
        let by = requester(&request, "Resolve of actions")?;
        let wire::ResolveRequest { id, result } = request.into_inner();
        let is_done = match wire::resolve_request::Result::try_from(result) {
            Ok(wire::resolve_request::Result::Done) => true,
            Ok(wire::resolve_request::Result::Failed) => false,
            _ => {
                return Err(
                    Refusal::invalid("`result` must be RESULT_DONE or RESULT_FAILED").into()
                );
            }
        };
        let entry = self.0.resolve(&by, id, is_done).await;
        let entry = Some(queue_entry(entry.map_err(Refusal::from)?));
        Ok(Response::new(wire::ResolveResponse { entry }))
    }
}

fn unapplied_state((key, applied): (ClaimKey, Applied)) -> Option<wire::UnappliedState> {
    let (Applied::Pending(text) | Applied::Failed(text)) = applied else { return None };
    let ClaimKey { tag, component: [component_type, component], state } = key;
    Some(wire::UnappliedState {
        service: tag.to_string(),
        component_type: component_type.into(),
        component: component.into(),
        state: state.into(),
        text: text.to_string(),
    })
}

fn queue_entry(entry: CallEntry) -> wire::QueueEntry {
    let CallEntry { state: ClaimKey { tag, component, state }, action } = entry;
    let status = match action.progress {
        ActionProgress::Queued => wire::QueueStatus::Queued,
        ActionProgress::Dispatched => wire::QueueStatus::Dispatched,
        ActionProgress::Succeeded => wire::QueueStatus::Succeeded,
        ActionProgress::Failed(_) => wire::QueueStatus::Failed,
        ActionProgress::InDoubt(_) => wire::QueueStatus::InDoubt,
        ActionProgress::Cancelled(_) => wire::QueueStatus::Cancelled,
    };
    let [component_type, component] = component.map(Into::into);
    wire::QueueEntry {
        id: action.id,
        service: tag.to_string(),
        component_type,
        component,
        state: state.into(),
        status: status.into(),
        attempts: action.attempts,
        text: action.failure().map(ToString::to_string).unwrap_or_default(),
    }
}

const PLACE_FORM: &str = "`component_type` and `component` go together, and `state` needs them";

impl From<OperationError> for Refusal {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Argument(text) => Self::invalid(text),
            OperationError::Missing(text) => Self::missing(text),
            OperationError::Precondition(text) => Self::precondition(text),
            OperationError::Commit(error) => error.into(),
        }
    }
}

fn place(component_type: &str, component: &str, state: &str) -> Place {
    Place {
        component: [component_type.into(), component.into()],
        state: (!state.is_empty()).then(|| state.into()),
    }
}

fn modification(modification: Modification) -> wire::Modification {
    let Modification { claim, origin, path, value, others } = modification;
    let [component_type, component] = claim.component.map(Into::into);
    wire::Modification {
        component_type,
        component,
        state: claim.state.into(),
        origin: origin.as_str().to_owned(),
        path,
        value,
        others: others.iter().map(ToString::to_string).collect(),
    }
}

fn instance(Progress { tag, plan }: &Progress) -> Option<wire::Instance> {
    let ServicePlan { version, leaving, failure, components, .. } = &**plan.as_ref()?;
    Some(wire::Instance {
        service: tag.to_string(),
        version: version.to_string(),
        zombie: leaving.is_some(),
        failure: failure.as_deref().unwrap_or_default().to_owned(),
        components: components.iter().map(component).collect(),
    })
}

fn component(component: &ComponentPlan) -> wire::Component {
    let ComponentPlan { component_type, name, back_track, states, .. } = component;
    wire::Component {
        r#type: component_type.to_string(),
        name: name.to_string(),
        back_tracking: back_track.is_some(),
        states: states.iter().map(|it| state(it, component.status_of(it))).collect(),
    }
}

fn state(state: &StatePlan, status: StateStatus) -> wire::State {
    let status = match status {
        StateStatus::NotReached => wire::Status::NotReached,
        StateStatus::Reached => wire::Status::Reached,
        StateStatus::Failed => wire::Status::Failed,
    };
    wire::State {
        name: state.name.to_string(),
        status: status.into(),
        since: state.since_ns,
        waits_for: state.waits_for.as_deref().unwrap_or_default().to_owned(),
        failure: state.failure.as_deref().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::{AuthMethod, Role};

    use super::*;

    // proves sv.B96
    #[test]
    fn an_operation_has_the_trace_of_its_request() {
        let caller = |role| Caller {
            name: "ada".into(),
            role,
            auth_method: AuthMethod::Local { uid: 0 },
            peer: None,
        };
        let mut request = Request::new(());
        request.extensions_mut().insert(caller(Role::Admin));
        assert_eq!(requester(&request, "Redeploy").unwrap().trace, None);
        request.metadata_mut().insert("x-trace-id", "change/7".parse().unwrap());
        let by = requester(&request, "Redeploy").unwrap();
        assert_eq!((by.caller.name.as_str(), by.trace.as_deref()), ("ada", Some("change/7")));
        request.extensions_mut().insert(caller(Role::ReadOnly));
        requester(&request, "Redeploy").unwrap_err();
    }
}
