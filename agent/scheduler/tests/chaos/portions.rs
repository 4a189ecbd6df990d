//! Schedules that are played twice: by an engine that does everything in one piece, and by one that works in portions.

use std::collections::BTreeMap;

use holdfast_scheduler::Key;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::common::world::{World, WorldEvent};

/// A world at rest with these values.
pub(crate) fn resting(ours: &str, portion: usize) -> World {
    let mut world = World::default().in_portions(portion);
    world.apply(WorldEvent::Intend { change: ours.to_owned(), atomic: false });
    world.rest();
    world
}

/// Ends the take-over that is under way.
pub(crate) fn end_take_over(world: &mut World) {
    while world.is_taking_over() {
        world.apply(WorldEvent::TakeOver);
    }
}

/// Plays events, each followed by a portion of the work of the engine.
pub(crate) fn play_between_portions(world: &mut World, events: &[WorldEvent]) {
    for event in events {
        world.apply(event.clone());
        world.audit();
        world.apply(WorldEvent::TakeOver);
        world.audit();
    }
}

/// State of each value. Whether one that waits was there in between is a matter of time.
fn states(world: &World) -> BTreeMap<Key, String> {
    let states = world.states().into_iter();
    states.map(|(key, state)| (key, state.split(' ').next().unwrap_or_default().into())).collect()
}

/// Checks that values have the same states in both worlds.
pub(crate) fn check_states(one_piece: &World, in_portions: &World) -> TestCaseResult {
    let stories = format!("{}\nand in portions\n{}", one_piece.story(), in_portions.story());
    prop_assert_eq!(states(one_piece), states(in_portions), "{}", stories);
    Ok(())
}
