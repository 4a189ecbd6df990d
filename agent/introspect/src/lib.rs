//! Inspection of the engine: the paths below `/scheduler/`, for people, scripts and the embedded page ([`web`]),
//! on the local socket and optionally on the loopback device ([`tcp`]).
//!
//! Start at [`routes`]. A handler parses its arguments ([`arguments`]), asks the core one short question
//! ([`holdfast_core::CoreView`]) and formats the answer outside of the core ([`document`]). Invalid requests are
//! answered with 400 and unknown objects with 404, both as `{"Error": text}`. Lists come in pages: a `Link` header
//! leads to the next one.
//!
//! Absent on purpose: anything that changes the box, except `downstream-resync`, which only repairs it.

mod agent;
mod agent_facts;
mod alarms;
mod archive;
mod arguments;
mod config_log;
mod document;
mod events;
mod explain;
mod explain_service;
mod explainer;
mod graph;
mod http_error;
mod impact;
mod interfaces;
mod key_lookup;
mod maintenance;
mod metrics;
mod named_branch;
mod page;
mod plan;
mod recording;
#[cfg(test)]
mod replay;
mod services;
mod status;
pub mod tcp;
#[cfg(test)]
mod tests;
mod timeline;
mod transaction_filter;
mod transactions;
pub mod uri;
pub mod waits;
mod web;

use std::sync::Arc;

use axum::Router;
use axum::middleware::map_response;
use axum::routing::{get, post};
use holdfast_store::Journal;

use holdfast_core::CoreHandle;

pub use agent_facts::{AffectedError, AgentFacts, AgentTallies, Distribution};

/// Default number of entries on a page.
const PAGE: usize = 1000;
/// Largest number of entries on a page.
const MAX_PAGE: usize = 10_000;

/// Dependencies of the handlers.
#[derive(Clone, Debug)]
pub(crate) struct Introspect {
    core: CoreHandle,
    render: document::Renderer,
    /// Start of this run, in nanoseconds since 1970.
    started_ns: u64,
    /// Transactions of earlier runs; `None` when nothing is stored.
    journal: Option<Journal>,
    /// `None` where no agent runs around the core.
    facts: Option<Arc<dyn AgentFacts>>,
}

/// Routes below `/scheduler/`, `/metrics`, `/health`, and the page at `/`.
pub fn routes(
    core: CoreHandle,
    started_ns: u64,
    journal: Option<Journal>,
    facts: Option<Arc<dyn AgentFacts>>,
) -> Router {
    let render = document::Renderer::default();
    let introspect = Introspect { core, render, started_ns, journal: journal.clone(), facts };
    if let Some(journal) = journal {
        tokio::spawn(introspect.clone().archive_transactions(journal)); // ends with the core
    }
    Router::new()
        .route("/scheduler/txn-history", get(transactions::history))
        .route("/scheduler/downstream-resync", post(transactions::resync))
        .route("/scheduler/key-timeline", get(timeline::key_timeline))
        .route("/scheduler/graph-snapshot", get(timeline::snapshot))
        .route("/scheduler/flag-stats", get(timeline::flags))
        .route("/scheduler/status", get(status::status))
        .route("/scheduler/dump", get(status::dump))
        .route("/scheduler/stats", get(status::stats))
        .route("/scheduler/recording", get(recording::recording))
        .route("/scheduler/why", get(explain::explain))
        .route("/scheduler/plan", get(plan::plan_repair).post(plan::plan_change))
        .route("/scheduler/graph", get(graph::graph))
        .route("/scheduler/agent", get(agent::agent))
        .route("/scheduler/alarms", get(alarms::alarms))
        .route("/scheduler/impact", get(impact::impact))
        .route("/scheduler/maintenance", get(maintenance::maintenance))
        .route("/scheduler/interfaces", get(interfaces::interfaces))
        .route("/scheduler/services", get(services::services))
        .route("/scheduler/config-log", get(config_log::config_log))
        .route("/scheduler/events", get(events::events))
        .route("/metrics", get(metrics::metrics))
        .route("/health", get(metrics::health))
        .merge(web::routes())
        .method_not_allowed_fallback(http_error::unknown_method)
        .fallback(http_error::unknown_path)
        .layer(map_response(web::with_security_headers))
        .with_state(introspect)
}
