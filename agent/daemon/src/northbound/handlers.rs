//! `holdfast.services.v1.Handler`: the stream of a handler of services, and what it reads.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use holdfast_base::Caller;
use holdfast_config::services::{
    ActionCause, ActionPhase, CallPhase, HandlerCall, Plane, ServedCall, WalkCause,
};
use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::handler_server::{Handler as HandlerRpc, HandlerServer};
use smol_str::SmolStr;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::status::Refusal;
use crate::services::handlers::{
    ActionName, ActionNews, ActionRequest, AgentMessage, BOUNDS, HandlerError, HandlerErrorKind,
    HandlerMessage, Handlers, OwnedEdit, ReadQuestion, ReadSource, Registration, ReportedProgress,
    ServedWork,
};

/// Time for the first message of a stream, which says what the handler serves.
const REGISTRATION_TIME: Duration = Duration::from_secs(10);
/// Any component type or state in a registration.
const ANY: &str = "*";

/// Serves handlers; without them, there are no services on this box.
#[derive(Debug)]
pub(super) struct HandlerService(Option<Handlers>);

impl HandlerService {
    pub(super) fn server(handlers: Option<Handlers>) -> HandlerServer<Self> {
        HandlerServer::new(Self(handlers))
    }

    fn handlers(&self) -> Result<&Handlers, Refusal> {
        self.0.as_ref().ok_or_else(|| Refusal::precondition("there are no services on this box"))
    }
}

/// The services of the socket for handlers.
pub fn handler_routes(handlers: Handlers) -> Routes {
    Routes::new(HandlerService::server(Some(handlers)))
}

type Outbox<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

#[tonic::async_trait]
impl HandlerRpc for HandlerService {
    type AttachStream = Outbox<wire::ToHandler>;
    type ReadStream = Outbox<wire::ReadReply>;

    async fn attach(
        &self,
        request: Request<Streaming<wire::FromHandler>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        let mut messages = request.into_inner();
        let first = timeout(REGISTRATION_TIME, messages.message()).await;
        let first = first.map_err(|_| Refusal::late("the stream ended without a Register"))??;
        let registration = first.and_then(|it| match it.message {
            Some(wire::from_handler::Message::Register(register)) => Some(register),
            _ => None,
        });
        let registration =
            registration.ok_or_else(|| Refusal::invalid("the first message must be a Register"))?;
        let registration = self::registration(registration).map_err(Refusal::from)?;
        let attached = self.handlers()?.attach(&caller, registration);
        let (session, outbox_rx) = attached.map_err(Refusal::from)?;
        let messages = messages.map(|message| match message {
            Ok(message) => handler_message(message),
            // The connection is gone, and nobody reads the reason.
            Err(status) => Err(HandlerError::new(HandlerErrorKind::Unavailable, status.message())),
        });
        // It ends with the stream of the handler, or when the agent stops.
        tokio::spawn(session.serve(Box::pin(messages)));
        let outbox = ReceiverStream::new(outbox_rx).map(|message| match message {
            Ok(message) => Ok(agent_message(message)),
            Err(error) => Err(Refusal::from(error).into()),
        });
        Ok(Response::new(Box::pin(outbox)))
    }

