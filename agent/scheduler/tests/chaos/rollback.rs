//! Transactions that are run back in portions, with events in between.

use proptest::prelude::*;

use crate::common::world::{World, WorldEvent};
use crate::generate::{cases, change};
use crate::portions::{check_states, end_take_over, play_between_portions, resting};
use crate::reading::events_meanwhile;

/// Carries operations of a change out, each answered before the next.
fn carry_out(world: &mut World, operations: usize) {
    for _ in 0..operations {
        for event in [WorldEvent::CarryOut(0), WorldEvent::CarryOut(1)] {
            world.apply(event);
            world.apply(WorldEvent::Answer);
            world.apply(WorldEvent::TakeOver);
        }
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// The invariant of the rollback: what comes between two portions is judged as if it came after the last one.
    #[test]
    fn a_rollback_in_portions_ends_like_one_in_one_piece(
        ours in change(true),
        failing in change(true),
        beside in change(true),
        done in 0usize..6,
        meanwhile in events_meanwhile(),
        portion in 1usize..4,
    ) {
        let mut ended = Vec::new();
        for portion in [1000, portion] {
            let mut world = resting(&ours, portion);
            world.apply(WorldEvent::Intend { change: failing.clone(), atomic: true });
            end_take_over(&mut world);
            carry_out(&mut world, done);
            for transport in 0..2 {
                world.apply(WorldEvent::Fail(transport));
                world.apply(WorldEvent::Answer);
            }
            world.apply(WorldEvent::Intend { change: beside.clone(), atomic: false });
            play_between_portions(&mut world, &meanwhile);
            world.check();
            ended.push(world);
        }
        let [one_piece, in_portions] = &ended[..] else { unreachable!() };
        // Which operations were under way when one failed is a matter of their number at a time.
        if one_piece.outcomes() == in_portions.outcomes() && !format!("{ours} {failing} {beside}").contains('#') {
            check_states(one_piece, in_portions)?;
        }
    }
}
