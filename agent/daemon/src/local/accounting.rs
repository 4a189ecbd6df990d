//! Accounting for the local socket, on which people on the box send commands.

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use holdfast_base::Caller;
use holdfast_security::acctz::{
    AccountingEvent, Activity, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, BoundedText,
    Command, CommandKind, Session, SessionStage, User, secrets,
};
use holdfast_services::limits::PACKAGE_SIZE;
use holdfast_store::accounts::AccountingLog;

use super::{Identified, LocalPeer, failure};
use crate::accounting;

/// Largest body of a request, in octets; the largest is a package of services.
const MAX_BODY: usize = PACKAGE_SIZE.figure;

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
    let (arguments, response) = match to_bytes(body, MAX_BODY).await {
        Ok(body) => {
            let arguments = arguments(&body, caller.is_some());
            (arguments, next.run(Request::from_parts(head, Body::from(body))).await)
        }
        Err(error) => (Vec::new(), failure(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())),
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

/// The request body for the record, if it can be parsed; empty for a caller without permission.
fn arguments(body: &[u8], admitted: bool) -> Vec<BoundedText> {
    if body.is_empty() || !admitted {
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
            let (kind, outcome) = (AuthnKind::None, AuthnOutcome::Fail);
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
