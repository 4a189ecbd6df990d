//! `GET agent`: which box this is, since when the agent runs, and the commit that waits to be confirmed.

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_base::now_ns;
use holdfast_core::{Datastore, UnconfirmedCommit};
use serde_json::json;

use super::Introspect;
use super::arguments::{Arguments, format_time};
use super::http_error::HttpError;
use super::named_branch::NamedBranch;

/// `GET agent`: no arguments.
pub(super) async fn agent(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    arguments.allow_only(&[], &[])?;
    let now = now_ns();
    let revision = introspect.core.current_revision().await;
    let system = NamedBranch::native(&revision).container("system");
    let state = system.and_then(|system| system.container("state"));
    let text = |leaf| state.as_ref().and_then(|state| state.text(leaf));
    let time = |leaf| state.as_ref().and_then(|state| state.number(leaf)).map(format_time);
    let unconfirmed = UnconfirmedCommit::of(&revision).map(|commit| {
        json!({
            "Id": commit.id,
            "RollbackAt": format_time(commit.rollback_at_ns),
            "LeftNs": commit.rollback_at_ns.saturating_sub(now),
        })
    });
    let document = json!({
        "Name": text("hostname"),
        "Version": env!("CARGO_PKG_VERSION"),
        "Software": text("software-version"),
        "Booted": time("boot-time"),
        "Started": format_time(introspect.started_ns),
        "Now": format_time(now),
        "Unconfirmed": unconfirmed,
    });
    Ok(Json(document).into_response())
}
