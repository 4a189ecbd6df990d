//! Regressions: random schedules that failed once.

use super::common::world::{World, WorldEvent};
use super::portions::{end_take_over, play_between_portions, resting};

fn ends_well(failing: &[usize], moves: Vec<WorldEvent>) {
    play(World::failing_at(failing.to_vec()), moves);
}

fn play(mut world: World, moves: Vec<WorldEvent>) {
    for step in moves {
        world.apply(step);
    }
    world.check();
}

fn best(change: &str) -> WorldEvent {
    WorldEvent::Intend { change: change.to_owned(), atomic: false }
}

fn atomic(change: &str) -> WorldEvent {
    WorldEvent::Intend { change: change.to_owned(), atomic: true }
}

/// An identity that was to go to a value is free again when that value fails.
#[test]
fn a_failed_value_releases_its_identity() {
    ends_well(
        &[7],
        vec![
            best("e =2"),
            best("a =0 .t(.q)"),
            best("A =0 #y; a =0 #y; e =1; m/2 =2 !1 #y"),
            atomic("a =0 !1; -m/2"),
        ],
    );
}

/// A late notice shows a value as gone, and its identity goes to another one; then the value proves to be present.
#[test]
fn a_returning_value_yields_its_identity() {
    ends_well(
        &[],
        vec![
            best("a =0 !1"),
            WorldEvent::CarryOut(0),
            best("a =0 !0 #y"),
            WorldEvent::Foreign(0, 0),
            WorldEvent::Answer,
            best("A =1 !1 #y <a; B =0 !0 #y .p <d; d =2 !0; m/1 =0 !1 #y .t(.q)"),
            WorldEvent::Foreign(1, 2),
        ],
    );
}

/// A late notice shows a value as gone; when it proves to be present, its dependency is gone.
#[test]
fn a_returning_value_without_its_dependency_is_deleted() {
    ends_well(
        &[],
        vec![
            best("m/2 =0 !0 #x <a"),
            best("a =0 !0 #x; b =0 !1"),
            best("c =1 !1; m/2 =0 !0"),
            atomic("a =0 !1 +f .r(<c) <b; -m"),
            WorldEvent::CarryOut(0),
            WorldEvent::Foreign(0, 0),
            WorldEvent::Answer,
            best("B =2 !1 #x; b =1 !0 .*s <A <a; -d; m/1 =1 !0 <A; m/2 =0 !0 .t(.q) <a"),
            WorldEvent::Read,
        ],
    );
}

/// A value lost a dependency and could not be deleted: that dependency must not be created on top of it.
#[test]
fn unsupported_values_get_no_new_dependents() {
    ends_well(
        &[4],
        vec![
            best("A =0 !0 <a"),
            best("a =0 !0"),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            atomic("b =0 !0 <a; m/1 =1 !0 .*s .r(<c)"),
            WorldEvent::CarryOut(1),
            WorldEvent::RemoveValue("a"),
            best("a =1 !0 +g .p <A; -d"),
        ],
    );
}

/// A late notice shows a value as gone, and it returns while the new holder of its identity is being created.
#[test]
fn an_identity_is_given_up_to_a_returning_holder() {
    ends_well(
        &[15],
        vec![
            best("a =0 !1 .p; c =0 !0 #x .p; m/1"),
            atomic("B =0 !1; b =2 !1"),
            WorldEvent::CarryOut(0),
            WorldEvent::Foreign(0, 0),
            WorldEvent::Foreign(0, 1),
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
            best("B =2 !1 <m/1; a =2 !1 .t(.q) <b; -d; e =2 !1; m =2 !1 #x <?f"),
            WorldEvent::Foreign(0, 1),
            atomic("c =2 !1 <m/; -d"),
        ],
    );
}

/// A late notice shows a value without its newest dependency, which must not come to depend on it in turn.
#[test]
fn a_late_notice_does_not_hide_a_cycle() {
    ends_well(
        &[],
        vec![
            best("a =0 !0 <b"),
            best("A =0 !0 ; a =0 !0 .t(.q)"),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(1),
            WorldEvent::Crash,
            best("A =1 !0 #y; b =0 !1 :up"),
            atomic("A =1 !0 #y <b; B =2 !1 ; -m; m/1 =2 !1 <?g"),
            WorldEvent::CarryOut(0),
            best(
                "b =2 !1 #x <A; c =2 !1 <a <a:up <m/1; e =2 !0 ; m =0 !1 ; m/2 =0 !1 .*s .r(<c) :up",
            ),
            WorldEvent::CarryOut(1),
            WorldEvent::Foreign(1, 0),
            WorldEvent::Foreign(0, 1),
            WorldEvent::Answer,
            WorldEvent::Read,
        ],
    );
}

