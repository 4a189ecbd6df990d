//! The present state: `status`, `dump` and `stats`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_core::CoreView;
use holdfast_scheduler::{Key, SharedValue, Tally, ValueState, ValueStatus};
use serde_json::json;

use super::arguments::Arguments;
use super::http_error::HttpError;
use super::{Introspect, key_lookup, page};

/// Values read in one step; between steps the core handles other events.
const STATUSES_AT_ONCE: usize = 500;
/// Planes of a dump: observed, intended, and the engine's own view.
const VIEWS: [&str; 3] = ["SB", "NB", "cached"];

/// `GET status`: `key`, or `descriptor`, `key-prefix`, `state`, `after`, `limit`.
pub(super) async fn status(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let names = ["key", "descriptor", "key-prefix", "state", "after", "limit"];
    let arguments = arguments.allow_only(&names, &[])?;
    if let Some(key) = arguments.text("key").map(str::to_owned) {
        let (status, parts) = introspect.status_of(key).await?;
        return Ok(Json(introspect.render.status(&status, &parts)).into_response());
    }
    let state = arguments.text("state").map(parse_state).transpose()?;
    let page::KeyPage { keys, next } = introspect.key_page(&arguments, false).await?;
    let found = introspect.statuses(keys).await?;
    let selected =
        found.iter().filter(|(status, _)| state.is_none_or(|state| state == status.state));
    let selected: Vec<_> =
        selected.map(|(it, parts)| introspect.render.status(it, parts)).collect();
    Ok(page::list(&selected, next))
}

fn parse_state(text: &str) -> Result<ValueState, HttpError> {
    let named = |state: &ValueState| text.eq_ignore_ascii_case(&state.to_string());
    ValueState::ALL.into_iter().find(named).ok_or_else(|| {
        let all = ValueState::ALL.map(|state| state.to_string());
        HttpError::bad_request(format!("`state={text}` is not one of {}", all.join(", ")))
    })
}

impl Introspect {
    /// Status of one value and its parts.
    pub(super) async fn status_of(
        &self,
        key: String,
    ) -> Result<(ValueStatus, Vec<ValueStatus>), HttpError> {
        let question = move |view: &CoreView<'_>| {
            let key = key_lookup::find_key(view.engine, &key)?;
            with_parts(view, &key).ok_or_else(|| {
                HttpError::not_found(format!(
                    "{} is gone; its timeline tells more",
                    view.engine.label(&key)
                ))
            })
        };
        self.core.inspect(question).await?
    }

    pub(super) async fn statuses(
        &self,
        keys: Vec<Key>,
    ) -> Result<Vec<(ValueStatus, Vec<ValueStatus>)>, HttpError> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(STATUSES_AT_ONCE) {
            let some = some.to_vec();
            let values = self.core.inspect(move |view| {
                some.iter().filter_map(|key| with_parts(view, key)).collect::<Vec<_>>()
            });
            found.extend(values.await?);
        }
        Ok(found)
    }
}

fn with_parts(view: &CoreView<'_>, key: &Key) -> Option<(ValueStatus, Vec<ValueStatus>)> {
    let status = view.engine.status(key).filter(|it| it.state != ValueState::Nonexistent)?;
    let parts = status.parts.iter().filter_map(|part| view.engine.status(part));
    let parts = parts.collect();
    Some((status, parts))
}

/// `GET dump`: without arguments an index; `descriptor` or `key-prefix` with `view`, `after`, `limit`.
pub(super) async fn dump(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments =
        arguments.allow_only(&["descriptor", "key-prefix", "view", "after", "limit"], &[])?;
    let view = arguments.one_of("view", &VIEWS)?;
    if introspect.selected_prefixes(&arguments)?.is_none() {
        return Ok(Json(index(&introspect)).into_response());
    }
    let page::KeyPage { keys, next } = introspect.key_page(&arguments, false).await?;
    let found = introspect.statuses(keys).await?;
    let entries = found.iter().filter_map(|(status, _)| {
        let value = plane(status, view)?;
        let is_requested = status.intended.is_some() || !status.part_of.is_empty();
        Some(json!({
            "Key": introspect.render.key(&status.key),
            "Value": introspect.render.value(&status.key, Some(value)),
            "Metadata": introspect.render.metadata(status),
            "Origin": if is_requested { FROM_NB } else { FROM_SB },
        }))
    });
    Ok(page::list(&entries.collect::<Vec<_>>(), next))
}

