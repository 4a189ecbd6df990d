//! The history of values: `key-timeline`, `graph-snapshot` and `flag-stats`.
//!
//! Revisions are computed from the transactions that affect a key, and from changes of the key by the system, which
//! the engine remembers with the times of their reports. The present state in the engine that follows from neither
//! has no time at which it began.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_core::CoreView;
use holdfast_scheduler::{
    Key, OperationResult, SharedValue, SystemChange, Target, TransactionOutcome, TransactionRecord,
    TxnId, ValueState, ValueStatus,
};
use serde_json::json;

use super::arguments::{Arguments, format_time, parse_time};
use super::document::{Renderer, state_after, txn_name};
use super::http_error::HttpError;
use super::{Introspect, key_lookup, page};

/// Most values that are listed for one dependency.
const MATCHES_SHOWN: usize = 16;

/// A value during one period.
#[derive(Clone, Debug)]
pub(super) struct ValueRevision {
    pub(super) since_ns: u64,
    /// False where the state is known, and not when it began: `since_ns` is the time of the question then.
    pub(super) is_since_known: bool,
    /// `None` for the present revision.
    pub(super) until_ns: Option<u64>,
    pub(super) txn: Option<TxnId>,
    pub(super) state: ValueState,
    pub(super) value: Option<SharedValue>,
}

/// Everything about a key from which its revisions are computed.
#[derive(Debug)]
pub(super) struct KeyHistory {
    pub(super) key: Key,
    pub(super) records: Vec<Arc<TransactionRecord>>,
    /// A change by the system.
    system_changes: Vec<SystemChange>,
    pub(super) current: Option<ValueStatus>,
    /// The future of the value as it is now: the repair or the next try.
    next: Option<String>,
    targets: Vec<(String, Target, Vec<Key>)>,
}

impl KeyHistory {
    pub(super) fn of(view: &CoreView<'_>, key: Key) -> Self {
        let records = view.engine.history().touching(&key).cloned().collect();
        let system_changes = view.engine.history().system_changes(&key).cloned().collect();
        let current = view.engine.status(&key).filter(|it| it.state != ValueState::Nonexistent);
        let now = view.now.monotonic;
        let text =
            |it: &ValueStatus| it.detail.repair_text(now).or_else(|| it.detail.error_text(now));
        let next = current.as_ref().and_then(text);
        Self { key, records, system_changes, current, next, targets: Vec::new() }
    }

    fn with_targets(mut self, view: &CoreView<'_>) -> Self {
        let needs = view.engine.needs(&self.key);
        let targets: Vec<Target> = needs.iter().map(|need| need.target.clone()).collect();
        let found = view.engine.providers(&targets, MATCHES_SHOWN);
        let labels = needs.into_iter().map(|need| need.label);
        self.targets =
            labels.zip(targets).zip(found).map(|((label, it), keys)| (label, it, keys)).collect();
        self
    }

    /// The revisions, oldest first. `began_ns` is the start of this run, from which values without a transaction
    /// exist.
    pub(super) fn revisions(&self, began_ns: u64, now_ns: u64) -> Vec<ValueRevision> {
        let mut revisions: Vec<ValueRevision> = Vec::new();
        let mut system_changes = self.system_changes.iter().peekable();
        for record in &self.records {
            while let Some(change) = system_changes.next_if(|it| it.time_ns <= record.ended_ns) {
                push_system_change(&mut revisions, change);
            }
            let Some((state, value)) = self.state_and_value_after(record, revisions.last()) else {
                continue;
            };
            push_revision(&mut revisions, record.ended_ns, Some(record.txn), state, value);
        }
        system_changes.for_each(|change| push_system_change(&mut revisions, change));
        let state = self.current.as_ref().map_or(ValueState::Nonexistent, |now| now.state);
        let last = revisions.last().filter(|last| last.until_ns.is_none());
        if last.map_or(ValueState::Nonexistent, |last| last.state) != state {
            let value = self.current.as_ref().and_then(displayed_value);
            let is_first = revisions.is_empty();
            let since = if is_first { began_ns } else { now_ns };
            push_revision(&mut revisions, since, None, state, value);
            let last = revisions.last_mut().filter(|last| last.until_ns.is_none() && !is_first);
            last.into_iter().for_each(|last| last.is_since_known = false);
        }
        revisions
    }

