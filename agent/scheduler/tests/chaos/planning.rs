//! Plans in the making while events come in, and plans that are started later than they were made.

use std::num::NonZeroUsize;

use proptest::prelude::*;

use crate::common::fingerprint;
use crate::common::world::{World, WorldEvent};
use crate::generate::{cases, change};
use crate::moves;
use holdfast_scheduler::{Plan, PlanError, Planning};

/// Plans a change. Before each unit of work at one of these places, one of the events happens.
fn plan_among_events(
    world: &mut World,
    change: &str,
    atomic: bool,
    pauses: &[usize],
    events: Vec<WorldEvent>,
) -> Result<Plan, PlanError> {
    let mut planning = Planning::new(World::delta(change, atomic)).in_portions(NonZeroUsize::MIN);
    let mut units = 0;
    let mut events = events.into_iter();
    loop {
        let mut pause = || {
            units += 1;
            pauses.contains(&units)
        };
        if let Some(plan) = planning.advance(world.engine(), &mut pause) {
            return plan;
        }
        if let Some(event) = events.next() {
            world.apply(event);
        }
    }
}

/// Plans a change that is made among events, compares it with a plan that is made at the last moment, starts it, and checks where
/// everything ends.
fn check_plan_among_events(
    before: &[WorldEvent],
    during: Vec<WorldEvent>,
    change: &str,
    atomic: bool,
    pauses: &[usize],
    failing: &[usize],
) {
    let mut world = World::failing_at(failing.to_vec());
    for event in before {
        world.apply(event.clone());
    }
    let planned = plan_among_events(&mut world, change, atomic, pauses, during);
    let at_once = world.engine().plan(World::delta(change, atomic));
    assert_eq!(fingerprint(&planned), fingerprint(&at_once), "{}", world.story());
    if let Ok(plan) = planned {
        world.start(change, plan);
    }
    world.check();
}

/// Places of pauses: anywhere in a small plan.
fn pauses() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..90, 1..8)
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_plan_made_among_events_is_that_of_the_last_moment(
        before in moves(true),
        during in moves(true),
        change in change(true),
        atomic in any::<bool>(),
        pauses in pauses(),
        failing in proptest::collection::vec(0usize..30, 0..2),
    ) {
        check_plan_among_events(&before, during, &change, atomic, &pauses, &failing);
    }

    #[test]
    fn a_plan_started_late_ends_in_the_intent(
        before in moves(true),
        during in moves(true),
        changes in proptest::collection::vec(change(true), 1..4),
        atomic in any::<bool>(),
    ) {
        let mut world = World::default();
        for event in before {
            world.apply(event);
        }
        let plans: Vec<_> = changes
            .iter()
            .map(|change| (change, world.engine().plan(World::delta(change, atomic))))
            .collect();
        let mut events = during.into_iter();
        for (change, plan) in plans {
            for event in events.by_ref().take(4) {
                world.apply(event);
            }
            if let Ok(plan) = plan {
                world.start(change, plan);
            }
        }
        for event in events {
            world.apply(event);
        }
        world.check();
    }

    #[test]
    fn a_pause_alone_changes_nothing(
        before in moves(true),
        change in change(true),
        atomic in any::<bool>(),
        pauses in pauses(),
    ) {
        let mut world = World::default();
        for event in before {
            world.apply(event);
        }
        let planned = plan_among_events(&mut world, &change, atomic, &pauses, Vec::new());
        let at_once = world.engine().plan(World::delta(&change, atomic));
        prop_assert_eq!(fingerprint(&planned), fingerprint(&at_once));
        if let (Ok(planned), Ok(at_once)) = (planned, at_once) {
            prop_assert_eq!(planned.cost(), at_once.cost());
        }
    }
}