    async fn read(
        &self,
        request: Request<wire::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        let wire::ReadRequest { tid, call, r#type, plane, path } = request.into_inner();
        let plane = match wire::Plane::try_from(plane) {
            Ok(wire::Plane::Ground) => Plane::Ground,
            Ok(wire::Plane::State) => Plane::State,
            Ok(wire::Plane::Unset) | Err(_) => {
                return Err(Refusal::invalid("`plane` must be PLANE_GROUND or PLANE_STATE").into());
            }
        };
        let source = match tid {
            0 => ReadSource::Newest(r#type.into()),
            tid => ReadSource::Call(tid, call_number(call)),
        };
        let question = ReadQuestion { source, plane, path };
        let leaves = self.handlers()?.read(&caller, &question).map_err(Refusal::from)?;
        let reply = |(path, json)| Ok(wire::ReadReply { path, json });
        Ok(Response::new(Box::pin(stream::iter(leaves.into_iter().map(reply)))))
    }
}

impl From<HandlerError> for Refusal {
    fn from(HandlerError { kind, text }: HandlerError) -> Self {
        match kind {
            HandlerErrorKind::Invalid => Self::invalid(text),
            HandlerErrorKind::Unknown => Self::missing(text),
            HandlerErrorKind::Denied => Self::denied(text),
            HandlerErrorKind::Exists => Self::exists(text),
            HandlerErrorKind::Exhausted => Self::exhausted(text),
            HandlerErrorKind::Precondition => Self::precondition(text),
            HandlerErrorKind::Unavailable => Self::busy(text),
        }
    }
}

fn registration(
    wire::Register { name, types }: wire::Register,
) -> Result<Registration, HandlerError> {
    let name_of = |name: String| (name != ANY).then(|| name.into());
    let mut registration = Registration { name: name.into(), ..Registration::default() };
    for wire::ServedType { r#type, calls, actions, idempotent_actions, modification } in types {
        let names = |names: Vec<String>| {
            let service: SmolStr = r#type.as_str().into();
            names
                .into_iter()
                .map(move |it| ActionName { service: service.clone(), action: it.into() })
        };
        registration.actions.extend(names(actions));
        registration.idempotent_actions.extend(names(idempotent_actions));
        if modification {
            let phases = [CallPhase::PreModification, CallPhase::PostModification];
            registration.calls.extend(phases.map(|phase| ServedCall {
                service: r#type.as_str().into(),
                component: None,
                state: None,
                phase,
            }));
        }
        for wire::ServedCalls { component, state, phase } in calls {
            registration.calls.insert(ServedCall {
                service: r#type.as_str().into(),
                component: name_of(component),
                state: name_of(state),
                phase: read_phase(phase)?,
            });
        }
    }
    Ok(registration)
}

fn read_phase(phase: i32) -> Result<CallPhase, HandlerError> {
    match wire::Phase::try_from(phase) {
        Ok(wire::Phase::Create) => Ok(CallPhase::Create),
        Ok(wire::Phase::Delete) => Ok(CallPhase::Delete),
        Ok(wire::Phase::PreModification | wire::Phase::PostModification) => {
            let text = "modification calls are taken by `modification` of the type";
            Err(HandlerError::new(HandlerErrorKind::Invalid, text))
        }
        Ok(wire::Phase::Unset) | Err(_) => {
            let text = "`phase` must be PHASE_CREATE or PHASE_DELETE";
            Err(HandlerError::new(HandlerErrorKind::Invalid, text))
        }
    }
}

fn call_number(call: u32) -> usize {
    usize::try_from(call).unwrap_or(usize::MAX)
}

fn handler_message(message: wire::FromHandler) -> Result<HandlerMessage, HandlerError> {
    use wire::from_handler::Message;
    let invalid = |text: &str| HandlerError::new(HandlerErrorKind::Invalid, text);
    Ok(match message.message {
        None => return Err(invalid("the message has no content")),
        Some(Message::Register(_)) => return Err(invalid("a handler may register only once")),
        Some(Message::Edit(wire::Edit { tid, call, path, json, text, creator })) => {
            let content = match text.is_empty() {
                true => OwnedEdit::Document { path, value: json },
                false => OwnedEdit::Lines(text),
            };
            HandlerMessage::Edit { tid, call: call_number(call), content, creator }
        }
        Some(Message::Done(wire::Done { tid, served })) => {
            let work = |wire::Served { call, opaque, keep }| ServedWork {
                call: call_number(call),
                opaque,
                keep,
            };
            HandlerMessage::Done { tid, served: served.into_iter().map(work).collect() }
        }
        Some(Message::Error(wire::Error { tid, origin, reason })) => {
            HandlerMessage::Error { tid, origin, reason }
        }
        Some(Message::More(wire::More { tid, seconds })) => HandlerMessage::More { tid, seconds },
        Some(Message::Publish(wire::Publish { path, json })) => {
            HandlerMessage::Publish { path, json }
        }
        Some(Message::ActionAccepted(wire::ActionAccepted { id })) => {
            HandlerMessage::Action { id, news: ActionNews::Accepted }
        }
        Some(Message::ActionResult(wire::ActionResult { id, json, error })) => {
            HandlerMessage::Action { id, news: ActionNews::Ended(action_result(json, error)) }
        }
        Some(Message::ActionStatus(status)) => action_status(status),
        Some(Message::Pong(wire::Pong {})) => HandlerMessage::Pong,
    })
}

fn action_result(json: String, error: String) -> Result<String, String> {
    if error.is_empty() { Ok(json) } else { Err(error) }
}

fn action_status(
    wire::ActionStatus { id, progress, json, error }: wire::ActionStatus,
) -> HandlerMessage {
    let progress = match wire::ActionProgress::try_from(progress) {
        // Nor can the agent tell what another value means.
        Ok(wire::ActionProgress::Unknown) | Err(_) => ReportedProgress::Unknown,
        Ok(wire::ActionProgress::NeverSeen) => ReportedProgress::NeverSeen,
        Ok(wire::ActionProgress::Running) => ReportedProgress::Running,
        Ok(wire::ActionProgress::Ended) => ReportedProgress::Ended(action_result(json, error)),
    };
    HandlerMessage::Action { id, news: ActionNews::Status(progress) }
}

fn agent_message(message: AgentMessage) -> wire::ToHandler {
    use wire::to_handler::Message;
    let seconds = |seconds: u64| u32::try_from(seconds).unwrap_or(u32::MAX);
    let message = match message {
        AgentMessage::Registered => Message::Registered(wire::Registered {
            open_calls: u32::try_from(BOUNDS.0).unwrap_or(u32::MAX),
            seconds: seconds(BOUNDS.1),
            most_seconds: seconds(BOUNDS.2),
        }),
        AgentMessage::Synced => Message::Synced(wire::Synced {}),
        AgentMessage::ServicesCommit { tid, trace, cause, is_dry_run, calls, causes } => {
            let calls = calls.into_iter().map(|(number, it)| {
                let cause = causes.get(&it.place.state.tag);
                call(number, it, cause.map(walk_cause))
            });
            Message::ServicesCommit(wire::ServicesCommit {
                tid,
                trace,
                dry_run: is_dry_run,
                cause: cause.to_owned(),
                calls: calls.collect(),
            })
        }
        AgentMessage::Abort { tid, reason } => Message::Abort(wire::Abort { tid, reason }),
        AgentMessage::Closed { tid, result } => {
            let committed = result.is_ok();
            let reason = result.err().unwrap_or_default();
            Message::Closed(wire::Closed { tid, committed, reason })
        }
        AgentMessage::Refused { tid, action, error } => {
            let status = Status::from(Refusal::from(error));
            let code = u32::try_from(i32::from(status.code())).unwrap_or_default();
            let text = status.message().to_owned();
            Message::Refused(wire::Refused { tid, code, text, action })
        }
        AgentMessage::Action(request) => Message::Action(action(request)),
        AgentMessage::QueryAction { id, tag, action } => {
            let (r#type, tag) = (tag.service.to_string(), tag.to_string());
            Message::QueryAction(wire::QueryAction { id, r#type, tag, action: action.into() })
        }
        AgentMessage::ActionRecorded { id } => Message::ActionRecorded(wire::ActionRecorded { id }),
        AgentMessage::Drain => Message::Drain(wire::Drain {}),
        AgentMessage::Ping => Message::Ping(wire::Ping {}),
    };
    wire::ToHandler { message: Some(message) }
}

fn action(request: ActionRequest) -> wire::Action {
    let ActionRequest { id, state, phase, action, params, vars, .. } = request;
    let ActionRequest { trace, cause, timeout_s, .. } = request;
    let [component_type, component] = state.component;
    let phase = match phase {
        ActionPhase::Create => wire::Phase::Create,
        ActionPhase::Delete => wire::Phase::Delete,
    };
    wire::Action {
        id,
        trace: trace.into(),
        r#type: state.tag.service.to_string(),
        tag: state.tag.to_string(),
        component_type: component_type.into(),
        component: component.into(),
        state: state.state.into(),
        phase: phase.into(),
        action: action.into(),
        params: params.to_string(),
        vars: vars.to_string(),
        seconds: u32::try_from(timeout_s).unwrap_or(u32::MAX),
        cause: cause.as_deref().map(action_cause),
    }
}

fn action_cause(ActionCause { kind, author, walk }: &ActionCause) -> wire::ActionCause {
    wire::ActionCause {
        kind: kind.to_string(),
        requester: author.user.to_string(),
        trace: author.trace.to_string(),
        walk: walk.as_ref().map(walk_cause),
    }
}

fn walk_cause(WalkCause { kind, subject, before, after, places }: &WalkCause) -> wire::WalkCause {
    wire::WalkCause {
        kind: kind.name().to_owned(),
        subject: subject.to_string(),
        before: before.as_ref().map(ToString::to_string),
        after: after.as_ref().map(ToString::to_string),
        places: places.iter().map(ToString::to_string).collect(),
    }
}

fn call(number: usize, call: HandlerCall, cause: Option<wire::WalkCause>) -> wire::Call {
    let HandlerCall { place, version: _, params, vars, opaque, own_opaque } = call;
    let phase = match place.phase {
        CallPhase::Create => wire::Phase::Create,
        CallPhase::Delete => wire::Phase::Delete,
        CallPhase::PreModification => wire::Phase::PreModification,
        CallPhase::PostModification => wire::Phase::PostModification,
    };
    let tag = place.state.tag.to_string();
    let [component_type, component] = place.state.component;
    // A modification call is about no state.
    let state = if place.phase.is_modification() { SmolStr::default() } else { place.state.state };
    wire::Call {
        call: u32::try_from(number).unwrap_or(u32::MAX),
        tag,
        component_type: component_type.into(),
        component: component.into(),
        state: state.into(),
        phase: phase.into(),
        params: params.to_string(),
        vars: vars.to_string(),
        opaque: opaque.to_string(),
        own_opaque: own_opaque.to_string(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use holdfast_config::ClaimKey;
    use holdfast_config::services::{CallPlace, CauseKind, ChangeAuthor};
    use prost::Message as _;

    use super::*;

    /// Numbers and texts that take most bytes for each.
    #[test]
    fn no_message_is_larger_than_its_size_is_taken_for() {
        let text = |octets: usize| "x".repeat(octets);
        let state = |octets| ClaimKey {
            tag: format!("access[name='{}']", text(octets)).parse().unwrap(),
            component: [text(octets).into(), text(octets).into()],
            state: text(octets).into(),
        };
        for octets in [0, 1, 127, 128, 20_000] {
            let call = HandlerCall {
                place: CallPlace { state: state(octets), phase: CallPhase::Delete },
                version: "1.0.0".into(),
                params: text(octets).into(),
                vars: text(octets).into(),
                opaque: text(octets).into(),
                own_opaque: text(octets).into(),
            };
            let value = || Some(text(octets).into());
            let cause = WalkCause {
                kind: CauseKind::Condition,
                subject: text(octets).into(),
                before: value(),
                after: value(),
                places: vec![text(octets).into(); 4],
            };
            let request = ActionRequest {
                id: u64::MAX,
                state: state(octets),
                phase: ActionPhase::Delete,
                action: text(octets).into(),
                params: text(octets).into(),
                vars: text(octets).into(),
                trace: text(octets).into(),
                cause: Some(Arc::new(ActionCause {
                    kind: text(octets).into(),
                    author: ChangeAuthor { user: text(octets).into(), trace: text(octets).into() },
                    walk: Some(cause.clone()),
                })),
                timeout_s: u64::MAX,
            };
            let commit = AgentMessage::ServicesCommit {
                tid: u64::MAX,
                trace: text(octets),
                cause: "resurrect",
                is_dry_run: true,
                causes: BTreeMap::from([(call.place.state.tag.clone(), cause)]),
                calls: vec![(usize::MAX, call); 300],
            };
            for message in [commit, AgentMessage::Action(request)] {
                let most = message.most_octets();
                let encoded = agent_message(message).encoded_len();
                assert!(encoded <= most, "{encoded} bytes, taken for {most}, {octets} in a text");
            }
        }
    }
}
