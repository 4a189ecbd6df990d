//! Opening, showing and end of the window of commit-confirmed.

use std::time::Duration;

use super::CoreTask;
use crate::request::Reply;

/// Time until a rollback that could not be recorded is tried again.
const ROLLBACK_RETRY: Duration = Duration::from_secs(5);

impl CoreTask {
    /// Time of the rollback, since the start of the core. `None` while another commit is under way. A commit that handlers are asked for holds nothing up: it is examined again on what it finds then.
    pub(crate) fn rollback_due(&self) -> Option<Duration> {
        self.window.until().filter(|_| self.commits.is_quiet())
    }

    /// True for a rollback whose time has come while commits are under way. Until they have ended, no other one begins.
    pub(crate) fn is_rollback_overdue(&self) -> bool {
        let now = self.now().monotonic;
        self.window.until().is_some_and(|until| until <= now) && !self.commits.is_quiet()
    }

    /// Takes back the commit that was not confirmed in time; due again after [`ROLLBACK_RETRY`] if that fails.
    pub(crate) fn roll_back_unconfirmed(&mut self) {
        let now = self.now().monotonic;
        if let Some(window) = self.window.waiting() {
            tracing::warn!(id = %window.id, "the commit was not confirmed in time; it is rolled back");
            self.window.extend(now + ROLLBACK_RETRY);
            self.roll_back(Reply::to_agent("rollback"));
        }
    }

    /// Shows the commit that waits to be confirmed, after it or its time has changed.
    pub(crate) fn show_window(&mut self) {
        let now = self.now();
        if let Some(leaves) = self.window.news(self.in_force.configuration().models(), now) {
            self.publisher.chain().amend(leaves, Vec::new());
        }
    }
}
