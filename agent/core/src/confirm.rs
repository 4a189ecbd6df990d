//! Commit-confirmed: one commit at a time waits for its confirmation, and is taken back if none comes in time.
//!
//! The store keeps the layers that the commit replaced until it is confirmed or taken back; a start that finds such a
//! record takes the commit back before anything is read. Changes of other layers (boot, leases, switches) stay.
//!
//! Walks that instances of services need meanwhile join the commit: whatever changes claims or service plans is taken back
//! with it, in memory by the layers before it, on disk by the rows that join its record
//! ([decision 032](../../decisions/032-walks-inside-a-window.md)).

use std::time::Duration;

use holdfast_base::RebootInhibitor;
use holdfast_config::{Elem, InstancePath, Layers, Models, Path, Value};
use holdfast_telemetry::Revision;
use smol_str::SmolStr;

use super::commit::{CommitInFlight, Reply};
use super::options::{ConfirmAction, Confirmation};
use super::task::CoreTask;

/// Time until a rollback that could not be recorded is tried again.
const ROLLBACK_RETRY: Duration = Duration::from_secs(5);

/// The commit that waits to be confirmed, and the layers before it.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) id: SmolStr,
    /// Layers before the commit. The client's two are brought back, with the claims and plans of services.
    pub(super) before: Layers,
    /// Time of the rollback, since the start of the core.
    pub(super) until: Duration,
    /// A reboot would take the commit back.
    pub(super) _undertaking: RebootInhibitor,
}

/// The commit that waits to be confirmed, as a revision shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedCommit {
    pub id: SmolStr,
    /// Time of its rollback, nanoseconds since 1970.
    pub rollback_at_ns: u64,
}

/// Container of the native model that shows it.
const SHOWN: &str = "commit-state";
const ID: &str = "unconfirmed";
const ROLLBACK_AT: &str = "rollback-at";

fn shown_leaf(models: &Models, leaf: &'static str) -> Option<InstancePath> {
    let path = Path { elems: vec![Elem::new(SHOWN), Elem::new(leaf)] };
    models.native.resolve_write(&path).ok()
}

impl UnconfirmedCommit {
    /// The commit that waits, if there is one.
    pub fn of(revision: &Revision) -> Option<Self> {
        let value = |leaf| {
            let path = shown_leaf(&revision.models, leaf)?;
            revision.native.find_leaf(&path).map(|leaf| leaf.value.clone())
        };
        let Value::Uint(rollback_at_ns) = value(ROLLBACK_AT)? else { return None };
        Some(Self { id: value(ID)?.to_string().into(), rollback_at_ns })
    }

    /// Text for people, with the time that is left.
    pub fn text(&self, now_ns: u64) -> String {
        let left = Duration::from_nanos(self.rollback_at_ns.saturating_sub(now_ns));
        let left = left.as_secs_f64().ceil();
        format!("the commit `{}` waits to be confirmed; it is rolled back in {left} s", self.id)
    }
}

/// Contradiction between a request and the commit that waits, or the absence of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    #[error(
        "the commit `{id}` waits to be confirmed or cancelled; until then nothing else is changed"
    )]
    Waiting { id: SmolStr },
    #[error("no commit waits to be confirmed")]
    NoneWaits,
    #[error("the commit that waits to be confirmed is not `{id}`")]
    OtherId { id: SmolStr },
    #[error("a request that {what} a commit cannot change the configuration as well")]
    WithPayload { what: &'static str },
    #[error(
        "a dry run shows a change of the configuration; it cannot confirm, cancel or extend a commit"
    )]
    DryRun,
}

impl CoreTask {
    /// Time of the rollback, since the start of the core. `None` while another commit is under way. A commit whose
    /// handlers are asked holds nothing up: it is examined again on what it finds then.
    pub(super) fn rollback_due(&self) -> Option<Duration> {
        self.window.as_ref().filter(|_| self.commits.is_quiet()).map(|window| window.until)
    }

    /// True for a rollback whose time has come while commits are under way. Until they have ended, no other one begins.
    pub(super) fn is_rollback_overdue(&self) -> bool {
        let now = self.started.elapsed();
        self.window.as_ref().is_some_and(|window| window.until <= now) && !self.commits.is_quiet()
    }

    /// Takes back the commit that was not confirmed in time; due again after [`ROLLBACK_RETRY`] if that fails.
    pub(super) fn roll_back_unconfirmed(&mut self) {
        let now = self.now().monotonic;
        if let Some(window) = &mut self.window {
            tracing::warn!(id = %window.id, "the commit was not confirmed in time; it is rolled back");
            window.until = now + ROLLBACK_RETRY;
            self.roll_back(Reply::to_agent("rollback"));
        }
    }

    /// Shows the commit that waits to be confirmed, after it or its time has changed.
    pub(super) fn show_window(&mut self) {
        let window = self.window.as_ref().map(|window| (window.id.clone(), window.until));
        if window == self.shown_window {
            return;
        }
        let now = self.now();
        let at = |until: Duration| {
            let left = until.saturating_sub(now.monotonic).as_nanos();
            now.unix_ns.saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
        };
        let values = [
            (ID, window.as_ref().map(|(id, _)| Value::Str(id.as_str().into()))),
            (ROLLBACK_AT, window.as_ref().map(|(_, until)| Value::Uint(at(*until)))),
        ];
        let models = self.configuration.models();
        let leaves =
            values.into_iter().filter_map(|(leaf, value)| Some((shown_leaf(models, leaf)?, value)));
        self.publisher.chain().amend(leaves.collect(), Vec::new());
        self.shown_window = window;
    }

    /// Opens or closes the window with a commit, before its configuration is in force. Returns the id of the commit
    /// that must be confirmed, if this commit is the one, belongs to it or takes it back.
    pub(super) fn open_or_close_window(&mut self, commit: &CommitInFlight) -> Option<SmolStr> {
        if commit.is_rollback {
            return self.window.take().map(|window| window.id);
        }
        if commit.is_reactive_walk {
            return self.window.as_ref().map(|window| window.id.clone());
        }
        let Confirmation { id, action } = commit.options.confirmation.as_ref()?;
        let ConfirmAction::Begin { rollback_after } = *action else { return None };
        let until = self.now().monotonic + rollback_after;
        let before = self.configuration.layers().clone();
        let name = format!("the commit `{id}`, which waits to be confirmed");
        let _undertaking = self.undertakings.begin_without_actions(name);
        self.window = Some(Window { id: id.clone(), before, until, _undertaking });
        Some(id.clone())
    }
}
