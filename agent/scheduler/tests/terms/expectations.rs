//! Expected plans.

use crate::common::{Lab, delta};
use holdfast_scheduler::{PlanError, TransactionOutcome};

#[test]
fn a_dry_run_is_the_plan_that_runs() {
    let mut lab = Lab::having("", "a; b <a");
    let rehearsed = lab.plan("a !1; c <b").unwrap();
    let text = rehearsed.to_string();
    let hash = rehearsed.hash();
    assert_eq!(lab.log(), "", "a plan does nothing");
    lab.commit_delta(delta("c <b; a !1").expecting_plan(hash)).unwrap();
    assert_eq!(lab.log(), text);
}

/// Values of ours, a planned change, a change in between, and whether the plan is still the same.
#[track_caller]
fn check_expected_plan(ours: &str, rehearsed: &str, meanwhile: &str, same: bool) {
    let mut lab = Lab::having("p =1", ours);
    let hash = lab.plan(rehearsed).unwrap().hash();
    lab.commit(meanwhile).unwrap();
    let planned = lab.engine.plan(delta(rehearsed).expecting_plan(hash));
    match planned {
        Ok(plan) => assert!(same, "{rehearsed} after {meanwhile}: {plan}"),
        Err(PlanError::Differs { expected, found }) => {
            assert!(!same && expected == hash && found != hash);
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_expected_plan_that_differs_is_refused() {
    check_expected_plan("a", "a =1", "b", true);
    check_expected_plan("a", "a =1", "-a", false);
    check_expected_plan("a", "b <a", "-a", false);
    check_expected_plan("a", "b <x", "x", false);
    check_expected_plan("a", "a =1", "a =1", false);
    check_expected_plan("a ~/", "-a", "a/1 <a", false);
}

#[test]
fn a_plan_hash_covers_pending_values() {
    let lab = Lab::default();
    let hashes = ["a =1 <x", "a =2 <x", "a =1 <y"].map(|text| lab.plan(text).unwrap().hash());
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
}

#[test]
fn a_queued_change_is_planned_again_before_it_starts() {
    let mut lab = Lab::default();
    let hash = lab.plan("a =2").unwrap().hash();
    let plans = [delta("a"), delta("a =2").expecting_plan(hash)].map(|it| lab.engine.plan(it));
    let started: Vec<_> =
        plans.into_iter().map(|plan| lab.engine.start(plan.unwrap(), lab.now())).collect();
    let second = started[1].0;
    for (_, step) in started {
        lab.follow(step);
    }
    let refused = lab.finished.iter().find(|outcome| outcome.txn() == second);
    let Some(TransactionOutcome::Refused { reason: PlanError::Differs { expected, .. }, .. }) =
        refused
    else {
        panic!("{:?}", lab.finished);
    };
    assert_eq!((*expected, lab.system_text().as_str()), (hash, "a"));
}

#[test]
fn a_plan_lists_pending_values_with_unmet_labels() {
    let lab = Lab::having("", "r #x");
    let plan = lab.engine.plan(delta("c <b <?f; a; b <y; d #x").best_effort()).unwrap();
    let mut waiting: Vec<String> = Vec::new();
    for (key, labels) in plan.waiting() {
        waiting.push(format!("{key} {:?}", labels.collect::<Vec<_>>()));
    }
    assert_eq!(waiting, [r#"1/b ["y"]"#, r#"1/c ["b", "?f"]"#, "1/d []"]);
}
