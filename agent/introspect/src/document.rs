//! Transactions and values as documents: text and JSON that do not depend on the engine's types.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use holdfast_platform::{kinds, value_json};
use holdfast_scheduler::{
    Action, Cause, Key, ObjectValue, OperationResult, RecordedOperation, Registry, SharedValue,
    TransactionOutcome, TransactionRecord, Trigger, TxnId, ValueState, ValueStatus,
};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::arguments::format_time;

/// Converts the engine's records to documents. Clones share the table of kinds.
#[derive(Clone, Debug)]
pub(crate) struct Renderer {
    registry: Arc<Registry>,
}

impl Default for Renderer {
    fn default() -> Self {
        Self { registry: Arc::new(kinds::registry()) }
    }
}

/// Trigger of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum TxnType {
    /// A change in the system: an object appeared, vanished or drifted.
    SBNotification,
    /// A change of the intent by a client.
    NBTransaction,
    /// Retry of failed operations.
    RetryFailedOps,
    /// A trigger that only another version knows.
    Unknown,
}

/// Kind of resync, if the transaction is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ResyncType {
    #[serde(rename = "NotResync")]
    No,
    #[serde(rename = "FullResync")]
    Full,
    #[serde(rename = "UpstreamResync")]
    Upstream,
    #[serde(rename = "DownstreamResync")]
    Downstream,
}

impl TxnType {
    const ALL: [(Self, &str); 3] = [
        (Self::SBNotification, "SBNotification"),
        (Self::NBTransaction, "NBTransaction"),
        (Self::RetryFailedOps, "RetryFailedOps"),
    ];
}

impl ResyncType {
    const ALL: [(Self, &str); 4] = [
        (Self::No, "NotResync"),
        (Self::Full, "FullResync"),
        (Self::Upstream, "UpstreamResync"),
        (Self::Downstream, "DownstreamResync"),
    ];
}

/// Parser for a member of an enumeration, by its name or its number.
struct EnumVisitor<T: 'static>(&'static [(T, &'static str)], T);

impl<T: Copy> Visitor<'_> for EnumVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or a number")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(self.0.iter().find(|(_, name)| *name == text).map_or(self.1, |(it, _)| *it))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        Ok(self.0.get(at).map_or(self.1, |(it, _)| *it))
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(self.1)
    }
}

impl<'de> Deserialize<'de> for TxnType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(EnumVisitor(&Self::ALL, Self::Unknown))
    }
}

impl<'de> Deserialize<'de> for ResyncType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(EnumVisitor(&Self::ALL, Self::No))
    }
}

/// A transaction. Also the stored form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TransactionDocument {
    pub(crate) seq_num: u64,
    pub(crate) txn_type: TxnType,
    pub(crate) resync_type: ResyncType,
    pub(crate) description: String,
    /// Client that asked; `None` for a transaction that the agent started without a client.
    pub(crate) client: Option<String>,
    /// Trace id of the request in logs.
    pub(crate) trace: Option<String>,
    pub(crate) start: String,
    pub(crate) stop: String,
    pub(crate) start_ns: u64,
    pub(crate) stop_ns: u64,
    /// Requested values, ascending by key; null for a removed one.
    pub(crate) values: Vec<RequestedValue>,
    /// Operations in the order of the plan.
    pub(crate) planned: Vec<OperationDocument>,
    /// Operations in the order of execution; those of a roll-back are last.
    pub(crate) executed: Vec<OperationDocument>,
    /// Number of operations that were not stored.
    pub(crate) omitted: usize,
    /// Values that are waiting after the transaction.
    pub(crate) pending: Vec<String>,
    /// Values that will be retried.
    pub(crate) failed: Vec<String>,
    pub(crate) error: Option<String>,
    /// True after a failure whose changes were rolled back completely.
    pub(crate) undone: bool,
}

/// A requested value.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RequestedValue {
    pub(crate) key: String,
    pub(crate) value: serde_json::Value,
}

/// One operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct OperationDocument {
    pub(crate) operation: String,
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) cause: String,
    pub(crate) prev_value: serde_json::Value,
    pub(crate) new_value: serde_json::Value,
    pub(crate) prev_state: String,
    pub(crate) new_state: String,
    /// One of `verified`, `completed` (not verified any more), `failed` and `not tried`.
    pub(crate) result: String,
    /// Error message of the system.
    pub(crate) error: Option<String>,
    pub(crate) errno: Option<i32>,
    pub(crate) is_derived: bool,
    pub(crate) is_revert: bool,
    pub(crate) is_retry: bool,
    pub(crate) is_recreate: bool,
}

