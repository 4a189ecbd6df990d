//! Rows for failures and rollback.

use std::num::NonZeroUsize;
use std::time::Duration;

use holdfast_scheduler::{Completion, OperationResult, TransactionOutcome, ValueState};

use crate::common::{Lab, PREVENTED, Thing, changes, delta, error, fact, key};
use crate::{MINUTES, SECOND, failed, handed_out, intent, success};

/// Values of ours, a change whose named operation fails, and the operations carried out.
#[track_caller]
fn check_undo(ours: &str, change: &str, failing: &str, want: &str) {
    let mut lab = Lab::having("f =9; p =1 port", ours);
    let system = lab.system_text();
    let before = intent(&lab);
    let restores = lab.restores.clone();
    lab.failing.insert(failing.to_owned(), error(22, "not so", false));
    let outcome = lab.commit(change).expect("planned");
    let TransactionOutcome::Failed { error, undone, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((error.errno, error.message.as_str(), *undone), (Some(22), "not so", true));
    assert_eq!(lab.log(), want);
    assert_eq!((lab.system_text(), intent(&lab), lab.restores.clone()), (system, before, restores));
    lab.failing.clear();
    lab.run_until_idle(MINUTES);
    assert_eq!(lab.log(), "", "nothing is left to repair");
}

// proves kv.D3, kv.V12, kv.I6
#[test]
fn a_failed_operation_undoes_the_plan() {
    check_undo("a", "b; c", "create c", "create b; create c FAILED not so (errno 22); delete b");
    check_undo(
        "a =1",
        "a =2; b",
        "create b",
        "update a; create b FAILED not so (errno 22); update a",
    );
    check_undo(
        "a <b; b !1",
        "b !2; c",
        "create c",
        "delete a; delete b; create b; create c FAILED not so (errno 22); create a; delete a; delete b; create b; create a",
    );
    check_undo(
        "a; b",
        "-a; -b",
        "delete b",
        "delete a; delete b FAILED not so (errno 22); create a",
    );
    check_undo(
        "a .p",
        "a; b",
        "create b",
        "delete a.p; update a; create b FAILED not so (errno 22); update a; create a.p",
    );
    check_undo("a", "p =2; b", "create b", "adopt p; create b FAILED not so (errno 22); release p");
    check_undo(
        "p =2",
        "-p; b",
        "create b",
        "release p; create b FAILED not so (errno 22); update p",
    );
    check_undo(
        "l ~/; l/1 <l",
        "-l; -l/1; b",
        "create b",
        "delete l; create b FAILED not so (errno 22); create l; create l/1",
    );
    check_undo("a", "B; c <B", "create B", "create B FAILED not so (errno 22)");
}

/// The system says no, and has done it nevertheless: it is found by its mark, and undone.
#[test]
fn what_a_failed_operation_has_made_is_taken_away() {
    let check = |ours: &str, change: &str, failing: &str, want: &str| {
        let mut lab = Lab::having("", ours);
        let before = (lab.system_text(), intent(&lab));
        lab.failing.insert(failing.to_owned(), error(22, "not so", false));
        lab.with_effect.push(failing.to_owned());
        lab.fails_once = true;
        let outcome = lab.commit(change).expect("planned");
        assert!(matches!(outcome, TransactionOutcome::Failed { undone: true, .. }), "{outcome:?}");
        assert_eq!(lab.log(), want);
        assert_eq!((lab.system_text(), intent(&lab)), before);
        lab.run_until_idle(MINUTES);
        assert_eq!(lab.log(), "", "nothing is left to repair");
    };
    check("", "a mine", "create a", "create a FAILED not so (errno 22); delete a");
    check("a =1", "a =2", "update a", "update a FAILED not so (errno 22); update a");
    check("a; b", "-a", "delete a", "delete a FAILED not so (errno 22); create a");
}

#[test]
fn a_failure_is_recorded_with_its_object() {
    let mut lab = Lab::having("", "a");
    lab.failing.insert("create c".into(), error(101, "Network is unreachable", false));
    let outcome = lab.commit_delta(delta("b; c; d").described("set 7")).unwrap();
    failed(&outcome, "c", true);
    let record = lab.engine.history().record(outcome.txn()).unwrap();
    let results: Vec<(&OperationResult, bool)> =
        record.operations.iter().map(|op| (&op.result, op.undo)).collect();
    assert_eq!(record.description, "set 7");
    assert!(
        matches!(results[1], (OperationResult::Failed(error), false) if error.errno == Some(101)),
        "{results:?}"
    );
    assert_eq!(results.len(), 5);
    assert!(
        results[3..].iter().all(|(result, undo)| **result == OperationResult::Verified && *undo)
    );
}

#[test]
fn what_the_system_does_not_take_back_stays_as_it_is() {
    let mut lab = Lab::having("p =1 port; q =1 port", "p =2 port; q =2 port");
    lab.failing.insert("release p".into(), error(99, "not so", false));
    let outcome = lab.commit("-p; -q; b").unwrap();
    assert!(
        matches!(&outcome, TransactionOutcome::Done { failed, .. } if failed.is_empty()),
        "{outcome:?}"
    );
    let left = "p =2 port; q =1 port";
    assert_eq!(lab.system_text(), format!("b; {left}"));
    assert_eq!((lab.state("p").as_str(), lab.restores.len()), ("OBTAINED", 0));
    let record = lab.engine.history().record(outcome.txn()).unwrap();
    let release = record.operations.iter().find(|op| op.key == key("p")).unwrap();
    assert!(
        matches!(&release.result, OperationResult::NotGivenBack(error) if error.errno == Some(99)),
        "{release:?}"
    );
    lab.failing.clear();
    lab.run_until_idle(MINUTES);
    lab.log.clear();
    lab.commit("-b").unwrap();
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete b", left));

    // Where time may help, the change is refused, and can be made later.
    let mut lab = Lab::having("p =1 port", "p =2 port");
    lab.failing.insert("release p".into(), error(16, "busy", true));
    failed(&lab.commit("-p").unwrap(), "p", true);
    assert_eq!(lab.system_text(), "p =2 port");
}

#[test]
fn a_value_that_another_object_prevents_waits() {
    let mut lab = Lab::having("", "a");
    lab.failing.insert("create b".into(), error(PREVENTED, "off", false));
    let outcome = lab.commit("b <a; c; d <b").unwrap();
    assert!(matches!(outcome, TransactionOutcome::Done { .. }), "{outcome:?}");
    assert_eq!((lab.system_text().as_str(), lab.state("b").as_str()), ("a; c", "PENDING"));
    assert!(lab.engine.pending().iter().any(|status| status.detail.error.is_some()));
    lab.failing.clear();
    lab.run_until_idle(MINUTES);
    assert_eq!(lab.system_text(), "a; b <a; c; d <b");
}

#[test]
fn a_failed_part_undoes_its_change() {
    let mut lab = Lab::having("", "a .p !1");
    lab.failing.insert("delete a.p".into(), error(16, "busy", false));
    let outcome = lab.commit("-a").unwrap();
    failed(&outcome, "a.p", true);
    assert_eq!(lab.engine.status(&key("a")).unwrap().state, ValueState::Configured);
}

#[test]
fn a_failed_bystander_does_not_fail_a_change() {
    let mut lab = Lab::having("", "w <n");
    lab.failing.insert("create w".into(), error(22, "not so", false));
    let outcome = lab.commit("n").unwrap();
    let TransactionOutcome::Done { failed, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(failed, [key("w")]);
    assert_eq!((lab.system_text().as_str(), lab.state("w").as_str()), ("n", "FAILED"));
    lab.failing.clear();
    lab.run_until_idle(29 * SECOND);
    assert_eq!(
        lab.log(),
        "create n; create w FAILED not so (errno 22)",
        "a permanent error is not tried again soon"
    );
    lab.commit("-n").unwrap();
    lab.commit("n").unwrap();
    assert_eq!(lab.state("w"), "CONFIGURED", "but it is when what it needs changes");
}

// proves kv.M1
#[test]
fn transient_failures_back_off() {
    let mut lab = Lab::default();
    lab.failing.insert("create b".into(), error(16, "busy", true));
    lab.commit_delta(delta("a <b; b").best_effort()).unwrap();
    assert_eq!((lab.state("b").as_str(), lab.state("a").as_str()), ("RETRYING", "PENDING <b"));
    let begun = lab.now;
    for _ in 0..3 {
        lab.pass_time();
    }
    assert!(lab.now > begun && lab.now - begun <= 7 * SECOND, "1 + 2 + 4 s at most");
    lab.failing.clear();
    lab.pass_time();
    assert_eq!(lab.system_text(), "a <b; b");
    assert_eq!(lab.engine.pending().len(), 0);
    let healing = lab.engine.history().records().last().unwrap();
    assert_eq!(healing.operations.len(), 2, "what waited for it comes in the same transaction");
}

// proves kv.X14
#[test]
fn a_newer_change_ends_the_retries_of_an_older_one() {
    let mut lab = Lab::default();
    lab.failing.insert("create b".into(), error(16, "busy", true));
    lab.commit_delta(delta("b =1").best_effort()).unwrap();
    lab.failing.clear();
    lab.commit("b =2").unwrap();
    lab.log.clear();
    lab.run_until_idle(MINUTES);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("", "b =2"));
}

// proves kv.M2, kv.X4
#[test]
fn an_invalid_value_keeps_what_was_applied() {
    let mut lab = Lab::having("", "a =1; d <a");
    lab.commit_delta(delta("a =2 twice").best_effort()).unwrap();
    assert_eq!((lab.state("a").as_str(), lab.system_text().as_str()), ("INVALID", "a =1; d <a"));
    lab.commit("a =3").unwrap();
    assert_eq!(lab.log(), "update a");
    lab.commit_delta(delta("a =4 twice").best_effort()).unwrap();
    lab.commit("-a").unwrap();
    assert_eq!(lab.log(), "delete d; delete a");
    lab.commit_delta(delta("a twice").best_effort()).unwrap();
    assert_eq!((lab.state("a").as_str(), lab.state("d").as_str()), ("INVALID", "PENDING <a"));
    lab.commit("a").unwrap();
    assert_eq!(lab.log(), "create a; create d");
}

// proves kv.X16
#[test]
fn a_panicking_descriptor_spoils_its_own_value_only() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a; b boom; c sick").best_effort()).unwrap();
    assert_eq!(lab.state("b"), "INVALID");
    assert_eq!(
        lab.engine.status(&key("b")).unwrap().detail.invalid.as_deref(),
        Some("its descriptor panicked: boom")
    );
    assert_eq!(lab.state("a"), "CONFIGURED");
    assert!(["FAILED", "RETRYING"].contains(&lab.state("c").as_str()), "{}", lab.state("c"));
}