/// An operation that was completed and not verified fails late, when its followers are released already.
#[test]
fn followers_are_released_once() {
    ends_well(
        &[11, 5],
        vec![
            best("A =0 !0 <a; c =0 !0"),
            best("B =0 !0; a =0 !1 <A; -c"),
            atomic("-d; e =2 !0 .r(<c) <a"),
            best("m =1 !1 .t(.q) :up <a; m/2 =0 !1"),
            best("a =1 !1 .r(<c) .t(.q) <b; b; e <?f; m/1 =2 !1 <A; m/2 =2 !0 .r(<c)"),
        ],
    );
}

/// A value vanishes while its operation waits in a change that fails: it is missing when the change is undone.
#[test]
fn a_value_lost_during_a_failing_change_is_restored() {
    ends_well(
        &[],
        vec![
            best("b =0 !1"),
            atomic("A =0 !0 <b; b =0 !1 <A"),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::Notice,
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
            WorldEvent::Answer,
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::RemoveValue("b"),
        ],
    );
}

/// A value was parked for one that could not be deleted, and has another provider when that one goes.
#[test]
fn a_parked_value_uses_another_provider() {
    ends_well(
        &[13],
        vec![
            best("d =0 !0 .*s <b; m/1 =0 !0 #y .t(.q)"),
            WorldEvent::Foreign(1, 1),
            best("B =1 !1 #y <?g <b; -b; e =1 !0 <?f <A"),
            best("B =0 !1 <d; a =2 !1 #x .*s <A; b =0 !0 #y .t(.q)"),
            best("B =2 !0 .p; a =0 !1 +10.0.0.0/8 .r(<c); -c; m/1 =1 !0 .*s"),
            best("-A; B =2 !1 #x <c; m/1 =2 !1 .p"),
        ],
    );
}

/// A value was parked for a delete that failed; then the deleted value is intended again.
#[test]
fn a_parked_value_returns_when_the_failed_delete_is_withdrawn() {
    ends_well(
        &[15],
        vec![
            best("a =1 !0 <b; b =0 !0 .t(.q); c =0 !0 ; m/1 =0 !0 <a"),
            atomic("A =2 !0 #x <a; c =2 !0 <?g"),
            best("-A; -b; e =0 !0 :up"),
            best("B =2 !1 .*s; b =2 !0 +f .*s :up; d =0 !1 <?g <A; -e"),
        ],
    );
}

/// Two failures, and an atomic change at the end, while a value is parked for a failed delete.
#[test]
fn a_parked_value_returns_during_an_atomic_change() {
    ends_well(
        &[7, 24],
        vec![
            best("a =0 !1"),
            best("a =0 !0 <b; c =0 !1 .r(<c)"),
            best("c =0 !1 .r(<c) <m/; d =0 !0 ; m/2 =0 !0 <a"),
            best("a =1 !0 +f +g :up; -d; e =2 !1 .p .r(<c)"),
            atomic("B =2 !1 <b:up; d =2 !1 .*s"),
        ],
    );
}

/// A value of a crashed process could not be deleted, is intended again, and vanishes: nothing is in the way.
#[test]
fn a_value_is_created_when_the_object_in_its_way_is_gone() {
    ends_well(
        &[6],
        vec![
            atomic("A =1 !1 ; B =0 !0 ; c =0 !0"),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(1),
            WorldEvent::CarryOut(1),
            WorldEvent::Crash,
            WorldEvent::Read,
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Answer,
            WorldEvent::CarryOut(1),
            WorldEvent::RemoveValue("c"),
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            WorldEvent::Notice,
            WorldEvent::CarryOut(1),
            WorldEvent::Time,
            WorldEvent::CarryOut(1),
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            WorldEvent::RemoveValue("B"),
            WorldEvent::Answer,
            WorldEvent::Notice,
            WorldEvent::RemoveValue("b"),
            WorldEvent::Answer,
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            best("A =2 !0 ; c =1 !1 ; e =2 !1 :up; m/1 =0 !0 #y <b"),
            WorldEvent::Answer,
            WorldEvent::Foreign(0, 0),
            WorldEvent::Read,
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
            atomic("-b; e =1 !1 .p <b; m =1 !0 :up <?f; m/1 =2 !0"),
            best("B =1 !1 <e; e =1 !1; m =0 !0 .p :up"),
            WorldEvent::Time,
            best("A =1 !1 :up <a; a =2 !1 +g; m =0 !0 ; m/1 =1 !0 <A <a"),
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::CarryOut(0),
            WorldEvent::Time,
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::CarryOut(1),
            WorldEvent::CarryOut(0),
            WorldEvent::RemoveValue("m/2"),
            best("d =0 !0 .*s :up <m/; m/2 =2 !0 <?f"),
            WorldEvent::Read,
        ],
    );
}

