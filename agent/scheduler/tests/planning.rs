//! Plans in the making: how much is done at a time, what is read, and what happens when that changes.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

mod common;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::time::Duration;

use common::{Lab, delta, fingerprint};
use holdfast_scheduler::{Delta, Engine, Plan, PlanError, Planning};

/// Size of a large change.
const MANY: usize = 20_000;
/// Most values and entries of dependency lists that may be visited between two questions: a portion of validated
/// values, each with one dependency here, and then some.
const STRETCH_MOST: u64 = 5_000;

fn many(count: usize, line: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        write!(text, "{};", line(number)).unwrap();
    }
    text
}

fn quick() -> Lab {
    Lab { strict: false, ..Lab::default() }
}

/// Plans on until the next question, and pauses there.
fn stretch(planning: &mut Planning, engine: &Engine) -> Option<Result<Plan, PlanError>> {
    planning.advance(engine, &mut || true)
}

/// Plans on without a pause.
fn finish(planning: &mut Planning, engine: &Engine) -> Result<Plan, PlanError> {
    loop {
        if let Some(plan) = planning.advance(engine, &mut || false) {
            return plan;
        }
    }
}

fn is_movable<T: Send + 'static>(_: &T) {}

/// Plans a change in stretches that each do little; the plan is the usual one.
#[track_caller]
fn check_stretches(lab: &Lab, delta: Delta, stretches_least: usize) {
    let mut planning = Planning::new(delta.clone());
    is_movable(&planning);
    let mut stretches = 0;
    let mut before = 0;
    let outcome = loop {
        let outcome = stretch(&mut planning, &lab.engine);
        let cost = planning.cost();
        let work = cost.visited + cost.edges;
        assert!(work - before <= STRETCH_MOST, "{} at once", work - before);
        if let Some(outcome) = outcome {
            break outcome.unwrap();
        }
        (stretches, before) = (stretches + 1, work);
    };
    assert!(stretches >= stretches_least, "{stretches} stretches");
    assert_eq!(planning.beginnings(), 1);
    let at_once = lab.engine.plan(delta).unwrap();
    assert_eq!(outcome.cost(), at_once.cost());
    assert!(fingerprint(&Ok(outcome)) == fingerprint(&Ok(at_once)));
}

#[test]
fn a_large_change_is_planned_in_small_stretches() {
    let mut lab = quick();
    lab.commit("l +f").unwrap();
    let create = many(MANY, |n| format!("v{n} <l"));
    check_stretches(&lab, delta(&create), MANY / 32);
    let hash = lab.plan(&create).unwrap().hash();
    check_stretches(&lab, delta(&create).expecting_plan(hash), 3 * MANY / 32);
    lab.commit(&create).unwrap();
    check_stretches(&lab, delta(&many(MANY, |n| format!("-v{n}"))), MANY / 32);
    check_stretches(&lab, delta(&many(MANY, |n| format!("v{n} =1 <l <?f"))), MANY / 32);
}

#[test]
fn one_value_with_many_dependents_is_planned_in_small_stretches() {
    for (ours, change) in [
        ("<l", "-l"),         // parked
        ("<?f", "l =1"),      // parked for want of a facet
        ("<l +g", "-l"),      // gone with it
        ("|l |m", "-l"),      // reduced
        ("|l |m |k", "k"),    // reduced less
        ("<late", "late"),    // unblocked
        ("<late =1", "late"), // the same, of another content
    ] {
        let mut lab = quick();
        lab.commit("l +f ~g; m").unwrap();
        lab.commit(&many(MANY, |n| format!("v{n} {ours}"))).unwrap();
        assert!(lab.plan(change).unwrap().operations().len() + 1 >= MANY || ours == "<l +g");
        check_stretches(&lab, delta(change), MANY / 32);
    }
}

