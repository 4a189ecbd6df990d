//! Expected revision, expected plan.

use crate::common::{Lab, delta, error};
use holdfast_scheduler::{Outcome, PlanError};

#[test]
fn a_dry_run_is_the_plan_that_runs() {
    let mut lab = Lab::having("", "a; b <a");
    let rehearsed = lab.plan("a !1; c <b").unwrap();
    let (text, hash) = (rehearsed.to_string(), rehearsed.hash());
    assert_eq!(lab.log(), "", "a plan does nothing");
    lab.commit_delta(delta("c <b; a !1").expecting_plan(hash)).unwrap();
    assert_eq!(lab.log(), text);
}

/// What we have, what is rehearsed, what happens before the commit, and whether the plan is still that one.
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
fn a_plan_that_became_another_one_is_refused() {
    check_expected_plan("a", "a =1", "b", true);
    check_expected_plan("a", "a =1", "-a", false);
    check_expected_plan("a", "b <a", "-a", false);
    check_expected_plan("a", "b <x", "x", false);
    check_expected_plan("a", "a =1", "a =1", false);
    check_expected_plan("a ~/", "-a", "a/1 <a", false);
}

#[test]
fn a_plan_hash_tells_values_that_wait() {
    let lab = Lab::default();
    let hashes = ["a =1 <x", "a =2 <x", "a =1 <y"].map(|text| lab.plan(text).unwrap().hash());
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
}

#[test]
fn a_change_for_an_older_revision_is_refused() {
    let mut lab = Lab::default();
    let first = lab.engine.intent_revision();
    lab.commit_delta(delta("a").at_revision(first)).unwrap();
    let refused = lab.engine.plan(delta("b").at_revision(first)).unwrap_err();
    assert_eq!(refused, PlanError::Outdated { expected: first, found: first + 1 });
    lab.commit("a").unwrap();
    lab.outside("-a");
    lab.settle(std::time::Duration::from_secs(10));
    assert_eq!(
        lab.engine.intent_revision(),
        first + 1,
        "neither drift nor a repetition changes the intent"
    );
    lab.failing.insert("create c".into(), error(22, "not so", false));
    lab.commit("c").unwrap();
    assert_eq!(lab.engine.intent_revision(), first + 1, "nor does a change that was taken back");
    lab.commit_delta(delta("b").at_revision(first + 1)).unwrap();
}

#[test]
fn a_change_that_waited_for_its_turn_is_judged_again() {
    let mut lab = Lab::default();
    let plan = |text: &str| lab.engine.plan(delta(text).at_revision(0)).unwrap();
    let plans = [plan("a"), plan("a =2")];
    let mut started = Vec::new();
    for plan in plans {
        let (txn, step) = lab.engine.start(plan, lab.now());
        started.push((txn, step));
    }
    let second = started[1].0;
    for (_, step) in started {
        lab.follow(step);
    }
    let refused = PlanError::Outdated { expected: 0, found: 1 };
    assert!(
        lab.finished.iter().any(|outcome| matches!(
            outcome, Outcome::Refused { txn, reason } if *txn == second && *reason == refused
        )),
        "{:?}",
        lab.finished
    );
    assert_eq!(lab.shown(), "a");
}

#[test]
fn a_plan_says_what_will_wait_and_for_what() {
    let lab = Lab::having("", "r #x");
    let plan = lab.engine.plan(delta("c <b <?f; a; b <y; d #x").best_effort()).unwrap();
    let mut waiting: Vec<String> = Vec::new();
    for (key, labels) in plan.waiting() {
        waiting.push(format!("{key} {:?}", labels.collect::<Vec<_>>()));
    }
    assert_eq!(waiting, [r#"1/b ["y"]"#, r#"1/c ["b", "?f"]"#, "1/d []"]);
}
