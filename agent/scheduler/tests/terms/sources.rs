//! Several sources of one value.

use crate::common::{Lab, delta, error};
use holdfast_scheduler::{IntentSource, Outcome, PlanError};

fn source(text: &str) -> IntentSource {
    match text {
        "strong" => IntentSource { priority: 9, id: 0 },
        "first" => IntentSource { priority: 1, id: 1 },
        _ => IntentSource { priority: 1, id: 2 },
    }
}

/// `strong: a =1; second: -a`, one change each, and what is there after each one.
#[track_caller]
fn check_stack(changes: &str, want: &[&str]) {
    let mut lab = Lab::default();
    for (change, want) in changes.split('|').zip(want) {
        let (name, text) = change.trim().split_once(": ").unwrap();
        lab.commit_delta(delta(text).from_source(source(name))).unwrap();
        assert_eq!(lab.shown(), *want, "after {change} of {changes}");
        lab.engine.audit().unwrap();
    }
}

// proves kv.X13
#[test]
fn the_strongest_source_counts_and_the_next_one_after_it() {
    check_stack(
        "first: a =1 | second: a =2 | first: -a | second: -a",
        &["a =1", "a =1", "a =2", ""],
    );
    check_stack(
        "second: a =2 | first: a =1 | second: -a | first: -a",
        &["a =2", "a =1", "a =1", ""],
    );
    check_stack(
        "first: a =1; b <a | strong: a =7 | strong: -a | strong: -a",
        &["a =1; b <a", "a =7; b <a", "a =1; b <a", "a =1; b <a"],
    );
    check_stack(
        "first: a .p=1 | strong: a .p=2 | strong: -a",
        &["a .p=1; a.p =1", "a .p=2; a.p =2", "a .p=1; a.p =1"],
    );
}

#[test]
fn one_sources_change_that_is_taken_back_leaves_the_others() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a =1").from_source(source("first"))).unwrap();
    lab.commit_delta(delta("a =7").from_source(source("strong"))).unwrap();
    lab.failing.insert("create c".into(), error(22, "not so", false));
    let outcome = lab.commit_delta(delta("-a; c").from_source(source("strong"))).unwrap();
    assert!(matches!(outcome, Outcome::Failed { undone: true, .. }));
    assert_eq!(lab.shown(), "a =7");
    lab.commit_delta(delta("-a").from_source(source("strong"))).unwrap();
    assert_eq!(lab.shown(), "a =1");
}

#[test]
fn a_hidden_value_is_judged_when_it_is_given() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a =7").from_source(source("strong"))).unwrap();
    let refused = lab.engine.plan(delta("a bad").from_source(source("first")));
    assert!(matches!(refused, Err(PlanError::Invalid { .. })), "{refused:?}");
}

// proves kv.X8
#[test]
fn a_part_has_one_value_whoever_its_sources_are() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a .*s=1").from_source(source("first"))).unwrap();
    let refused = lab.engine.plan(delta("b .*s=2").from_source(source("strong")));
    assert!(matches!(refused, Err(PlanError::Conflict { .. })), "{refused:?}");
    lab.commit_delta(delta("b .*s=1").from_source(source("strong"))).unwrap();
    lab.commit_delta(delta("-a").from_source(source("first"))).unwrap();
    assert_eq!(lab.shown(), "b .*s=1; s =1", "a shared part goes with the last one that has it");
    lab.commit_delta(delta("-b").from_source(source("strong"))).unwrap();
    assert_eq!(lab.shown(), "");
}