/// Requested by a client.
const FROM_NB: u8 = 1;
/// Made by the system.
const FROM_SB: u8 = 2;

fn index(introspect: &Introspect) -> serde_json::Value {
    let kinds = introspect.render.registry().iter();
    let names: Vec<_> = kinds.map(|kind| kind.name()).collect();
    let prefixes: Vec<_> = names.iter().map(|name| format!("{name}/")).collect();
    json!({"Descriptors": names, "KeyPrefixes": prefixes, "Views": VIEWS})
}

/// One plane of a value. The engine's own view is the applied value, else a value that the system made.
fn plane<'s>(status: &'s ValueStatus, view: &str) -> Option<&'s SharedValue> {
    match view {
        "NB" => status.intended.as_ref(),
        "SB" => status.observed.as_ref(),
        _ => status.applied.as_ref().or(status.observed.as_ref()),
    }
}

/// `GET stats`.
pub(super) async fn stats(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    arguments.allow_only(&[], &[])?;
    let document = introspect.core.inspect(|view| {
        let engine = view.engine;
        let counters = engine.counters();
        let states: BTreeMap<String, usize> = engine
            .state_counts()
            .into_iter()
            .map(|(state, count)| (state.to_string(), count))
            .collect();
        let transactions: Vec<_> =
            engine.history().transactions().map(|(name, tally)| timed_tally(name, tally)).collect();
        let mut operations: BTreeMap<String, u64> = BTreeMap::new();
        let mut all: BTreeMap<&str, Vec<serde_json::Value>> = BTreeMap::new();
        for (kind, action, tally) in engine.history().operations() {
            let action = action.to_string().to_uppercase();
            let name = engine.registry().descriptor(kind).map_or("unknown", |it| it.name());
            all.entry(name).or_default().push(untimed_tally(&action, tally));
            *operations.entry(action).or_default() += tally.count;
        }
        json!({
            "TxnStats": {
                "TotalProcessed": counters.transactions,
                "LastSeqNum": engine.history().records().next_back().map(|last| last.txn.0),
                "OperationCount": operations,
                "ValueStateCount": states,
                "ErrorCount": counters.operations_failed,
                "Methods": transactions,
            },
            "GraphMethods": [
                untimed_tally("plan", Tally { count: counters.plans, ..Tally::default() }),
                untimed_tally("visit", Tally { count: counters.visited, ..Tally::default() }),
                untimed_tally("walk-edge", Tally { count: counters.edges, ..Tally::default() }),
                untimed_tally("read", Tally { count: counters.reads, ..Tally::default() }),
                untimed_tally("fact", Tally { count: counters.facts, ..Tally::default() }),
                untimed_tally("drift", Tally { count: counters.drifts, ..Tally::default() }),
                untimed_tally(
                    "slow-retry",
                    Tally { count: counters.slow_retries, ..Tally::default() },
                ),
            ],
            "AllDescriptors": engine.registry().iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "Descriptors": all,
        })
    });
    Ok(Json(document.await?).into_response())
}

/// A row with times in nanoseconds.
fn timed_tally(name: &str, tally: Tally) -> serde_json::Value {
    let average = tally.total_ns.checked_div(tally.count).unwrap_or_default();
    json!({
        "Name": name, "Count": tally.count, "Failed": tally.failed, "Total": tally.total_ns,
        "Avg": average, "Min": tally.least_ns, "Max": tally.most_ns,
    })
}

/// A row without times, because the engine has no clock.
fn untimed_tally(name: &str, tally: Tally) -> serde_json::Value {
    json!({"Name": name, "Count": tally.count, "Failed": tally.failed})
}