// proves kv.V12
#[test]
fn a_failed_recreation_is_undone() {
    let mut lab = Lab::having("", "a !1; b <a; z =1");
    lab.fails_once = true;
    lab.failing.insert("create a".into(), error(12, "no memory", true));
    failed(&lab.commit("a !2; z =2").unwrap(), "a", true);
    assert_eq!(lab.system_text(), "a !1; b <a; z =1");
    lab.failing.insert("update z".into(), error(12, "no memory", true));
    failed(&lab.commit("a !2; z =2").unwrap(), "z", true);
    assert_eq!(lab.system_text(), "a !1; b <a; z =1");
}

#[test]
fn undo_keeps_the_holders_of_identities() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a !1 #x .p; d #x").best_effort()).unwrap();
    assert_eq!((lab.state("a").as_str(), lab.state("d").as_str()), ("CONFIGURED", "CONFLICT"));
    let before = lab.system_text();
    let plan = lab.plan("a =1; d").unwrap();
    let op = &plan.operations()[2];
    let failing = format!("{} {}", op.action, plan.label(op));
    lab.fails_once = true;
    lab.failing.insert(failing, error(16, "busy", true));
    assert!(matches!(lab.commit("a =1; d"), Ok(TransactionOutcome::Failed { undone: true, .. })));
    assert_eq!(lab.system_text(), before);
    assert_eq!((lab.state("a").as_str(), lab.state("d").as_str()), ("CONFIGURED", "CONFLICT"));
}