/// A value that comes into place while the plan is paused has to go before what it depends on.
#[test]
fn a_dependent_that_appears_during_a_pause_is_noticed() {
    use WorldEvent::{Answer, CancelPrepared, CarryOut, Intend, Notice, Prepare, Read, Time};
    let intend = |change: &str, atomic| Intend { change: change.into(), atomic };
    let prepare = |change: &str| Prepare { change: change.into(), atomic: false };
    let before = [
        CarryOut(0),
        CarryOut(0),
        intend("a =0 !0 ; b =0 !0 .p; e =0 !0 <a", false),
        CarryOut(0),
        Read,
        CarryOut(0),
        Read,
        Read,
        Answer,
        CarryOut(0),
        Answer,
        Notice,
        Notice,
        CarryOut(0),
        Answer,
    ];
    let during = vec![
        CarryOut(0),
        Answer,
        CarryOut(1),
        prepare("m =1 !0 "),
        CarryOut(0),
        Notice,
        Answer,
        Notice,
        Read,
        intend("A =2 !0 .r(<c); b =2 !1 +f +g .w(|a,|b&A)", true),
        Read,
        Answer,
        Notice,
        Read,
        intend("-A; -d; m =1 !0 <A; m/2 =0 !1 .r(<c)", false),
        Read,
        Notice,
        CancelPrepared,
        Time,
        prepare("-b; d =0 !1 .w(|a,|b&A) <?f; m/2 =1 !1 <b"),
        Notice,
    ];
    let change = "-a; c =0 !0 |?f |a&b; d =2 !1 .w(|a,|b&A) <a";
    check_plan_among_events(&before, during, change, true, &[35, 12, 87, 40, 74, 79, 14], &[29]);
}

/// A late notice shows a value without its dependency, so a value that is to rely on it is deleted and held back; the dependency proves
/// to be there while that delete is in flight.
#[test]
fn a_value_is_held_back_while_it_is_being_deleted() {
    use WorldEvent::{
        Answer, CarryOut, Foreign, Intend, Notice, Prepare, Read, RemoveMember, RemoveValue,
        Resync, StartPrepared, TakeOver, Time,
    };
    let intend = |change: &str, atomic| Intend { change: change.into(), atomic };
    let prepare = |change: &str, atomic| Prepare { change: change.into(), atomic };
    let before = [
        prepare("m =0 !0 ", false),
        intend("A =0 !0 ; d =0 !0 ", true),
        prepare("B =2 !0 <m/", true),
        Foreign(1, 0),
        StartPrepared,
        Foreign(1, 1),
        Notice,
        prepare("A =2 !1 .t(.q) <b; b =2 !1 #x #y", false),
        prepare("-a; c =2 !0 <m/1 |a; m =0 !1 #x", false),
        CarryOut(0),
        Notice,
        Foreign(0, 2),
        intend("-a; b =0 !0 +f +g .w(|a,|b&A)", true),
        Answer,
        Read,
        RemoveValue("m"),
        Resync,
    ];
    let during = vec![
        CarryOut(1),
        Answer,
        CarryOut(0),
        CarryOut(0),
        CarryOut(0),
        TakeOver,
        Read,
        Foreign(0, 1),
        Read,
        CarryOut(0),
        CarryOut(0),
        Read,
        Read,
        Read,
        StartPrepared,
        intend("a =0 !0 .p <A; m/2 =0 !1 ", true),
        Read,
        TakeOver,
        CarryOut(1),
        intend("-m/1", false),
        Read,
        Answer,
        Read,
        CarryOut(0),
        TakeOver,
        Read,
        Notice,
        Time,
        Answer,
        RemoveMember("m.w"),
        intend("e =2 !0 .*s", false),
        CarryOut(0),
        TakeOver,
        Notice,
        Answer,
        Answer,
        RemoveValue("m/2"),
        CarryOut(1),
        TakeOver,
        Resync,
        Answer,
        CarryOut(1),
        StartPrepared,
        intend("-d", false),
        Answer,
    ];
    let change = "B =0 !0 <A; c =0 !1 <d <m |A; d =0 !1 .w(|a,|b&A) <?g; m =1 !0 :up <?f <a; m/1 =1 !1 .t(.q) <a";
    check_plan_among_events(&before, during, change, true, &[76, 15, 43, 83], &[]);
}
