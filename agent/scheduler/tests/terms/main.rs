//! Rows for expected plans, drift policies, retries, waits and concurrency.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "../common/mod.rs"]
mod common;

mod drift;
mod expectations;
mod failures;
mod interleaved;
mod resyncs;
mod retries;
mod side_by_side;
mod waits;
mod without_transport;

use common::Lab;
use holdfast_scheduler::{Completion, Delta, Operation, TxnId};

/// Starts a change and returns its operations without carrying them out.
fn begin(lab: &mut Lab, change: Delta) -> (TxnId, Vec<Operation>) {
    let plan = lab.engine.plan(change).unwrap();
    let (txn, step) = lab.engine.start(plan, lab.now());
    lab.deadline = step.deadline;
    lab.finished.extend(step.finished);
    (txn, step.submit)
}

/// Carries out operations that were held back.
fn answer(lab: &mut Lab, operations: &[Operation]) {
    let completions: Vec<Completion> =
        operations.iter().filter_map(|operation| lab.execute(operation)).collect();
    let step = lab.engine.completed(completions, lab.now());
    lab.follow(step);
}
