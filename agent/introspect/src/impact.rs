//! `GET impact`: the objects that do not work because of an open alarm, their values and the services that ask for them.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_config::schema::Origin;
use holdfast_core::CoreView;
use holdfast_scheduler::Key;
use serde_json::json;

use super::Introspect;
use super::agent_facts::AffectedError;
use super::arguments::Arguments;
use super::http_error::HttpError;

/// Objects that are listed where nobody asks for another number.
const LISTED: usize = 100;
/// Largest number of objects in one answer, which a page draws in one piece.
const LISTED_MOST: usize = 1000;

/// `GET impact`: `alarm`, `limit`.
pub(super) async fn impact(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["alarm", "limit"], &[])?;
    let alarm = arguments.required("alarm")?;
    let limit = arguments.count("limit", LISTED, LISTED_MOST)?;
    let affected = match &introspect.facts {
        Some(facts) => facts.affected(alarm, limit).await.map_err(http_error)?,
        None => return Err(http_error(AffectedError::NotOpen(alarm.to_owned()))),
    };
    let state = introspect.core.observed_box();
    let configuration = state.configuration();
    let models = configuration.models();
    let claims = configuration.layers().claims();
    let objects: Vec<_> = affected
        .iter()
        .map(|(path, status)| {
            let key = state.keys_of_object(path).into_iter().next();
            (path, status, key, claims.owners(models, path))
        })
        .collect();
    let keys: Vec<Key> = objects.iter().filter_map(|(_, _, key, _)| key.clone()).collect();
    let question = move |view: &CoreView<'_>| {
        keys.into_iter().map(|key| (key.clone(), view.engine.label(&key))).collect()
    };
    let labels: BTreeMap<Key, String> = introspect.core.inspect(question).await?;
    let native = models.schema(Origin::Native);
    let documents = objects.into_iter().map(|(path, status, key, services)| {
        json!({
            "Path": path.to_path(native).to_string(),
            "Status": status.name(),
            "Key": key.as_ref().map(|key| introspect.render.key(key)),
            "Label": key.as_ref().and_then(|key| labels.get(key)),
            "Services": services,
        })
    });
    Ok(Json(documents.collect::<Vec<_>>()).into_response())
}

fn http_error(error: AffectedError) -> HttpError {
    match error {
        AffectedError::NotOpen(_) => HttpError::not_found(error.to_string()),
        AffectedError::Stopped => HttpError::internal(error.to_string()),
    }
}
