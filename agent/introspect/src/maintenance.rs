//! `GET maintenance`: sessions of maintenance, from `/maintenance-state` of the newest revision.

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_core::Datastore;
use serde_json::{Value, json};

use super::Introspect;
use super::arguments::{Arguments, format_time};
use super::http_error::HttpError;
use super::named_branch::NamedBranch;

/// States in which a session has ended.
const ENDED: [&str; 3] = ["over", "cancelled", "failed"];

/// `GET maintenance`: `all` for those that have ended, too. The last one to begin comes first.
pub(super) async fn maintenance(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["all"], &[])?;
    let all = arguments.flag("all")?;
    let revision = introspect.core.revision();
    let shown = NamedBranch::native(&revision).container("maintenance-state");
    let entries = shown.map(|it| it.entries("session")).unwrap_or_default();
    let sessions = entries.iter().filter_map(|entry| Some((entry, entry.container("state")?)));
    let has_ended =
        |state: &NamedBranch<'_>| state.text("status").is_some_and(|it| ENDED.contains(&&*it));
    let mut sessions: Vec<_> = sessions.filter(|(_, state)| all || !has_ended(state)).collect();
    let start = |state: &NamedBranch<'_>| std::cmp::Reverse(state.number("starts-at"));
    sessions.sort_by_key(|(_, state)| start(state));
    let documents: Vec<_> = sessions.iter().map(|(entry, state)| document(entry, state)).collect();
    Ok(Json(documents).into_response())
}

fn document(entry: &NamedBranch<'_>, state: &NamedBranch<'_>) -> Value {
    let text = |leaf| state.text(leaf);
    let time = |leaf| state.number(leaf).map(format_time);
    let consumers = entry.entries("consumer");
    let consumers = consumers.iter().filter_map(|it| it.container("state"));
    let consumer = |it: NamedBranch<'_>| {
        json!({
            "Id": it.text("id"),
            "Status": it.text("status"),
            "Answer": it.text("answer"),
            "DefaultAction": it.text("default-action"),
            "Deadline": it.number("deadline").map(format_time),
            "Objects": it.texts("object"),
            "Done": it.texts("done"),
        })
    };
    json!({
        "Id": text("id"),
        "Resources": state.texts("resource"),
        "Kind": text("kind"),
        "StartsAt": time("starts-at"),
        "EndsAt": time("ends-at"),
        "CreatedBy": text("created-by"),
        "Status": text("status"),
        "Since": time("since"),
        "Reason": text("reason"),
        "Overdue": state.is_true("overdue"),
        "Consumers": consumers.map(consumer).collect::<Vec<_>>(),
    })
}
