//! `holdfast maintenance`: sessions as text, and each step as JSON.
//!
//! A caller may do here what it may do by `holdfast.maintenance.v1.Maintenance`.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::Stream;
use futures::stream::unfold;
use holdfast_base::{Caller, ErrorChain, now_ns};
use holdfast_faults::{
    Answer, ObjectAction, Reply, ResourceError, Session, SessionChange, SessionError, SessionEvent,
    SessionKind, SessionPlan, SessionRequest, SessionState as SessionStage, SessionStep,
};
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::failure;
use super::faults::{durability, time_text};
use super::rights::{CallRights, Rpc};
use super::table::aligned;
use crate::faults::{
    FaultService, FaultsStopped, SessionFollower, SessionNews, SessionRefusal, SessionView,
    WordError, check_text, session_document, step_document,
};
use crate::settings::{
    AnswerVerb, MaintenanceQuestion, NewSession, SessionReply, SessionVerb, SessionWatch,
};

/// Address of questions; the body is a [`MaintenanceQuestion`].
pub(super) const QUESTION: &str = "/maintenance";
/// Address of a stream of steps.
pub(super) const WATCH: &str = "/maintenance/watch";
/// RPC that does the same as [`WATCH`].
pub(super) const WATCH_RPC: Rpc = "/holdfast.maintenance.v1.Maintenance/Watch";

const NS_PER_S: u64 = 1_000_000_000;

