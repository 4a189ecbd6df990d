//! Looking into the engine: the paths below `/scheduler/`, for people, scripts and the embedded page ([`web`]), on the
//! local socket and, when asked, on the loopback device ([`tcp`]).
//!
//! Start at [`routes`]. A handler reads its arguments ([`arguments`]), asks the core one short question
//! ([`crate::core::Inside`]) and renders the answer beside the core ([`document`]). What is wrong with a question is
//! answered 400, what nobody has heard of 404, both as `{"Error": text}`. Lists come in pages: a `Link` header leads
//! to the next one.
//!
//! Absent on purpose: anything that changes the box, except `downstream-resync`, which only repairs it.

pub(crate) mod address;
mod archive;
mod arguments;
mod document;
mod events;
mod failure;
mod graph;
mod metrics;
mod names;
mod page;
mod plan;
mod recording;
#[cfg(test)]
mod replay;
mod status;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
mod timeline;
mod transactions;
mod web;
mod why;

use axum::Router;
use axum::routing::{get, post};

use crate::core::CoreHandle;
use crate::store::Journal;

/// Entries of a page when no `limit` is given.
const PAGE: usize = 1000;
/// Entries of the largest page that can be asked for.
const PAGE_MOST: usize = 10_000;

/// What handlers hold.
#[derive(Clone, Debug)]
pub(crate) struct Introspect {
    core: CoreHandle,
    render: document::Renderer,
    /// When this run of the agent began, nanoseconds since 1970.
    started_ns: u64,
    /// What earlier runs did; none where nothing is stored.
    journal: Option<Journal>,
}

/// Everything below `/scheduler/`, `/metrics`, `/health`, and the page at `/`.
pub(crate) fn routes(core: CoreHandle, started_ns: u64, journal: Option<Journal>) -> Router {
    let render = document::Renderer::default();
    let introspect = Introspect { core, render, started_ns, journal: journal.clone() };
    if let Some(journal) = journal {
        tokio::spawn(introspect.clone().keep(journal)); // ends with the core
    }
    Router::new()
        .route("/scheduler/txn-history", get(transactions::history))
        .route("/scheduler/downstream-resync", post(transactions::resync))
        .route("/scheduler/key-timeline", get(timeline::of_key))
        .route("/scheduler/graph-snapshot", get(timeline::snapshot))
        .route("/scheduler/flag-stats", get(timeline::flags))
        .route("/scheduler/status", get(status::status))
        .route("/scheduler/dump", get(status::dump))
        .route("/scheduler/stats", get(status::stats))
        .route("/scheduler/recording", get(recording::recording))
        .route("/scheduler/why", get(why::why))
        .route("/scheduler/plan", get(plan::repair).post(plan::change))
        .route("/scheduler/graph", get(graph::graph))
        .route("/scheduler/events", get(events::events))
        .route("/metrics", get(metrics::metrics))
        .route("/health", get(metrics::health))
        .merge(web::routes())
        .method_not_allowed_fallback(failure::unknown_method)
        .fallback(failure::unknown_path)
        .with_state(introspect)
}
