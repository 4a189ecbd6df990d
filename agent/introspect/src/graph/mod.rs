//! The request `graph`: a drawing of values and their dependencies, without external tools.
//!
//! [`picture`] selects the content, [`layout`] its positions; [`svg`] and [`dot`] are the output formats.

mod dot;
mod layout;
mod picture;
mod svg;

use axum::Json;
use axum::extract;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use holdfast_scheduler::{Engine, Key, TxnId};

use self::picture::{NodeSelection, Picture};
use super::arguments::Arguments;
use super::http_error::HttpError;
use super::timeline::KeyHistory;
use super::{Introspect, key_lookup};

/// Default number of values in a drawing: as many as a screen can show.
const NODES: usize = 200;
/// Largest number of values in a drawing: as many as a browser can show.
const MAX_NODES: usize = 2000;
/// Default number of steps from the central value.
const DEPTH: usize = 2;
const MAX_DEPTH: usize = 8;

/// `GET graph`: `key` with `depth`, or `txn`, or neither for all values; `limit`, `format`.
pub(super) async fn graph(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["key", "depth", "txn", "limit", "format"], &[])?;
    let format = arguments.one_of("format", &["svg", "dot", "raw", "json"])?;
    let limit = arguments.count("limit", NODES, MAX_NODES)?;
    let depth = arguments.count("depth", DEPTH, MAX_DEPTH)?;
    if arguments.text("key").is_none() && arguments.text("depth").is_some() {
        return Err(HttpError::bad_request("`depth` goes with `key`"));
    }
    let picture = match (arguments.text("key"), arguments.number("txn")?) {
        (Some(_), Some(_)) => return Err(HttpError::bad_request("give `key` or `txn`, not both")),
        (Some(key), None) => introspect.graph_around(key.to_owned(), depth, limit).await?,
        (None, Some(number)) => introspect.graph_after_transaction(number, limit).await?,
        (None, None) => introspect.whole_graph(limit).await?,
    };
    Ok(rendered(&picture, format))
}

/// Values in the neighbourhood of some, up to the limits of a drawing.
pub(super) fn neighbourhood(engine: &Engine, start: Vec<Key>) -> Vec<Key> {
    NodeSelection::around(engine, start, MAX_DEPTH, MAX_NODES).into_keys()
}

fn rendered(picture: &Picture, format: &str) -> Response {
    if format == "json" {
        return Json(picture.document()).into_response();
    }
    if format == "raw" {
        return ([(header::CONTENT_TYPE, "text/vnd.graphviz")], dot::write(picture, None))
            .into_response();
    }
    let places = layout::layout(picture);
    if format == "dot" {
        return ([(header::CONTENT_TYPE, "text/vnd.graphviz")], dot::write(picture, Some(&places)))
            .into_response();
    }
    ([(header::CONTENT_TYPE, "image/svg+xml")], svg::write(picture, &places)).into_response()
}

impl Introspect {
    async fn graph_around(
        &self,
        key: String,
        depth: usize,
        limit: usize,
    ) -> Result<Picture, HttpError> {
        let render = self.render.clone();
        let question = move |view: &holdfast_core::CoreView<'_>| {
            let key = key_lookup::find_key(view.engine, &key)?;
            let drawn = NodeSelection::around(view.engine, vec![key], depth, limit);
            Ok(drawn.picture(&render, view.engine))
        };
        self.core.inspect(question).await?
    }

    async fn whole_graph(&self, limit: usize) -> Result<Picture, HttpError> {
        let render = self.render.clone();
        let question = move |view: &holdfast_core::CoreView<'_>| {
            NodeSelection::whole(view.engine, limit).picture(&render, view.engine)
        };
        Ok(self.core.inspect(question).await?)
    }

    /// Values of a transaction with their neighbours, in the states after it.
    async fn graph_after_transaction(
        &self,
        number: u64,
        limit: usize,
    ) -> Result<Picture, HttpError> {
        let render = self.render.clone();
        let began = self.started_ns;
        let question = move |view: &holdfast_core::CoreView<'_>| {
            let record = view.engine.history().record(TxnId(number)).cloned();
            let record = record.ok_or_else(|| {
                HttpError::not_found(format!("transaction {number} is not recorded in this run"))
            })?;
            let mut touched: Vec<Key> = record.keys().cloned().collect();
            touched.sort_unstable();
            touched.dedup();
            let drawn = NodeSelection::around(view.engine, touched.clone(), 1, limit);
            let mut picture = drawn.picture(&render, view.engine);
            for node in &mut picture.nodes {
                let Some(key) = &node.key else { continue };
                node.touched = touched.binary_search(key).is_ok();
                let past = KeyHistory::of(view, key.clone());
                let mut revisions = past.revisions(began, view.now.unix_ns).into_iter();
                let then = revisions.find(|revision| revision.is_valid_at(record.ended_ns));
                node.set_state(&render, then.map(|then| (then.state, then.value)));
            }
            Ok(picture)
        };
        self.core.inspect(question).await?
    }
}
