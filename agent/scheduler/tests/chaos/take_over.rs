//! Plans that are taken over in portions, with events in between.

use proptest::prelude::*;

use crate::common::world::{World, WorldEvent};
use crate::generate::{self, cases, change};
use crate::portions::{end_take_over, play_between_portions, resting};

/// A change with exact dependencies alone, beside which changes with all kinds of them may come: its members need no reducible
/// value either.
fn exact_change() -> impl Strategy<Value = String> {
    let without_circles = |item: &str| {
        let name = item.split(' ').next().unwrap_or_default();
        let is_kept = |token: &&str| {
            !generate::is_member(name)
                || token.strip_prefix('<').is_none_or(|it| generate::PROVIDERS.contains(&it))
        };
        item.split(' ').filter(is_kept).collect::<Vec<_>>().join(" ")
    };
    change(false)
        .prop_map(move |text| text.split("; ").map(without_circles).collect::<Vec<_>>().join("; "))
}

/// Facts, and what others do to the system.
fn outside_events() -> impl Strategy<Value = Vec<WorldEvent>> {
    let names = proptest::sample::select(&generate::NAMES[..]);
    let members = proptest::sample::select(&["c", "B", "a.w", "m.w"][..]);
    let event = prop_oneof![
        4 => Just(WorldEvent::Notice),
        1 => Just(WorldEvent::Read),
        2 => names.prop_map(WorldEvent::RemoveValue),
        1 => members.prop_map(WorldEvent::RemoveMember),
        2 => (0..2u8, 0..3u32).prop_map(|(which, state)| WorldEvent::Foreign(which, state)),
    ];
    proptest::collection::vec(event, 0..30)
}

/// Ends the take-over that is under way, after the facts that are on their way.
fn settle(world: &mut World) {
    for _ in 0..30 {
        world.apply(WorldEvent::Notice);
        world.apply(WorldEvent::TakeOver);
    }
    end_take_over(world);
}

proptest! {
    #![proptest_config(cases(400))]

    /// The invariant of the take-over: what comes between two portions is judged as if it came after the last one.
    #[test]
    fn a_take_over_in_portions_ends_like_one_in_one_piece(
        ours in exact_change(),
        change in change(true),
        atomic in any::<bool>(),
        is_cancelled in any::<bool>(),
        portion in 1usize..4,
        events in outside_events(),
    ) {
        let mut ended = Vec::new();
        for portion in [1000, portion] {
            let mut world = resting(&ours, portion);
            world.apply(WorldEvent::Prepare { change: change.clone(), atomic });
            play_between_portions(&mut world, &events);
            settle(&mut world);
            let states = world.states();
            if is_cancelled {
                world.apply(WorldEvent::CancelPrepared);
            }
            world.check();
            ended.push((states, world));
        }
        let [(whole, one_piece), (portions, in_portions)] = &ended[..] else { unreachable!() };
        prop_assert_eq!(whole, portions, "{}\nand in portions\n{}", one_piece.story(), in_portions.story());
        prop_assert_eq!(one_piece.outcomes(), in_portions.outcomes(), "{}\nand in portions\n{}", one_piece.story(), in_portions.story());
    }

    /// Starts and cancellations that come during the take-over, beside other transactions, end in the intent.
    #[test]
    fn requests_during_a_take_over_are_obeyed_at_its_end(
        before in crate::moves(true),
        change in change(true),
        atomic in any::<bool>(),
        portion in 1usize..4,
        is_cancelled in any::<bool>(),
        during in crate::moves(true),
        failing in proptest::collection::vec(0usize..30, 0..2),
    ) {
        let mut world = World::failing_at(failing).in_portions(portion);
        before.into_iter().for_each(|event| world.apply(event));
        world.apply(WorldEvent::Prepare { change, atomic });
        world.apply(if is_cancelled {
            WorldEvent::CancelPrepared
        } else {
            WorldEvent::StartPrepared
        });
        for event in during {
            world.apply(event);
            world.audit();
        }
        world.check();
    }
}

/// The plan deletes a value that has another provider by the time it is taken over: it has to return.
#[test]
fn a_value_that_is_taken_over_late_returns_after_its_removal() {
    let mut world = resting("e <m/; m/1", 1);
    world.apply(WorldEvent::Intend { change: "-m/1".to_owned(), atomic: false });
    assert!(world.is_taking_over());
    world.apply(WorldEvent::Foreign(0, 1));
    world.apply(WorldEvent::Notice);
    world.check();
}
