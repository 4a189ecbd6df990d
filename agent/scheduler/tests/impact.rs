//! The impact of failures: rows, work counters, and the walk in portions against a fixed point that has no order.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

mod common;
#[path = "common/generate.rs"]
mod generate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroUsize;

use common::{Lab, Reference, Thing, delta, key};
use generate::{NAMES, cases, change};
use holdfast_scheduler::{
    EDGES_MOST, Engine, Failure, Impact, ImpactWalk, Key, LISTED_MOST, Target,
};
use proptest::prelude::*;

/// Edges of a portion in rows: few, so that each row has several.
const FEW_EDGES: usize = 2;

/// A failure as text: `a` for a value, `<?f` for what a value with this token needs, `m/` for all values below.
fn failure(text: &str) -> Failure {
    let mut failure = Failure::default();
    for word in text.split_whitespace() {
        if word.starts_with('<') {
            let needs = Thing::parse(&format!("any {word}")).needs();
            failure.targets.extend(needs.into_iter().map(|need| need.target));
        } else if let Some(prefix) = word.strip_suffix('/') {
            failure.below.push(key(prefix));
        } else {
            failure.keys.push(key(word));
        }
    }
    failure
}

fn walk(engine: &Engine, failure: Failure, edges: usize) -> Impact {
    let mut walk = ImpactWalk::new(failure);
    loop {
        if let Some(impact) = walk.portion(engine, edges) {
            return impact;
        }
    }
}

