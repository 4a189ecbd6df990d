//! Properties: random systems, intents, failures and outside events, against invariants.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

mod common;
#[path = "common/generate.rs"]
mod generate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Lab, Reference, Thing, delta, error, key};
use generate::{cases, change};
use holdfast_scheduler::{Key, Target, TransactionOutcome, ValueState};
use proptest::prelude::*;

/// Time longer than any pause between two tries.
const LONG: Duration = Duration::from_secs(3600);

/// Checks the invariants that hold whenever the engine is idle and nothing fails, each by its number.
#[track_caller]
fn check_converged(lab: &Lab, reference: &Reference) {
    // I7, I11: counters, lists and readiness equal a recomputation from scratch.
    lab.engine.audit().unwrap();
    // I9: a watcher that only looks at changed keys has seen the true state.
    for status in lab.engine.statuses() {
        let watched = lab.watched.get(&status.key).map(String::as_str).unwrap_or_default();
        assert_eq!(watched, common::watched(&lab.engine, &status.key), "{}", status.label);
    }
    // I2: every satisfiable value of the intent is in the system. I12: and nothing else of ours.
    if let Err(wrong) = reference.check(&lab.system) {
        panic!("{wrong}: {}", lab.system_text());
    }
    for status in lab.engine.statuses() {
        let there = lab.system.contains_key(&status.key);
        let configured = status.state == ValueState::Configured;
        assert_eq!(configured, there && status.intended.is_some(), "{}", status.label);
    }
    // I3: a second plan is empty.
    let again: Vec<String> = reference.intent.values().map(Thing::to_string).collect();
    let plan = lab.engine.plan(delta(&again.join("; ")).best_effort()).unwrap();
    assert_eq!(plan.to_string(), "", "a second plan is empty");
}

