//! `/metrics` in the text format of Prometheus, and `/health`.
//!
//! The samples are read from the engine and the newest revision at each request, and printed by the encoder of the crate
//! `prometheus`.

use std::fmt::Display;
use std::time::Duration;

use axum::Json;
use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_core::Datastore;
use holdfast_scheduler::{Engine, ValueState};
use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType, Summary};
use serde_json::json;
use tokio::time::timeout;

use super::http_error::HttpError;
use super::{Introspect, alarms};

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
    let alarms = alarms::open_counts(&introspect.core.revision());
    let page = introspect.core.inspect(move |view| {
        let mut page = Page::default();
        let version = gauge(&[("version", &env!("CARGO_PKG_VERSION"))], 1.0);
        let help = "Always 1; the version is in the label.";
        page.add("holdfast_build_info", MetricType::GAUGE, help, vec![version]);
        let help = "When the agent began, since 1970.";
        let began = vec![gauge(&[], started)];
        page.add("holdfast_start_time_seconds", MetricType::GAUGE, help, began);
        let help = "Open alarms by severity, shelved ones left out.";
        let alarms =
            alarms.map(|(severity, count)| gauge(&[("severity", &severity)], count as f64));
        page.add("holdfast_alarms", MetricType::GAUGE, help, alarms.into());
        page.engine(view.engine);
        page
    });
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page.await?.text()?).into_response())
}

/// A page of metrics under construction.
#[derive(Debug, Default)]
struct Page {
    families: Vec<MetricFamily>,
}

impl Page {
    /// Adds a metric. One without samples is left out, because the encoder refuses it.
    fn add(&mut self, name: &str, kind: MetricType, help: &str, samples: Vec<Metric>) {
        if samples.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(samples);
        self.families.push(family);
    }

    fn text(&self) -> Result<String, HttpError> {
        let text = TextEncoder::new().encode_to_string(&self.families);
        text.map_err(|error| HttpError::internal(format!("printing the metrics: {error}")))
    }

    fn engine(&mut self, engine: &Engine) {
        self.transactions(engine);
        self.operations(engine);
        let census = engine.state_counts();
        // All states are included, so that an alert on any of them has a value.
        let states = ValueState::ALL.iter().filter(|state| **state != ValueState::Nonexistent);
        let samples = states.map(|state| {
            let count = census.iter().find(|(it, _)| it == state).map_or(0, |(_, count)| *count);
            gauge(&[("state", state)], count as f64)
        });
        self.add("holdfast_values", MetricType::GAUGE, "Values by state.", samples.collect());
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
            (
                "holdfast_slow_retries_total",
                "Tries of failed values that nothing but time began.",
                counters.slow_retries,
            ),
        ] {
            self.add(name, MetricType::COUNTER, help, vec![counter(&[], count)]);
        }
    }

    fn transactions(&mut self, engine: &Engine) {
        let name = "holdfast_transaction_duration_seconds";
        let help = "Transactions that ended, by what made them.";
        let by_origin = engine.history().transactions().map(|(origin, tally)| {
            let seconds = tally.total_ns as f64 / NANOSECONDS;
            summary(&[("type", &origin)], seconds, tally.count)
        });
        self.add(name, MetricType::SUMMARY, help, by_origin.collect());
        let failed = engine.history().transactions().map(|(_, tally)| tally.failed).sum();
        let name = "holdfast_transactions_failed_total";
        let help = "Transactions that failed.";
        self.add(name, MetricType::COUNTER, help, vec![counter(&[], failed)]);
    }

    fn operations(&mut self, engine: &Engine) {
        let kind = |kind| engine.registry().descriptor(kind).map_or("unknown", |it| it.name());
        let by_kind = engine.history().operations().map(|(of, action, tally)| {
            counter(&[("descriptor", &kind(of)), ("operation", &action)], tally.count)
        });
        let help = "Operations, by kind of value.";
        self.add("holdfast_operations_total", MetricType::COUNTER, help, by_kind.collect());
        let name = "holdfast_operations_failed_total";
        let help = "Operations that the system refused.";
        let failed = engine.counters().operations_failed;
        self.add(name, MetricType::COUNTER, help, vec![counter(&[], failed)]);
    }
}

type Labels<'l> = &'l [(&'l str, &'l dyn Display)];

fn sample(labels: Labels<'_>) -> Metric {
    let pair = |(name, value): &(&str, &dyn Display)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.to_string());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn counter(labels: Labels<'_>, count: u64) -> Metric {
    let mut value = Counter::default();
    value.set_value(count as f64);
    let mut sample = sample(labels);
    sample.set_counter(value);
    sample
}

fn gauge(labels: Labels<'_>, number: f64) -> Metric {
    let mut value = Gauge::default();
    value.set_value(number);
    let mut sample = sample(labels);
    sample.set_gauge(value);
    sample
}

fn summary(labels: Labels<'_>, sum: f64, count: u64) -> Metric {
    let mut value = Summary::default();
    value.set_sample_sum(sum);
    value.set_sample_count(count);
    let mut sample = sample(labels);
    sample.set_summary(value);
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        let samples = vec![gauge(&[("a", &"\"\\\n"), ("b", &7)], 1.5), gauge(&[], 2.0)];
        page.add("x", MetricType::GAUGE, "Some.", samples);
        page.add("none_total", MetricType::COUNTER, "None.", Vec::new());
        let times = vec![summary(&[("type", &"Change")], 0.25, 3)];
        page.add("y_seconds", MetricType::SUMMARY, "Times.", times);
        let want = "# HELP x Some.\n# TYPE x gauge\n\
                    x{a=\"\\\"\\\\\\n\",b=\"7\"} 1.5\nx 2\n\
                    # HELP y_seconds Times.\n# TYPE y_seconds summary\n\
                    y_seconds_sum{type=\"Change\"} 0.25\ny_seconds_count{type=\"Change\"} 3\n";
        assert_eq!(page.text().unwrap(), want);
    }
}