    /// State and value after a transaction; `None` when it did not change the value.
    fn state_and_value_after(
        &self,
        record: &TransactionRecord,
        before: Option<&ValueRevision>,
    ) -> Option<(ValueState, Option<SharedValue>)> {
        let operations = record.operations.iter().rev();
        let mut last =
            operations.filter(|it| it.key == self.key && it.result != OperationResult::NotTried);
        let requested = record.requested.binary_search_by(|(key, _)| key.cmp(&self.key)).ok();
        let requested = requested.and_then(|at| record.requested[at].1.clone());
        let waits = match &record.outcome {
            TransactionOutcome::Done { pending, .. } => pending.contains(&self.key),
            TransactionOutcome::Failed { .. }
            | TransactionOutcome::Refused { .. }
            | TransactionOutcome::Cancelled { .. } => false,
        };
        if waits {
            let earlier = before.and_then(|before| before.value.clone());
            return Some((ValueState::Pending, requested.or(earlier)));
        }
        if let Some(operation) = last.next() {
            let value = operation.new.clone().or_else(|| operation.old.clone());
            return Some((state_after(operation), value));
        }
        match (&record.outcome, requested) {
            (
                TransactionOutcome::Failed { .. }
                | TransactionOutcome::Refused { .. }
                | TransactionOutcome::Cancelled { .. },
                _,
            ) => None,
            (TransactionOutcome::Done { .. }, Some(value)) => {
                Some((ValueState::Configured, Some(value)))
            }
            (TransactionOutcome::Done { .. }, None) => {
                before.map(|_| (ValueState::Nonexistent, None))
            }
        }
    }
}

fn push_system_change(revisions: &mut Vec<ValueRevision>, change: &SystemChange) {
    let SystemChange { time_ns, state, value, .. } = change;
    push_revision(revisions, *time_ns, None, *state, value.clone());
}

/// Ends the last revision and starts another one, unless the value is gone.
fn push_revision(
    revisions: &mut Vec<ValueRevision>,
    since_ns: u64,
    txn: Option<TxnId>,
    state: ValueState,
    value: Option<SharedValue>,
) {
    if let Some(last) = revisions.last_mut().filter(|last| last.until_ns.is_none()) {
        last.until_ns = Some(since_ns);
    }
    if state != ValueState::Nonexistent {
        let until_ns = None;
        let is_since_known = true;
        revisions.push(ValueRevision { since_ns, is_since_known, until_ns, txn, state, value });
    }
}

/// The plane to show for a value.
fn displayed_value(status: &ValueStatus) -> Option<SharedValue> {
    status.intended.clone().or_else(|| status.applied.clone()).or_else(|| status.observed.clone())
}

impl ValueRevision {
    pub(super) fn is_valid_at(&self, time_ns: u64) -> bool {
        self.since_ns <= time_ns && self.until_ns.is_none_or(|until| until > time_ns)
    }

    fn flag_stats(&self, render: &Renderer, past: &KeyHistory) -> BTreeMap<&'static str, String> {
        let mut flags = BTreeMap::from([
            ("value-state", self.state.to_string()),
            ("descriptor", render.kind(&past.key).to_owned()),
        ]);
        flags.extend(self.txn.map(|txn| ("last-update", txn_name(txn))));
        let now = past.current.as_ref();
        if let Some(base) = now.and_then(|now| now.part_of.first()) {
            flags.insert("derived", render.key(base));
        }
        let error = now.filter(|_| self.until_ns.is_none()).and_then(|it| it.detail.error.as_ref());
        flags.extend(error.map(|error| ("error", error.to_string())));
        let next = past.next.clone().filter(|_| self.until_ns.is_none());
        flags.extend(next.map(|next| ("next", next)));
        if !self.is_since_known {
            flags.insert("since-unknown", "true".to_owned());
        }
        if !matches!(
            self.state,
            ValueState::Configured | ValueState::Obtained | ValueState::Drifted
        ) {
            flags.insert("unavailable", "true".to_owned());
        }
        flags
    }

    fn document(&self, render: &Renderer, past: &KeyHistory) -> serde_json::Value {
        let value = self.value.as_ref();
        let current = self.until_ns.is_none();
        let targets = past.targets.iter().filter(|_| current).map(|(label, target, found)| {
            json!({
                "Relation": "depends-on",
                "Label": label,
                "ExpectedKey": target_text(render, target),
                "MatchingKeys": found.iter().map(|key| render.key(key)).collect::<Vec<_>>(),
            })
        });
        let parts = past.current.iter().filter(|_| current).flat_map(|now| &now.parts).map(|part| {
            let key = render.key(part);
            json!({"Relation": "derives", "Label": key, "ExpectedKey": key, "MatchingKeys": [key]})
        });
        json!({
            "Since": format_time(self.since_ns),
            "Until": self.until_ns.map(format_time),
            "Key": render.key(&past.key),
            "Label": render.label(&past.key, value.map(|value| &**value)),
            "Value": render.value(&past.key, value),
            "Flags": self.flag_stats(render, past),
            "Targets": targets.chain(parts).collect::<Vec<_>>(),
        })
    }
}