/// Least set of values whose exact dependencies are in the set. Complete where all dependencies are exact.
fn satisfiable(intent: &BTreeMap<Key, Thing>) -> BTreeSet<Key> {
    let mut there: BTreeSet<Key> = BTreeSet::new();
    loop {
        let ready = intent.iter().filter(|(key, thing)| {
            let needs = thing.needs();
            let met = |target: &Target| matches!(target, Target::Exact(key) if there.contains(key));
            !there.contains(*key) && needs.iter().all(|need| met(&need.target))
        });
        let ready: Vec<Key> = ready.map(|(key, _)| key.clone()).collect();
        if ready.is_empty() {
            return there;
        }
        there.extend(ready);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    // proves kv.I1, kv.I2, kv.I3, kv.I7, kv.I9, kv.I11
    #[test]
    fn any_change_converges_to_the_intent(changes in proptest::collection::vec(change(true), 1..6)) {
        let mut lab = Lab::default();
        let mut reference = Reference::default();
        for change in changes {
            let outcome = lab.commit_delta(delta(&change).best_effort()).unwrap();
            prop_assert!(matches!(&outcome, TransactionOutcome::Done { failed, .. } if failed.is_empty()), "{outcome:?}");
            reference.apply(&change);
            check_converged(&lab, &reference);
        }
    }

    #[test]
    fn exact_dependencies_converge_to_the_least_closure(changes in proptest::collection::vec(change(false), 1..6)) {
        let mut lab = Lab::default();
        let mut reference = Reference::default();
        for change in changes {
            lab.commit(&change).unwrap();
            reference.apply(&change);
            let there: BTreeSet<Key> = lab.system.keys().cloned().collect();
            prop_assert_eq!(there, satisfiable(&reference.intent));
        }
    }

    // proves kv.I4
    #[test]
    fn plans_do_not_depend_on_earlier_changes(one in change(true), two in change(true)) {
        let mut forward = Lab::default();
        forward.commit_delta(delta(&one).best_effort()).unwrap();
        let mut items: Vec<&str> = one.split(';').collect();
        items.reverse();
        let mut backward = Lab::default();
        backward.commit_delta(delta(&items.join(";")).best_effort()).unwrap();
        let plans = [&forward, &backward].map(|lab| lab.engine.plan(delta(&two).best_effort()).unwrap());
        prop_assert_eq!(plans[0].to_string(), plans[1].to_string());
        prop_assert_eq!(plans[0].hash(), plans[1].hash());
    }

    // proves kv.I6
    #[test]
    fn a_failure_anywhere_leaves_everything_as_it_was(
        before in change(true),
        after in change(true),
        at in 0usize..12,
    ) {
        let mut lab = Lab::default();
        let mut reference = Reference::default();
        lab.commit_delta(delta(&before).best_effort()).unwrap();
        reference.apply(&before);
        let system = lab.system_text();
        if fail_once_at(&mut lab, &after, at).is_none() {
            return Ok(());
        }
        match lab.commit(&after).unwrap() {
            TransactionOutcome::Failed { undone, .. } => {
                prop_assert!(undone);
                prop_assert_eq!(lab.system_text(), system);
            }
            TransactionOutcome::Done { .. } => reference.apply(&after),
            other => panic!("{other:?}"),
        }
        lab.failing.clear();
        lab.run_until_idle(LONG);
        check_converged(&lab, &reference);
    }

    #[test]
    fn drift_of_any_kind_is_repaired(
        intended in change(true),
        drift in proptest::collection::vec(change(true), 1..4),
    ) {
        let mut lab = Lab::default();
        let mut reference = Reference::default();
        lab.commit_delta(delta(&intended).best_effort()).unwrap();
        reference.apply(&intended);
        let ours: BTreeSet<Key> = lab.system.keys().cloned().collect();
        lab.strict = false;
        lab.failed_in_batch = true; // what the outside did may be in the way of a plan that does not know yet
        for drift in drift {
            // Only values of ours drift: others are foreign, and stay.
            let drift = drift.split(';').filter(|item| {
                let name = item.trim().trim_start_matches('-').split(' ').next().unwrap();
                ours.contains(&key(name))
            });
            let facts = lab.change_outside_silently(&drift.collect::<Vec<_>>().join(";"));
            lab.report(facts);
        }
        lab.run_until_idle(LONG);
        lab.resync();
        lab.run_until_idle(LONG);
        check_converged(&lab, &reference);
    }

    // proves kv.I10
    #[test]
    fn a_crash_anywhere_ends_in_the_intent(before in change(true), after in change(true), at in 0usize..12) {
        let mut reference = Reference::default();
        reference.apply(&before);
        let mut half = Lab::default();
        half.commit_delta(delta(&before).best_effort()).unwrap();
        half.start_and_crash(delta(&after).best_effort(), at);
        for target in [false, true] {
            if target {
                reference.apply(&after);
            }
            let mut again = half.restarted(&reference.intent);
            again.run_until_idle(LONG);
            check_converged(&again, &reference);
        }
    }
}

/// Some values have two operations, and the second one is not done.
#[test]
fn a_change_with_repeated_operations_on_a_value_is_undone() {
    let before = "a =0 !0 .r(<c) <b; b =0 !0 ; m =0 !0 <A";
    let after = "A =0 !0 <a; a =1 !0 .*s .p <b; b =1 !0 <a <A";
    let operations = Lab::having("", before).plan(after).unwrap().operations().len();
    for at in 0..operations {
        let mut lab = Lab::default();
        lab.commit_delta(delta(before).best_effort()).unwrap();
        let system = lab.system_text();
        let failing = fail_once_at(&mut lab, after, at).expect("there are so many operations");
        if let TransactionOutcome::Failed { undone, .. } = lab.commit(after).unwrap() {
            assert!(undone, "{failing}");
            assert_eq!(lab.system_text(), system, "{failing}: {}", lab.log());
        }
    }
}

/// Makes the operation at this place of a change fail. `None` when the change is refused, or has fewer operations.
fn fail_once_at(lab: &mut Lab, change: &str, at: usize) -> Option<String> {
    let plan = lab.plan(change).ok()?;
    let op = plan.operations().get(at)?;
    let failing = format!("{} {}", op.action, plan.label(op));
    lab.fails_once = true;
    lab.failing.insert(failing.clone(), error(16, "busy", true));
    Some(failing)
}
