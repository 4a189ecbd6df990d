//! Transactions side by side, hanging operations, and cancelled changes.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::common::{Lab, delta, error};
use crate::{answer, begin};
use holdfast_scheduler::{Action, Completion, OperationError, TransactionOutcome, TxnId};

const SECOND: Duration = Duration::from_secs(1);

/// Values of ours, a change that hangs, another change, and whether that one waits.
#[track_caller]
fn check_side_by_side(ours: &str, hangs: &str, other: &str, waits: bool) {
    let mut lab = Lab { strict: false, ..Lab::having("", ours) };
    let (first, held_back) = begin(&mut lab, delta(hangs));
    assert!(!held_back.is_empty(), "{hangs}");
    let (second, at_once) = begin(&mut lab, delta(other).best_effort());
    assert_eq!(at_once.is_empty(), waits, "{other} beside {hangs} with {ours}");
    answer(&mut lab, &at_once);
    assert_eq!(ended(&lab, second), !waits, "{other} beside {hangs}");
    answer(&mut lab, &held_back);
    assert!(ended(&lab, first) && ended(&lab, second));
    assert!(lab.engine.is_idle());
    lab.engine.audit().unwrap();
    let mut after = Lab { strict: false, ..Lab::having("", ours) };
    after.commit(hangs).unwrap();
    after.commit_delta(delta(other).best_effort()).unwrap();
    assert_eq!(lab.system_text(), after.system_text(), "as one after the other");
}

fn ended(lab: &Lab, txn: TxnId) -> bool {
    lab.finished.iter().any(|outcome| outcome.txn() == txn)
}

// proves kv.V13
#[test]
fn changes_without_conflict_run_side_by_side() {
    for (ours, hangs, other) in [
        ("", "a", "b"),
        ("a", "b <a", "c <a"),
        ("", "a +f", "b +f"),
        ("a; c", "-a", "-c"),
        ("a :p", "a =1 :p", "b <a:p"),
        ("", "A", "b"),
        ("", "a +10.0.0.0/8", "b <@11.0.0.1; c"),
        ("p ~/; p/1; q ~/; q/1", "-p; -p/1", "-q; -q/1"),
    ] {
        check_side_by_side(ours, hangs, other, false);
    }
}

#[test]
fn conflicting_changes_wait() {
    for (ours, hangs, other) in [
        ("", "a", "a =1"),
        ("", "a", "-a; z"),
        ("", "a", "b <a"),
        ("a", "b <a", "-a"),
        ("a; b <a", "a !1", "c <a"),
        ("a +f; b +f; c <?f", "-a", "-b"),
        ("a +f; b", "-a; b +f", "c <?f"),
        ("", "a #x", "b #x"),
        ("", "m/1", "b <m/"),
        ("", "a +10.0.0.0/8", "b <@10.0.0.1"),
        ("", "a .*s=1", "b .*s=1"),
    ] {
        check_side_by_side(ours, hangs, other, true);
    }
}

#[test]
fn changes_of_one_value_keep_their_order() {
    let mut lab = Lab::default();
    let (first, held_back) = begin(&mut lab, delta("a"));
    let (second, none) = begin(&mut lab, delta("a =1; c =1"));
    let (third, none_either) = begin(&mut lab, delta("c =2"));
    assert_eq!((none.len(), none_either.len()), (0, 0), "the third may not overtake the second");
    let (fourth, at_once) = begin(&mut lab, delta("z"));
    answer(&mut lab, &at_once);
    assert!(ended(&lab, fourth), "the fourth may");
    answer(&mut lab, &held_back);
    assert_eq!(lab.system_text(), "a =1; c =2; z");
    let order: Vec<TxnId> = lab.finished.iter().map(TransactionOutcome::txn).collect();
    assert_eq!(order, [fourth, first, second, third]);
}

#[test]
fn convergence_does_not_wait_for_a_hanging_change() {
    let mut lab = Lab::having("", "w <f; x <g");
    let (_, held_back) = begin(&mut lab, delta("a; x =1 <g"));
    lab.outside("f; g");
    assert_eq!(lab.system_text(), "f; g; w <f");
    answer(&mut lab, &held_back);
    lab.run_until_idle(SECOND);
    assert_eq!(
        lab.system_text(),
        "a; f; g; w <f; x =1 <g",
        "and what belongs to it comes after it"
    );
    lab.outside("-w");
    let (_, held_back) = begin(&mut lab, delta("b"));
    lab.run_until_idle(SECOND);
    assert_eq!(lab.state("w"), "CONFIGURED", "drift is repaired meanwhile");
    answer(&mut lab, &held_back);
}

