//! A transaction as a document for replaying it elsewhere: previous state, request and operations.
//!
//! The previous state consists of the intended values around those of the transaction, and the ports of the box.
//! An engine on the simulated kernel that loads it and gets the same request makes the same plan.

use axum::Json;
use axum::extract;
use axum::response::{IntoResponse, Response};
use holdfast_core::CoreView;
use holdfast_platform::kinds;
use holdfast_platform::value_json;
use holdfast_platform::values::{Link, LinkKind};
use holdfast_scheduler::{Key, OperationResult, SharedValue, TransactionRecord, TxnId};
use serde::{Deserialize, Serialize};

use super::Introspect;
use super::arguments::Arguments;
use super::document::Renderer;
use super::graph::neighbourhood;
use super::http_error::HttpError;
use super::timeline::KeyHistory;

/// Version of the document format.
const FORMAT: u32 = 1;

/// A recorded transaction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Recording {
    pub(super) format: u32,
    pub(super) seq_num: u64,
    /// Links that exist without the agent.
    pub(super) ports: Vec<String>,
    /// Intended values before the transaction.
    pub(super) before: Vec<RecordedValue>,
    /// Requested values; without data for removed ones.
    pub(super) requested: Vec<RecordedValue>,
    /// Operations in order, such as `CREATE link/eth0`.
    pub(super) operations: Vec<String>,
}

/// A value with its key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RecordedValue {
    pub(super) key: String,
    pub(super) data: serde_json::Value,
}

/// `GET recording`: `seq-num`, for a transaction of this run.
pub(super) async fn recording(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["seq-num"], &[])?;
    arguments.required("seq-num")?;
    let number = arguments.number("seq-num")?.unwrap_or_default();
    let render = introspect.render.clone();
    let began = introspect.started_ns;
    let question = move |view: &CoreView<'_>| {
        let record = view.engine.history().record(TxnId(number)).cloned();
        let record = record.ok_or_else(|| {
            HttpError::not_found(format!("transaction {number} is not recorded in this run"))
        })?;
        if record.omitted > 0 {
            let why = format!("transaction {number} is too large: its history is not complete");
            return Err(HttpError::not_found(why));
        }
        Ok(recording_of(view, &render, &record, began))
    };
    Ok(Json(introspect.core.inspect(question).await??).into_response())
}

fn recording_of(
    view: &CoreView<'_>,
    render: &Renderer,
    record: &TransactionRecord,
    began_ns: u64,
) -> Recording {
    let touched: Vec<Key> = record.keys().cloned().collect();
    let value = |key: &Key, value: Option<&SharedValue>| RecordedValue {
        key: render.key(key),
        data: value
            .map_or(serde_json::Value::Null, |value| value_json::to_json(key.kind(), &**value)),
    };
    let around = neighbourhood(view.engine, touched);
    let before = around.iter().filter_map(|key| {
        let past = KeyHistory::of(view, key.clone());
        if !is_base(&past) {
            return None;
        }
        let revisions = past.revisions(began_ns, view.now.unix_ns);
        let then =
            revisions.into_iter().find(|revision| revision.is_valid_at(record.started_ns))?;
        Some(value(key, Some(&then.value?)))
    });
    let executed = record.operations.iter().filter(|it| it.result != OperationResult::NotTried);
    let operation = |it: &holdfast_scheduler::RecordedOperation| {
        format!("{} {}", it.action.to_string().to_uppercase(), render.key(&it.key))
    };
    Recording {
        format: FORMAT,
        seq_num: record.txn.0,
        ports: ports(view),
        before: before.collect(),
        requested: record.requested.iter().map(|(key, it)| value(key, it.as_ref())).collect(),
        operations: executed.map(operation).collect(),
    }
}

/// True when the value was requested itself, and not only as a part of another.
fn is_base(past: &KeyHistory) -> bool {
    let is_requested =
        past.records.iter().any(|it| it.requested.iter().any(|(key, _)| *key == past.key));
    let now = past.current.as_ref();
    is_requested || now.is_some_and(|now| now.intended.is_some() && now.part_of.is_empty())
}

fn ports(view: &CoreView<'_>) -> Vec<String> {
    let keys = view.engine.keys(|key| key.kind() == kinds::LINK);
    let port = |key: &Key| {
        let [.., observed] = view.engine.planes(key);
        let link = observed?.as_any().downcast_ref::<Link>()?;
        (link.kind == LinkKind::Physical).then(|| link.name.to_string())
    };
    let mut names: Vec<String> = keys.iter().filter_map(port).collect();
    names.sort_unstable();
    names
}