impl Renderer {
    pub(super) fn key(&self, key: &Key) -> String {
        self.registry.key_text(key)
    }

    pub(super) fn kind(&self, key: &Key) -> &str {
        self.registry.descriptor(key.kind()).map_or("unknown", |kind| kind.name())
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn value(&self, key: &Key, value: Option<&SharedValue>) -> serde_json::Value {
        value.map_or(serde_json::Value::Null, |value| {
            json!({"Type": self.kind(key), "Data": value_json::to_json(key.kind(), &**value)})
        })
    }

    /// Facts about a value that only the system knows, such as numbers and ownership marks.
    pub(super) fn metadata(&self, status: &ValueStatus) -> serde_json::Value {
        let observed = status.observed.as_ref();
        let document = observed.map(|it| value_json::to_json(status.key.kind(), &**it));
        document.and_then(|it| it.get("facts").cloned()).unwrap_or(serde_json::Value::Null)
    }

    pub(super) fn label(&self, key: &Key, value: Option<&dyn ObjectValue>) -> String {
        self.registry.label(key, value)
    }

    fn names(&self, keys: &[Key]) -> Vec<String> {
        keys.iter().map(|key| self.key(key)).collect()
    }

    pub(crate) fn transaction(&self, record: &TransactionRecord) -> TransactionDocument {
        self.shortened_transaction(record, usize::MAX)
    }

    /// A transaction with at most this many entries in each list; operations beyond are counted.
    pub(crate) fn shortened_transaction(
        &self,
        record: &TransactionRecord,
        most: usize,
    ) -> TransactionDocument {
        let remade = recreated_keys(record);
        let operation = |it: &RecordedOperation| {
            let is_recreate = remade.contains(&(&it.key, it.undo));
            OperationDocument { is_recreate, ..self.operation(record, it) }
        };
        let operations = record.operations.iter();
        let planned = operations.clone().filter(|it| !it.undo);
        let executed = operations.filter(|it| it.result != OperationResult::NotTried);
        let requested = record.requested.iter().take(most).map(|(key, value)| RequestedValue {
            key: self.key(key),
            value: self.value(key, value.as_ref()),
        });
        let (pending, failed, error, undone) = match &record.outcome {
            TransactionOutcome::Done { pending, failed, .. } => {
                let pending = &pending[..pending.len().min(most)];
                (self.names(pending), self.names(failed), None, false)
            }
            TransactionOutcome::Refused { reason, .. } => {
                (Vec::new(), Vec::new(), Some(reason.to_string()), true)
            }
            TransactionOutcome::Cancelled { undone, .. } => {
                (Vec::new(), Vec::new(), Some("called off".to_owned()), *undone)
            }
            TransactionOutcome::Failed { key, label, error, undone, .. } => {
                (Vec::new(), vec![self.key(key)], Some(format!("{label}: {error}")), *undone)
            }
        };
        TransactionDocument {
            seq_num: record.txn.0,
            txn_type: txn_type(record),
            resync_type: ResyncType::No,
            description: record.description.clone(),
            client: record.author.as_ref().map(|author| author.client.clone()),
            trace: record.author.as_ref().map(|author| author.trace.clone()),
            start: format_time(record.started_ns),
            stop: format_time(record.ended_ns),
            start_ns: record.started_ns,
            stop_ns: record.ended_ns,
            values: requested.collect(),
            omitted: record.omitted + planned.clone().count().saturating_sub(most),
            planned: planned.take(most).map(operation).collect(),
            executed: executed.take(most).map(operation).collect(),
            pending,
            failed,
            error,
            undone,
        }
    }

    fn operation(&self, record: &TransactionRecord, it: &RecordedOperation) -> OperationDocument {
        let (result, error) = match &it.result {
            OperationResult::Verified => ("verified", None),
            OperationResult::NotGivenBack(error) => ("not given back", Some(error)),
            OperationResult::Completed => ("completed", None),
            OperationResult::Failed(error) => ("failed", Some(error)),
            OperationResult::NotTried => ("not tried", None),
        };
        let value = it.new.as_ref().or(it.old.as_ref());
        let is_requested = record.requested.binary_search_by(|(key, _)| key.cmp(&it.key)).is_ok();
        let change = record.trigger == Trigger::Change;
        OperationDocument {
            operation: it.action.to_string().to_uppercase(),
            key: self.key(&it.key),
            label: self.label(&it.key, value.map(|value| &**value)),
            cause: cause_text(it.cause).to_owned(),
            prev_value: self.value(&it.key, it.old.as_ref()),
            new_value: self.value(&it.key, it.new.as_ref()),
            prev_state: state_before(it).to_string(),
            new_state: state_after(it).to_string(),
            result: result.to_owned(),
            error: error.map(|error| error.message.clone()),
            errno: error.and_then(|error| error.errno),
            is_derived: change && it.cause == Cause::Requested && !is_requested && !it.undo,
            is_revert: it.undo,
            is_retry: !change && it.cause == Cause::Requested,
            is_recreate: false,
        }
    }

    /// Status of one value, with a short form of its parts.
    pub(super) fn status(&self, status: &ValueStatus, parts: &[ValueStatus]) -> serde_json::Value {
        let derived: Vec<_> = parts.iter().map(|part| self.summary(part)).collect();
        json!({
            "value": self.summary(status),
            "derived_values": derived,
            "part_of": self.names(&status.part_of),
        })
    }

    fn summary(&self, status: &ValueStatus) -> serde_json::Value {
        let detail = &status.detail;
        json!({
            "key": self.key(&status.key),
            "label": status.label,
            "descriptor": self.kind(&status.key),
            "state": status.state.to_string(),
            "error": detail.error.as_ref().map(ToString::to_string),
            "last_operation": status.last.map(|last| last.action.to_string().to_uppercase()),
            "last_txn": status.last.map(|last| last.txn.0),
            "details": details(status),
            "conflict": detail.conflict.as_ref().map(|key| self.key(key)),
            "other_owner": detail.other_owner.as_ref().map(ToString::to_string),
            "cycle": self.names(&detail.cycle),
            "attempts": detail.attempts,
        })
    }
}

/// Unmet dependencies, followed by validation errors.
pub(super) fn details(status: &ValueStatus) -> Vec<String> {
    let invalid = status.detail.invalid.iter().map(ToString::to_string);
    status.detail.unmet.iter().cloned().chain(invalid).chain(status.detail.drift.clone()).collect()
}

/// Keys that a transaction, or its roll-back (true), both deletes and creates.
fn recreated_keys(record: &TransactionRecord) -> BTreeSet<(&Key, bool)> {
    let of = |action| {
        let operations = record.operations.iter().filter(move |it| it.action == action);
        operations.map(|it| (&it.key, it.undo))
    };
    let deleted: BTreeSet<_> = of(Action::Delete).collect();
    of(Action::Create).filter(|it| deleted.contains(it)).collect()
}

fn txn_type(record: &TransactionRecord) -> TxnType {
    let again = || record.operations.iter().all(|it| it.cause == Cause::Requested);
    match record.trigger {
        Trigger::Change => TxnType::NBTransaction,
        _ if !record.operations.is_empty() && again() => TxnType::RetryFailedOps,
        _ => TxnType::SBNotification,
    }
}

pub(super) fn cause_text(cause: Cause) -> &'static str {
    match cause {
        Cause::Requested => "asked",
        Cause::Parked => "parked: what it depends on goes",
        Cause::Unparked => "returned: what it depends on is back",
        Cause::Unblocked => "woken: what it waited for is there",
        Cause::Drift => "drift: the system differed",
        Cause::Orphan => "orphan: it is not intended",
    }
}

