//! `holdfast show state PATH`: a part of the state, by its path in either model.

use std::ops::ControlFlow;

use holdfast_base::Caller;
use holdfast_config::json::{Flavour, print};
use holdfast_config::schema::{Node, Origin, Schema};
use holdfast_config::tree::{NodeRef, SelectVisitor};
use holdfast_config::{InstancePath, Path, PathPattern};
use holdfast_core::{Datastore as _, PolledSources};
use holdfast_telemetry::{ChangeDetection, Filter, LeafVersion, Selection};
use serde_json::{Map, Value};

use super::look::Look;
use crate::local::rights::LookError;

/// The content at a path: itself, or for a path with wildcards a member for each thing that is found.
pub(super) async fn document(
    look: &Look,
    caller: &Caller,
    path: Option<&str>,
    origin: Option<&str>,
) -> Result<Value, LookError> {
    let text = path.unwrap_or("/");
    let (named, text) = text
        .split_once(":/")
        .map_or((None, text.to_owned()), |(origin, rest)| (Some(origin), format!("/{rest}")));
    let path: Path = text
        .parse()
        .map_err(|error| LookError::Invalid(format!("`{text}` is not a path: {error}")))?;
    let models = look.core.models();
    let origins = match origin.or(named) {
        Some(name) => vec![models.origin(name).ok_or_else(|| {
            LookError::Invalid(format!(
                "`{name}` is not a model: use openconfig or holdfast_native"
            ))
        })?],
        None => vec![Origin::OpenConfig, Origin::Native],
    };
    let mut refusal = None;
    for origin in origins {
        let patterns = match models.schema(origin).resolve_read(&path) {
            Ok(patterns) => patterns,
            Err(error) => {
                refusal.get_or_insert(error.to_string());
                continue;
            }
        };
        let sources = sources(look, models.schema(origin), &patterns);
        let readable = look.readable_of(caller, origin, &sources).await;
        let schema = readable.models.schema(origin);
        let found = found(schema, &readable.tree, &patterns);
        let is_concrete = patterns.iter().all(|it| it.concrete().is_some());
        return match found.len() {
            0 => Err(LookError::Missing(format!("there is nothing at `{text}` that you may read"))),
            1 if is_concrete => Ok(found.into_values().next().unwrap_or_default()),
            _ => Ok(Value::Object(found)),
        };
    }
    Err(LookError::Invalid(refusal.unwrap_or_default()))
}

/// The sources of what is polled at and below the ends of some patterns.
fn sources(look: &Look, schema: &Schema, patterns: &[PathPattern]) -> PolledSources {
    let filter = Filter::default();
    let selection = Selection::new(schema, patterns, &filter, ChangeDetection::Polled);
    look.core.polled_catalog().sources(schema.origin(), selection.leaf_filter(schema))
}

fn found(
    schema: &Schema,
    tree: &holdfast_config::tree::Tree<LeafVersion>,
    patterns: &[PathPattern],
) -> Map<String, Value> {
    let mut collector = Collector { schema, found: Map::new() };
    for pattern in patterns {
        let _never_stopped = tree.select_into(pattern, &mut collector);
    }
    collector.found
}

/// Collector of documents by their paths.
struct Collector<'s> {
    schema: &'s Schema,
    found: Map<String, Value>,
}

impl SelectVisitor<LeafVersion> for Collector<'_> {
    fn visit(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn found(&mut self, path: &InstancePath, found: NodeRef<'_, LeafVersion>) -> ControlFlow<()> {
        let at = path.last().map_or(self.schema.root(), |step| step.node);
        let is_state = |node: &Node| !node.config || self.schema.is_list_key(node.id);
        let printed = print(self.schema, at, found, Flavour::Ietf, &is_state);
        if let Some(document) = printed.and_then(|text| serde_json::from_slice(&text).ok()) {
            self.found.insert(path.to_path(self.schema).to_string(), document);
        }
        ControlFlow::Continue(())
    }
}

/// The document, with the end of a line.
pub(super) fn text(document: &Value) -> String {
    serde_json::to_string_pretty(document).unwrap_or_default() + "\n"
}
