//! Retries: for which failures, when, and how often.

use std::time::Duration;

use crate::common::{Lab, delta, error, key};
use holdfast_scheduler::{Engine, OperationError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Time in which a value that has failed is not tried again by time alone.
const BEFORE_SLOW_RETRY: Duration = Duration::from_secs(29);
/// Error of the class "permanent".
const INVALID: i32 = 22;
/// Error of the class "environment".
const UNREACHABLE: i32 = 101;

fn busy() -> OperationError {
    error(16, "busy", true)
}

fn tries(lab: &mut Lab) -> usize {
    lab.log().matches("FAILED").count()
}

#[test]
fn retry_pauses_are_bounded() {
    let mut lab = Lab::default();
    lab.failing.insert("create b".into(), busy());
    lab.commit_delta(delta("b").best_effort()).unwrap();
    for _ in 0..50 {
        let begun = lab.now;
        lab.pass_time();
        assert!(lab.now - begun <= MINUTE);
        assert_eq!(lab.state("b"), "RETRYING");
    }
}

#[test]
fn retry_pauses_are_reproducible_for_one_seed() {
    let course = |seed: u64| {
        let engine = Engine::new(crate::common::registry()).seeded(seed);
        let mut lab = Lab { engine, ..Lab::default() };
        lab.failing.insert("create b".into(), busy());
        lab.commit_delta(delta("b").best_effort()).unwrap();
        let begun = lab.now;
        (0..5)
            .map(|_| {
                lab.pass_time();
                lab.now - begun
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(course(7), course(7));
    assert_ne!(course(7), course(8));
}

#[test]
fn only_the_failed_part_is_retried() {
    let mut lab = Lab::default();
    lab.commit("a <n .p; b <n").unwrap();
    lab.failing.insert("create a.p".into(), busy());
    lab.outside("n");
    assert_eq!((lab.state("a.p").as_str(), lab.state("a").as_str()), ("RETRYING", "CONFIGURED"));
    lab.run_until_idle(HOUR);
    let log = lab.log();
    assert!(log.matches("create a.p FAILED").count() > 2, "{log}");
    assert!(!log.contains("update a") && log.matches("create b").count() == 1, "{log}");
}

/// A value that fails with an errno, an outside change, and whether that triggers another try.
#[track_caller]
fn check_retry_trigger(thing: &str, errno: i32, outside: &str, again: bool) {
    let mut lab = Lab::having("b =1 +f +10.0.0.0/8; m/1; x", "");
    lab.strict = false;
    let name = thing.split(' ').next().unwrap();
    lab.failing.insert(format!("create {name}"), error(errno, "not so", false));
    lab.commit_delta(delta(thing).best_effort()).unwrap();
    lab.run_until_idle(BEFORE_SLOW_RETRY);
    assert_eq!((tries(&mut lab), lab.state(name).as_str()), (1, "FAILED"));
    lab.failing.clear();
    lab.outside(outside);
    lab.run_until_idle(SECOND);
    let want = if again { "CONFIGURED" } else { "FAILED" };
    assert_eq!(lab.state(name), want, "{thing} with errno {errno} after {outside}");
    lab.engine.audit().unwrap();
}

#[test]
fn environment_failures_are_retried_on_a_change() {
    for (thing, outside) in [
        ("a <b", "b =2 +f +10.0.0.0/8"),
        ("a <?f", "b =2 +f +10.0.0.0/8"),
        ("a <@10.0.0.1", "b =2 +f +10.0.0.0/8"),
        ("a <m/", "m/1 =2"),
    ] {
        check_retry_trigger(thing, UNREACHABLE, outside, true);
        check_retry_trigger(thing, UNREACHABLE, "x =2; z", false);
        check_retry_trigger(thing, INVALID, outside, false);
    }
}

#[test]
fn repeated_environment_failures_back_off() {
    let mut lab = Lab::having("b =1", "");
    lab.failing.insert("create a".into(), error(101, "Network is unreachable", false));
    lab.commit_delta(delta("a <b").best_effort()).unwrap();
    for number in 2..200 {
        lab.outside(&format!("b ={number}"));
        lab.run_until_idle(Duration::from_millis(100));
    }
    let tries = tries(&mut lab);
    assert!((3..20).contains(&tries), "{tries} tries in 20 s");
}

#[test]
fn a_new_value_clears_the_failure_of_the_old() {
    let mut lab = Lab::having("b", "");
    lab.failing.insert("create a".into(), error(22, "not so", false));
    lab.commit_delta(delta("a =1 <b").best_effort()).unwrap();
    lab.failing.clear();
    lab.commit("a =2 <b").unwrap();
    assert_eq!(lab.state("a"), "CONFIGURED");
}

/// Seconds from now to each try within so many hours. Others see the value as failed all the time.
fn seconds_of_tries(lab: &mut Lab, name: &str, hours: u32) -> Vec<u64> {
    let begun = lab.now;
    let mut seconds = Vec::new();
    lab.log.clear();
    while lab.deadline.is_some_and(|deadline| deadline <= begun + hours * HOUR) {
        lab.pass_time();
        assert_eq!(lab.state(name), "FAILED");
        assert_eq!(lab.watched[&key(name)].split(' ').next(), Some("FAILED"));
        seconds.extend((0..tries(lab)).map(|_| (lab.now - begun).as_secs()));
    }
    seconds
}

fn slow_retries(lab: &Lab) -> u64 {
    lab.engine.counters().slow_retries
}

/// 30 s after the first failure, then after twice the pause of before, up to 10 minutes.
const SLOW_TRIES: [u64; 10] = [30, 90, 210, 450, 930, 1530, 2130, 2730, 3330, 3930];

#[test]
fn what_failed_is_tried_again_slowly_in_every_class() {
    for (ours, change, failing) in [
        ("", "a", "create a"),
        ("b", "a <b", "create a"),
        ("a =1", "a =2", "update a"),
        ("a !1", "a !2", "create a"),
        ("a", "-a", "delete a"),
    ] {
        for errno in [UNREACHABLE, INVALID] {
            let mut lab = Lab::having("", ours);
            lab.failing.insert(failing.into(), error(errno, "not so", false));
            lab.commit_delta(delta(change).best_effort()).unwrap();
            let mut seconds = seconds_of_tries(&mut lab, "a", 2);
            seconds.truncate(SLOW_TRIES.len());
            assert_eq!(seconds, SLOW_TRIES, "{change} with errno {errno}");
            let status = lab.engine.status(&key("a")).unwrap();
            assert_eq!(u64::from(status.detail.attempts), slow_retries(&lab) + 1);
            assert_eq!(status.detail.retry_at, lab.deadline);
            lab.engine.audit().unwrap();

            lab.failing.clear();
            lab.run_until_idle(HOUR);
            let mut done = Lab::having("", ours);
            done.commit(change).unwrap();
            assert_eq!(lab.system_text(), done.system_text(), "{change} with errno {errno}");
            assert_eq!((lab.engine.pending().len(), lab.deadline), (0, None));
            lab.engine.audit().unwrap();
        }
    }
}

#[test]
fn slow_retries_begin_anew_after_a_success() {
    let mut lab = Lab::having("b =1", "");
    for value in ["a =1", "a =2"] {
        let failing = if value == "a =1" { "create a" } else { "update a" };
        lab.failing.insert(failing.into(), error(UNREACHABLE, "not so", false));
        lab.commit_delta(delta(value).best_effort()).unwrap();
        assert_eq!(seconds_of_tries(&mut lab, "a", 1)[..3], SLOW_TRIES[..3]);
        lab.failing.clear();
        lab.run_until_idle(HOUR);
        assert_eq!(lab.state("a"), "CONFIGURED");
    }
}

#[test]
fn a_trigger_does_not_wait_for_a_slow_retry() {
    let mut lab = Lab::having("b =1", "");
    lab.failing.insert("create a".into(), error(UNREACHABLE, "not so", false));
    lab.commit_delta(delta("a <b").best_effort()).unwrap();
    seconds_of_tries(&mut lab, "a", 5);
    let before = slow_retries(&lab);
    lab.outside("b =2");
    assert_eq!(lab.state("a"), "RETRYING");
    lab.run_until_idle(SECOND);
    assert_eq!(
        (tries(&mut lab), lab.state("a").as_str()),
        (1, "FAILED"),
        "at once, after hours of tries"
    );
    lab.failing.clear();
    lab.outside("b =3");
    lab.run_until_idle(SECOND);
    assert_eq!((lab.state("a").as_str(), slow_retries(&lab)), ("CONFIGURED", before));
    assert_eq!(lab.deadline, None, "there is no further look");
}

/// The object that is in the way of a value is not one of its targets, and its end is noticed at once all the same.
#[test]
fn the_end_of_a_foreign_object_does_not_wait_for_a_slow_retry() {
    let mut lab = Lab::with("a =1");
    for action in ["adopt", "delete", "create"] {
        lab.failing.insert(format!("{action} a"), error(INVALID, "not so", false));
    }
    lab.commit_delta(delta("a =2").best_effort()).unwrap();
    assert_eq!(lab.state("a"), "FAILED");
    lab.run_until_idle(BEFORE_SLOW_RETRY);
    lab.failing.clear();
    lab.outside("-a");
    lab.run_until_idle(SECOND);
    assert_eq!((lab.system_text().as_str(), lab.state("a").as_str()), ("a =2", "CONFIGURED"));
}

/// Drift of a value whose update failed is seen as soon as that of any other.
#[test]
fn drift_does_not_wait_for_a_slow_retry() {
    let mut lab = Lab::having("", "a =1");
    lab.failing.insert("update a".into(), error(INVALID, "not so", false));
    lab.commit_delta(delta("a =2").best_effort()).unwrap();
    lab.failing.clear();
    lab.outside("-a");
    lab.run_until_idle(SECOND);
    assert_eq!((lab.system_text().as_str(), lab.state("a").as_str()), ("a =2", "CONFIGURED"));
}

#[test]
fn a_failed_value_that_waits_is_not_tried() {
    let mut lab = Lab::having("b", "");
    lab.strict = false;
    lab.failing.insert("create a".into(), error(INVALID, "not so", false));
    lab.commit_delta(delta("a <b").best_effort()).unwrap();
    lab.outside("-b");
    lab.run_until_idle(HOUR);
    assert_eq!(
        (tries(&mut lab), slow_retries(&lab), lab.state("a").as_str()),
        (1, 0, "PENDING <b")
    );
    lab.failing.clear();
    lab.outside("b");
    lab.run_until_idle(SECOND);
    assert_eq!(lab.state("a"), "CONFIGURED");
}

/// Dependents that were parked for a delete that failed are in service between two tries of it.
#[test]
fn dependents_of_what_cannot_be_deleted_stay() {
    let mut lab = Lab::having("", "a !1; b <a");
    lab.failing.insert("delete a".into(), error(INVALID, "not so", false));
    lab.commit_delta(delta("a !2").best_effort()).unwrap();
    // The create that follows the delete is waited for, so each try takes some seconds.
    for pause in [20, 50, 80, 150] {
        lab.run_until_idle(pause * SECOND);
        assert_eq!((lab.state("a").as_str(), lab.system_text().as_str()), ("FAILED", "a !1; b <a"));
    }
    assert_eq!(slow_retries(&lab), 3);
}

#[test]
fn values_that_failed_together_are_tried_in_one_transaction() {
    let mut lab = Lab::default();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        lab.failing.insert(format!("create {name}"), error(UNREACHABLE, "not so", false));
    }
    lab.commit_delta(delta(&names.join("; ")).best_effort()).unwrap();
    lab.failing.clear();
    let before = lab.engine.counters().transactions;
    lab.run_until_idle(HOUR);
    assert_eq!(lab.system_text(), "a; b; c; d; e");
    assert_eq!((lab.engine.counters().transactions - before, slow_retries(&lab)), (1, 5));
}