fn names(lab: &Lab, keys: &[Key]) -> String {
    let name = |key: &Key| lab.system.get(key).map_or("?", |thing| thing.name.as_str());
    keys.iter().map(name).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(foreign: &str, ours: &str, failed: &str, down: &str, degraded: &str) {
    let mut lab = Lab::having(foreign, ours);
    lab.engine.index_kinds(&[key("m").kind()]);
    let impact = walk(&lab.engine, failure(failed), FEW_EDGES);
    assert_eq!(names(&lab, &impact.down), down, "down");
    assert_eq!(names(&lab, &impact.degraded), degraded, "degraded");
    assert!(!impact.is_truncated);
}

// proves sv.C41
#[test]
fn what_needs_a_failed_value_is_down_with_all_that_needs_it() {
    check("", "a; b <a; c <b; d", "a", "a b c", "");
    check("", "a :up; b <a:up; c <b; d", "<a:up", "b c", "");
    check("", "a +f; b +f; c <?f", "a", "a", "");
    check("", "a +f; b +f; c <?f", "a b", "a b c", "");
    check("", "a +10.0.0.0/8; b <@10.0.0.1; c <@10.0.0.2", "a", "a b c", "");
    check("", "a +10.0.0.0/8; b <@10.0.0.1; c <@10.0.0.2", "<@10.0.0.1", "b", "");
    check("", "a +10.0.0.0/8; z +10.0.0.0/24; b <@10.0.0.1; c <@10.1.0.1", "a", "a c", "");
    check("", "m/1; m/2; a <m/", "m/1", "m/1", "");
    check("", "m/1; m/2; a <m/", "m/1 m/2", "a m/1 m/2", "");
    check("m/1 +f", "m/2; a <?f", "m/", "a m/1 m/2", "");
}

#[test]
fn what_can_do_without_a_failed_value_is_degraded() {
    check("", "a; b; c |a |b; d <c", "a", "a", "c");
    check("", "a; b; c |a |b; d <c", "a b", "a b c d", "");
    check("", "a; c |a |b; d <c", "a", "a c d", "");
    check("", "a; b; x; c |a |b <x", "x", "c x", "");
    check("", "a; b <a; c |a |b", "a", "a b c", "");
}

#[test]
fn a_part_is_told_as_what_it_belongs_to() {
    check("", "a; b .p(<a); c <b", "a", "a", "b");
    check("", "a .p; c <a.p", "a", "a c", "");
    check("", "a; b <a .p(<a)", "a", "a b", "");
}

#[test]
fn what_waits_or_is_not_there_is_not_in_an_impact() {
    check("", "a; b <a <nobody; c <b", "a", "a", "");
    check("", "a", "nobody", "", "");
    check("", "b <a", "<a", "", "");
}

#[test]
fn what_has_failed_by_itself_is_not_told_and_passes_the_failure_on() {
    let mut lab = Lab::having("", "a; b =1 <a; c <b");
    lab.failing.insert("update b".to_owned(), common::error(22, "refused", false));
    lab.commit_delta(delta("b =2 <a").best_effort()).unwrap();
    let impact = walk(&lab.engine, failure("a"), FEW_EDGES);
    assert_eq!(names(&lab, &impact.down), "a c");
}

fn many(count: usize, line: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    (0..count).for_each(|number| write!(text, "{};", line(number)).unwrap());
    text
}

/// A lab with as many values of ours; they are not checked one by one.
fn large(ours: &str) -> Lab {
    let mut lab = Lab { strict: false, ..Lab::default() };
    lab.commit(ours).unwrap();
    while !lab.engine.is_idle() {
        lab.pass_time();
    }
    lab
}

#[test]
fn a_walk_costs_what_is_affected() {
    const DEPENDENTS: usize = 10_000;
    let others = many(DEPENDENTS, |n| format!("o{n} <x"));
    let routes = many(DEPENDENTS, |n| format!("r{n} <a:up <@10.0.0.1"));
    let lab = large(&format!("x; a :up; b <a +10.0.0.0/24; {others}{routes}"));
    let impact = walk(&lab.engine, failure("a"), usize::MAX);
    let affected = impact.down.len();
    assert_eq!(affected, DEPENDENTS + 2);
    assert!(impact.edges <= 3 * affected + 10, "{} edges", impact.edges);
}

#[test]
fn a_portion_ends_soon_after_its_edges() {
    let lab = large(&format!("a; {}", many(1000, |n| format!("r{n} <a"))));
    let mut walk = ImpactWalk::new(failure("a"));
    let mut portions = 1;
    while walk.portion(&lab.engine, 100).is_none() {
        portions += 1;
    }
    assert_eq!(portions, 11);
}

#[test]
fn a_walk_ends_at_its_limits() {
    let listed = LISTED_MOST + 10;
    let lab = large(&format!("a; {}", many(listed, |n| format!("r{n} <a"))));
    let impact = walk(&lab.engine, failure("a"), 1000);
    assert!(impact.is_truncated && impact.down.len() == LISTED_MOST);
    assert!(impact.edges < EDGES_MOST);
}

#[test]
fn the_version_moves_when_an_impact_may_be_another() {
    let mut lab = Lab::having("z =1", "a; b <a");
    let mut last = lab.engine.dependency_version();
    let mut has_moved = |lab: &Lab| {
        let now = lab.engine.dependency_version();
        std::mem::replace(&mut last, now) != now
    };
    lab.outside("z =2");
    assert!(!has_moved(&lab), "a value that provides what it did before");
    lab.outside("z =2 +f");
    assert!(has_moved(&lab));
    lab.commit("c <a").unwrap();
    assert!(has_moved(&lab));
    lab.outside("-z");
    assert!(has_moved(&lab));
    lab.run_until_idle(std::time::Duration::from_secs(1));
    has_moved(&lab);
    lab.resync();
    assert!(!has_moved(&lab), "a reading of what is known");
}

/// The impact by a rule that is applied until nothing changes.
fn naive(lab: &Lab, intent: &BTreeMap<Key, Thing>, failure: &Failure) -> Impact {
    let mut wholes: BTreeMap<Key, Vec<(Key, Thing)>> = BTreeMap::new();
    let mut open: Vec<Thing> = intent.values().cloned().collect();
    while let Some(thing) = open.pop() {
        for (part, value) in thing.operation_parts() {
            wholes.entry(part).or_default().push((thing.key(), value.clone()));
            open.push(value);
        }
    }
    wholes.values_mut().for_each(|all| all.sort_by(|a, b| a.0.cmp(&b.0)));
    let requested = |key: &Key| {
        let part = || wholes.get(key).and_then(|all| all.first()).map(|(_, value)| value.clone());
        intent.get(key).cloned().or_else(part)
    };
    let mut down: BTreeSet<Key> = BTreeSet::new();
    let named = |key: &Key| {
        failure.keys.contains(key) || failure.below.iter().any(|below| key.starts_with(below))
    };
    down.extend(lab.system.keys().filter(|key| named(key)).cloned());
    let mut degraded = BTreeSet::new();
    loop {
        let met = |target: &Target| {
            let mut left = lab.system.iter().filter(|(key, _)| !down.contains(*key));
            !failure.targets.contains(target) && left.any(|(_, thing)| thing.offers(target))
        };
        degraded.clear();
        let mut failing = Vec::new();
        for (key, there) in lab.system.iter().filter(|(key, _)| !down.contains(*key)) {
            let Some(full) = requested(key) else { continue };
            let is_part = wholes.contains_key(key) && !intent.contains_key(key);
            let is_whole_lost = is_part && !met(&Target::Whole(key.clone()));
            let lost = there.needs().iter().any(|need| !met(&need.target));
            if !is_whole_lost && !lost {
                continue;
            }
            let reduced = full.is_reducible().then(|| full.with_members(met)).flatten();
            let works = reduced.is_some_and(|it| it.needs().iter().all(|need| met(&need.target)));
            if works && !is_whole_lost {
                degraded.insert(key.clone());
            } else {
                failing.push(key.clone());
            }
        }
        if failing.is_empty() {
            break;
        }
        down.extend(failing);
    }
    let next_whole = |part: &Key| {
        let all = wholes.get(part).filter(|_| !intent.contains_key(part))?;
        all.iter().map(|(whole, _)| whole).find(|whole| lab.system.contains_key(*whole)).cloned()
    };
    let whole_of = |part: &Key| std::iter::successors(next_whole(part), &next_whole).last();
    let (parts, values): (Vec<Key>, Vec<Key>) =
        down.iter().cloned().partition(|key| whole_of(key).is_some());
    degraded.extend(parts.iter().filter_map(&whole_of).filter(|whole| !down.contains(whole)));
    let degraded = degraded.into_iter().collect();
    Impact { down: values, degraded, edges: 0, is_truncated: false }
}

proptest! {
    #![proptest_config(cases(300))]

    // proves sv.C41
    #[test]
    fn a_walk_in_portions_finds_what_a_fixed_point_finds(
        changes in proptest::collection::vec(change(true), 1..6),
        keys in proptest::collection::btree_set(proptest::sample::select(&NAMES[..]), 0..3),
        targets in proptest::collection::btree_set(proptest::sample::select(&["<?f", "<a:up", "<@10.0.0.1", "<m/", "m/"][..]), 0..2),
        edges in 1..20_usize,
    ) {
        let mut lab = Lab::default();
        lab.engine = lab.engine.in_portions(NonZeroUsize::new(3).unwrap());
        lab.engine.index_kinds(&[key("m").kind()]);
        let mut reference = Reference::default();
        for change in changes {
            lab.commit_delta(delta(&change).best_effort()).unwrap();
            reference.apply(&change);
        }
        while !lab.engine.is_idle() {
            lab.pass_time();
        }
        let text: Vec<&str> = keys.into_iter().chain(targets).collect();
        let failure = failure(&text.join(" "));
        let expected = naive(&lab, &reference.intent, &failure);
        let found = walk(&lab.engine, failure, edges);
        prop_assert_eq!(names(&lab, &found.down), names(&lab, &expected.down));
        prop_assert_eq!(names(&lab, &found.degraded), names(&lab, &expected.degraded));
    }
}
