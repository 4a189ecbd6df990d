//! Tables of requests, and the resulting configuration.
//!
//! A request is text, one operation for each `;`: `update PATH JSON`, `replace PATH JSON`,
//! `union PATH JSON` for a union_replace, `delete PATH`. A path that starts with `native:` is one of the native
//! model, `cli:` precedes CLI text. Results have one line for each leaf, without list keys and their copies.

mod boot;
mod changes;
mod difference;
mod fences;
mod footprint;
mod intended;
mod limits;
mod map;
mod model;
mod models;
mod origins;
mod ranks;
mod rows;
mod secrets;
mod set;
mod shared_lists;
mod shells;
mod sizes;
mod stack;
mod union;
mod union_model;

use std::sync::{Arc, OnceLock};

use crate::schema::Origin;
use crate::tree::{LeafMeta, Tree, is_key_or_copy};
use crate::*;

pub(crate) fn models() -> &'static Arc<Models> {
    static MODELS: OnceLock<Arc<Models>> = OnceLock::new();
    MODELS.get_or_init(|| Arc::new(Models::load().unwrap()))
}

pub(crate) fn empty() -> Configuration {
    Configuration::new(models().clone(), Layers::new())
}

fn target(text: &str) -> EditTarget {
    let (origin, path) = match text.strip_prefix("native:") {
        Some(path) => (Origin::Native, path),
        None => (Origin::OpenConfig, text),
    };
    EditTarget { origin, path: path.parse().unwrap() }
}

pub(crate) fn edit(request: &str) -> Edit {
    let mut edit = Edit::default();
    for operation in request.split(';').map(str::trim).filter(|it| !it.is_empty()) {
        let (kind, rest) = operation.split_once(' ').unwrap();
        let (target, payload) = match rest.strip_prefix("cli:") {
            Some(text) => (target("native:/"), Payload::Cli { text: text.trim().to_owned() }),
            None => {
                let (path, json) = rest.split_once(' ').unwrap_or((rest, ""));
                let text = json.trim().as_bytes().to_vec().into();
                (target(path), Payload::Json { text, ietf: false })
            }
        };
        match kind {
            "delete" => edit.deletes.push(target),
            "replace" => edit.replaces.push((target, payload)),
            "update" => edit.updates.push((target, payload)),
            "union" => edit.union_replace.push((target, payload)),
            other => panic!("no operation is called {other}"),
        }
    }
    edit
}

/// The configuration after these requests, which all succeed.
#[track_caller]
fn after(requests: &[&str]) -> Configuration {
    requests.iter().fold(empty(), |configuration, request| then(&configuration, request))
}

#[track_caller]
fn then(configuration: &Configuration, request: &str) -> Configuration {
    let new = match configuration.edit(&edit(request)) {
        Ok(new) => new,
        Err(errors) => panic!("{request}: {errors}"),
    };
    let scratch = Configuration::new(new.shared_models().clone(), new.layers().clone());
    assert_eq!(lines_effective(&new), lines_effective(&scratch), "not as from scratch: {request}");
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert_eq!(
            new.config_view(origin),
            scratch.config_view(origin),
            "the {origin} view is not as from scratch: {request}"
        );
    }
    new
}

fn lines<M: LeafMeta>(
    schema: &Schema,
    tree: &Tree<M>,
    mark: impl Fn(&M) -> &'static str,
) -> Vec<String> {
    let mut lines = Vec::new();
    tree.walk(&mut |path, leaf| {
        if !is_key_or_copy(schema, path.last().unwrap().node) {
            lines.push(format!("{}={}{}", path.to_path(schema), leaf.value, mark(&leaf.meta)));
        }
    });
    lines
}

fn lines_view(configuration: &Configuration, origin: Origin) -> Vec<String> {
    let schema = configuration.models().schema(origin);
    lines(schema, configuration.config_view(origin), mark_word)
}

fn mark_word(mark: &LeafMark) -> &'static str {
    match mark {
        LeafMark::Explicit => "",
        LeafMark::Factory => " factory",
        LeafMark::Default => " default",
        LeafMark::Absent => " absent",
    }
}

fn kind_word(kind: ProvenanceKind) -> &'static str {
    match kind {
        ProvenanceKind::Explicit => "",
        ProvenanceKind::OpenConfigDefault => " oc-default",
        ProvenanceKind::Factory => " factory",
        ProvenanceKind::NativeDefault => " default",
    }
}

fn lines_effective(configuration: &Configuration) -> Vec<String> {
    let schema = &configuration.models().native;
    lines(schema, configuration.effective(), |prov| kind_word(prov.kind))
}

/// Lines of `found` that start with `prefix`, without it.
fn below(found: &[String], prefix: &str) -> Vec<String> {
    found.iter().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect()
}

/// Which leaves of the client's layers the last of `requests` leaves below a path; `native:` picks the view.
#[track_caller]
fn check(requests: &[&str], prefix: &str, want: &[&str]) {
    let configuration = after(requests);
    let (origin, prefix) = match prefix.strip_prefix("native:") {
        Some(prefix) => (Origin::Native, prefix),
        None => (Origin::OpenConfig, prefix),
    };
    assert_eq!(below(&lines_view(&configuration, origin), prefix), want, "after {requests:#?}");
}

#[track_caller]
fn check_effective(requests: &[&str], prefix: &str, want: &[&str]) {
    let configuration = after(requests);
    assert_eq!(below(&lines_effective(&configuration), prefix), want, "after {requests:#?}");
}

/// Errors of the last of `requests`; the others must succeed.
#[track_caller]
fn refused(requests: &[&str]) -> Vec<String> {
    let (last, first) = requests.split_last().unwrap();
    match after(first).edit(&edit(last)) {
        Ok(_) => panic!("{last}: it was done"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn check_refused(requests: &[&str], want: &[&str]) {
    assert_eq!(refused(requests), want, "{requests:#?}");
}
