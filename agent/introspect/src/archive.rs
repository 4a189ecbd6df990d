//! Transactions of earlier runs, and storing those of this one.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_scheduler::{TransactionRecord, TxnId};
use holdfast_store::Journal;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::Introspect;
use super::arguments::format_time;
use super::document::{OperationDocument, TransactionDocument};
use super::http_error::HttpError;
use super::transaction_filter::TransactionFilter;

/// Operations stored of one transaction; the others of larger ones are only counted.
const OPERATIONS_STORED: usize = 256;

/// Which of the transactions that fit are returned, and at most how many.
#[derive(Clone, Copy, Debug)]
pub(super) enum Most {
    First(usize),
    Last(usize),
}

impl Introspect {
    /// Writes the transactions of this run to the journal, until the core ends.
    pub(super) async fn archive_transactions(self, journal: Journal) {
        let mut ended = self.core.listen_to_records();
        let mut last = 0;
        loop {
            // Initially, and after lost notifications, the history itself is read.
            let since = last;
            let question = move |view: &holdfast_core::CoreView<'_>| {
                view.engine.history().after(TxnId(since)).cloned().collect::<Vec<_>>()
            };
            let Ok(records) = self.core.inspect(question).await else { return };
            for record in records {
                last = last.max(record.txn.0);
                self.append_to_journal(&journal, record);
            }
            loop {
                match ended.recv().await {
                    Ok(record) => {
                        last = last.max(record.txn.0);
                        self.append_to_journal(&journal, record);
                    }
                    Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }

    fn append_to_journal(&self, journal: &Journal, record: Arc<TransactionRecord>) {
        let render = self.render.clone();
        journal.append(record.txn.0, move || {
            let document = render.shortened_transaction(&record, OPERATIONS_STORED);
            serde_json::to_vec(&document).expect("a document is made of texts and numbers")
        });
    }

    /// Number of the first transaction in memory; earlier ones are in the journal.
    async fn first_in_memory(&self) -> Result<u64, HttpError> {
        let question = |view: &holdfast_core::CoreView<'_>| {
            view.engine.history().records().next().map_or(u64::MAX, |first| first.txn.0)
        };
        Ok(self.core.inspect(question).await?)
    }

    /// Transactions of earlier runs in a window, ascending: the first or the last of them.
    pub(super) async fn archived_transactions(
        &self,
        window: TransactionFilter,
        most: Most,
    ) -> Result<Vec<TransactionDocument>, HttpError> {
        let before = self.first_in_memory().await?;
        self.read_journal((window.after, before), most, move |it| {
            it.stop_ns >= window.since && it.start_ns <= window.until
        })
        .await
    }

    pub(super) async fn archived_transaction(
        &self,
        number: u64,
    ) -> Result<Option<TransactionDocument>, HttpError> {
        let range = (number.saturating_sub(1), number.saturating_add(1));
        Ok(self.read_journal(range, Most::First(1), |_| true).await?.pop())
    }

    /// Revisions of a value by earlier runs, up to the start of this run.
    pub(super) async fn archived_revisions(
        &self,
        key: String,
        until_ns: u64,
    ) -> Result<Vec<serde_json::Value>, HttpError> {
        let before = self.first_in_memory().await?;
        let name = key.clone();
        let matches = move |it: &TransactionDocument| {
            it.last_operation_on(&name).is_some() || it.pending.contains(&name)
        };
        let found = self.read_journal((0, before), Most::First(usize::MAX), matches).await?;
        let mut revisions: Vec<serde_json::Value> = Vec::new();
        for it in &found {
            let end = |last: &mut serde_json::Value| last["Until"] = json!(it.stop);
            revisions.last_mut().filter(|last| last["Until"].is_null()).map(end);
            revisions.extend(it.revision(&key));
        }
        if let Some(last) = revisions.last_mut().filter(|last| last["Until"].is_null()) {
            last["Until"] = json!(format_time(until_ns));
        }
        Ok(revisions)
    }

    /// Last client that asked for one of these values in an earlier run; null if there is none.
    pub(super) async fn archived_requester(
        &self,
        keys: Vec<String>,
    ) -> Result<serde_json::Value, HttpError> {
        let before = self.first_in_memory().await?;
        let asks = move |it: &TransactionDocument| {
            it.client.is_some() && it.values.iter().any(|value| keys.contains(&value.key))
        };
        let found = self.read_journal((0, before), Most::First(usize::MAX), asks).await?;
        Ok(found.last().map_or(serde_json::Value::Null, |it| {
            let txn = format!("TXN-{}", it.seq_num);
            json!({"Client": it.client, "Trace": it.trace, "Txn": txn, "Time": it.stop})
        }))
    }

    /// Reads the journal outside of the runtime, because the disk may be slow.
    async fn read_journal(
        &self,
        range: (u64, u64),
        most: Most,
        matches: impl Fn(&TransactionDocument) -> bool + Send + 'static,
    ) -> Result<Vec<TransactionDocument>, HttpError> {
        let Some(journal) = self.journal.clone() else { return Ok(Vec::new()) };
        let read = move || {
            let mut found = VecDeque::new();
            let take = |document: &[u8]| {
                // Unknown documents of another version are left out.
                let read = serde_json::from_slice::<TransactionDocument>(document).ok();
                found.extend(read.filter(&matches));
                match most {
                    Most::First(most) => found.len() < most,
                    Most::Last(most) => {
                        if found.len() > most {
                            found.pop_front();
                        }
                        true
                    }
                }
            };
            journal.read(range, take).map(|()| found.into())
        };
        let found = tokio::task::spawn_blocking(read).await;
        let found = found.map_err(|error| HttpError::internal(error.to_string()))?;
        found.map_err(|error| HttpError::internal(ErrorChain(&error).to_string()))
    }
}

impl TransactionDocument {
    /// The last operation on a value.
    fn last_operation_on(&self, key: &str) -> Option<&OperationDocument> {
        self.executed.iter().rev().find(|it| it.key == key)
    }

    /// Revision of a value after the transaction; `None` when the value was removed.
    fn revision(&self, key: &str) -> Option<serde_json::Value> {
        let waits = self.pending.iter().any(|it| it == key);
        let requested = self.values.iter().find(|it| it.key == key).map(|it| it.value.clone());
        let operation = self.last_operation_on(key);
        let (state, value) = match operation {
            _ if waits => ("PENDING", requested.unwrap_or_default()),
            Some(it) if it.new_value.is_null() => (it.new_state.as_str(), it.prev_value.clone()),
            Some(it) => (it.new_state.as_str(), it.new_value.clone()),
            None => return None,
        };
        if state == "NONEXISTENT" {
            return None;
        }
        let kind = key.split('/').next().unwrap_or_default();
        let txn = format!("TXN-{}", self.seq_num);
        Some(json!({
            "Since": self.stop, "Until": null, "Key": key,
            "Label": operation.map_or(key, |it| &it.label), "Value": value, "Targets": [],
            "Flags": {"value-state": state, "descriptor": kind, "last-update": txn},
        }))
    }
}