/// The missing key, or the prefix of missing keys.
pub(super) fn target_text(render: &Renderer, target: &Target) -> Option<String> {
    match target {
        Target::Exact(key) | Target::Whole(key) => Some(render.key(key)),
        Target::Under(prefix) => Some(render.key(prefix) + "/*"),
        Target::Covering { space, address } => Some(format!("a prefix of {space} with {address}")),
        Target::AnyOf(_) => None,
    }
}

/// `GET key-timeline`: `key`, `time`, `format`.
pub(super) async fn key_timeline(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["key", "time", "format"], &[])?;
    let key = arguments.required("key")?.to_owned();
    let time = arguments.time("time")?;
    let text = arguments.one_of("format", &["json", "text"])?;
    let Timeline { taken, revisions: all } = introspect.timeline(key).await?;
    if let Some(time) = time {
        return Ok(Json(all.iter().find(|it| was_valid(it, time))).into_response());
    }
    if text == "text" {
        let taken = taken.map(|it| it + "\n").unwrap_or_default();
        return Ok(page::text(taken + &timeline_text(&all), None));
    }
    Ok(page::list(&all, None))
}

/// True when a revision in its output form was valid at a time.
fn was_valid(revision: &serde_json::Value, time_ns: u64) -> bool {
    let at = |name: &str| revision[name].as_str().and_then(parse_time);
    at("Since").is_some_and(|since| since <= time_ns) && at("Until").is_none_or(|it| it > time_ns)
}

fn timeline_text(revisions: &[serde_json::Value]) -> String {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("now").to_owned();
    let line = |it: &serde_json::Value| {
        let flags = &it["Flags"];
        let txn = flags["last-update"].as_str().unwrap_or("");
        let is_known = flags["since-unknown"].is_null();
        let since = if is_known { text(&it["Since"]) } else { "at an unknown time".to_owned() };
        let until = text(&it["Until"]);
        let data = it["Value"].get("Data").map(ToString::to_string).unwrap_or_default();
        let next = flags["next"].as_str().map(|it| format!("  ({it})")).unwrap_or_default();
        format!("{since} .. {until}  {}  {txn}{next}\n    {data}\n", text(&flags["value-state"]))
    };
    revisions.iter().map(line).collect()
}

/// `GET graph-snapshot`: `time`, and `descriptor`, `key-prefix`, `after`, `limit`.
pub(super) async fn snapshot(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let names = ["time", "descriptor", "key-prefix", "after", "limit"];
    let arguments = arguments.allow_only(&names, &[])?;
    let time = arguments.time("time")?;
    if time.is_some_and(|time| time < introspect.started_ns) {
        return Err(HttpError::not_found(format!(
            "the graph is known since {}, when the agent began: before that, ask for the timeline of each value",
            format_time(introspect.started_ns)
        )));
    }
    let page::KeyPage { keys, next } = introspect.key_page(&arguments, time.is_some()).await?;
    let (pasts, now_ns) = introspect.key_histories(keys).await?;
    let at = time.unwrap_or(now_ns);
    let found = pasts.iter().filter_map(|past| {
        let revisions = past.revisions(introspect.started_ns, now_ns);
        let valid = revisions.into_iter().find(|revision| revision.is_valid_at(at))?;
        Some(valid.document(&introspect.render, past))
    });
    Ok(page::list(&found.collect::<Vec<_>>(), next))
}

