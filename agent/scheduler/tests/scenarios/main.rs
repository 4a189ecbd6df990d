//! Scenarios of other engines, and cases that broke them, as rows: each test names the ids it proves.
//!
//! `SCENARIOS.md` lists those that do not apply.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "../common/mod.rs"]
mod common;
mod data;
mod graph;
mod notices;
mod retrieve;
mod robustness;

use std::time::Duration;

use common::{Lab, delta, error};
use holdfast_scheduler::TransactionOutcome;

/// Time longer than any pause between two tries.
const LONG: Duration = Duration::from_secs(3600);

/// One change of intent and its expected result.
struct Row<'t> {
    change: &'t str,
    /// Operations carried out.
    log: &'t str,
    /// Expected states: `a CONFIGURED, b PENDING <c`
    states: &'t str,
}

/// Carries out changes one after the other, and checks that each does what was planned.
#[track_caller]
fn check(lab: &mut Lab, rows: &[Row<'_>]) {
    for row in rows {
        let plan = lab.engine.plan(delta(row.change).best_effort()).unwrap().to_string();
        let outcome = lab.commit_delta(delta(row.change).best_effort()).unwrap();
        assert!(matches!(outcome, TransactionOutcome::Done { .. }), "{}: {outcome:?}", row.change);
        let log = lab.log();
        assert_eq!(log, row.log, "{}", row.change);
        if lab.failing.is_empty() {
            assert_eq!(plan, log, "what is planned is what is done: {}", row.change);
        }
        check_states(lab, row.states);
        lab.engine.audit().unwrap();
    }
}

#[track_caller]
fn check_states(lab: &Lab, want: &str) {
    for want in want.split(',').map(str::trim).filter(|want| !want.is_empty()) {
        let (name, state) = want.split_once(' ').expect("a name and a state");
        assert_eq!(lab.state(name), state, "{name}");
    }
}

/// Makes an operation fail permanently.
fn refuse(lab: &mut Lab, operation: &str) {
    lab.failing.insert(operation.to_owned(), error(22, "not so", false));
}

/// Makes an operation fail transiently.
fn hinder(lab: &mut Lab, operation: &str) {
    lab.failing.insert(operation.to_owned(), error(16, "busy", true));
}
