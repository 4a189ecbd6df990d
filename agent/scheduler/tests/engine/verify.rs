//! Rows for verification: echoes, reads, and effects that differ from the request.

use holdfast_scheduler::{Completion, TransactionOutcome};

use crate::common::{self, Lab, fact, key};
use crate::{MINUTES, SECOND, fact_of, failed, handed_out, success};

#[test]
fn an_operation_without_effect_fails() {
    let mut lab = Lab::having("", "a =1");
    lab.without_effect.push("update a".into());
    let outcome = lab.commit("a =2").unwrap();
    failed(&outcome, "a", true);
    let TransactionOutcome::Failed { error, .. } = outcome else { unreachable!() };
    assert!(error.message.starts_with("done without an error, but the system has"), "{error}");
}

#[test]
fn an_unanswered_operation_fails() {
    let mut lab = Lab::having("", "a");
    lab.silent.push("create b".into());
    let begun = lab.now;
    let outcome = lab.commit("b; c").unwrap();
    failed(&outcome, "b", true);
    assert!(lab.now - begun < 15 * SECOND);
    assert_eq!(lab.system_text(), "a");
}

// proves kv.X28
#[test]
fn an_echo_may_come_before_its_acknowledgement() {
    let mut lab = Lab::default();
    let (txn, ops) = handed_out(&mut lab, "a =1; b");
    let step = lab.engine.observed(ops.iter().map(fact_of).collect(), lab.now());
    assert!(step.finished.is_empty() && step.read.is_empty());
    let step = lab.engine.completed(ops.iter().map(success).collect(), lab.now());
    assert!(step.read.is_empty(), "nothing is left to read: {:?}", step.read);
    assert!(
        matches!(&step.finished[..], [TransactionOutcome::Done { txn: ended, .. }] if *ended == txn)
    );
}

#[test]
fn lost_echoes_of_a_large_batch_are_read_or_retrieved() {
    let mut lab = Lab::default();
    let many: String = (0..300).map(|number| format!("v{number};")).collect();
    for retrieve in [false, true] {
        let (txn, ops) = handed_out(&mut lab, &many);
        let count = ops.len();
        let completions = ops.iter().map(|op| lab.execute(op).unwrap()).collect();
        let step = lab.engine.completed(completions, lab.now());
        assert_eq!((count, step.read.len(), step.finished.len()), (300, 0, 0), "echoes may come");
        lab.deadline = step.deadline;
        if retrieve {
            lab.resync();
        } else {
            lab.pass_time();
        }
        assert!(lab.finished.iter().any(|outcome| outcome.txn() == txn));
        assert_eq!(lab.reads, 300);
        let none: String = (0..300).map(|number| format!("-v{number};")).collect();
        let (txn, ops) = handed_out(&mut lab, &none);
        let completions = ops.iter().map(|op| lab.execute(op).unwrap()).collect();
        let step = lab.engine.completed(completions, lab.now());
        lab.deadline = step.deadline;
        lab.resync();
        assert!(
            lab.finished.iter().any(|outcome| outcome.txn() == txn),
            "what is not retrieved is gone"
        );
    }
}

#[test]
fn a_completion_may_carry_the_observed_value() {
    let mut lab = Lab::default();
    let (_, ops) = handed_out(&mut lab, "a =1");
    let completion = Completion { observed: Some(fact_of(&ops[0])), ..success(&ops[0]) };
    let step = lab.engine.completed(vec![completion], lab.now());
    assert_eq!((step.finished.len(), step.read.len(), step.deadline), (1, 0, None));
}

#[test]
fn a_stale_notification_is_no_drift() {
    let mut lab = Lab::having("", "a =1");
    lab.commit("a =2").unwrap();
    lab.log.clear();
    let stale = vec![fact(&key("a"), Some(&common::Thing::parse("a =1")))];
    lab.report(stale);
    lab.run_until_idle(MINUTES);
    assert_eq!(lab.log(), "", "the read showed that all is well");
}

// proves kv.X18
#[test]
fn operations_accept_outside_changes() {
    let mut lab = Lab::having("", "a; b");
    lab.change_outside_silently("-a");
    assert!(matches!(lab.commit("-a; -b"), Ok(TransactionOutcome::Done { .. })), "gone is deleted");
    lab.change_outside_silently("c =1");
    assert!(matches!(lab.commit("c =1"), Ok(TransactionOutcome::Done { .. })), "equal is adopted");
    assert_eq!(lab.state("c"), "CONFIGURED");
    lab.change_outside_silently("d =2");
    let outcome = lab.commit("d =1; e").unwrap();
    failed(&outcome, "d", true);
    assert_eq!(lab.system_text(), "c =1; d =2", "different is left alone");
}