/// State of a value before an operation, as far as the operation tells.
fn state_before(it: &RecordedOperation) -> ValueState {
    match (it.action, it.cause) {
        (Action::Create, Cause::Unblocked | Cause::Unparked) => ValueState::Pending,
        (Action::Create, Cause::Drift) => ValueState::Missing,
        (Action::Create, _) => ValueState::Nonexistent,
        (_, Cause::Drift) => ValueState::Drifted,
        (Action::Adopt, _) | (_, Cause::Orphan) => ValueState::Obtained,
        _ => ValueState::Configured,
    }
}

/// State of a value after an operation.
pub(super) fn state_after(it: &RecordedOperation) -> ValueState {
    match (&it.result, it.action, it.cause) {
        (OperationResult::Failed(_), ..) => ValueState::Failed,
        (OperationResult::NotTried, ..) => state_before(it),
        (_, Action::Delete, Cause::Parked) => ValueState::Pending,
        (_, Action::Delete, _) => ValueState::Nonexistent,
        (_, Action::Release, _) => ValueState::Obtained,
        _ => ValueState::Configured,
    }
}

impl TransactionDocument {
    /// Formats the transaction as text. `verbose` adds the request and the values.
    pub(crate) fn text(&self, verbose: bool) -> String {
        let mut out = String::new();
        // Writing to a string never fails.
        let _ = self.write(&mut out, verbose);
        out
    }

