//! The request `plan`: a dry run by the planner itself.

use axum::Json;
use axum::body::Bytes;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_config::schema::Origin;
use holdfast_config::{Edit, EditTarget, Models, Path, Payload};
use holdfast_core::{CommitOptions, CoreView, Datastore, Intent, Preview};
use holdfast_scheduler::{Key, Plan};
use serde::Deserialize;
use serde_json::json;

use super::arguments::Arguments;
use super::document::{Renderer, cause_text, word};
use super::http_error::HttpError;
use super::{Introspect, MAX_PAGE, key_lookup, page};
use smol_str::SmolStr;

/// `GET plan`: any number of `key`; `format`. Plan for a repair of these values, or of all that differ.
pub(super) async fn plan_repair(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["format"], &["key"])?;
    let text = arguments.one_of("format", &["json", "text"])? == "text";
    let wanted_keys: Vec<String> = arguments.all("key").map(str::to_owned).collect();
    let render = introspect.render.clone();
    let question = move |view: &CoreView<'_>| {
        let keys = wanted_keys.iter().map(|text| key_lookup::find_key(view.engine, text));
        let keys = keys.collect::<Result<Vec<Key>, HttpError>>()?;
        let keys = Some(keys.as_slice()).filter(|keys| !keys.is_empty());
        let plan = view.engine.plan_repair(keys);
        let plan = plan.map_err(|refused| HttpError::internal(refused.to_string()))?;
        Ok::<_, HttpError>(plan_document(&render, &plan))
    };
    let document = introspect.core.inspect(question).await??;
    Ok(if text { page::text(as_text(&document), None) } else { Json(document).into_response() })
}

/// A change of configuration in the form of a Set: deletes, then replaces, then updates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeRequest {
    /// Origin of all paths: `openconfig` by default.
    #[serde(default)]
    origin: String,
    #[serde(default)]
    delete: Vec<String>,
    #[serde(default)]
    replace: Vec<PathValue>,
    #[serde(default)]
    update: Vec<PathValue>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathValue {
    path: String,
    /// Value in RFC 7951 encoding.
    value: serde_json::Value,
}

/// `POST plan` with a change of configuration: the plan for it. Nothing is changed.
pub(super) async fn plan_change(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
    body: Bytes,
) -> Result<Response, HttpError> {
    arguments.allow_only(&[], &[])?;
    let change: ChangeRequest = serde_json::from_slice(&body)
        .map_err(|error| HttpError::bad_request(format!("cannot read the change: {error}")))?;
    let caller = Caller {
        name: SmolStr::new_static("local"),
        role: Role::Admin,
        auth_method: AuthMethod::Local { uid: nix::unistd::geteuid().as_raw() },
        peer: None,
    };
    let models = introspect.core.models();
    let parts = introspect.core.preview(
        &caller,
        Intent::edit(change.edit(&models)?),
        CommitOptions::default(),
    );
    Ok(Json(preview_document(&parts.await?)).into_response())
}

impl ChangeRequest {
    fn edit(self, models: &Models) -> Result<Edit, HttpError> {
        let origin = models.origin(&self.origin);
        let origin = origin
            .ok_or_else(|| HttpError::bad_request(format!("`{}` is not an origin", self.origin)))?;
        let target = |path: &str| {
            let path =
                path.parse::<Path>().map_err(|error| HttpError::bad_request(error.to_string()))?;
            Ok::<_, HttpError>(EditTarget { origin, path })
        };
        let item = |it: PathValue| {
            let text = it.value.to_string().into();
            Ok::<_, HttpError>((target(&it.path)?, Payload::Json { text, ietf: true }))
        };
        Ok(Edit {
            deletes: self.delete.iter().map(|path| target(path)).collect::<Result<_, _>>()?,
            replaces: self.replace.into_iter().map(item).collect::<Result<_, _>>()?,
            updates: self.update.into_iter().map(item).collect::<Result<_, _>>()?,
            ..Edit::default()
        })
    }
}

fn preview_document(preview: &Preview) -> serde_json::Value {
    let operations = preview.operations.first.iter().map(|it| {
        json!({
            "Object": it.object,
            "Effect": it.effect.name(),
            "Cause": cause_text(it.cause),
            "Interrupts": it.interrupts,
            "TakesLinkDown": it.takes_link_down,
        })
    });
    let configuration = preview.configuration.first.iter().map(|it| {
        let origin = if it.origin == Origin::Native { "holdfast_native" } else { "openconfig" };
        json!({"Origin": origin, "Path": it.path, "Before": it.before, "After": it.after})
    });
    let pending = preview.pending.first.iter();
    let pending = pending.map(|it| json!({"Object": it.object, "WaitsFor": it.waits_for}));
    json!({
        "Hash": preview.hash.to_string(),
        "Configuration": configuration.collect::<Vec<_>>(),
        "ConfigurationTotal": preview.configuration.total,
        "Operations": operations.collect::<Vec<_>>(),
        "OperationsTotal": preview.operations.total,
        "Pending": pending.collect::<Vec<_>>(),
        "PendingTotal": preview.pending.total,
    })
}

pub(super) fn plan_document(render: &Renderer, plan: &Plan) -> serde_json::Value {
    let operations = plan.operations().iter().take(MAX_PAGE).map(|it| {
        json!({
            "Operation": it.action.to_string().to_uppercase(),
            "Key": render.key(&it.key),
            "Label": plan.label(it),
            "Cause": cause_text(it.cause),
            "PrevValue": render.value(&it.key, it.old.as_ref()),
            "NewValue": render.value(&it.key, it.new.as_ref()),
            "Takes": it.cascaded.iter().map(|key| render.key(key)).collect::<Vec<_>>(),
        })
    });
    json!({
        "Hash": format!("{:016x}", plan.hash()),
        "Operations": operations.collect::<Vec<_>>(),
        "Omitted": plan.operations().len().saturating_sub(MAX_PAGE),
        "Pending": plan.pending().iter().map(|key| render.key(key)).collect::<Vec<_>>(),
        "Work": {"Visited": plan.cost().visited, "Edges": plan.cost().edges},
    })
}

pub(super) fn as_text(document: &serde_json::Value) -> String {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let operations = list("Operations");
    let mut text = match operations.len() {
        0 => "nothing to do\n".to_owned(),
        count => format!("{count} operations, plan {}\n", word(document, "Hash")),
    };
    for it in &operations {
        let [verb, label, cause] = ["Operation", "Label", "Cause"].map(|name| word(it, name));
        text += &format!("  {verb:7} {label}  ({cause})\n");
    }
    for key in list("Pending") {
        text += &format!("  waits   {}\n", key.as_str().unwrap_or_default());
    }
    text
}