/// A value in a hanging change loses a dependency. It is unsupported, which every later plan takes into account.
#[test]
fn a_change_does_not_wait_for_an_unsupported_value_of_another_one() {
    for (other, waits) in [("c", false), ("c <b", true), ("c <?f", true)] {
        let mut lab = Lab { strict: false, ..Lab::having("a", "b +f <a") };
        let (first, mut held_back) = begin(&mut lab, delta("b =1 +f <a; x"));
        let carried_out = held_back.remove(0);
        assert_eq!(carried_out.action, Action::Update);
        answer(&mut lab, &[carried_out]);
        lab.outside("-a");
        let (second, at_once) = begin(&mut lab, delta(other).best_effort());
        assert_eq!(at_once.is_empty(), waits, "{other}");
        answer(&mut lab, &at_once);
        assert_eq!(ended(&lab, second), !waits, "{other}");
        answer(&mut lab, &held_back);
        lab.run_until_idle(SECOND);
        assert!(ended(&lab, first) && ended(&lab, second));
        lab.engine.audit().unwrap();
    }
}

#[test]
fn a_failed_change_is_undone_while_others_run() {
    let mut lab = Lab::having("", "a =1; c =1");
    let (first, hanging) = begin(&mut lab, delta("c =2"));
    lab.failing.insert("create b".into(), error(22, "not so", false));
    let outcome = lab.commit("a =2; b").unwrap();
    assert!(matches!(outcome, TransactionOutcome::Failed { undone: true, .. }), "{outcome:?}");
    assert_eq!(lab.system_text(), "a =1; c =1");
    answer(&mut lab, &hanging);
    assert!(ended(&lab, first));
    assert_eq!(lab.system_text(), "a =1; c =2");
}

/// Starts a change with an operation that is never answered.
fn hanging(lab: &mut Lab, change: &str) -> (TxnId, Vec<holdfast_scheduler::Operation>) {
    let (txn, ops) = begin(lab, delta(change));
    lab.now += 10 * SECOND;
    let step = lab.engine.due(lab.now());
    assert_eq!(step.cancel, [ops[0].id], "the one whose turn it is is asked to end");
    lab.follow(step);
    (txn, ops)
}

#[test]
fn an_operation_beyond_its_time_is_cancelled() {
    let mut lab = Lab::having("", "a =1");
    let (txn, ops) = hanging(&mut lab, "a =2; b");
    assert!(!ended(&lab, txn));
    let cancelled = ops.iter().map(|op| Completion {
        op: op.id,
        result: Err(OperationError::cancelled()),
        observed: None,
    });
    let step = lab.engine.completed(cancelled.collect(), lab.now());
    lab.follow(step);
    let ended: Vec<_> = lab.finished.iter().filter(|outcome| outcome.txn() == txn).collect();
    assert!(
        matches!(ended[..], [TransactionOutcome::Failed { error, undone: true, .. }] if error.is_cancelled()),
        "{ended:?}"
    );
    assert_eq!(lab.system_text(), "a =1");
}

#[test]
fn an_operation_that_ignores_its_cancel_is_given_up() {
    let mut lab = Lab::having("", "a =1");
    let (txn, ops) = hanging(&mut lab, "a =2; b");
    let begun = lab.now;
    for _ in 0..10 {
        lab.pass_time();
    }
    assert!(ended(&lab, txn) && lab.now - begun < 3 * SECOND);
    let failed = lab.finished.iter().find(|outcome| outcome.txn() == txn);
    assert!(matches!(failed, Some(TransactionOutcome::Failed { undone: true, .. })), "{failed:?}");
    answer(&mut lab, &ops);
    lab.run_until_idle(600 * SECOND);
    assert_eq!(lab.system_text(), "a =1", "what it does after all is drift, and nobody's intent");
}

