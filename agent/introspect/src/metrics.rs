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
use holdfast_base::now_ns;
use holdfast_config::Configuration;
use holdfast_config::services::InstanceStatus;
use holdfast_core::{Datastore, UnconfirmedCommit};
use holdfast_scheduler::{Engine, ValueState};
use holdfast_telemetry::Revision;
use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType, Summary,
};
use serde_json::json;
use tokio::time::timeout;

use super::agent_facts::{AgentTallies, Distribution};
use super::http_error::HttpError;
use super::named_branch::NamedBranch;
use super::{Introspect, alarms};

/// Time limit for the answer of a healthy core, whose longest events take some tenths of a second.
const HEALTHY_WITHIN: Duration = Duration::from_secs(2);
const NANOSECONDS: f64 = 1e9;
const SECONDS_PER_DAY: f64 = 86_400.0;

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
    let revision = introspect.core.revision();
    let alarms = alarms::open_counts(&revision);
    let mut page = Page::default();
    page.unconfirmed_commit(&revision, now_ns());
    page.certificates(&revision, now_ns());
    page.services(&introspect.core.configuration());
    if let Some(facts) = &introspect.facts {
        page.tallies(&facts.tallies().await);
    }
    let page = introspect.core.inspect(move |view| {
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

    fn unconfirmed_commit(&mut self, revision: &Revision, now_ns: u64) {
        let commit = UnconfirmedCommit::of(revision);
        let left = commit.as_ref().map(|it| it.rollback_at_ns.saturating_sub(now_ns));
        let help = "1 while a commit waits to be confirmed.";
        let waits = vec![gauge(&[], f64::from(u8::from(commit.is_some())))];
        self.add("holdfast_unconfirmed_commit", MetricType::GAUGE, help, waits);
        let help = "Time until that commit is rolled back; 0 without one.";
        let left = vec![gauge(&[], left.unwrap_or_default() as f64 / NANOSECONDS)];
        let name = "holdfast_unconfirmed_commit_remaining_seconds";
        self.add(name, MetricType::GAUGE, help, left);
    }

    fn certificates(&mut self, revision: &Revision, now_ns: u64) {
        let system = NamedBranch::native(revision).container("system");
        let servers = system.as_ref().map(|it| it.entries("grpc-server")).unwrap_or_default();
        let of_server =
            |it: NamedBranch<'_>| it.container("state")?.number("certificate-expires-on");
        let of_ssh = |it: NamedBranch<'_>| it.number("host-certificate-expires-on");
        let ends = [
            ("grpc-server", servers.into_iter().find_map(of_server)),
            ("ssh-host", system.and_then(|it| it.container("ssh-server")).and_then(of_ssh)),
        ];
        let left = |end: u64| (end as f64 - now_ns as f64) / NANOSECONDS / SECONDS_PER_DAY;
        let samples = ends.into_iter().filter_map(|(certificate, end)| {
            Some(gauge(&[("certificate", &certificate)], left(end?)))
        });
        let help = "Days until a certificate that clients are shown expires; below 0 afterwards.";
        let name = "holdfast_certificate_remaining_days";
        self.add(name, MetricType::GAUGE, help, samples.collect());
    }

    fn services(&mut self, configuration: &Configuration) {
        let mut counts = InstanceStatus::ALL.map(|status| (status, 0_u64));
        for (_, plan) in configuration.layers().book.iter() {
            let status = plan.status();
            for (_, count) in counts.iter_mut().filter(|(it, _)| *it == status) {
                *count += 1;
            }
        }
        // All are there, so that an alert on any of them has a value.
        let samples =
            counts.map(|(status, count)| gauge(&[("status", &status.name())], count as f64));
        let help = "Instances of services by status.";
        self.add("holdfast_services", MetricType::GAUGE, help, samples.into());
    }

    fn tallies(&mut self, tallies: &AgentTallies) {
        let refused = &tallies.refused_sets;
        let refused = refused.iter().map(|(code, count)| counter(&[("code", code)], *count));
        let help = "Sets over gNMI that did not end with OK, by the code they ended with.";
        let name = "holdfast_gnmi_sets_refused_total";
        self.add(name, MetricType::COUNTER, help, refused.collect());
        let failed = &tallies.failed_logins;
        let failed = failed.iter().map(|(reason, count)| counter(&[("reason", reason)], *count));
        let help = "Calls of the network without a valid login, by the reason.";
        let name = "holdfast_logins_failed_total";
        self.add(name, MetricType::COUNTER, help, failed.collect());
        let times = &tallies.fault_times;
        let times = times.iter().map(|(step, times)| histogram(&[("step", step)], times));
        let help = "Time from the report of a fault until its alarm or its impact is shown, or listeners are told.";
        let name = "holdfast_fault_duration_seconds";
        self.add(name, MetricType::HISTOGRAM, help, times.collect());
    }

    fn engine(&mut self, engine: &Engine) {
        self.transactions(engine);
        self.operations(engine);
        self.losses_and_repairs(engine);
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

    fn losses_and_repairs(&mut self, engine: &Engine) {
        // An object that follows from another one, as the prefix from an address, is lost and repaired with it.
        let kind = |kind| {
            let descriptor = engine.registry().descriptor(kind).filter(|it| it.observable())?;
            Some(descriptor.name())
        };
        let sample = |(of, count)| Some(counter(&[("descriptor", &kind(of)?)], count));
        let help = "Objects that the system lost or changed without an operation of ours, by kind of value.";
        let losses = engine.history().losses().filter_map(sample).collect();
        self.add("holdfast_losses_total", MetricType::COUNTER, help, losses);
        let help =
            "Operations that repaired what the system had lost or changed, by kind of value.";
        let repairs = engine.history().repairs().filter_map(sample).collect();
        self.add("holdfast_repairs_total", MetricType::COUNTER, help, repairs);
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

fn histogram(labels: Labels<'_>, times: &Distribution) -> Metric {
    let class = |(end, count): &(f64, u64)| {
        let mut class = Bucket::default();
        class.set_upper_bound(*end);
        class.set_cumulative_count(*count);
        class
    };
    let mut value = Histogram::default();
    value.set_bucket(times.classes.iter().map(class).collect());
    value.set_sample_sum(times.sum_seconds);
    value.set_sample_count(times.count);
    let mut sample = sample(labels);
    sample.set_histogram(value);
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
        let classes = vec![(0.5, 1), (1.0, 2)];
        let classes = Distribution { classes, sum_seconds: 4.0, count: 3 };
        page.add("y_seconds", MetricType::SUMMARY, "Times.", times);
        let classes = vec![histogram(&[], &classes)];
        page.add("z_seconds", MetricType::HISTOGRAM, "Classes.", classes);
        let want = "# HELP x Some.\n# TYPE x gauge\n\
                    x{a=\"\\\"\\\\\\n\",b=\"7\"} 1.5\nx 2\n\
                    # HELP y_seconds Times.\n# TYPE y_seconds summary\n\
                    y_seconds_sum{type=\"Change\"} 0.25\ny_seconds_count{type=\"Change\"} 3\n\
                    # HELP z_seconds Classes.\n# TYPE z_seconds histogram\n\
                    z_seconds_bucket{le=\"0.5\"} 1\nz_seconds_bucket{le=\"1\"} 2\n\
                    z_seconds_bucket{le=\"+Inf\"} 3\nz_seconds_sum 4\nz_seconds_count 3\n";
        assert_eq!(page.text().unwrap(), want);
    }
}
