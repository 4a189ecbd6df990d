//! `/metrics` in the text format of Prometheus, and `/health`.
//!
//! Only this module knows the format: a name, its description, and lines of samples.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use axum::Json;
use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_scheduler::{Engine, State};
use serde_json::json;
use tokio::time::timeout;

use super::Introspect;
use super::failure::HttpError;

/// Time limit for the answer of a healthy core, whose longest events take some tenths of a second.
const HEALTHY_WITHIN: Duration = Duration::from_secs(2);
const NANOSECONDS: f64 = 1e9;
/// `GET /health`: 200 while the core answers.
pub(super) async fn health(extract::State(introspect): extract::State<Introspect>) -> Response {
    let answered = timeout(HEALTHY_WITHIN, introspect.core.inspect(|_| ())).await;
    let (code, status) = match answered {
        Ok(Ok(())) => (StatusCode::OK, "running"),
        Ok(Err(_)) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the core does not answer"),
    };
    (code, Json(json!({"status": status, "version": env!("CARGO_PKG_VERSION")}))).into_response()
}

/// `GET /metrics`.
pub(super) async fn metrics(
    extract::State(introspect): extract::State<Introspect>,
) -> Result<Response, HttpError> {
    let started = introspect.started_ns as f64 / NANOSECONDS;
    let text = introspect.core.inspect(move |view| {
        let mut page = Exposition::default();
        page.metric("holdfast_build_info", "gauge", "Always 1; the version is in the label.");
        page.line(&[("version", &env!("CARGO_PKG_VERSION"))], 1);
        page.metric("holdfast_start_time_seconds", "gauge", "When the agent began, since 1970.");
        page.line(&[], started);
        page.engine(view.engine);
        page.text
    });
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text.await?).into_response())
}

/// A page of metrics under construction.
#[derive(Debug, Default)]
struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    /// Starts a metric; its samples follow.
    fn metric(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _never_fails = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.suffixed("", labels, value);
    }

    fn suffixed(&mut self, suffix: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let label = |(name, value): &(&str, &dyn Display)| {
            let value = value.to_string().replace('\\', "\\\\").replace('"', "\\\"");
            format!("{name}=\"{}\"", value.replace('\n', "\\n"))
        };
        let labels = labels.iter().map(label).collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _never_fails = writeln!(self.text, "{}{suffix}{labels} {value}", self.name);
    }

    fn engine(&mut self, engine: &Engine) {
        self.transactions(engine);
        self.operations(engine);
        self.metric("holdfast_values", "gauge", "Values by state.");
        let census = engine.state_counts();
        // All states are included, so that an alert on any of them has a value.
        for state in State::ALL.iter().filter(|state| **state != State::Nonexistent) {
            let count = census.iter().find(|(it, _)| it == state).map_or(0, |(_, count)| *count);
            self.line(&[("state", state)], count);
        }
        let counters = engine.counters();
        for (name, help, count) in [
            ("holdfast_plans_total", "Plans that were begun.", counters.plans),
            ("holdfast_planner_values_total", "Values looked at while planning.", counters.visited),
            ("holdfast_planner_edges_total", "Dependencies walked.", counters.edges),
            ("holdfast_facts_total", "Facts taken in.", counters.facts),
            (
                "holdfast_facts_ignored_total",
                "Facts about nothing of ours.",
                counters.facts_ignored,
            ),
            ("holdfast_reads_total", "Objects read back.", counters.reads),
            ("holdfast_drifts_total", "Differences that were not our doing.", counters.drifts),
        ] {
            self.metric(name, "counter", help);
            self.line(&[], count);
        }
    }

    fn transactions(&mut self, engine: &Engine) {
        let name = "holdfast_transaction_duration_seconds";
        self.metric(name, "summary", "Transactions that ended, by what made them.");
        for (origin, tally) in engine.history().transactions() {
            let seconds = tally.total_ns as f64 / NANOSECONDS;
            self.suffixed("_sum", &[("type", &origin)], seconds);
            self.suffixed("_count", &[("type", &origin)], tally.count);
        }
        self.metric("holdfast_transactions_failed_total", "counter", "Transactions that failed.");
        let failed: u64 = engine.history().transactions().map(|(_, tally)| tally.failed).sum();
        self.line(&[], failed);
    }

    fn operations(&mut self, engine: &Engine) {
        let kind = |kind| engine.registry().descriptor(kind).map_or("unknown", |it| it.name());
        self.metric("holdfast_operations_total", "counter", "Operations, by kind of value.");
        for (of, action, tally) in engine.history().operations() {
            self.line(&[("descriptor", &kind(of)), ("operation", &action)], tally.count);
        }
        let name = "holdfast_operations_failed_total";
        self.metric(name, "counter", "Operations that the system refused.");
        self.line(&[], engine.counters().operations_failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Exposition::default();
        page.metric("x_total", "counter", "Some.");
        page.line(&[("a", &"\"\\\n"), ("b", &7)], 1.5);
        page.line(&[], 2);
        let want = "# HELP x_total Some.\n# TYPE x_total counter\n\
                    x_total{a=\"\\\"\\\\\\n\",b=\"7\"} 1.5\nx_total 2\n";
        assert_eq!(page.text, want);
    }
}