/// A value of a crashed process was to become one with a dependency that does not come.
#[test]
fn values_of_a_crashed_process_do_not_outlive_their_dependencies() {
    ends_well(
        &[4],
        vec![
            best("a =0 !1 <b; b =0 !0 #y"),
            atomic("a =2 !1 ; c =0 !0 #x <e; -d; e =2 !0 <b:up"),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::RemoveValue("b"),
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::CarryOut(0),
            WorldEvent::Crash,
            best("A =2 !0 <a <b; d =0 !1 <b:up; m/1 =2 !0 #y"),
            WorldEvent::Foreign(1, 0),
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            atomic("m =1 !1 .t(.q) <@10.0.0.1 <a"),
            WorldEvent::Answer,
            WorldEvent::Notice,
            WorldEvent::Answer,
        ],
    );
}

/// An operation on a value of a crashed process was not tried, and the value has vanished.
#[test]
fn an_absent_value_of_a_skipped_operation_counts_as_absent() {
    ends_well(
        &[9],
        vec![
            best("A =0 !1 #x +f .r(<c); c =0 !0 <?f <m/; m =0 !1 <a"),
            WorldEvent::CarryOut(1),
            atomic("a =1 !1 +f; -d; m =0 !1 .t(.q); m/1 =1 !1 <?f"),
            WorldEvent::Answer,
            WorldEvent::Notice,
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::Crash,
            WorldEvent::Answer,
            WorldEvent::CarryOut(1),
            WorldEvent::CarryOut(1),
            WorldEvent::RemoveValue("m"),
            atomic("-a; c =0 !0 :up <?f; -d; -m/1; m/2 =1 !0 <?f"),
            WorldEvent::CarryOut(0),
            WorldEvent::Time,
            WorldEvent::Read,
            WorldEvent::Answer,
            best(
                "A =2 !0 +f <b; B =0 !0 <e <m; c =1 !0 .t(.q) <?f <B; e =1 !1 .*s .r(<c) .t(.q); -m/1",
            ),
            WorldEvent::Time,
            WorldEvent::CarryOut(1),
            WorldEvent::Time,
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::Notice,
            WorldEvent::Read,
            WorldEvent::Answer,
            WorldEvent::Notice,
            WorldEvent::Notice,
            WorldEvent::CarryOut(0),
            WorldEvent::RemoveValue("m/2"),
            WorldEvent::RemoveValue("c"),
            best("A =0 !1 +f .r(<c); d =1 !1 <a; -e; m =0 !0 .p <?f"),
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            best("A =1 !0 ; B =2 !0 <m/1; a =1 !1 ; m/2 =0 !1 .*s <b"),
            WorldEvent::Foreign(0, 2),
            WorldEvent::Notice,
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            WorldEvent::Foreign(1, 0),
            WorldEvent::Answer,
            WorldEvent::Foreign(1, 2),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::Foreign(0, 1),
            WorldEvent::CarryOut(0),
            atomic("A =2 !1 +f; B =0 !0 .r(<c) <a:up; a =2 !1 <A; -b; e =2 !1 <@10.0.0.1 <a:up"),
            WorldEvent::CarryOut(1),
            WorldEvent::Answer,
            WorldEvent::Answer,
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
        ],
    );
}

/// The holder of an identity goes while its next claimant is still to be deleted.
#[test]
fn an_identity_released_early_goes_to_its_claimant() {
    ends_well(
        &[],
        vec![
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::Crash,
            best("a =0 !0 .t(.q); d =0 !0"),
            atomic("A =2 !0 ; m =0 !0 #x #y .t(.q); -m/1; m/2 =0 !1 .t(.q) <?f <b"),
            WorldEvent::CarryOut(0),
            best("a =0 !1 #y .p"),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::CarryOut(1),
            best("e =0 !0; m =2 !1 <?f"),
            WorldEvent::Read,
            WorldEvent::RemoveValue("m"),
        ],
    );
}

