//! Several authors of one value.

use crate::common::{Lab, delta, error};
use holdfast_scheduler::{Author, Outcome, PlanError};

fn author(text: &str) -> Author {
    match text {
        "strong" => Author { priority: 9, id: 0 },
        "first" => Author { priority: 1, id: 1 },
        _ => Author { priority: 1, id: 2 },
    }
}

/// `strong: a =1; second: -a`, one change each, and what is there after each one.
#[track_caller]
fn check_stack(changes: &str, want: &[&str]) {
    let mut lab = Lab::default();
    for (change, want) in changes.split('|').zip(want) {
        let (name, text) = change.trim().split_once(": ").unwrap();
        lab.commit_delta(delta(text).by(author(name))).unwrap();
        assert_eq!(lab.shown(), *want, "after {change} of {changes}");
        lab.engine.audit().unwrap();
    }
}

// proves kv.X13
#[test]
fn the_strongest_author_counts_and_the_next_one_after_it() {
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
fn one_authors_change_that_is_taken_back_leaves_the_others() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a =1").by(author("first"))).unwrap();
    lab.commit_delta(delta("a =7").by(author("strong"))).unwrap();
    lab.failing.insert("create c".into(), error(22, "not so", false));
    let outcome = lab.commit_delta(delta("-a; c").by(author("strong"))).unwrap();
    assert!(matches!(outcome, Outcome::Failed { undone: true, .. }));
    assert_eq!(lab.shown(), "a =7");
    lab.commit_delta(delta("-a").by(author("strong"))).unwrap();
    assert_eq!(lab.shown(), "a =1");
}

#[test]
fn a_hidden_value_is_judged_when_it_is_given() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a =7").by(author("strong"))).unwrap();
    let refused = lab.engine.plan(delta("a bad").by(author("first")));
    assert!(matches!(refused, Err(PlanError::Invalid { .. })), "{refused:?}");
}

// proves kv.X8
#[test]
fn a_part_has_one_value_whoever_its_authors_are() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a .*s=1").by(author("first"))).unwrap();
    let refused = lab.engine.plan(delta("b .*s=2").by(author("strong")));
    assert!(matches!(refused, Err(PlanError::Conflict { .. })), "{refused:?}");
    lab.commit_delta(delta("b .*s=1").by(author("strong"))).unwrap();
    lab.commit_delta(delta("-a").by(author("first"))).unwrap();
    assert_eq!(lab.shown(), "b .*s=1; s =1", "a shared part goes with the last one that has it");
    lab.commit_delta(delta("-b").by(author("strong"))).unwrap();
    assert_eq!(lab.shown(), "");
}
