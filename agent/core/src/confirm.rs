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
use holdfast_config::Layers;
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
    /// Time of the rollback, since the start of the core. `None` while another commit is under way. One that handlers are
    /// asked for holds nothing up: it is examined again on what it finds then.
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
