//! Random schedules: operations, answers, notices, changes of intent, outside events, failures and crashes in any
//! order. In the end the system always equals the reference.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

#[path = "../common/mod.rs"]
mod common;
mod convergence;
#[path = "../common/generate.rs"]
mod generate;
mod planning;
mod portions;
mod reading;
mod regressions;
mod rollback;
mod take_over;

use proptest::prelude::*;

use common::world::{World, WorldEvent};
use generate::{cases, change};

/// One change of intent, atomic or not.
fn intent() -> impl Strategy<Value = WorldEvent> {
    (change(true), any::<bool>()).prop_map(|(change, atomic)| WorldEvent::Intend { change, atomic })
}

/// Events that may happen next. Impossible ones are skipped.
fn moves(outside: bool) -> impl Strategy<Value = Vec<WorldEvent>> {
    let mut all = vec![
        (6, (0..2u8).prop_map(WorldEvent::CarryOut).boxed()),
        (5, Just(WorldEvent::Answer).boxed()),
        (4, Just(WorldEvent::Read).boxed()),
        (4, Just(WorldEvent::Notice).boxed()),
        (1, Just(WorldEvent::Time).boxed()),
        (4, Just(WorldEvent::TakeOver).boxed()),
        (1, Just(WorldEvent::Resync).boxed()),
        (3, intent().boxed()),
        (
            1,
            (change(true), any::<bool>())
                .prop_map(|(change, atomic)| WorldEvent::Prepare { change, atomic })
                .boxed(),
        ),
        (1, Just(WorldEvent::StartPrepared).boxed()),
        (1, Just(WorldEvent::CancelPrepared).boxed()),
    ];
    if outside {
        let names = proptest::sample::select(&generate::NAMES[..]);
        all.push((1, names.prop_map(WorldEvent::RemoveValue).boxed()));
        let names = proptest::sample::select(&["c", "B", "a.w", "m.w"][..]);
        all.push((2, names.prop_map(WorldEvent::RemoveMember).boxed()));
        all.push((
            1,
            (0..2u8, 0..3u32).prop_map(|(which, state)| WorldEvent::Foreign(which, state)).boxed(),
        ));
    }
    proptest::collection::vec(proptest::strategy::Union::new_weighted(all), 4..60)
}

/// Operations submitted at a time: hardly any, or all.
fn portion() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1), Just(2), Just(1000)]
}

proptest! {
    #![proptest_config(cases(200))]

    // proves kv.I2, kv.I7, kv.I9, kv.I11, kv.I12
    #[test]
    fn any_order_of_events_converges_to_the_intent(moves in moves(false), portion in portion()) {
        let mut world = World::default().in_portions(portion);
        for step in moves {
            world.apply(step);
        }
        world.check();
    }

    // proves kv.I2, kv.I7, kv.I11, kv.I12
    #[test]
    fn failures_and_outside_changes_converge(
        moves in moves(true),
        failing in proptest::collection::vec(0usize..30, 0..3),
        portion in portion(),
    ) {
        let mut world = World::failing_at(failing).in_portions(portion);
        for step in moves {
            world.apply(step);
        }
        world.check();
    }

    // proves kv.X15, kv.I10
    #[test]
    fn a_crash_at_any_moment_ends_in_what_was_committed(
        before in moves(true),
        after in moves(true),
        failing in proptest::collection::vec(0usize..30, 0..2),
        portion in portion(),
    ) {
        let mut world = World::failing_at(failing).in_portions(portion);
        for step in before {
            world.apply(step);
        }
        world.apply(WorldEvent::Crash);
        for step in after {
            world.apply(step);
        }
        world.check();
    }
}