/// A delete fails while an older failure of its value still has a scheduled retry.
#[test]
fn a_failed_delete_is_retried_after_an_older_failure() {
    ends_well(
        &[12],
        vec![
            best("a =0 !0 .t(.q)"),
            best("a =0 !1 #y; m/1 =0 !0 "),
            WorldEvent::Notice,
            WorldEvent::CarryOut(1),
            best("a =0 !0 ; e =2 !1 .p <b:up; m/1 =2 !1 .r(<c) <?g; m/2 =2 !0 <@10.0.0.1 <A"),
            WorldEvent::Answer,
            best("A =1 !1 <a; b =1 !0 #y; -c; m/1 =0 !1 .r(<c) <a"),
            WorldEvent::Foreign(0, 1),
            WorldEvent::Read,
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::Read,
        ],
    );
}

/// A target gets another provider while its former provider is unsupported.
#[test]
fn a_held_back_value_uses_another_provider() {
    ends_well(
        &[],
        vec![
            atomic("e =1 !1 ; m/1 =0 !0 .p"),
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
            WorldEvent::CarryOut(0),
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
            WorldEvent::Answer,
            WorldEvent::Answer,
            WorldEvent::Answer,
            WorldEvent::RemoveValue("e"),
            WorldEvent::Read,
            WorldEvent::Crash,
            WorldEvent::Notice,
            WorldEvent::CarryOut(1),
            atomic("a =1 !1 +g :up <b; -c; e =2 !0 <m/"),
            WorldEvent::Answer,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Notice,
            WorldEvent::RemoveValue("m/1"),
            atomic("d =2 !0 .p; m =2 !1 "),
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Read,
            WorldEvent::Foreign(1, 0),
            WorldEvent::Read,
            WorldEvent::Notice,
            WorldEvent::Notice,
            best("a =2 !0 #y"),
            WorldEvent::CarryOut(1),
            WorldEvent::Read,
        ],
    );
}

/// A late notice shows a value with fewer offers than it has: values deleted for want of them return.
#[test]
fn a_value_deleted_for_a_late_notice_returns() {
    ends_well(
        &[15],
        vec![
            atomic("A =0 !0 .*s; B =0 !0 ; m/2 =0 !1 <?f <@10.0.0.1"),
            atomic("B =2 !0 <b <m; a =1 !0 <b; m/2 =0 !0 .r(<c) <?f"),
            WorldEvent::CarryOut(1),
            WorldEvent::Foreign(0, 1),
            atomic("d =0 !1 .p <?f <a; m =2 !0 ; -m/1; m/2 =1 !0 .*s"),
            WorldEvent::Answer,
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            atomic("A =2 !1 ; c =1 !1 ; -d"),
            WorldEvent::CarryOut(1),
            WorldEvent::Notice,
            WorldEvent::Foreign(1, 0),
            WorldEvent::Read,
            WorldEvent::Read,
        ],
    );
}

/// A target that appears and vanishes while a create is on its way makes that create fail: the value is reduced to what is
/// available then.
#[test]
fn a_target_that_comes_and_goes_during_a_create_triggers_a_retry() {
    ends_well(
        &[],
        vec![
            best("A =0 !0 ; a =0 !0 .t(.q)"),
            WorldEvent::CarryOut(0),
            WorldEvent::Answer,
            WorldEvent::CarryOut(0),
            WorldEvent::Notice,
            best("B =0 !0 |?f |A; m/2 =1 !1 :up <A"),
            WorldEvent::CarryOut(1),
            WorldEvent::Foreign(1, 1),
            WorldEvent::Foreign(1, 0),
            WorldEvent::Read,
        ],
    );
}

/// A change takes an identity away from a value, and gives it to another one with others of its side. It fails and is undone:
/// whoever waits for the identity waits for the first value again, and is told so.
#[test]
fn claimants_are_told_of_the_holder_that_an_undone_change_brings_back() {
    let prepared = "-b; d =2 !0 ; m =0 !0 #x/s; m/1 =0 !0 #y/t <a";
    let moves = vec![
        WorldEvent::Crash,
        best("a =0 !0 ; c =0 !0 #x"),
        best("e =0 !0 #x/s"),
        WorldEvent::Prepare { change: prepared.to_owned(), atomic: false },
        WorldEvent::Foreign(1, 2),
        atomic("b =0 !1 #x/s; c =2 !0 ; m =2 !0 #y/t .*s"),
    ];
    play(World::failing_at(vec![5]).in_portions(2), moves);
}

/// Others remove a value. Its identity is free, but the value that claims it needs one that lost its dependency by the
/// removal: it waits until that one has been looked at.
#[test]
fn a_claimant_waits_for_a_provider_that_lost_its_dependency() {
    let mut world = resting("A =0 !0 #x; b =0 !0 <A", 1000);
    world.apply(best("a =2 !0 #x <b"));
    end_take_over(&mut world);
    play_between_portions(&mut world, &[WorldEvent::RemoveValue("A"), WorldEvent::Notice]);
    world.check();
}