/// Reason for which a question has no answer.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error(transparent)]
    Word(#[from] WordError),
    #[error("`{0}` is not an action: use leave, move, own-action or stop")]
    Action(String),
    #[error("`{0}` does not name an object and its action: write PATH=ACTION")]
    Object(String),
    #[error(transparent)]
    Stopped(#[from] FaultsStopped),
}

#[derive(Clone)]
struct SessionState {
    faults: FaultService,
    rights: CallRights,
}

/// Routes about maintenance sessions, for [`super::start`].
pub fn session_routes(faults: FaultService, rights: CallRights) -> Router {
    Router::new()
        .route(QUESTION, post(answer))
        .route(WATCH, post(watch))
        .with_state(SessionState { faults, rights })
}

/// The RPC that does the same.
fn same_rpc(question: &MaintenanceQuestion) -> Rpc {
    match question {
        MaintenanceQuestion::Create(_) => "/holdfast.maintenance.v1.Maintenance/Create",
        MaintenanceQuestion::List => "/holdfast.maintenance.v1.Maintenance/List",
        MaintenanceQuestion::Show { .. } => "/holdfast.maintenance.v1.Maintenance/Get",
        MaintenanceQuestion::Log { .. } => WATCH_RPC,
        MaintenanceQuestion::Reply(_) => "/holdfast.maintenance.v1.Maintenance/Reply",
        MaintenanceQuestion::Done { .. } => "/holdfast.maintenance.v1.Maintenance/WorkDone",
        MaintenanceQuestion::Cancel { .. } => "/holdfast.maintenance.v1.Maintenance/Cancel",
        MaintenanceQuestion::Delete { .. } => "/holdfast.maintenance.v1.Maintenance/Delete",
    }
}

async fn answer(
    State(it): State<SessionState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(question): Json<MaintenanceQuestion>,
) -> Response {
    if let Err(denied) = it.rights.permit(&caller, &headers, same_rpc(&question)) {
        return denied.into_response();
    }
    match text(&it.faults, &caller, question).await {
        Ok(text) => text.into_response(),
        Err(error) => {
            let status = match &error {
                AnswerError::Session(SessionRefusal::Session(SessionError::Unknown(_))) => {
                    StatusCode::NOT_FOUND
                }
                AnswerError::Session(_) => StatusCode::CONFLICT,
                AnswerError::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_REQUEST,
            };
            failure(status, ErrorChain(&error).to_string())
        }
    }
}

async fn text(
    faults: &FaultService,
    caller: &Caller,
    question: MaintenanceQuestion,
) -> Result<String, AnswerError> {
    let by = caller.name.clone();
    let view = SessionView::of(caller);
    let request = match question {
        MaintenanceQuestion::Create(new) => {
            let answer = faults.create_session(plan_of(new, by)?).await??;
            return Ok(format!("{}\n{}", answer.session.id, durability(answer.is_durable)));
        }
        MaintenanceQuestion::List => {
            let sessions = faults.sessions().await?;
            let seen = sessions.iter().filter_map(|it| view.session(it));
            return Ok(aligned(seen.map(|it| session_line(&it))));
        }
        MaintenanceQuestion::Show { id } => {
            return Ok(details(&seen_session(faults, &view, &id).await?));
        }
        MaintenanceQuestion::Log { id } => {
            let steps = faults.session_steps().await?;
            let is_meant = |event: &&SessionEvent| {
                id.as_ref().is_none_or(|id| event.step.session.as_str() == id)
            };
            let seen = steps.iter().filter(is_meant).filter(|event| view.shows_event(event));
            let lines = aligned(seen.map(|event| step_line(&event.step)));
            if let Some(id) = id.filter(|_| lines.is_empty()) {
                // The log may have lost the steps of a session that is kept.
                seen_session(faults, &view, &id).await?;
            }
            return Ok(lines);
        }
        MaintenanceQuestion::Reply(reply) => SessionRequest::Reply {
            session: reply.id.as_str().into(),
            consumer: reply.consumer.as_str().into(),
            reply: reply_of(reply, caller)?,
        },
        MaintenanceQuestion::Done { id } => SessionRequest::WorkDone { session: id.into() },
        MaintenanceQuestion::Cancel { id } => SessionRequest::Cancel { session: id.into(), by },
        MaintenanceQuestion::Delete { id } => SessionRequest::Delete { session: id.into(), by },
    };
    Ok(durability(faults.request_session(request).await??.is_durable))
}

/// A session that is kept, as the caller may see it.
async fn seen_session(
    faults: &FaultService,
    view: &SessionView,
    id: &str,
) -> Result<Session, AnswerError> {
    let sessions = faults.sessions().await?;
    let found = sessions.iter().find(|it| it.id == id).and_then(|it| view.session(it));
    found.ok_or_else(|| SessionRefusal::from(SessionError::Unknown(id.into())).into())
}

fn plan_of(new: NewSession, created_by: SmolStr) -> Result<SessionPlan, AnswerError> {
    let NewSession { resources, kind, starts_in, takes, allow_isolation } = new;
    let resources = resources.iter().map(|it| it.parse()).collect::<Result<_, ResourceError>>()?;
    let starts_at_ns = now_ns().saturating_add(starts_in.saturating_mul(NS_PER_S));
    Ok(SessionPlan {
        resources,
        kind: match kind {
            SessionVerb::Full => SessionKind::Full,
            SessionVerb::Restart => SessionKind::Restart,
        },
        starts_at_ns,
        ends_at_ns: takes.map(|it| starts_at_ns.saturating_add(it.saturating_mul(NS_PER_S))),
        allows_isolation: allow_isolation,
        created_by,
    })
}

fn reply_of(reply: SessionReply, caller: &Caller) -> Result<Reply, AnswerError> {
    check_text(&reply.text)?;
    let mut actions = BTreeMap::new();
    for object in &reply.objects {
        let named = object.rsplit_once('=');
        let (path, action) = named.ok_or_else(|| AnswerError::Object(object.clone()))?;
        actions.insert(path.into(), action_of(action)?);
    }
    Ok(Reply {
        answer: reply.answer.map(|it| match it {
            AnswerVerb::Ack => Answer::Ack,
            AnswerVerb::Nack => Answer::Nack,
        }),
        action: reply.action.as_deref().map(action_of).transpose()?,
        actions,
        done: reply.done.iter().map(SmolStr::from).collect(),
        text: reply.text.into(),
        by: caller.name.clone(),
        is_by_admin: caller.may_write(),
    })
}

fn action_of(name: &str) -> Result<ObjectAction, AnswerError> {
    ObjectAction::by_name(name).ok_or_else(|| AnswerError::Action(name.to_owned()))
}

/// Id, state, kind, start and resources of a session.
fn session_line(session: &Session) -> [String; 5] {
    let resources: Vec<String> = session.resources.iter().map(ToString::to_string).collect();
    let reason = match session.reason.as_str() {
        "" => String::new(),
        reason => format!("  ({reason})"),
    };
    [
        session.id.to_string(),
        session.state.to_string(),
        session.kind.name().to_owned(),
        time_text(session.starts_at_ns),
        format!("{}{reason}", resources.join(" ")),
    ]
}

/// All that is known of a session, a line each, and then a line for each consumer and object.
fn details(session: &Session) -> String {
    let resources: Vec<String> = session.resources.iter().map(ToString::to_string).collect();
    let yes = |it: bool| if it { "true" } else { "" };
    let times = [session.starts_at_ns, session.created_ns, session.since_ns, session.reply_by_ns];
    let [starts_at, created, since, reply_by] = times.map(time_text);
    let is_announced = session.state == SessionStage::Announced;
    let lines = [
        ("id", session.id.as_str()),
        ("state", session.state.name()),
        ("since", &since),
        ("reason", &session.reason),
        ("kind", session.kind.name()),
        ("resources", &resources.join(" ")),
        ("starts-at", &starts_at),
        ("ends-at", &session.ends_at_ns.map(time_text).unwrap_or_default()),
        ("overdue", yes(session.is_overdue)),
        ("reply-by", if is_announced { &reply_by } else { "" }),
        ("allow-isolation", yes(session.allows_isolation)),
        ("created-by", &session.created_by),
        ("time-created", &created),
    ];
    let known = lines.iter().filter(|(_, value)| !value.is_empty());
    let mut text = aligned(known.map(|(name, value)| [*name, *value].map(str::to_owned)));
    let lines = session.consumers.iter().flat_map(|(id, consumer)| {
        let answer = consumer.answer.map_or("silent", Answer::name);
        let head = [format!("consumer {id}"), answer.to_owned(), consumer.told.to_string()];
        let objects = consumer.objects.iter().map(|(path, progress)| {
            let action = progress.action_or(consumer.default_action);
            let done = if progress.is_done { "done" } else { "" };
            [format!("  {path}"), action.to_string(), done.to_owned()]
        });
        [head].into_iter().chain(objects).collect::<Vec<_>>()
    });
    text.push_str(&aligned(lines));
    text
}

/// Id, time, session, state as it was told, who was told, and kind of a step.
fn step_line(step: &SessionStep) -> [String; 6] {
    let what = match &step.change {
        SessionChange::Replied(consumer) => format!("{consumer} has replied"),
        SessionChange::ActionDone(object, action) => format!("{action} done: {object}"),
        change => change.name().to_owned(),
    };
    [
        step.id.to_string(),
        time_text(step.time_ns),
        step.session.to_string(),
        step.state.to_string(),
        step.consumer.as_ref().map_or("administrators", SmolStr::as_str).to_owned(),
        what,
    ]
}

async fn watch(
    State(it): State<SessionState>,
    Extension(caller): Extension<Caller>,
    Json(watch): Json<SessionWatch>,
) -> Response {
    match it.faults.follow_sessions(watch.after).await {
        Ok(follower) => {
            Body::from_stream(lines(SessionView::of(&caller), follower)).into_response()
        }
        Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, ErrorChain(&error).to_string()),
    }
}

/// News for a watcher, as lines of JSON. The stream ends with the agent.
fn lines(
    view: SessionView,
    follower: SessionFollower,
) -> impl Stream<Item = Result<String, Infallible>> {
    unfold((view, follower), |(view, mut follower)| async move {
        loop {
            let document = match follower.next().await? {
                SessionNews::Snapshot { sessions, is_gap, last_id } => {
                    let seen = sessions.iter().filter_map(|it| view.session(it));
                    let sessions: Vec<Value> = seen.map(|it| session_document(&it)).collect();
                    let snapshot =
                        json!({"sessions": sessions, "gap": is_gap, "last-event-id": last_id});
                    json!({"snapshot": snapshot})
                }
                SessionNews::Step(step) => match view.event(&step) {
                    Some(step) => json!({"event": step_document(&step)}),
                    None => continue,
                },
            };
            return Some((Ok(format!("{document}\n")), (view, follower)));
        }
    })
}
