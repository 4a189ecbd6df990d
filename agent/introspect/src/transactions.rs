//! Transactions: `txn-history`, and the action `downstream-resync`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_base::now_ns;
use holdfast_core::{Datastore as _, UnconfirmedCommit};
use holdfast_scheduler::{TransactionRecord, TxnId};
use serde_json::json;

use super::archive::Most;
use super::arguments::Arguments;
use super::document::TransactionDocument;
use super::http_error::HttpError;
use super::transaction_filter::TransactionFilter;
use super::{Introspect, MAX_PAGE, page};

/// `GET txn-history`: `format`, `seq-num` or `since`, `until`, `after-seq`, `limit`, oldest first. With `last`, the newest ones up to
/// that number, in the same order.
pub(super) async fn history(
    State(introspect): State<Introspect>,
    headers: HeaderMap,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let names = ["format", "seq-num", "since", "until", "after-seq", "limit", "last"];
    let arguments = arguments.allow_only(&names, &[])?;
    let text = arguments.one_of("format", &["json", "text"])? == "text";
    if let Some(number) = arguments.number("seq-num")? {
        let found = introspect.transaction(number).await?;
        return Ok(if text {
            page::text(found.text(true), None)
        } else {
            with_etag(&headers, number, Json(found).into_response())
        });
    }
    let limit = arguments.limit()?;
    let window = TransactionFilter {
        since: arguments.time("since")?.unwrap_or(0),
        until: arguments.time("until")?.unwrap_or(u64::MAX),
        after: arguments.number("after-seq")?.unwrap_or(0),
        limit: limit + 1,
    };
    if arguments.text("last").is_some() {
        let window =
            TransactionFilter { limit: arguments.count("last", limit, MAX_PAGE)?, ..window };
        let found = introspect.last_transactions(window).await?;
        return Ok(if text {
            page::text(listed(&introspect, &found).await, None)
        } else {
            page::list(&found, None)
        });
    }
    let mut found = introspect.transactions(window).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().map_or(0, |last| last.seq_num);
    let next = more.then(|| arguments.next_page("after-seq", &last.to_string()));
    Ok(if text {
        page::text(listed(&introspect, &found).await, next)
    } else {
        with_etag(&headers, last, page::list(&found, next))
    })
}

/// Text of transactions, and of a commit that waits to be confirmed.
async fn listed(introspect: &Introspect, found: &[TransactionDocument]) -> String {
    let revision = introspect.core.current_revision().await;
    let waiting = UnconfirmedCommit::of(&revision).map(|it| format!("{}\n", it.text(now_ns())));
    found.iter().map(|it| it.text(false)).chain(waiting).collect()
}

/// Adds the number of the last transaction as an entity tag; answers 304 when the client has it already.
fn with_etag(headers: &HeaderMap, number: u64, mut response: Response) -> Response {
    let tag = format!("\"{number}\"");
    if headers.get(header::IF_NONE_MATCH).is_some_and(|sent| sent.as_bytes() == tag.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

impl Introspect {
    /// The transaction with this number.
    pub(super) async fn transaction(&self, number: u64) -> Result<TransactionDocument, HttpError> {
        let question = move |view: &holdfast_core::CoreView<'_>| {
            view.engine.history().record(TxnId(number)).cloned()
        };
        match self.core.inspect(question).await? {
            Some(record) => Ok(self.render.transaction(&record)),
            None => self.archived_transaction(number).await?.ok_or_else(|| {
                HttpError::not_found(format!("transaction {number} is not recorded"))
            }),
        }
    }

    /// Transactions ascending by number.
    pub(super) async fn transactions(
        &self,
        window: TransactionFilter,
    ) -> Result<Vec<TransactionDocument>, HttpError> {
        let mut found = self.archived_transactions(window, Most::First(window.limit)).await?;
        let records = self.core.inspect(move |view| {
            let records = view.engine.history().after(TxnId(window.after));
            let matching = records.filter(|record| window.matches(record));
            matching.take(window.limit).cloned().collect::<Vec<Arc<TransactionRecord>>>()
        });
        found.extend(records.await?.iter().map(|record| self.render.transaction(record)));
        found.truncate(window.limit);
        Ok(found)
    }

    /// The newest transactions of a window, ascending by number.
    async fn last_transactions(
        &self,
        window: TransactionFilter,
    ) -> Result<Vec<TransactionDocument>, HttpError> {
        let records = self.core.inspect(move |view| {
            let records = view.engine.history().records().rev();
            let records = records.take_while(|record| record.txn.0 > window.after);
            let matching = records.filter(|record| window.matches(record));
            matching.take(window.limit).cloned().collect::<Vec<Arc<TransactionRecord>>>()
        });
        let records = records.await?;
        let room = window.limit - records.len();
        let mut found = match room {
            0 => Vec::new(),
            room => self.archived_transactions(window, Most::Last(room)).await?,
        };
        found.extend(records.iter().rev().map(|record| self.render.transaction(record)));
        Ok(found)
    }
}

/// `POST downstream-resync`: `retry`, `verbose`. Reads the whole box and repairs what differs. Returns the
/// resulting transactions, with status 500 when an operation failed.
///
/// Failed operations are always retried: `retry` may be absent or true, and false is refused.
pub(super) async fn resync(
    State(introspect): State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["retry", "verbose"], &[])?;
    if arguments.text("retry").is_some() && !arguments.flag("retry")? {
        return Err(HttpError::bad_request(
            "retry=false is not supported: failed operations are always tried again",
        ));
    }
    let verbose = arguments.flag("verbose")?;
    let records = introspect.core.resync().await?;
    let transactions: Vec<_> = records.iter().map(|it| introspect.render.transaction(it)).collect();
    let failed =
        transactions.iter().flat_map(|it| it.executed.iter().filter(|it| it.result == "failed"));
    let failed: Vec<String> = failed
        .map(|it| format!("{}: {}", it.label, it.error.as_deref().unwrap_or_default()))
        .collect();
    if !failed.is_empty() {
        return Err(HttpError::internal(failed.join("; ")));
    }
    let document = if verbose {
        json!(transactions)
    } else {
        let short = transactions
            .iter()
            .map(|it| json!({"SeqNum": it.seq_num, "Executed": it.executed.len()}));
        json!(short.collect::<Vec<_>>())
    };
    Ok(Json(json!({"ResyncType": "DownstreamResync", "Transactions": document})).into_response())
}