    fn write(&self, out: &mut String, verbose: bool) -> fmt::Result {
        let took = self.stop_ns.saturating_sub(self.start_ns) / 1000;
        let who = self.client.as_deref().unwrap_or("the agent itself");
        write!(out, "#{}  {}  {:?}", self.seq_num, self.start, self.txn_type)?;
        if !self.description.is_empty() {
            write!(out, " ({})", self.description)?;
        }
        write!(out, "  by {who}")?;
        if let Some(trace) = &self.trace {
            write!(out, "  trace {trace}")?;
        }
        write!(out, "  {}.{:03} ms  ", took / 1000, took % 1000)?;
        match &self.error {
            None => writeln!(out, "done")?,
            Some(error) if self.undone => writeln!(out, "FAILED, rolled back: {error}")?,
            Some(error) => writeln!(out, "FAILED: {error}")?,
        }
        if verbose {
            for requested in &self.values {
                let verb = if requested.value.is_null() { "without" } else { "with" };
                writeln!(out, "    asked {verb} {}", requested.key)?;
            }
        }
        let untried = self.planned.iter().filter(|it| it.result == "not tried");
        for operation in self.executed.iter().chain(untried) {
            operation.write(out, verbose)?;
        }
        if self.omitted > 0 {
            writeln!(out, "    and {} operations more", self.omitted)?;
        }
        for key in &self.pending {
            writeln!(out, "    waits: {key}")?;
        }
        Ok(())
    }
}

impl OperationDocument {
    fn write(&self, out: &mut String, verbose: bool) -> fmt::Result {
        write!(out, "    {:7} {}  {}", self.operation, self.label, self.result)?;
        let tags = [
            (self.is_derived, "DERIVED"),
            (self.is_revert, "REVERT"),
            (self.is_retry, "RETRY"),
            (self.is_recreate, "RECREATE"),
            (self.prev_state == "PENDING", "WAS-PENDING"),
            (self.prev_state == "MISSING", "WAS-MISSING"),
            (self.prev_state == "OBTAINED", "WAS-OBTAINED"),
            (self.prev_state == "DRIFTED", "WAS-DRIFTED"),
            (self.new_state == "PENDING", "IS-PENDING"),
        ];
        for (_, tag) in tags.iter().filter(|(it, _)| *it) {
            write!(out, " [{tag}]")?;
        }
        if let Some(error) = &self.error {
            write!(out, "  {error}")?;
            let errno = self.errno.map(|errno| format!(" (errno {errno})"));
            out.push_str(&errno.unwrap_or_default());
        }
        writeln!(out)?;
        if verbose {
            for (sign, value) in [('-', &self.prev_value), ('+', &self.new_value)] {
                if let Some(data) = value.get("Data") {
                    writeln!(out, "          {sign} {data}")?;
                }
            }
        }
        Ok(())
    }
}

/// Text of a member of a document; empty for one that is missing.
pub(super) fn word<'v>(of: &'v serde_json::Value, name: &str) -> &'v str {
    of[name].as_str().unwrap_or_default()
}

/// Name such as `TXN-7`.
pub(super) fn txn_name(txn: TxnId) -> String {
    format!("TXN-{}", txn.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves kv.A1, kv.A2, kv.A3, kv.A4
    #[test]
    fn transaction_types_parse_from_names_and_numbers() {
        assert_eq!(json!(TxnType::NBTransaction), json!("NBTransaction"));
        assert_eq!(json!(ResyncType::Full), json!("FullResync"));
        for (document, want) in [
            (json!("SBNotification"), TxnType::SBNotification),
            (json!("NBTransaction"), TxnType::NBTransaction),
            (json!(1), TxnType::NBTransaction),
            (json!(2), TxnType::RetryFailedOps),
            (json!(77), TxnType::Unknown),
            (json!(-1), TxnType::Unknown),
            (json!("Another"), TxnType::Unknown),
        ] {
            assert_eq!(
                serde_json::from_value::<TxnType>(document.clone()).unwrap(),
                want,
                "{document}"
            );
        }
        for (document, want) in [
            (json!("DownstreamResync"), ResyncType::Downstream),
            (json!(2), ResyncType::Upstream),
            (json!(77), ResyncType::No),
            (json!("Another"), ResyncType::No),
        ] {
            assert_eq!(
                serde_json::from_value::<ResyncType>(document.clone()).unwrap(),
                want,
                "{document}"
            );
        }
    }
}