#[test]
fn values_are_validated_before_the_plan_is_made() {
    let lab = quick();
    let mut planning = Planning::new(delta("a; b"));
    assert!(!planning.is_validated());
    assert!(planning.advance(&lab.engine, &mut || false).is_none(), "the caller is told");
    assert!(planning.is_validated());
    assert_eq!(finish(&mut planning, &lab.engine).unwrap().to_string(), "create a; create b");
    let mut refused = Planning::new(delta("a; b twice"));
    assert!(matches!(
        refused.advance(&lab.engine, &mut || false),
        Some(Err(PlanError::Invalid { .. }))
    ));
    assert!(!refused.is_validated());
}

/// A system in which other values are, and values of ours.
fn among_others(ours: &str) -> Lab {
    let mut lab = quick();
    lab.commit("x; y <x; z +h +192.0.2.0/24; r |x |k; u <x/; i #i; late <@198.51.100.1").unwrap();
    lab.commit(ours).unwrap();
    lab
}

/// Plans a change up to the last unit of work.
fn nearly_planned(lab: &Lab, change: &str) -> Planning {
    let begun = || Planning::new(delta(change)).in_portions(NonZeroUsize::MIN);
    let mut all = begun();
    let mut units = 0;
    while stretch(&mut all, &lab.engine).is_none() {
        units += 1;
    }
    let mut planning = begun();
    for _ in 0..units {
        assert!(stretch(&mut planning, &lab.engine).is_none());
    }
    planning
}

/// Values of ours, a change, an event, and whether the change is planned again when it happens meanwhile.
#[track_caller]
fn check_again(ours: &str, change: &str, event: (&str, fn(&mut Lab, &str)), again: bool) {
    let mut lab = among_others(ours);
    let mut planning = nearly_planned(&lab, change);
    let plan = lab.plan(change).unwrap();
    let (text, happen) = event;
    happen(&mut lab, text);
    assert_eq!(lab.engine.is_current(&plan), !again, "{change} with {ours} and {text}");
    let planned = finish(&mut planning, &lab.engine);
    assert_eq!(fingerprint(&planned), fingerprint(&lab.plan(change)), "{text}");
    assert_eq!(planning.beginnings(), 1 + u32::from(again), "{change} with {ours} and {text}");
    if !again {
        assert_eq!(planning.cost(), plan.cost(), "nothing is visited twice");
    }
    let before = lab.engine.counters();
    let now = lab.now();
    let (_, step) = lab.engine.start(plan, now);
    lab.follow(step);
    let after = lab.engine.counters();
    assert_eq!(after.replanned - before.replanned, u64::from(again), "{change} and {text}");
    lab.run_until_idle(Duration::from_secs(3600)); // drift is repaired
    assert!(lab.engine.is_idle(), "{:?}", lab.finished);
    lab.engine.audit().unwrap();
}

fn change_outside(lab: &mut Lab, text: &str) {
    lab.outside(text);
}

fn committed(lab: &mut Lab, text: &str) {
    lab.commit(text).unwrap();
}

#[test]
fn a_plan_is_made_again_when_what_it_has_read_changes() {
    for (ours, change, event) in [
        ("a; b <a", "b =1 <a", "-a"),     // the provider of a value goes
        ("", "b <a", "a"),                // or comes
        ("", "a", "a =7"),                // the key is taken
        ("a", "a =1", "a =7"),            // the value itself differs
        ("a; b <a", "-a", "-b"),          // a dependent goes
        ("a; b <?f", "b =1 <?f", "c +f"), // another provider of a facet comes
        ("b <@10.0.0.1", "b =1 <@10.0.0.1", "c +10.0.0.0/8"), // a prefix covers an address
        ("", "b <@10.0.0.1", "c +10.0.0.0/8"), // which nothing needed so far
        ("", "b <m/", "m/1"),             // something comes under a key
        ("a; b <a; c <b", "-b", "-a"),    // a value is unsupported
        ("a; b <a", "c <b", "-a"),        // or one that is relied on is
    ] {
        check_again(ours, change, (event, change_outside), true);
    }
    for (ours, change, event) in [
        ("a; b <a", "-a", "c <a"),             // a value comes to depend on it
        ("", "a", "c <a"),                     // or waits for it
        ("", "a +f", "c <?f"),                 // for its facet
        ("", "a +10.0.0.0/8", "c <@10.0.0.1"), // for its prefix
        ("", "a/1", "c <a/"),                  // for a key like it
        ("", "a #c", "b #c"),                  // an identity is taken
        ("b #c", "a", "-b; a =1"),             // the value is intended otherwise
        ("a; b <a", "-a", "b =1 <a"),          // a dependent changes
    ] {
        check_again(ours, change, (event, committed), true);
    }
}