#[test]
fn a_hanging_transport_does_not_fail_another() {
    let mut lab = Lab::default();
    lab.silent.push("create A".into());
    let (first, _) = begin(&mut lab, delta("A"));
    for number in 0..30 {
        lab.commit(&format!("b ={number}")).unwrap();
        lab.now += SECOND / 2;
        lab.pass_time();
    }
    assert!(ended(&lab, first), "it is given up in its time all the same");
    assert_eq!(lab.system_text(), "b =29");
}

#[test]
fn a_slow_transport_is_not_given_up() {
    let mut lab = Lab::default();
    let (txn, ops) = begin(&mut lab, delta("a; b; c; d"));
    for op in &ops {
        lab.now += 9 * SECOND;
        let step = lab.engine.due(lab.now());
        lab.follow(step);
        answer(&mut lab, std::slice::from_ref(op));
    }
    let last = lab.finished.iter().find(|outcome| outcome.txn() == txn);
    assert!(matches!(last, Some(TransactionOutcome::Done { .. })), "{last:?}");
}

// proves kv.V15, kv.V16
#[test]
fn cancel_drops_a_queued_change_and_undoes_a_running_one() {
    let mut lab = Lab::having("", "a =1");
    let (first, ops) = begin(&mut lab, delta("a =2; b"));
    let (second, _) = begin(&mut lab, delta("a =3"));
    let step = lab.engine.cancel(second, lab.now());
    lab.follow(step);
    let step = lab.engine.cancel(first, lab.now());
    assert_eq!(step.cancel, ops.iter().map(|op| op.id).collect::<Vec<_>>());
    lab.follow(step);
    answer(&mut lab, &ops);
    let outcome = |txn| lab.finished.iter().find(|outcome| outcome.txn() == txn);
    for txn in [first, second] {
        let outcome = outcome(txn);
        assert!(
            matches!(outcome, Some(TransactionOutcome::Cancelled { undone: true, .. })),
            "{outcome:?}"
        );
    }
    assert_eq!(lab.system_text(), "a =1");
    lab.commit("a =4").unwrap();
    assert_eq!(lab.system_text(), "a =4");
}

/// The end of a change with many values is reported at once; its values are released a few at a time. Whatever comes
/// meanwhile, such as a fact about one of them or another change of them, ends as after a small change.
#[test]
fn a_large_transaction_is_released_in_portions() {
    const PORTION: usize = 2;
    let names = ["a", "b", "c", "d", "e", "f"];
    let all = names.join("; ");
    let deletions = names.map(|name| format!("-{name}")).join("; ");
    let begin_delete = || {
        let mut lab = Lab { strict: false, ..Lab::default() };
        lab.engine = lab.engine.in_portions(NonZeroUsize::new(PORTION).unwrap());
        lab.commit(&all).unwrap();
        while !lab.engine.is_idle() {
            lab.pass_time();
        }
        let outcome = lab.commit(&deletions).unwrap();
        assert!(matches!(outcome, TransactionOutcome::Done { .. }), "{outcome:?}");
        assert!(!lab.engine.is_idle(), "some values are not released yet");
        lab
    };
    let rest = |lab: &mut Lab| {
        let mut turns = 0;
        while !lab.engine.is_idle() {
            lab.pass_time();
            turns += 1;
        }
        lab.engine.audit().unwrap();
        turns
    };
    let mut lab = begin_delete();
    let turns = rest(&mut lab);
    assert!(turns + 2 >= names.len() / PORTION, "{turns} turns");
    assert_eq!(lab.engine.statuses().len(), 0, "{}", lab.system_text());

    for (change, want) in [("f =2; g", "f g"), ("a <f; f", "a f"), ("c; d; e", "c d e")] {
        let mut lab = begin_delete();
        lab.commit(change).unwrap();
        rest(&mut lab);
        let mut expected = Lab { strict: false, ..Lab::default() };
        expected.commit(change).unwrap();
        assert_eq!(lab.system_text(), expected.system_text(), "{want}");
    }

    // A value of that name comes from outside meanwhile, and goes again.
    let mut lab = begin_delete();
    lab.outside("f =7");
    rest(&mut lab);
    assert_eq!(lab.engine.statuses().len(), 1);
    lab.outside("-f");
    rest(&mut lab);
    assert_eq!(lab.engine.statuses().len(), 0);
}
