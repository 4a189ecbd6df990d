//! Accounting for the local socket, on which people on the box send commands.

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use holdfast_base::Caller;
use holdfast_config::limits::{Limit, LimitExceeded, MESSAGE_SIZE, READ_MESSAGE_SIZE};
use holdfast_security::acctz::{
    AccountingEvent, Activity, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, BoundedText,
    Command, CommandKind, Session, SessionStage, User, secrets,
};
use holdfast_store::accounts::AccountingLog;

use super::{Identified, LocalPeer, failure};
use crate::accounting;

/// The largest body that a caller may send. Nothing is read of one who is not served, and little of one who changes nothing.
fn body_limit(caller: Option<&Caller>) -> Option<&'static Limit> {
    match caller {
        Some(caller) if caller.may_write() => Some(&MESSAGE_SIZE), // packages of services are smaller
        Some(_) => Some(&READ_MESSAGE_SIZE),
        None => None,
    }
}

/// Passes a request on, and records it with its outcome.
pub(super) async fn record_request(
    State(accounts): State<AccountingLog>,
    ConnectInfo(peer): ConnectInfo<LocalPeer>,
    Extension(Identified(caller)): Extension<Identified>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let command = format!("{} {}", head.method, head.uri);
    let only_reads = head.method.is_safe();
    let (arguments, response) = match body_limit(caller.as_ref()) {
        None => (Vec::new(), next.run(Request::from_parts(head, Body::empty())).await),
        Some(limit) => match to_bytes(body, limit.figure).await {
            Ok(body) => {
                let arguments = arguments(&body);
                (arguments, next.run(Request::from_parts(head, Body::from(body))).await)
            }
            Err(_) => {
                let refusal = LimitExceeded { limit }.to_string();
                (Vec::new(), failure(StatusCode::PAYLOAD_TOO_LARGE, refusal))
            }
        },
    };
    let authz = authz(caller.is_some(), response.status());
    let kind = CommandKind::Cli;
    let activity = Activity::Command(Command { kind, command: command.into(), arguments, authz });
    let account = AccountingEvent { session: session(caller.as_ref(), peer), activity };
    if only_reads || caller.is_none() {
        accounts.record_read(account);
    } else {
        accounts.record_change(account);
    }
    response
}

/// The request body for the record, if it can be parsed.
fn arguments(body: &[u8]) -> Vec<BoundedText> {
    if body.is_empty() {
        return Vec::new();
    }
    let read = secrets::json(body).and_then(|json| String::from_utf8(json).ok());
    vec![read.unwrap_or_else(|| secrets::WITHHELD.to_owned()).into()]
}

fn session(caller: Option<&Caller>, peer: LocalPeer) -> Session {
    let (user, authn) = match caller {
        Some(caller) => (accounting::user(caller), accounting::authn(caller)),
        None => {
            let uid = peer.uid.map_or_else(|| "unknown".to_owned(), |uid| uid.to_string());
            let cause = format!("uid {uid} may not use the local socket").into();
            let kind = AuthnKind::None;
            let outcome = AuthnOutcome::Fail;
            (User::default(), Authn { kind, outcome, cause })
        }
    };
    Session {
        transport: None,
        channel: BoundedText::default(),
        stage: SessionStage::Once,
        user,
        authn: Some(authn),
    }
}

fn authz(admitted: bool, status: StatusCode) -> Authz {
    let outcome = if admitted { AuthzOutcome::Permit } else { AuthzOutcome::Deny };
    let detail = if status.is_success() { String::new() } else { status.to_string() };
    Authz { outcome, detail: detail.into() }
}
