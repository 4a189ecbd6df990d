//! Limits of the box for what all service plans hold, while the instances of one change are walked.
//!
//! Only what grows is refused. So news of an action is taken where the queue is full, and a box that holds more than a later
//! version of the agent allows goes on.

use std::cell::Cell;

use holdfast_config::limits::{SERVICE_ACTIONS, SERVICE_INSTANCES, SERVICE_STATES};
use holdfast_config::services::{Book, PlanTotals, ServicePlan};
use holdfast_config::{Limit, ServiceTag};

/// Numbers of what all service plans hold, those of instances that were walked already as they are after it.
#[derive(Debug)]
pub(crate) struct Totals(Cell<PlanTotals>);

impl Totals {
    pub(crate) fn of(book: &Book) -> Self {
        Self(Cell::new(book.totals()))
    }

    /// Notes the walk of an instance.
    pub(crate) fn note(&self, before: Option<&ServicePlan>, after: Option<&ServicePlan>) {
        self.0.set(self.0.get().replaced(before, after));
    }

    /// Checks that there may be one instance more.
    pub(crate) fn check_new(&self, tag: &ServiceTag) -> Result<(), String> {
        check(&SERVICE_INSTANCES, self.0.get().instances, [0, 1], tag)
    }

    /// Checks that an instance may have this number of states, which had another one.
    pub(crate) fn check_states(&self, counts: [usize; 2], tag: &ServiceTag) -> Result<(), String> {
        check(&SERVICE_STATES, self.0.get().states, counts, tag)
    }

    /// Checks that an instance may have this number of actions in the queue, which had another one.
    pub(crate) fn check_actions(&self, counts: [usize; 2], tag: &ServiceTag) -> Result<(), String> {
        check(&SERVICE_ACTIONS, self.0.get().actions, counts, tag)
    }
}

fn check(
    limit: &'static Limit,
    total: usize,
    [before, after]: [usize; 2],
    tag: &ServiceTag,
) -> Result<(), String> {
    let total = (total + after).saturating_sub(before);
    match limit.check(total) {
        Err(error) if after > before => Err(format!("{error}: {total} with {tag}")),
        Ok(()) | Err(_) => Ok(()),
    }
}