/// `GET flag-stats`: `flag`, any number of `prefix`. Counts revisions by the value of a flag.
pub(super) async fn flags(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["flag"], &["prefix"])?;
    let flag = arguments.required("flag")?.to_owned();
    let names = ["last-update", "value-state", "descriptor", "derived", "error", "unavailable"];
    if !names.contains(&flag.as_str()) {
        return Err(HttpError::bad_request(format!(
            "`flag={flag}` is not one of {}",
            names.join(", ")
        )));
    }
    let mut prefixes = Vec::new();
    for text in arguments.all("prefix") {
        prefixes.extend(key_lookup::key_prefixes(introspect.render.registry(), text)?);
    }
    let values = introspect.core.inspect(move |view| {
        let selected_keys =
            |key: &Key| prefixes.is_empty() || prefixes.iter().any(|it| key.starts_with(it));
        let mut keys = view.engine.keys(selected_keys);
        keys.extend(view.engine.history().keys().filter(|key| selected_keys(key)).cloned());
        keys.sort_unstable();
        keys.dedup();
        keys
    });
    let (pasts, now_ns) = introspect.key_histories(values.await?).await?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for past in &pasts {
        for revision in past.revisions(introspect.started_ns, now_ns) {
            let value = revision.flag_stats(&introspect.render, past).remove(flag.as_str());
            *counts.entry(value.unwrap_or_default()).or_default() += 1;
        }
    }
    counts.remove("");
    let total: usize = counts.values().sum();
    Ok(Json(json!({"TotalCount": total, "PerValueCount": counts})).into_response())
}

/// Revisions of one value, oldest first.
struct Timeline {
    /// Sentence that says which value it is, where the request does not name it.
    taken: Option<String>,
    revisions: Vec<serde_json::Value>,
}

/// Keys whose history is read in one step; between steps the core handles other events.
const PASTS_AT_ONCE: usize = 500;

impl Introspect {
    /// All revisions of one value, oldest first, including those of earlier runs.
    async fn timeline(&self, key: String) -> Result<Timeline, HttpError> {
        let text = key.clone();
        let question = move |view: &CoreView<'_>| {
            let key = key_lookup::find_key(view.engine, &text)?;
            let taken = key_lookup::taken_text(view.engine, &text, &key);
            let past = KeyHistory::of(view, key).with_targets(view);
            Ok::<_, HttpError>((taken, past, view.now.unix_ns))
        };
        let (taken, past, now_ns) = match self.core.inspect(question).await? {
            Ok(found) => found,
            Err(unknown) => {
                let earlier = self.archived_revisions(key, self.started_ns).await?;
                return match earlier.is_empty() {
                    true => Err(unknown),
                    false => Ok(Timeline { taken: None, revisions: earlier }),
                };
            }
        };
        let revisions = past.revisions(self.started_ns, now_ns);
        let began = revisions.first().map_or(self.started_ns, |first| first.since_ns);
        let mut all = self.archived_revisions(self.render.key(&past.key), began).await?;
        all.extend(revisions.iter().map(|revision| revision.document(&self.render, &past)));
        Ok(Timeline { taken, revisions: all })
    }

    pub(super) async fn key_histories(
        &self,
        keys: Vec<Key>,
    ) -> Result<(Vec<KeyHistory>, u64), HttpError> {
        let mut pasts = Vec::with_capacity(keys.len());
        let mut now_ns = self.core.inspect(|view| view.now.unix_ns).await?;
        for some in keys.chunks(PASTS_AT_ONCE) {
            let some = some.to_vec();
            let histories = self.core.inspect(move |view| {
                let pasts: Vec<_> = some.into_iter().map(|key| KeyHistory::of(view, key)).collect();
                (pasts, view.now.unix_ns)
            });
            let (more, now) = histories.await?;
            pasts.extend(more);
            now_ns = now;
        }
        Ok((pasts, now_ns))
    }
}
