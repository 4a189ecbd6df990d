//! `plan`: what would be done, by the very planner that would do it.

use axum::Json;
use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use holdfast_scheduler::{Key, Plan};
use serde_json::{Value as Json_, json};

use super::arguments::Arguments;
use super::document::{Renderer, cause};
use super::failure::Failure;
use super::{Introspect, PAGE_MOST, names, page};
use crate::core::Inside;

/// `GET plan`: any number of `key`; `format`. What a repair of these values would do now, or of all that are off.
pub(super) async fn repair(
    Shared(introspect): Shared<Introspect>,
    arguments: Arguments,
) -> Result<Response, Failure> {
    let arguments = arguments.only(&["format"], &["key"])?;
    let text = arguments.one_of("format", &["json", "text"])? == "text";
    let named: Vec<String> = arguments.all("key").map(str::to_owned).collect();
    let render = introspect.render.clone();
    let look = move |inside: &Inside<'_>| {
        let keys = named.iter().map(|text| names::find(inside.engine, text));
        let keys = keys.collect::<Result<Vec<Key>, Failure>>()?;
        let keys = Some(keys.as_slice()).filter(|keys| !keys.is_empty());
        let plan = inside.engine.plan_repair(keys);
        let plan = plan.map_err(|refused| Failure::failed(refused.to_string()))?;
        Ok::<_, Failure>(document(&render, &plan))
    };
    let document = introspect.core.look(look).await??;
    Ok(if text { page::text(as_text(&document), None) } else { Json(document).into_response() })
}

pub(super) fn document(render: &Renderer, plan: &Plan) -> Json_ {
    let operations = plan.operations().iter().take(PAGE_MOST).map(|it| {
        json!({
            "Operation": it.action.to_string().to_uppercase(),
            "Key": render.key(&it.key),
            "Label": plan.label(it),
            "Cause": cause(it.cause),
            "PrevValue": render.value(&it.key, it.old.as_ref()),
            "NewValue": render.value(&it.key, it.new.as_ref()),
            "Takes": it.taken.iter().map(|key| render.key(key)).collect::<Vec<_>>(),
        })
    });
    json!({
        "Hash": format!("{:016x}", plan.hash()),
        "Operations": operations.collect::<Vec<_>>(),
        "Omitted": plan.operations().len().saturating_sub(PAGE_MOST),
        "Pending": plan.pending().iter().map(|key| render.key(key)).collect::<Vec<_>>(),
        "Work": {"Visited": plan.work().visited, "Edges": plan.work().edges},
    })
}

pub(super) fn as_text(document: &Json_) -> String {
    let word = |it: &Json_, name: &str| it[name].as_str().unwrap_or_default().to_owned();
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
