//! Progress of the start: which sockets are open, and what of the configuration is not in the system.

use std::{fmt, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use holdfast_base::ErrorChain;
use holdfast_core::{CoreHandle, Statuses};
use holdfast_scheduler::ValueState;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};

use super::inspect::pending_table;
use super::{AnswerFormat, failure};
use crate::listeners::Listeners;
use crate::settings::LISTENERS;

/// Longest wait of one request: less than a client waits for an answer. A client that wants to wait longer asks again, and
/// each question is an accounting record.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Pause between two looks while something waits or has failed: short beside a boot, and cheap for the core.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Address of the answer about what is not in the system.
pub(super) const UNSETTLED: &str = "/unsettled";

/// Values that count, and the time for which they may be waited for.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct UnsettledQuery {
    /// Leaves out those that wait for something that is not there.
    pub(super) allow_pending: bool,
    /// Milliseconds.
    pub(super) within: u64,
}

/// Configuration that is not in the system.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unsettled {
    /// Changes are still under way.
    pub is_busy: bool,
    /// Number of values that wait or have failed.
    pub values: usize,
    /// A line for each of these.
    pub table: String,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.table.trim_end())?;
        if !self.is_busy {
            return Ok(());
        }
        let separator = if self.table.is_empty() { "" } else { "\n" };
        write!(f, "{separator}changes are still under way")
    }
}

#[derive(Clone)]
struct StartState {
    core: CoreHandle,
    listeners: Listeners,
}

/// Routes about the start, for [`super::start`].
pub fn start_routes(core: CoreHandle, listeners: Listeners) -> Router {
    Router::new()
        .route(UNSETTLED, get(unsettled))
        .route(LISTENERS, get(show_listeners))
        .with_state(StartState { core, listeners })
}

/// The sockets, as a table or as JSON.
async fn show_listeners(
    State(it): State<StartState>,
    Query(format): Query<AnswerFormat>,
) -> Response {
    if format.is_json() {
        return Json(it.listeners.document()).into_response();
    }
    it.listeners.table().into_response()
}

/// Answers when nothing is missing any more, or when the time is over.
async fn unsettled(State(it): State<StartState>, Query(query): Query<UnsettledQuery>) -> Response {
    let within = Duration::from_millis(query.within).clamp(LOOK_PAUSE, LONGEST_WAIT);
    let deadline = Instant::now() + within;
    loop {
        let is_busy = timeout_at(deadline, it.core.wait_until_idle()).await.is_err();
        let read = async { Ok((it.core.statuses(true).await?, it.core.monotonic_now().await?)) };
        let read: Result<_, Box<dyn std::error::Error + Send + Sync>> = read.await;
        let (statuses, now) = match read {
            Ok(read) => read,
            Err(error) => {
                let text = ErrorChain(&*error).to_string();
                return failure(StatusCode::INTERNAL_SERVER_ERROR, text);
            }
        };
        // A configured value is in the list because it does without a part of itself, which waits.
        let waits = |state| matches!(state, ValueState::Pending | ValueState::Configured);
        let counts = |state| !(query.allow_pending && waits(state));
        let counted: Vec<_> = statuses.into_iter().filter(|it| counts(it.state)).collect();
        let is_settled = !is_busy && counted.is_empty();
        if is_settled || Instant::now() + LOOK_PAUSE >= deadline {
            let values = counted.len();
            let table = pending_table(&counted, now);
            return Json(Unsettled { is_busy, values, table }).into_response();
        }
        sleep(LOOK_PAUSE).await;
    }
}