#[test]
fn a_plan_is_kept_when_something_else_changes() {
    let changes = [
        ("", "a; b <a"),
        ("a; b <a", "-a"),
        ("a; b <a", "b =1 <a"),
        ("", "b <@10.0.0.1 <?f"),
        ("a +f #c +10.0.0.0/8", "a =1 +g #d +11.0.0.0/8; b <m/"),
        ("r2 |a |b; a", "b"),
    ];
    for (ours, change) in changes {
        for event in ["x =1", "-x", "y =7 <x", "k", "-z", "w +h +203.0.113.0/24", "x/1"] {
            check_again(ours, change, (event, change_outside), false);
        }
        for event in ["x =1", "-y", "k +k", "y =1 <z", "n <?h", "n <nobody", "-i; j #i", "-r"] {
            check_again(ours, change, (event, committed), false);
        }
    }
    // Values with one provider in common stand beside each other.
    check_again("a; s <a", "b <a", ("c <a", committed), false);
    check_again("a; c <a", "b <a", ("-c", committed), false);
    check_again("a +10.0.0.0/8; c <@10.0.0.1", "b <@10.0.0.1", ("-c", committed), false);
}

#[test]
fn plans_made_together_are_started_one_after_the_other() {
    let mut lab = among_others("a +f; s <a <?f");
    let changes = ["b <a", "c <a <?f", "d; e <d", "A", "g |d |a"];
    let plans = changes.map(|change| lab.plan(change).unwrap());
    let now = lab.now();
    for plan in plans {
        let (_, step) = lab.engine.prepare(plan, now);
        assert!(step.submit.is_empty());
    }
    assert_eq!(lab.engine.counters().replanned, 1, "the last one needs what another one makes");
}

#[test]
fn relevant_events_without_end_do_not_prevent_a_plan() {
    let mut lab = quick();
    lab.commit("l; a =0").unwrap();
    let change = many(100, |n| format!("v{n} <l"));
    let mut planning = Planning::new(delta(&format!("{change} a =1")));
    let mut events = 0;
    let plan = loop {
        if let Some(plan) = stretch(&mut planning, &lab.engine) {
            break plan.unwrap();
        }
        events += 1;
        assert!(events < 100, "it is never made");
        lab.report_facts_only(vec![common::fact(
            &common::key("a"),
            Some(&common::Thing::parse(&format!("a ={}", 100 + events))),
        )]);
    };
    assert_eq!(planning.beginnings(), 9);
    assert_eq!(plan.operations().len(), 101);
    assert!(planning.cost().visited > 0, "beginnings given up count as well");
}

#[test]
fn a_flood_of_changes_is_not_compared_one_by_one() {
    let mut lab = quick();
    lab.commit("l").unwrap();
    let plan = lab.plan("v <l").unwrap();
    lab.commit(&many(MANY, |n| format!("w{n}"))).unwrap();
    let before = lab.engine.counters().replanned;
    let now = lab.now();
    let (_, step) = lab.engine.start(plan, now);
    lab.follow(step);
    assert_eq!(lab.engine.counters().replanned, before + 1);
    lab.engine.audit().unwrap();
}
