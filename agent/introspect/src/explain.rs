//! The request `explain`: from a value up to its configuration leaf and owner, and along its dependencies to the root
//! cause; or from a configuration path down to its values; or a service instance ([`super::explain_service`]).

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_config::Path;
use holdfast_core::CoreView;
use holdfast_scheduler::ValueState;
use serde_json::json;

use super::arguments::Arguments;
use super::explain_service::{self, instance_of};
use super::explainer::{Explainer, as_text};
use super::http_error::HttpError;
use super::{Introspect, key_lookup, page};

/// `GET explain`: `key`, or `path` with `origin`; `format`.
pub(super) async fn explain(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["key", "path", "origin", "format"], &[])?;
    let text = arguments.one_of("format", &["json", "text"])? == "text";
    let document = match (arguments.text("key"), arguments.text("path")) {
        (Some(key), None) => match instance_of(key) {
            Some(tag) => {
                let document = introspect.explain_instance(tag).await?;
                return Ok(if text {
                    page::text(explain_service::as_text(&document), None)
                } else {
                    Json(document).into_response()
                });
            }
            None => introspect.explain_value(key.to_owned()).await?,
        },
        (None, Some(path)) => {
            let origin = arguments.text("origin").unwrap_or_default();
            introspect.explain_path(path.to_owned(), origin.to_owned()).await?
        }
        _ => return Err(HttpError::bad_request("give `key` or `path`")),
    };
    Ok(if text { page::text(as_text(&document), None) } else { Json(document).into_response() })
}

impl Introspect {
    async fn explain_value(&self, key: String) -> Result<serde_json::Value, HttpError> {
        let render = self.render.clone();
        let question = move |view: &CoreView<'_>| {
            let named = key;
            let key = key_lookup::find_key(view.engine, &named)?;
            let status = view.engine.status(&key);
            let status = status.filter(|status| status.state != ValueState::Nonexistent);
            let status = status.ok_or_else(|| {
                HttpError::not_found(format!(
                    "{} is gone; its timeline tells more",
                    view.engine.label(&key)
                ))
            })?;
            let mut document = Explainer { view, render: &render }.document(&status);
            document["Took"] = json!(key_lookup::taken_text(view.engine, &named, &key));
            Ok::<_, HttpError>(document)
        };
        let mut document: serde_json::Value = self.core.inspect(question).await??;
        if document["AskedBy"].is_null() {
            let names = document["Bases"].as_array().into_iter().flatten();
            let names = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
            document["AskedBy"] = self.archived_requester(names).await?;
        }
        Ok(document)
    }

    async fn explain_path(
        &self,
        path: String,
        origin_name: String,
    ) -> Result<serde_json::Value, HttpError> {
        let path: Path =
            path.parse().map_err(|error| HttpError::bad_request(format!("{error}")))?;
        let render = self.render.clone();
        let question = move |view: &CoreView<'_>| {
            let origin = view.models().origin(&origin_name);
            let origin = origin.ok_or_else(|| {
                HttpError::bad_request(format!("`{origin_name}` is not an origin"))
            })?;
            let schema = view.models().schema(origin);
            let found = schema.resolve_write(&path);
            let found = found.map_err(|error| HttpError::bad_request(error.to_string()))?;
            let reason = Explainer { view, render: &render };
            let objects = reason.objects(origin, &found);
            let objects: Vec<_> = objects.iter().map(|key| reason.object(key)).collect();
            Ok(json!({"Path": path.to_string(), "Objects": objects}))
        };
        self.core.inspect(question).await?
    }
}