#[test]
fn undo_returns_an_identity_to_its_former_holder() {
    let mut lab = Lab::having("", "m #x");
    lab.commit_delta(delta("a #x <b; b").best_effort()).unwrap();
    assert_eq!(lab.state("a"), "CONFLICT");
    lab.failing.insert("create z".into(), error(22, "not so", false));
    let outcome = lab.commit("m =2; z").unwrap();
    assert!(matches!(outcome, TransactionOutcome::Failed { undone: true, .. }), "{outcome:?}");
    assert_eq!(lab.system_text(), "b; m #x");
    assert_eq!(lab.state("a"), "CONFLICT");
}

/// A completed operation counts as done when its transaction goes back, and of many not all are read. A fact that comes before its
/// turn is newer than that.
#[test]
fn what_vanishes_while_operations_end_is_not_believed_to_be_there() {
    const VALUES: usize = 300;
    let mut lab = Lab { strict: false, ..Lab::default() };
    lab.engine = lab.engine.in_portions(NonZeroUsize::new(100).unwrap());
    let names: Vec<String> = (0..VALUES).map(|number| format!("v{number:03}")).collect();
    let (txn, mut submitted) = handed_out(&mut lab, &names.join("; "));
    let mut done = 0;
    while done < VALUES {
        let failing = error(22, "no", false);
        let completions = submitted.iter().zip(done..).map(|(op, number)| match number + 1 {
            VALUES => Completion { result: Err(failing.clone()), ..success(op) },
            _ => lab.execute(op).unwrap(),
        });
        let completions: Vec<Completion> = completions.collect();
        done += completions.len();
        submitted = lab.engine.completed(completions, lab.now()).submit;
        if submitted.is_empty() && done < VALUES {
            submitted = lab.engine.due(lab.now()).submit; // a plan is taken over in portions
        }
    }
    lab.log.clear();
    lab.system.remove(&key("v280"));
    let step = lab.engine.observed(vec![fact(&key("v280"), None)], lab.now());
    lab.follow(step);
    lab.run_until_idle(SECOND);
    let outcome = lab.finished.iter().find(|outcome| outcome.txn() == txn).unwrap();
    failed(outcome, "v299", true);
    let deleted = (0..VALUES - 1).filter(|number| *number != 280);
    let deleted: Vec<String> = deleted.map(|number| format!("delete v{number:03}")).collect();
    assert_eq!(lab.log(), deleted.join("; "));
    assert_eq!(lab.system_text(), "");
    lab.engine.audit().unwrap();
}

/// An object of others is in the way of a value, and looks another way after each try. The tries slow down.
#[test]
fn tries_slow_down_although_the_object_in_the_way_changes() {
    const CHANGES: usize = 20;
    let mut lab = Lab::default();
    lab.system.insert(key("p"), Thing::parse("p =1 port"));
    for action in ["adopt p", "update p"] {
        lab.failing.insert(action.into(), error(17, "exists", false));
    }
    let value = changes("p =2").remove(0).1.expect("a value");
    lab.engine.load(vec![(key("p"), value)], Vec::new());
    lab.resync();
    lab.run_until_idle(SECOND);
    for number in 0..CHANGES {
        lab.outside(&format!("p ={} port", number % 2 + 3));
        lab.run_until_idle(Duration::from_millis(20));
    }
    let log = lab.log();
    let tries = log.matches("exists").count();
    assert!((2..CHANGES / 2).contains(&tries), "{tries} tries: {log}");
}
