//! Retries: of which failures, when, and how often.

use std::time::Duration;

use crate::common::{Lab, delta, error};
use holdfast_scheduler::{Engine, OperationError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

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
    lab.run_until_idle(HOUR);
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
    const UNREACHABLE: i32 = 101;
    const INVALID: i32 = 22;
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
