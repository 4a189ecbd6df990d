//! Live events: `events`, a stream of server-sent events.
//!
//! There are four kinds: `transaction`, whose id is the transaction number, so that a reader that reconnects with
//! `Last-Event-ID` misses none that is still recorded; `status`, with changed values; `alarms`, after which the reader
//! should read the alarms again, however often they have changed; and `missed`, after which it should read everything
//! again, because it was too slow.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::extract;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, StreamExt, stream};
use holdfast_core::{CoreEvent, ShortStatus};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::alarms::AlarmChanges;
use super::arguments::Arguments;
use super::document::Renderer;
use super::http_error::HttpError;
use super::transaction_filter::TransactionFilter;
use super::{Introspect, PAGE};

/// An event for a reader.
type SseItem = Result<Event, Infallible>;

/// Limit of concurrent readers of events. Requests without this extension are not limited.
#[derive(Clone, Debug)]
pub(super) struct EventStreams {
    places: Arc<Semaphore>,
    limit: usize,
}

impl EventStreams {
    pub(super) fn at_most(most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), limit: most }
    }

    fn acquire(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let error = format!(
                "{} readers of events are connected already, which is the limit",
                self.limit
            );
            HttpError::with_status(StatusCode::SERVICE_UNAVAILABLE, error)
        })
    }
}

/// `GET events`: `after-seq`, or the header `Last-Event-ID`.
pub(super) async fn events(
    extract::State(introspect): extract::State<Introspect>,
    streams: Option<Extension<EventStreams>>,
    headers: HeaderMap,
    arguments: Arguments,
) -> Result<Sse<impl Stream<Item = SseItem>>, HttpError> {
    let arguments = arguments.allow_only(&["after-seq"], &[])?;
    let place = streams.map(|Extension(streams)| streams.acquire()).transpose()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = arguments.number("after-seq")?.or(last);
    // Subscribe before reading the past: a transaction may then be sent twice, but none is lost.
    let sources = LiveSources {
        core_rx: introspect.core.listen(),
        alarms: AlarmChanges::of(&introspect.core),
    };
    let past = match after {
        Some(after) => introspect.replay_events(after, PAGE).await?,
        None => Vec::new(),
    };
    let render = introspect.render.clone();
    let live = stream::unfold(sources, |mut sources| async move {
        let received = sources.receive().await?;
        Some((received, sources))
    });
    let live = live.map(move |received| {
        let _until_the_end = &place;
        live_event(&render, received)
    });
    // The first bytes tell the reader that it is connected.
    let greeting = stream::iter([Event::default().comment("listening")]);
    let all = greeting.chain(stream::iter(past)).chain(live).map(Ok);
    Ok(Sse::new(all).keep_alive(KeepAlive::default()))
}

/// Sources of what happens from now on.
struct LiveSources {
    core_rx: broadcast::Receiver<CoreEvent>,
    alarms: AlarmChanges,
}

/// Messages to a reader of events.
enum LiveEvent {
    Core(CoreEvent),
    /// The alarms of the box are others now.
    Alarms,
    /// Events of the core that the reader was too slow for.
    Missed,
}

impl LiveSources {
    /// The next event; `None` once the core has stopped.
    async fn receive(&mut self) -> Option<LiveEvent> {
        tokio::select! {
            received = self.core_rx.recv() => match received {
                Ok(event) => Some(LiveEvent::Core(event)),
                Err(RecvError::Lagged(_)) => Some(LiveEvent::Missed),
                Err(RecvError::Closed) => None,
            },
            Ok(()) = self.alarms.changed() => Some(LiveEvent::Alarms),
        }
    }
}

impl Introspect {
    /// Transactions after a number, up to a page; a `missed` event stands for the rest.
    pub(super) async fn replay_events(
        &self,
        after: u64,
        page: usize,
    ) -> Result<Vec<Event>, HttpError> {
        let window = TransactionFilter { since: 0, until: u64::MAX, after, limit: page + 1 };
        let all = self.transactions(window).await?;
        let page_records = all.iter().take(page);
        let mut past: Vec<Event> =
            page_records.map(|it| event("transaction", Some(it.seq_num), &json!(it))).collect();
        past.extend((all.len() > page).then(|| event("missed", None, &json!({}))));
        Ok(past)
    }
}

fn live_event(render: &Renderer, received: LiveEvent) -> Event {
    match received {
        LiveEvent::Missed => event("missed", None, &json!({})),
        LiveEvent::Alarms => event("alarms", None, &json!({})),
        LiveEvent::Core(CoreEvent::Transaction(record)) => {
            event("transaction", Some(record.txn.0), &json!(render.transaction(&record)))
        }
        LiveEvent::Core(CoreEvent::Statuses { omitted, .. }) if omitted > 0 => {
            event("missed", None, &json!({}))
        }
        LiveEvent::Core(CoreEvent::Statuses { changed, .. }) => {
            let changed: Vec<_> = changed.iter().map(|it| status_summary(render, it)).collect();
            event("status", None, &json!(changed))
        }
    }
}

fn status_summary(render: &Renderer, status: &ShortStatus) -> serde_json::Value {
    json!({
        "key": render.key(&status.key),
        "label": status.label,
        "descriptor": render.kind(&status.key),
        "state": status.state.to_string(),
    })
}

fn event(name: &str, id: Option<u64>, document: &serde_json::Value) -> Event {
    let event = Event::default().event(name).data(document.to_string());
    id.map_or(event.clone(), |id| event.id(id.to_string()))
}
