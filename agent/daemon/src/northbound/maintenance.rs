//! `holdfast.maintenance.v1.Maintenance`: sessions, replies to them, and each step.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::Caller;
use holdfast_faults::{
    Answer, ObjectAction, ObjectProgress, Reply, Resource, ResourceError, Session, SessionChange,
    SessionConsumer, SessionError, SessionEvent, SessionKind, SessionPlan, SessionRequest,
    SessionState,
};
use holdfast_proto::holdfast::maintenance as wire;
use holdfast_proto::holdfast::maintenance::maintenance_server::Maintenance;
use holdfast_proto::holdfast::maintenance::watch_response::Content;
use smol_str::SmolStr;
use tonic::{Code, Request, Response, Status};

use super::response_stream::{ResponseSender, ResponseStream, StreamError};
use super::status::Refusal;
use crate::budget::CallerBudget;
use crate::faults::{
    FaultService, FaultsStopped, SessionAnswer, SessionFollower, SessionNews, SessionRefusal,
    SessionView, check_text,
};

/// Serves the maintenance sessions of one agent.
#[derive(Debug)]
pub(super) struct MaintenanceService {
    /// `None` where no agent runs behind the service.
    faults: Option<FaultService>,
}

fn event_message(event: &SessionEvent) -> wire::Event {
    let SessionEvent { step, session } = event;
    let (change, object) = match &step.change {
        SessionChange::State => (wire::event::Change::State, ""),
        SessionChange::Replied(_) => (wire::event::Change::Replied, ""),
        SessionChange::ActionDone(object, _) => (wire::event::Change::ActionDone, object.as_str()),
        SessionChange::Overdue => (wire::event::Change::Overdue, ""),
        SessionChange::Forgotten => (wire::event::Change::Forgotten, ""),
    };
    let replied = match &step.change {
        SessionChange::Replied(consumer) => Some(consumer),
        _ => None,
    };
    let consumer = step.consumer.as_ref().or(replied);
    wire::Event {
        id: step.id,
        time: step.time_ns,
        change: change.into(),
        state: state_message(step.state).into(),
        told_as: step.state.alias().unwrap_or_default().to_owned(),
        consumer: consumer.map(ToString::to_string).unwrap_or_default(),
        object: object.to_owned(),
        session: Some(session_message(session)),
    }
}

impl MaintenanceService {
    pub(super) fn new(faults: Option<FaultService>) -> Self {
        Self { faults }
    }

    fn faults(&self) -> Result<&FaultService, Refusal> {
        self.faults.as_ref().ok_or_else(|| Refusal::from(FaultsStopped))
    }

    /// The session of an id, if the caller sees it.
    async fn find(&self, view: &SessionView, id: &str) -> Result<Session, Refusal> {
        let sessions = self.faults()?.sessions().await?;
        let found = sessions.iter().find(|it| it.id == id);
        let seen = found.and_then(|it| view.session(it));
        seen.ok_or_else(|| SessionError::Unknown(id.into()).into())
    }

    async fn change(
        &self,
        request: Request<wire::SessionRequest>,
        attempt: &str,
        change: impl FnOnce(SmolStr, SmolStr) -> SessionRequest,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin(attempt)?;
        let id = request.into_inner().id;
        let request = change(id.into(), caller.name.clone());
        let answer = self.faults()?.request_session(request).await.map_err(Refusal::from)?;
        Ok(response(&SessionView::of(&caller), answer.map_err(Refusal::from)?))
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    async fn create(
        &self,
        request: Request<wire::CreateRequest>,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("Create of maintenance")?;
        let plan = plan_of(request.into_inner(), caller.name.clone())?;
        let answer = self.faults()?.create_session(plan).await.map_err(Refusal::from)?;
        Ok(response(&SessionView::of(&caller), answer.map_err(Refusal::from)?))
    }

    async fn reply(
        &self,
        request: Request<wire::ReplyRequest>,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        let view = SessionView::of(&caller);
        let request = request.into_inner();
        let id = SmolStr::from(request.id.as_str());
        let consumer = match request.consumer.as_str() {
            "" => {
                let session = self.find(&view, &id).await?;
                only_consumer(&session, &caller.name)?
            }
            consumer => consumer.into(),
        };
        let reply = reply_of(request, &caller)?;
        let request = SessionRequest::Reply { session: id, consumer, reply };
        let answer = self.faults()?.request_session(request).await.map_err(Refusal::from)?;
        Ok(response(&view, answer.map_err(Refusal::from)?))
    }

    async fn work_done(
        &self,
        request: Request<wire::SessionRequest>,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let change = |session, _| SessionRequest::WorkDone { session };
        self.change(request, "WorkDone of maintenance", change).await
    }

    async fn cancel(
        &self,
        request: Request<wire::SessionRequest>,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let change = |session, by| SessionRequest::Cancel { session, by };
        self.change(request, "Cancel of maintenance", change).await
    }

    async fn delete(
        &self,
        request: Request<wire::SessionRequest>,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let change = |session, by| SessionRequest::Delete { session, by };
        self.change(request, "Delete of maintenance", change).await
    }

    async fn get(
        &self,
        request: Request<wire::SessionRequest>,
    ) -> Result<Response<wire::SessionResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        let session = self.find(&SessionView::of(&caller), &request.into_inner().id).await?;
        let session = session_message(&session);
        Ok(Response::new(wire::SessionResponse { session: Some(session), durable: true }))
    }

