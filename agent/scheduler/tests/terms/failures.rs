//! Operations that fail long after their submission.

use std::time::Duration;

use crate::common::{Lab, delta, error};
use crate::{answer, begin};
use holdfast_scheduler::TransactionOutcome;

const LONG: Duration = Duration::from_secs(3600);

/// A change with an operation that fails late, and its result.
struct Row<'t> {
    foreign: &'t str,
    ours: &'t str,
    change: &'t str,
    failing: &'t str,
    /// Content of the system after a best-effort change.
    left: &'t str,
}

const ROWS: [Row<'_>; 11] = [
    Row { foreign: "", ours: "", change: "a; b <a; c", failing: "create a", left: "c" },
    Row { foreign: "", ours: "", change: "A <b; b; c", failing: "create b", left: "c" },
    Row { foreign: "", ours: "", change: "A <b; b; c", failing: "create A", left: "b; c" },
    Row {
        foreign: "",
        ours: "a; b <a",
        change: "a =2; c",
        failing: "update a",
        left: "a; b <a; c",
    },
    Row {
        foreign: "",
        ours: "a; b <a",
        change: "a =1; B <a",
        failing: "create B",
        left: "a =1; b <a",
    },
    Row { foreign: "", ours: "a; b <a", change: "-a; -b; c", failing: "delete a", left: "a; c" },
    Row {
        foreign: "",
        ours: "a; B <a",
        change: "-a; -B; c",
        failing: "delete B",
        left: "a; c; B <a",
    },
    Row {
        foreign: "",
        ours: "a !1; b <a",
        change: "a !2; c",
        failing: "delete a",
        left: "a !1; b <a; c",
    },
    Row { foreign: "", ours: "a !1; B <a", change: "a !2; c", failing: "create a", left: "c" },
    Row { foreign: "p port", ours: "", change: "p =2; c", failing: "adopt p", left: "c; p port" },
    Row { foreign: "p port", ours: "p =2", change: "-p; c", failing: "release p", left: "c; p =2" },
];

/// Starts the change of a row, lets another one overtake it, and carries its operations out.
fn fail_late(row: &Row<'_>, transient: bool, atomic: bool) -> (Lab, TransactionOutcome) {
    let mut lab = Lab { strict: false, ..Lab::having(row.foreign, row.ours) };
    lab.fails_once = atomic; // or the way back would fail as well
    lab.failing.insert(row.failing.to_owned(), error(22, "not so", transient));
    let change = if atomic { delta(row.change) } else { delta(row.change).best_effort() };
    let (txn, mut held_back) = begin(&mut lab, change);
    assert!(matches!(lab.commit("z"), Ok(TransactionOutcome::Done { .. })), "{}", row.change);
    held_back.sort_by_key(|op| op.transport);
    answer(&mut lab, &held_back);
    for _ in 0..20 {
        if !lab.finished.iter().any(|outcome| outcome.txn() == txn) {
            lab.pass_time();
        }
    }
    lab.engine.audit().unwrap();
    let outcome = lab.finished.iter().find(|outcome| outcome.txn() == txn).cloned();
    (lab, outcome.expect("it ends"))
}

fn content_after(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    Lab::having("", &parts.join("; ")).system_text()
}

/// A refused release leaves the object as it is: neither kind of change fails by it.
#[test]
fn a_late_refusal_of_a_release_fails_no_change() {
    for row in ROWS.iter().filter(|row| row.failing.starts_with("release")) {
        for atomic in [true, false] {
            let (lab, outcome) = fail_late(row, false, atomic);
            let TransactionOutcome::Done { failed, .. } = outcome else { panic!("{outcome:?}") };
            assert!(failed.is_empty(), "{}", row.change);
            assert_eq!(lab.system_text(), content_after(&[row.left, "z"]), "{}", row.change);
        }
    }
}

// proves kv.V14
#[test]
fn a_late_failure_fails_an_atomic_change() {
    for row in ROWS.iter().filter(|row| !row.failing.starts_with("release")) {
        let (lab, outcome) = fail_late(row, false, true);
        let name = format!("{}: {} fails", row.change, row.failing);
        assert!(
            matches!(outcome, TransactionOutcome::Failed { undone: true, .. }),
            "{name}: {outcome:?}"
        );
        let before = if row.ours.starts_with('p') { "" } else { row.foreign };
        assert_eq!(
            lab.system_text(),
            content_after(&[before, row.ours, "z"]),
            "{name}: taken back"
        );

        let (lab, outcome) = fail_late(row, false, false);
        let TransactionOutcome::Done { failed, .. } = outcome else {
            panic!("{name}: {outcome:?}")
        };
        assert!(!failed.is_empty(), "{name}");
        assert_eq!(lab.system_text(), content_after(&[row.left, "z"]), "{name}: left behind");
    }
}

// proves kv.V14
#[test]
fn a_late_transient_failure_is_retried() {
    for row in &ROWS {
        let (mut lab, _) = fail_late(row, true, false);
        lab.failing.clear();
        lab.run_until_idle(LONG);
        let mut expected = Lab { strict: false, ..Lab::having(row.foreign, row.ours) };
        expected.commit(row.change).unwrap();
        expected.commit("z").unwrap();
        assert_eq!(
            lab.system_text(),
            expected.system_text(),
            "{}: {} failed",
            row.change,
            row.failing
        );
        assert_eq!(lab.engine.pending().len(), 0);
        lab.engine.audit().unwrap();
    }
}
