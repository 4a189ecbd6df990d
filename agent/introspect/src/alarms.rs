//! `GET alarms`: open alarms of the box, or those that a shelf puts aside, the worst first.
//!
//! They are read from `/fault-state` of the newest revision, so nothing waits for the task that finds faults.

use std::sync::Arc;

use axum::extract;
use axum::response::Response;
use holdfast_config::tree::Branch;
use holdfast_core::{CoreHandle, Datastore};
use holdfast_telemetry::{LeafVersion, Revision};
use serde_json::json;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;

use super::arguments::{Arguments, format_time};
use super::http_error::HttpError;
use super::named_branch::NamedBranch;
use super::{Introspect, page};

/// Severities, the worst first, by the names of their leaves in `/fault-state/summary`. Names of severities of alarms
/// are in capitals.
const SEVERITIES: [&str; 4] = ["critical", "major", "minor", "warning"];

/// `GET alarms`: `shelved`, `after`, `limit`.
pub(super) async fn alarms(
    extract::State(introspect): extract::State<Introspect>,
    arguments: Arguments,
) -> Result<Response, HttpError> {
    let arguments = arguments.allow_only(&["shelved", "after", "limit"], &[])?;
    let limit = arguments.limit()?;
    let after = arguments.text("after").map(Rank::parse).transpose()?;
    let list = if arguments.flag("shelved")? { "shelved-alarm" } else { "alarm" };
    let revision = introspect.core.revision();
    let mut alarms = Alarm::all(&revision, list);
    alarms.retain(|alarm| after.as_ref().is_none_or(|after| alarm.rank > *after));
    alarms.sort_unstable_by(|one, other| one.rank.cmp(&other.rank));
    let more = alarms.len() > limit;
    alarms.truncate(limit);
    let last = alarms.last().filter(|_| more);
    let next = last.map(|alarm| arguments.next_page("after", &alarm.rank.to_text()));
    Ok(page::list(&alarms.iter().map(Alarm::document).collect::<Vec<_>>(), next))
}

/// Number of open alarms of each severity, shelved ones left out.
pub(super) fn open_counts(revision: &Revision) -> [(&'static str, u64); 4] {
    let fault_state = NamedBranch::native(revision).container("fault-state");
    let summary = fault_state.and_then(|it| it.container("summary"));
    // Nothing is shown before the agent looks for faults.
    let count = |severity| summary.as_ref().and_then(|summary| summary.number(severity));
    SEVERITIES.map(|severity| (severity, count(severity).unwrap_or_default()))
}

/// Changes of the alarms that a revision shows.
#[derive(Debug)]
pub(super) struct AlarmChanges {
    revision_rx: watch::Receiver<Arc<Revision>>,
    shown: Option<Arc<Branch<LeafVersion>>>,
}

impl AlarmChanges {
    /// Changes from now on.
    pub(super) fn of(core: &CoreHandle) -> Self {
        let mut revision_rx = core.watch();
        let shown = shown_alarms(&revision_rx.borrow_and_update());
        Self { revision_rx, shown }
    }

    /// Returns when a revision shows other alarms than the last time. A call that is dropped before loses nothing.
    ///
    /// # Errors
    /// When there are no further revisions.
    pub(super) async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            self.revision_rx.changed().await?;
            let shown = shown_alarms(&self.revision_rx.borrow_and_update());
            // Revisions share what did not change, so this compares pointers for nearly all of them.
            if shown != self.shown {
                self.shown = shown;
                return Ok(());
            }
        }
    }
}

/// The container with all alarms, once there has been one.
fn shown_alarms(revision: &Revision) -> Option<Arc<Branch<LeafVersion>>> {
    NamedBranch::native(revision).container("fault-state").map(NamedBranch::into_shared)
}

/// Place of an alarm in the list: by severity, then the oldest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Index in [`SEVERITIES`]; a severity that is not there comes last.
    severity: usize,
    created_ns: u64,
    id: String,
}

impl Rank {
    fn to_text(&self) -> String {
        format!("{}.{}.{}", self.severity, self.created_ns, self.id)
    }

    /// Parses the output of [`Rank::to_text`].
    fn parse(text: &str) -> Result<Self, HttpError> {
        let mut parts = text.splitn(3, '.');
        let mut rank = || {
            let severity = parts.next()?.parse().ok()?;
            let created_ns = parts.next()?.parse().ok()?;
            Some(Self { severity, created_ns, id: parts.next()?.to_owned() })
        };
        rank().ok_or_else(|| {
            HttpError::bad_request(format!("`after={text}` is not a place at which a page ended"))
        })
    }
}

/// One alarm of a revision.
struct Alarm<'r> {
    rank: Rank,
    state: NamedBranch<'r>,
}

impl<'r> Alarm<'r> {
    /// Alarms of a list in `/fault-state`.
    fn all(revision: &'r Revision, list: &str) -> Vec<Self> {
        let fault_state = NamedBranch::native(revision).container("fault-state");
        let entries = fault_state.map(|it| it.entries(list));
        let states = entries.into_iter().flatten().filter_map(|entry| entry.container("state"));
        states.map(Self::new).collect()
    }

    fn new(state: NamedBranch<'r>) -> Self {
        let severity = state.text("severity").unwrap_or_default();
        let severity = SEVERITIES.iter().position(|it| it.eq_ignore_ascii_case(&severity));
        let rank = Rank {
            severity: severity.unwrap_or(SEVERITIES.len()),
            created_ns: state.number("time-created").unwrap_or_default(),
            id: state.text("id").unwrap_or_default(),
        };
        Self { rank, state }
    }

    fn document(&self) -> serde_json::Value {
        let text = |leaf| self.state.text(leaf);
        let time = |leaf| self.state.number(leaf).map(format_time);
        json!({
            "Id": self.rank.id,
            "Type": text("type"),
            "Resource": text("resource"),
            "Severity": text("severity"),
            "Text": text("text"),
            "Since": format_time(self.rank.created_ns),
            "LastRaised": time("last-raised"),
            "LastChanged": time("last-changed"),
            "Occurrences": self.state.number("occurrences"),
            "OperatorState": text("operator-state"),
            "Operator": text("operator"),
            "OperatorText": text("operator-text"),
            "Shelf": text("shelf"),
            "SuppressedBy": text("suppressed-by"),
            "Cause": text("cause"),
            "Impact": self.state.container("impact").map(|impact| json!({
                "State": impact.text("state"),
                "Down": impact.number("down"),
                "Degraded": impact.number("degraded"),
            })),
        })
    }
}