    async fn list(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<wire::ListResponse>, Status> {
        let view = SessionView::of(&Caller::authenticated(&request)?);
        let sessions = self.faults()?.sessions().await.map_err(Refusal::from)?;
        let sessions = session_messages(&view, &sessions);
        Ok(Response::new(wire::ListResponse { sessions }))
    }

    type WatchStream = ResponseStream<wire::WatchResponse>;

    async fn watch(
        &self,
        request: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        let budget = CallerBudget::of(request.extensions());
        let charge = budget.open_subscription().map_err(Refusal::from)?;
        let view = SessionView::of(&caller);
        let after = request.into_inner().after;
        let follower = self.faults()?.follow_sessions(after).await.map_err(Refusal::from)?;
        let messages =
            ResponseStream::spawn(|sender| async move { tell(&sender, &view, follower).await });
        Ok(Response::new(messages.charged(charge)))
    }
}

/// Tells a caller all sessions or the steps that it has missed, and then each step.
async fn tell(
    sender: &ResponseSender<wire::WatchResponse>,
    view: &SessionView,
    mut follower: SessionFollower,
) -> Result<(), StreamError> {
    loop {
        let news = follower.next().await.ok_or_else(Refusal::stopping)?;
        let content = match news {
            SessionNews::Snapshot { sessions, is_gap, last_id } => {
                let sessions = session_messages(view, &sessions);
                let last_event_id = last_id;
                Some(Content::Snapshot(wire::Snapshot { sessions, gap: is_gap, last_event_id }))
            }
            SessionNews::Step(step) => {
                view.event(&step).map(|it| Content::Event(event_message(&it)))
            }
        };
        if content.is_some() {
            sender.send(wire::WatchResponse { content }).await?;
        }
    }
}

fn response(view: &SessionView, answer: SessionAnswer) -> Response<wire::SessionResponse> {
    let SessionAnswer { session, is_durable } = answer;
    let session = view.session(&session).map(|it| session_message(&it));
    Response::new(wire::SessionResponse { session, durable: is_durable })
}

fn session_messages(view: &SessionView, sessions: &[Session]) -> Vec<wire::Session> {
    let seen = sessions.iter().filter_map(|it| view.session(it));
    seen.map(|it| session_message(&it)).collect()
}

fn plan_of(request: wire::CreateRequest, created_by: SmolStr) -> Result<SessionPlan, Refusal> {
    let kind = match request.kind() {
        wire::Kind::Full => SessionKind::Full,
        wire::Kind::Restart => SessionKind::Restart,
        wire::Kind::Unset => {
            return Err(Refusal::invalid("`kind` is missing: give full or restart"));
        }
    };
    let resources = request.resources.iter().map(|it| it.parse());
    let resources: Result<BTreeSet<Resource>, ResourceError> = resources.collect();
    Ok(SessionPlan {
        resources: resources.map_err(|error| Refusal::invalid(format!("`resources`: {error}")))?,
        kind,
        starts_at_ns: request.starts_at,
        ends_at_ns: (request.ends_at > 0).then_some(request.ends_at),
        allows_isolation: request.allow_isolation,
        created_by,
    })
}

fn reply_of(request: wire::ReplyRequest, caller: &Caller) -> Result<Reply, Refusal> {
    check_text(&request.text).map_err(|error| Refusal::invalid(format!("`text`: {error}")))?;
    let answer = match request.answer() {
        wire::Answer::Ack => Some(Answer::Ack),
        wire::Answer::Nack => Some(Answer::Nack),
        wire::Answer::Unset => None,
    };
    let action = action_of(request.action());
    let mut actions = BTreeMap::new();
    for (object, action) in &request.actions {
        let action = wire::Action::try_from(*action).ok().and_then(action_of);
        let action = action.ok_or_else(|| {
            Refusal::invalid("`actions` has an unknown action: use leave, move, own-action or stop")
        })?;
        actions.insert(object.as_str().into(), action);
    }
    Ok(Reply {
        answer,
        action,
        actions,
        done: request.done.iter().map(SmolStr::from).collect(),
        text: request.text.into(),
        by: caller.name.clone(),
        is_by_admin: caller.may_write(),
    })
}

/// The one consumer of a session that a user replies for.
fn only_consumer(session: &Session, user: &SmolStr) -> Result<SmolStr, Refusal> {
    let own = session.consumers.iter().filter(|(_, it)| it.identity.as_ref() == Some(user));
    let own: Vec<&SmolStr> = own.map(|(id, _)| id).collect();
    match own[..] {
        [consumer] => Ok(consumer.clone()),
        _ => Err(Refusal::invalid(format!(
            "`consumer`: `{user}` is the identity of {} consumers in this session",
            own.len()
        ))),
    }
}

fn action_of(action: wire::Action) -> Option<ObjectAction> {
    match action {
        wire::Action::Unset => None,
        wire::Action::Leave => Some(ObjectAction::Leave),
        wire::Action::Move => Some(ObjectAction::Move),
        wire::Action::OwnAction => Some(ObjectAction::OwnAction),
        wire::Action::Stop => Some(ObjectAction::Stop),
    }
}

fn action_message(action: ObjectAction) -> wire::Action {
    match action {
        ObjectAction::Leave => wire::Action::Leave,
        ObjectAction::Move => wire::Action::Move,
        ObjectAction::OwnAction => wire::Action::OwnAction,
        ObjectAction::Stop => wire::Action::Stop,
    }
}

fn state_message(state: SessionState) -> wire::State {
    match state {
        SessionState::Announced => wire::State::Announced,
        SessionState::Draining => wire::State::Draining,
        SessionState::Ready => wire::State::Ready,
        SessionState::InMaintenance => wire::State::InMaintenance,
        SessionState::Restoring => wire::State::Restoring,
        SessionState::Over => wire::State::Over,
        SessionState::Cancelled => wire::State::Cancelled,
        SessionState::Failed => wire::State::Failed,
    }
}

fn session_message(session: &Session) -> wire::Session {
    let kind = match session.kind {
        SessionKind::Full => wire::Kind::Full,
        SessionKind::Restart => wire::Kind::Restart,
    };
    let consumers = session.consumers.iter();
    wire::Session {
        id: session.id.to_string(),
        resources: session.resources.iter().map(ToString::to_string).collect(),
        kind: kind.into(),
        starts_at: session.starts_at_ns,
        ends_at: session.ends_at_ns.unwrap_or_default(),
        allow_isolation: session.allows_isolation,
        created_by: session.created_by.to_string(),
        state: state_message(session.state).into(),
        told_as: session.state.alias().unwrap_or_default().to_owned(),
        since: session.since_ns,
        reason: session.reason.to_string(),
        overdue: session.is_overdue,
        consumers: consumers.map(|(id, it)| consumer_message(id, it, session)).collect(),
    }
}

fn consumer_message(id: &SmolStr, consumer: &SessionConsumer, session: &Session) -> wire::Consumer {
    let answer = match consumer.answer {
        Some(Answer::Ack) => wire::Answer::Ack,
        Some(Answer::Nack) => wire::Answer::Nack,
        None => wire::Answer::Unset,
    };
    let object = |(path, progress): (&SmolStr, &ObjectProgress)| wire::Object {
        path: path.to_string(),
        action: progress.action.map_or(wire::Action::Unset, action_message).into(),
        done: progress.is_done,
    };
    let allowed = ObjectAction::allowed(session.kind).iter();
    wire::Consumer {
        id: id.to_string(),
        state: state_message(consumer.told).into(),
        default_action: action_message(consumer.default_action).into(),
        allowed_actions: allowed.map(|it| action_message(*it).into()).collect(),
        deadline: session.reply_by_ns,
        requires_agreement: consumer.requires_agreement,
        answer: answer.into(),
        text: consumer.text.to_string(),
        objects: consumer.objects.iter().map(object).collect(),
    }
}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::Unknown(_) | SessionError::UnknownConsumer { .. } => Code::NotFound,
            SessionError::Identity { .. } => Code::PermissionDenied,
            SessionError::TooMany(_) => Code::ResourceExhausted,
            SessionError::Overlap { .. }
            | SessionError::MaxImpacted { .. }
            | SessionError::Late { .. }
            | SessionError::NotInMaintenance { .. }
            | SessionError::Ended { .. } => Code::FailedPrecondition,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SessionRefusal> for Refusal {
    fn from(refusal: SessionRefusal) -> Self {
        match refusal {
            SessionRefusal::Session(error) => error.into(),
            SessionRefusal::Contents(error) => error.into(),
            refusal @ SessionRefusal::NoSuchResource(_) => Self::invalid(refusal.to_string()),
        }
    }
}
