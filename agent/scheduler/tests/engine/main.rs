//! Rows for execution: failures and rollback, verification, outside facts, restarts.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod outside;
mod restart;
mod transactions;
mod verify;

use std::time::Duration;

use common::Lab;
use holdfast_scheduler::{Completion, Fact, Operation, TransactionOutcome, TxnId};

const SECOND: Duration = Duration::from_secs(1);
const MINUTES: Duration = Duration::from_secs(600);

#[track_caller]
fn failed(outcome: &TransactionOutcome, want_label: &str, want_undone: bool) {
    let TransactionOutcome::Failed { label, undone, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((label.as_str(), *undone), (want_label, want_undone));
}

fn intent(lab: &Lab) -> Vec<String> {
    lab.engine
        .statuses()
        .iter()
        .map(|s| format!("{} {} {:?}", s.label, s.state, s.intended))
        .collect()
}

/// Starts a change and returns its operations without carrying them out.
fn handed_out(lab: &mut Lab, change: &str) -> (TxnId, Vec<Operation>) {
    let plan = lab.plan(change).unwrap();
    let (txn, step) = lab.engine.start(plan, lab.now());
    (txn, step.submit)
}

fn success(op: &Operation) -> Completion {
    Completion { op: op.id, result: Ok(()), observed: None }
}

fn fact_of(op: &Operation) -> Fact {
    Fact { key: op.key.clone(), value: op.new.clone(), time_ns: 0 }
}
