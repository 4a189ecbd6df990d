//! Values that the engine plans for without a request, in portions, with events and changes of clients in between.

use proptest::prelude::*;

use crate::common::world::WorldEvent;
use crate::generate::{cases, change};
use crate::portions::{check_states, play_between_portions, resting};
use crate::reading::{events_meanwhile, silent_events};

/// Events of the system, and changes of clients.
fn events_and_changes() -> impl Strategy<Value = Vec<WorldEvent>> {
    let change = change(true).prop_map(|change| WorldEvent::Intend { change, atomic: false });
    (events_meanwhile(), proptest::option::of((change, 0usize..10))).prop_map(
        |(mut all, change)| {
            if let Some((change, at)) = change {
                all.insert(at.min(all.len()), change);
            }
            all
        },
    )
}

proptest! {
    #![proptest_config(cases(400))]

    /// Values that are found after a start, in place or not, are planned for alike in portions and in one piece.
    #[test]
    fn a_start_in_portions_ends_like_one_in_one_piece(
        ours in change(true),
        silent in silent_events(),
        meanwhile in events_and_changes(),
        portion in 1usize..4,
    ) {
        let mut ended = Vec::new();
        for portion in [1000, portion] {
            let mut world = resting(&ours, portion);
            silent.iter().for_each(|event| world.apply_silently(event.clone()));
            world.apply(WorldEvent::Crash);
            play_between_portions(&mut world, &meanwhile);
            world.check();
            ended.push(world);
        }
        // Of two values with one identity, whichever was planned for first has it.
        if !format!("{ours} {meanwhile:?}").contains('#') {
            let [one_piece, in_portions] = &ended[..] else { unreachable!() };
            check_states(one_piece, in_portions)?;
        }
    }
}
