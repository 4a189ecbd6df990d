//! Waits for the progress of a change.

use std::time::Duration;

use crate::answer;
use crate::common::{Lab, delta, error, key};
use holdfast_scheduler::{Delta, EngineOutput, Key, Level, Operation, TxnId, WaitResult};

const SECOND: Duration = Duration::from_secs(1);

/// Starts a change; returns its operations, and the waits that end at once.
fn begin(lab: &mut Lab, change: Delta) -> (TxnId, Vec<Operation>, Vec<WaitResult>) {
    let plan = lab.engine.plan(change).unwrap();
    let (txn, mut step) = lab.engine.start(plan, lab.now());
    let submit = std::mem::take(&mut step.submit);
    let reached = std::mem::take(&mut step.reached);
    lab.follow(step);
    (txn, submit, reached)
}

fn reached(txn: TxnId, level: Level, missing: &[&str], in_time: bool) -> WaitResult {
    let missing: Vec<Key> = missing.iter().map(|name| key(name)).collect();
    WaitResult { txn, level, missing, in_time }
}

/// Carries out a step, and returns the waits that end.
fn follow(lab: &mut Lab, mut step: EngineOutput) -> Vec<WaitResult> {
    let mut all = std::mem::take(&mut step.reached);
    let mut steps = std::collections::VecDeque::from([step]);
    while let Some(mut step) = steps.pop_front() {
        all.append(&mut step.reached);
        lab.deadline = step.deadline;
        let completions: Vec<_> = step.submit.iter().filter_map(|op| lab.execute(op)).collect();
        if !completions.is_empty() {
            steps.push_back(lab.engine.completed(completions, lab.now()));
        }
        if !step.read.is_empty() {
            let facts = step.read.iter().map(|key| crate::common::fact(key, lab.system.get(key)));
            let facts = facts.collect();
            steps.push_back(lab.engine.observed(facts, lab.now()));
        }
    }
    all
}

#[test]
fn a_wait_ends_at_its_level() {
    let mut lab = Lab::default();
    let (txn, ops, at_once) = begin(&mut lab, delta("a").waiting_for(Level::Accepted, SECOND));
    assert_eq!(at_once, [reached(txn, Level::Accepted, &[], true)]);
    answer(&mut lab, &ops);
    let plan = lab.engine.plan(delta("b; c <x .p").waiting_for(Level::Applied, SECOND)).unwrap();
    let (txn, step) = lab.engine.start(plan, lab.now());
    assert_eq!(follow(&mut lab, step), [reached(txn, Level::Applied, &[], true)]);
}

#[test]
fn a_wait_for_convergence_ends_with_the_last_value() {
    let mut lab = Lab::default();
    let change = delta("a; b <x .p; -z").waiting_for(Level::Converged, 600 * SECOND);
    let plan = lab.engine.plan(change).unwrap();
    let (txn, step) = lab.engine.start(plan, lab.now());
    assert_eq!(follow(&mut lab, step), [], "it is applied, and b waits");
    let facts = lab.change_outside_silently("w");
    let step = lab.engine.observed(facts, lab.now());
    assert_eq!(follow(&mut lab, step), []);
    let facts = lab.change_outside_silently("x");
    let step = lab.engine.observed(facts, lab.now());
    assert_eq!(follow(&mut lab, step), [reached(txn, Level::Converged, &[], true)]);
    assert_eq!(lab.engine.due(lab.now()).deadline, None, "and nothing is left of it");
}

#[test]
fn an_expired_wait_lists_missing_values() {
    let mut lab = Lab::default();
    let change = delta("a; b <x .p").waiting_for(Level::Converged, 5 * SECOND);
    let plan = lab.engine.plan(change).unwrap();
    let (txn, step) = lab.engine.start(plan, lab.now());
    assert_eq!(follow(&mut lab, step), []);
    assert_eq!(lab.deadline, Some(lab.now + 5 * SECOND));
    lab.now += 5 * SECOND;
    let step = lab.engine.due(lab.now());
    assert_eq!(follow(&mut lab, step), [reached(txn, Level::Converged, &["b", "b.p"], false)]);
}

#[test]
fn a_wait_for_a_failed_change_is_dropped() {
    let mut lab = Lab::default();
    lab.failing.insert("create a".into(), error(22, "not so", false));
    let plan = lab.engine.plan(delta("a").waiting_for(Level::Converged, SECOND)).unwrap();
    let (_, step) = lab.engine.start(plan, lab.now());
    assert_eq!(follow(&mut lab, step), []);
    lab.now += 5 * SECOND;
    let step = lab.engine.due(lab.now());
    assert_eq!(follow(&mut lab, step), []);
}
