//! Model checking: every order of events of small systems of at most four keys, with two independent transports, one
//! failure, one crash, and one second change.
//!
//! The state of the model is the real engine, which cannot be copied. So a state is the list of events that leads to
//! it, replayed; of lists with equal digests, one is followed.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "../common/mod.rs"]
mod common;

use std::collections::HashSet;

use common::world::{World, WorldEvent};

/// A small system and its events.
#[derive(Clone, Copy)]
struct Small<'t> {
    ours: &'t str,
    change: &'t str,
    atomic: bool,
    /// Change that may be requested at any moment after the first one.
    second: &'t str,
    /// Failures that may occur on one path.
    failures: usize,
    crashes: usize,
}

/// Events used up on the way to a state.
#[derive(Clone, Copy, Default)]
struct Used {
    failures: usize,
    crashes: usize,
    seconds: usize,
}

/// Bound on the states of one system: beyond it the model is too large for a test.
const STATES_MOST: usize = 200_000;

/// Visits every reachable state and returns their number.
#[track_caller]
fn explore(small: Small<'_>) -> usize {
    let mut visited = HashSet::new();
    let mut open: Vec<(Vec<WorldEvent>, Used)> = vec![(Vec::new(), Used::default())];
    while let Some((path, used)) = open.pop() {
        let world = replay(small, &path);
        if !visited.insert((world.digest(), used.failures, used.crashes, used.seconds)) {
            continue;
        }
        assert!(visited.len() < STATES_MOST, "too many states");
        world.audit();
        if used.failures + used.crashes == 0 {
            world.check_needs();
        }
        let moves = next(small, &world, used);
        if world.enabled().is_empty() {
            replay(small, &path).check();
        }
        for (step, used) in moves {
            let mut path = path.clone();
            path.push(step);
            open.push((path, used));
        }
    }
    visited.len()
}

fn replay(small: Small<'_>, path: &[WorldEvent]) -> World {
    let mut world = World::having(small.ours);
    world.apply(WorldEvent::Intend { change: small.change.to_owned(), atomic: small.atomic });
    for step in path {
        world.apply(step.clone());
    }
    world
}

/// Events that may follow a state.
fn next(small: Small<'_>, world: &World, used: Used) -> Vec<(WorldEvent, Used)> {
    let mut next = Vec::new();
    for step in world.enabled() {
        if let WorldEvent::CarryOut(transport) = step
            && used.failures < small.failures
        {
            next.push((WorldEvent::Fail(transport), Used { failures: used.failures + 1, ..used }));
        }
        next.push((step, used));
    }
    if used.crashes < small.crashes {
        next.push((WorldEvent::Crash, Used { crashes: used.crashes + 1, ..used }));
    }
    if used.seconds == 0 && !small.second.is_empty() {
        let second = WorldEvent::Intend { change: small.second.to_owned(), atomic: true };
        next.push((second, Used { seconds: 1, ..used }));
    }
    next
}

/// Systems of at most four keys: values of ours, the change, the second change.
const SYSTEMS: [(&str, &str, &str); 6] = [
    ("", "a <B; B", "-B"),
    ("a <B; B", "a =1 <B; B !1", "-a"),
    ("a <B =1; B", "-B; -a", "a <B =2; B"),
    ("a <?f; B +f", "-B; c +f", "B +f; -c"),
    ("a .p; B <a.p", "a; C", "-B"),
    ("a |B |c; B; c", "-B", "c =1; B"),
];

// proves kv.I1, kv.I2, kv.I7, kv.I11, kv.X27, kv.I12
#[test]
fn every_order_of_answers_with_a_second_change_converges() {
    for (ours, change, second) in SYSTEMS {
        let small = Small { ours, change, atomic: true, second, failures: 0, crashes: 0 };
        let states = explore(small);
        assert!(states > 100, "{change}: only {states}");
    }
}

/// Systems of two keys: with a failure or a crash anywhere, larger ones take minutes.
const SMALLER: [(&str, &str); 5] = [
    ("", "a <B; B"),
    ("a <B; B", "-B; -a"),
    ("a =1; B", "a =2; B !1"),
    ("a |B |c; B; c", "-B"),
    ("a |B |c; c", "B"),
];

// proves kv.I6, kv.I10, kv.X15
#[test]
fn one_failure_or_crash_at_any_moment_converges() {
    for (ours, change) in SMALLER {
        for atomic in [true, false] {
            let small = Small { ours, change, atomic, second: "", failures: 1, crashes: 0 };
            explore(small);
            explore(Small { failures: 0, crashes: 1, ..small });
        }
    }
}
