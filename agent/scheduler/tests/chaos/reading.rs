//! Complete readings that are taken in in portions, with events in between.

use proptest::prelude::*;

use crate::common::world::WorldEvent;
use crate::generate::{self, cases, change};
use crate::portions::{check_states, end_take_over, play_between_portions, resting};

/// Changes of the system that nobody announces.
pub(crate) fn silent_events() -> impl Strategy<Value = Vec<WorldEvent>> {
    let names = proptest::sample::select(&generate::NAMES[..]);
    let event = prop_oneof![
        3 => names.prop_map(WorldEvent::RemoveValue),
        2 => (0..2u8, 0..3u32).prop_map(|(which, state)| WorldEvent::Foreign(which, state)),
    ];
    proptest::collection::vec(event, 0..6)
}

/// Events that come while a reading is taken in: facts, answers, and what others do.
pub(crate) fn events_meanwhile() -> impl Strategy<Value = Vec<WorldEvent>> {
    let names = proptest::sample::select(&generate::NAMES[..]);
    let event = prop_oneof![
        3 => (0..2u8).prop_map(WorldEvent::CarryOut),
        3 => Just(WorldEvent::Answer),
        4 => Just(WorldEvent::Notice),
        1 => Just(WorldEvent::Read),
        1 => names.prop_map(WorldEvent::RemoveValue),
        1 => (0..2u8, 0..3u32).prop_map(|(which, state)| WorldEvent::Foreign(which, state)),
    ];
    proptest::collection::vec(event, 0..30)
}

proptest! {
    #![proptest_config(cases(400))]

    /// The invariant of readings: what comes between two portions is judged as if it came after the last one.
    #[test]
    fn a_reading_in_portions_ends_like_one_in_one_piece(
        ours in change(true),
        under_way in change(true),
        silent in silent_events(),
        meanwhile in events_meanwhile(),
        portion in 1usize..4,
    ) {
        let mut ended = Vec::new();
        for portion in [1000, portion] {
            let mut world = resting(&ours, portion);
            world.apply(WorldEvent::Intend { change: under_way.clone(), atomic: false });
            end_take_over(&mut world);
            silent.iter().for_each(|event| world.apply_silently(event.clone()));
            world.apply(WorldEvent::Resync);
            play_between_portions(&mut world, &meanwhile);
            world.check();
            ended.push(world);
        }
        // Of two values with one identity, whichever was planned for first has it.
        if !format!("{ours} {under_way}").contains('#') {
            let [one_piece, in_portions] = &ended[..] else { unreachable!() };
            check_states(one_piece, in_portions)?;
        }
    }
}
