//! Opening, showing and end of the window of commit-confirmed.

use std::time::Duration;

use holdfast_config::Value;
use smol_str::SmolStr;

use super::CoreTask;
use crate::commit::{CommitInFlight, ID, ROLLBACK_AT, Window, shown_leaf};
use crate::request::{ConfirmAction, Confirmation, Reply};

/// Time until a rollback that could not be recorded is tried again.
const ROLLBACK_RETRY: Duration = Duration::from_secs(5);

impl CoreTask {
    /// Time of the rollback, since the start of the core. `None` while another commit is under way. One that handlers are
    /// asked for holds nothing up: it is examined again on what it finds then.
    pub(crate) fn rollback_due(&self) -> Option<Duration> {
        self.window.as_ref().filter(|_| self.commits.is_quiet()).map(|window| window.until)
    }

    /// True for a rollback whose time has come while commits are under way. Until they have ended, no other one begins.
    pub(crate) fn is_rollback_overdue(&self) -> bool {
        let now = self.started.elapsed();
        self.window.as_ref().is_some_and(|window| window.until <= now) && !self.commits.is_quiet()
    }

    /// Takes back the commit that was not confirmed in time; due again after [`ROLLBACK_RETRY`] if that fails.
    pub(crate) fn roll_back_unconfirmed(&mut self) {
        let now = self.now().monotonic;
        if let Some(window) = &mut self.window {
            tracing::warn!(id = %window.id, "the commit was not confirmed in time; it is rolled back");
            window.until = now + ROLLBACK_RETRY;
            self.roll_back(Reply::to_agent("rollback"));
        }
    }

    /// Shows the commit that waits to be confirmed, after it or its time has changed.
    pub(crate) fn show_window(&mut self) {
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
    pub(crate) fn open_or_close_window(&mut self, commit: &CommitInFlight) -> Option<SmolStr> {
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
