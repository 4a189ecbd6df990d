//! `holdfast fault`: alarms and their log as text, and each change as JSON.
//!
//! A caller may do here what it may do by `holdfast.faults.v1.Faults`.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::Stream;
use futures::stream::unfold;
use holdfast_base::{Caller, ErrorChain, now_ns};
use holdfast_config::schema::Origin;
use holdfast_config::{EffectiveStatus, InstancePath};
use holdfast_core::Datastore as _;
use holdfast_faults::{
    Alarm, Condition, ConditionError, ImpactState, LatchKind, LatchRequest, LogEntry,
    OperatorError, OperatorState, OutsideReport, ResetError, ResourceError, Severity, Word,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::failure;
use super::rights::{CallRights, Rpc, is_unrestricted};
use super::table::aligned;
use super::views::Look;
use crate::faults::{
    AlarmFilter, AlarmView, FaultService, FaultsStopped, LatchRefusal, Listener, News,
    OperatorWord, PatternError, ReportError, Reporter, WordError, alarm_document, check_text,
    permits, transition_document,
};
use crate::gnsi::pathz::PolicyWatch;
use crate::settings::{
    FaultFilter, FaultLatch, FaultQuestion, FaultReport, FaultWatchRequest, OperatorVerb,
    ReportVerb,
};

/// Address of questions; the body is a [`FaultQuestion`].
pub(super) const QUESTION: &str = "/faults";
/// Address of a stream of changes; the body is a [`FaultWatchRequest`].
pub(super) const WATCH: &str = "/faults/watch";

/// RPC that does the same as [`WATCH`].
pub(super) const WATCH_RPC: Rpc = "/holdfast.faults.v1.Faults/Watch";

/// Address of the moments of raised alarms; the body is the id of an event, and those after it are meant.
pub(super) const RAISES: &str = "/faults/raises";

/// Objects that are shown with an alarm: as many as somebody reads.
const SHOWN_OBJECTS: usize = 100;

/// Reason for which a question has no answer.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("`{0}` is not a severity: use warning, minor, major or critical")]
    Severity(String),
    #[error(transparent)]
    Condition(#[from] ConditionError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error(transparent)]
    Word(#[from] WordError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error(transparent)]
    Reset(#[from] ResetError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Latch(#[from] LatchRefusal),
    #[error(transparent)]
    Stopped(#[from] FaultsStopped),
}

#[derive(Clone)]
struct FaultState {
    look: Look,
    rights: CallRights,
}

/// Routes about faults, for [`super::start`].
pub fn fault_routes(look: Look, rights: CallRights) -> Router {
    Router::new()
        .route(QUESTION, post(answer))
        .route(WATCH, post(watch))
        .with_state(FaultState { look, rights })
}

/// Route of the moments of raised alarms, for [`super::start`].
pub fn raise_routes(faults: FaultService) -> Router {
    Router::new().route(RAISES, post(raises)).with_state(faults)
}

/// The RPC that does the same.
fn same_rpc(question: &FaultQuestion) -> Rpc {
    match question {
        FaultQuestion::List { .. } | FaultQuestion::Show { .. } | FaultQuestion::Log { .. } => {
            "/holdfast.faults.v1.Faults/Query"
        }
        FaultQuestion::Ack { .. } => "/holdfast.faults.v1.Faults/SetOperatorState",
        FaultQuestion::Reset { .. } => "/holdfast.faults.v1.Faults/ResetAlarm",
        FaultQuestion::Report(_) => "/holdfast.faults.v1.Faults/ReportEvent",
        FaultQuestion::ForceDown(_) => "/holdfast.faults.v1.Faults/SetForcedDown",
        FaultQuestion::DataPlaneDown(_) => "/holdfast.faults.v1.Faults/SetDataPlaneDown",
    }
}

async fn answer(
    State(it): State<FaultState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(question): Json<FaultQuestion>,
) -> Response {
    if let Err(denied) = it.rights.permit(&caller, &headers, same_rpc(&question)) {
        return denied.into_response();
    }
    match text(&it.look, &caller, question).await {
        Ok(text) => text.into_response(),
        Err(error) => {
            let status = match error {
                AnswerError::Severity(_)
                | AnswerError::Condition(_)
                | AnswerError::Pattern(_)
                | AnswerError::Word(_)
                | AnswerError::Resource(_) => StatusCode::BAD_REQUEST,
                AnswerError::Report(_) | AnswerError::Latch(_) => StatusCode::CONFLICT,
                AnswerError::Operator(_) | AnswerError::Reset(ResetError::NoSuchRule { .. }) => {
                    StatusCode::NOT_FOUND
                }
                AnswerError::Reset(_) => StatusCode::CONFLICT,
                AnswerError::Stopped(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            failure(status, ErrorChain(&error).to_string())
        }
    }
}

async fn raises(State(faults): State<FaultService>, Json(after): Json<u64>) -> Response {
    match faults.raises(after).await {
        Ok(raises) => Json(raises).into_response(),
        Err(stopped) => failure(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string()),
    }
}

async fn text(
    look: &Look,
    caller: &Caller,
    question: FaultQuestion,
) -> Result<String, AnswerError> {
    let faults = &look.faults;
    Ok(match question {
        FaultQuestion::List { filter } => {
            let view = look.alarm_view(caller, selection(&filter)?);
            let mut alarms = faults.alarms().await?;
            alarms.retain(|alarm| view.shows(alarm));
            alarms.sort_by_key(|alarm| (Reverse(alarm.severity), alarm.created_ns));
            aligned(alarms.iter().map(alarm_line))
        }
        FaultQuestion::Show { id } => {
            let condition: Condition = id.parse()?;
            let view = look.alarm_view(caller, AlarmFilter::all());
            let alarms = faults.alarms().await?;
            let alarm = alarms.iter().find(|it| it.condition == condition && view.shows(it));
            let alarm = alarm.ok_or_else(|| OperatorError::NotOpen(condition.clone()))?;
            let affected = faults.affected_paths(&condition, SHOWN_OBJECTS).await?;
            details(alarm) + &affected_lines(alarm, &readable_objects(look, &view, affected))
        }
        FaultQuestion::Log { filter, after } => {
            let view = look.alarm_view(caller, selection(&filter)?);
            let log = faults.log(after).await?;
            let log = log.iter().filter_map(LogEntry::transition);
            let log = log.filter(|transition| view.shows_transition(transition));
            aligned(log.map(|transition| {
                let [severity, _, alarm, text] = alarm_line(&transition.alarm);
                let change = transition.change.name().to_owned();
                [
                    transition.id.to_string(),
                    time_text(transition.time_ns),
                    change,
                    severity,
                    alarm,
                    text,
                ]
            }))
        }
        FaultQuestion::Ack { id, text, state } => {
            let condition = id.parse()?;
            let state = match state {
                OperatorVerb::None => OperatorState::None,
                OperatorVerb::Ack => OperatorState::Ack,
                OperatorVerb::Closed => OperatorState::Closed,
            };
            let operator = caller.name.to_string();
            let word = OperatorWord::new(condition, state, operator, text)?;
            durability(faults.operate(word).await??)
        }
        FaultQuestion::Reset { owner, name } => {
            durability(faults.reset_rule(&owner, &name).await??)
        }
        FaultQuestion::Report(report) => {
            let reporter = Reporter {
                monitor: report.monitor.as_str().into(),
                caller: (!is_unrestricted(caller)).then(|| caller.name.clone()),
            };
            faults.report(reporter, outside_report(report)?).await??;
            String::new()
        }
        FaultQuestion::ForceDown(word) => {
            let allows_isolation = word.allow_isolation;
            let request = latch_request(LatchKind::ForcedDown, word, caller)?;
            durability(faults.latch(request, allows_isolation).await??)
        }
        FaultQuestion::DataPlaneDown(word) => {
            let allows_isolation = word.allow_isolation;
            let request = latch_request(LatchKind::DataPlaneDown, word, caller)?;
            durability(faults.latch(request, allows_isolation).await??)
        }
    })
}

/// A warning about a change that is not on disk.
pub(super) fn durability(is_durable: bool) -> String {
    match is_durable {
        true => String::new(),
        false => "not on disk yet: a restart of the agent before that forgets it\n".to_owned(),
    }
}

fn outside_report(report: FaultReport) -> Result<OutsideReport, AnswerError> {
    let FaultReport { monitor: _, id, status, severity, text, ttl } = report;
    check_text(&text)?;
    let word = match status {
        ReportVerb::Raised => Word::Raised,
        ReportVerb::Cleared => Word::Cleared,
        ReportVerb::Occurred => Word::Occurred,
    };
    Ok(OutsideReport {
        condition: id.parse()?,
        word,
        severity: severity.as_deref().map(severity_of).transpose()?,
        text: text.into(),
        seen_ns: now_ns(),
        ttl: ttl.map(|seconds| Duration::from_secs(seconds.into())),
    })
}

fn latch_request(
    kind: LatchKind,
    word: FaultLatch,
    caller: &Caller,
) -> Result<LatchRequest, AnswerError> {
    let FaultLatch { resource, lift, overrides, reason, fence, allow_isolation: _ } = word;
    check_text(&reason)?;
    Ok(LatchRequest {
        kind,
        resource: resource.parse()?,
        is_set: !lift,
        by: caller.name.clone(),
        reason: reason.into(),
        overrides,
        is_fenced: fence,
    })
}

fn severity_of(name: &str) -> Result<Severity, AnswerError> {
    Severity::by_name(name).ok_or_else(|| AnswerError::Severity(name.to_owned()))
}

fn selection(filter: &FaultFilter) -> Result<AlarmFilter, AnswerError> {
    let FaultFilter { kind, resource, severity, shelved, roots } = filter;
    let severity = severity.as_deref().map(severity_of).transpose()?;
    Ok(AlarmFilter::new(kind, resource, severity, *shelved, *roots, 0)?)
}

/// Severity, beginning, name and text of an alarm.
fn alarm_line(alarm: &Alarm) -> [String; 4] {
    let mut notes = Vec::new();
    if alarm.occurrences > 1 {
        notes.push(format!("{} times", alarm.occurrences));
    }
    match alarm.operator_state {
        OperatorState::None => {}
        OperatorState::Ack => notes.push(format!("acknowledged by {}", alarm.operator)),
        OperatorState::Closed => notes.push(format!("closed by {}", alarm.operator)),
    }
    notes.extend(alarm.cause.iter().map(|cause| format!("by {cause}")));
    if let Some(impact) = alarm.impact.filter(|impact| impact.down + impact.degraded > 0) {
        let more = if impact.state == ImpactState::Truncated { "more than " } else { "" };
        notes.push(format!("{more}{} down, {} degraded", impact.down, impact.degraded));
    }
    notes.extend(alarm.shelf.iter().map(|shelf| format!("on the shelf {shelf}")));
    notes.extend(alarm.suppressed_by.iter().map(|id| format!("in the maintenance session {id}")));
    let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
    [
        alarm.severity.to_string(),
        time_text(alarm.created_ns),
        alarm.condition.to_string(),
        format!("{}{notes}", alarm.text),
    ]
}

/// All that is known of an alarm, a line each.
fn details(alarm: &Alarm) -> String {
    let Value::Object(members) = alarm_document(alarm) else { return String::new() };
    let lines = members.into_iter().map(|(name, value)| {
        let value = match (name.as_str(), value) {
            ("time-created" | "last-raised" | "last-changed", value) => {
                time_text(value.as_u64().unwrap_or_default())
            }
            (_, Value::String(text)) => text,
            (_, value) => value.to_string(),
        };
        [name, value]
    });
    aligned(lines)
}

/// The native paths of objects that a reader may see, each with its status.
fn readable_objects(
    look: &Look,
    view: &AlarmView,
    affected: Vec<(InstancePath, EffectiveStatus)>,
) -> Vec<(String, EffectiveStatus)> {
    let models = look.core.models();
    let may_read = |path: &InstancePath| {
        view.rights.as_ref().is_none_or(|rights| permits(rights, Origin::Native, path))
    };
    let seen = affected.into_iter().filter(|(path, _)| may_read(path));
    seen.map(|(path, status)| (path.to_path(&models.native).to_string(), status)).collect()
}

/// The objects that an alarm affects, a line each.
fn affected_lines(alarm: &Alarm, affected: &[(String, EffectiveStatus)]) -> String {
    let mut text = String::new();
    for (path, status) in affected {
        let _never_fails = writeln!(text, "{:16}{path}", status.name());
    }
    let all = alarm.impact.map_or(0, |impact| impact.down + impact.degraded);
    if let Some(more) = all.checked_sub(affected.len()).filter(|more| *more > 0) {
        let _never_fails = writeln!(text, "and {more} more objects");
    }
    text
}

/// A time in UTC, to the second.
pub(super) fn time_text(time_ns: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(time_ns.into());
    let time = time.ok().and_then(|time| time.replace_nanosecond(0).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

async fn watch(
    State(it): State<FaultState>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<FaultWatchRequest>,
) -> Response {
    let policies = it.look.pathz.follow();
    let listening = async {
        let view = it.look.alarm_view(&caller, selection(&request.filter)?);
        Ok::<_, AnswerError>((view, it.look.faults.listen(request.after).await?))
    };
    match listening.await {
        Ok((view, listener)) => {
            let policies = (!is_unrestricted(&caller)).then_some(policies);
            Body::from_stream(lines(view, listener, policies)).into_response()
        }
        Err(error) => failure(StatusCode::BAD_REQUEST, ErrorChain(&error).to_string()),
    }
}

/// News for a watcher, as lines of JSON. The stream ends with the agent, and with the policy that the rights of the watcher
/// come from: the watcher comes back, and has those of the new one.
fn lines(
    view: AlarmView,
    listener: Listener,
    policies: Option<PolicyWatch>,
) -> impl Stream<Item = Result<String, Infallible>> {
    unfold((listener, view, policies), |(mut listener, view, mut policies)| async move {
        loop {
            let replaced = async {
                match &mut policies {
                    Some(policies) => policies.replaced().await,
                    None => pending().await,
                }
            };
            let news = tokio::select! {
                news = listener.next() => news?,
                () = replaced => return None,
            };
            let document = match news {
                News::Snapshot { alarms, is_gap, last_id } => {
                    let alarms = alarms.iter().filter(|alarm| view.shows(alarm));
                    let alarms: Vec<Value> = alarms.map(alarm_document).collect();
                    let snapshot =
                        json!({"alarms": alarms, "gap": is_gap, "last-event-id": last_id});
                    json!({"snapshot": snapshot})
                }
                News::Transition(transition) if view.shows_transition(&transition) => {
                    json!({"event": transition_document(&transition)})
                }
                News::Transition(_) => continue,
                News::Synced { last_id } => json!({"sync": {"last-event-id": last_id}}),
            };
            return Some((Ok(line(&document)), (listener, view, policies)));
        }
    })
}

fn line(document: &Value) -> String {
    format!("{document}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_times_are_in_utc() {
        let lines = [["a", "bc"], ["long", "d"]].map(|line| line.map(str::to_owned));
        assert_eq!(aligned(lines.into_iter()), "a     bc\nlong  d\n");
        assert_eq!(time_text(1_800_000_000_123_456_789), "2027-01-15T08:00:00Z");
    }
}
