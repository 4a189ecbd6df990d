//! Changes that are taken back unless they are confirmed.

use std::time::Duration;

use crate::common::{Lab, delta, error};
use holdfast_scheduler::{Origin, Outcome};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_change_that_nobody_confirms_is_taken_back() {
    let mut lab = Lab::having("", "a =1; b <a");
    let begun = lab.engine.intent_revision();
    lab.commit_delta(delta("a =2; c; -b").confirmed_within(MINUTE)).unwrap();
    assert_eq!((lab.shown().as_str(), lab.engine.unconfirmed().count()), ("a =2; c", 1));
    lab.settle(MINUTE);
    assert_eq!((lab.shown().as_str(), lab.engine.unconfirmed().count()), ("a =1; b <a", 0));
    let record = lab.engine.history().records().last().unwrap();
    assert_eq!(record.origin, Origin::Rollback);
    assert_eq!(lab.engine.intent_revision(), begun + 2, "the way back is a change as well");
}

#[test]
fn a_change_that_is_confirmed_stays() {
    let mut lab = Lab::having("", "a =1");
    let done = lab.commit_delta(delta("a =2").confirmed_within(MINUTE)).unwrap();
    assert!(lab.engine.confirm(done.txn()));
    assert!(!lab.engine.confirm(done.txn()), "once is enough");
    lab.settle(10 * MINUTE);
    assert_eq!(lab.shown(), "a =2");
}

#[test]
fn what_a_later_change_made_of_a_value_is_not_taken_back() {
    let mut lab = Lab::having("", "a =1; b =1");
    lab.commit_delta(delta("a =2; b =2").confirmed_within(MINUTE)).unwrap();
    lab.commit("a =3").unwrap();
    lab.settle(MINUTE);
    assert_eq!(lab.shown(), "a =3; b =1");
}

#[test]
fn unconfirmed_changes_on_top_of_one_another_go_back_to_the_first() {
    let mut lab = Lab::having("", "a =1");
    lab.commit_delta(delta("a =2").confirmed_within(MINUTE)).unwrap();
    lab.commit_delta(delta("a =3").confirmed_within(MINUTE / 2)).unwrap();
    lab.settle(MINUTE / 2);
    assert_eq!(lab.shown(), "a =2");
    lab.settle(MINUTE);
    assert_eq!(lab.shown(), "a =1");
}

#[test]
fn a_change_that_failed_has_nothing_to_confirm() {
    let mut lab = Lab::default();
    lab.failing.insert("create a".into(), error(22, "not so", false));
    let outcome = lab.commit_delta(delta("a").confirmed_within(MINUTE)).unwrap();
    assert!(matches!(outcome, Outcome::Failed { .. }));
    assert_eq!(lab.engine.unconfirmed().count(), 0);
}
