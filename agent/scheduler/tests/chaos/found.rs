//! Schedules that were found at random, and were wrong once.

use super::common::world::{Move, World};

fn ends_well(failing: &[usize], moves: Vec<Move>) {
    let mut world = World::failing_at(failing.to_vec());
    for step in moves {
        world.play(step);
    }
    world.check();
}

fn best(change: &str) -> Move {
    Move::Intend { change: change.to_owned(), atomic: false }
}

fn atomic(change: &str) -> Move {
    Move::Intend { change: change.to_owned(), atomic: true }
}

/// An identity that was promised to a value is free again when that value does not come to it.
#[test]
fn what_failed_keeps_no_identity_from_others() {
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

/// A late notice says that a value is gone, and its identity is given away; then it proves to be there.
#[test]
fn whoever_comes_back_leaves_its_identity_to_the_one_who_got_it() {
    ends_well(
        &[],
        vec![
            best("a =0 !1"),
            Move::CarryOut(0),
            best("a =0 !0 #y"),
            Move::Foreign(0, 0),
            Move::Answer,
            best("A =1 !1 #y <!a; B =0 !0 #y .p <d; d =2 !0; m/1 =0 !1 #y .t(.q)"),
            Move::Foreign(1, 2),
        ],
    );
}

/// A late notice says that a value is gone; by the time it proves to be there, what it needs is gone.
#[test]
fn whoever_comes_back_to_find_nothing_to_stand_on_goes() {
    ends_well(
        &[],
        vec![
            best("m/2 =0 !0 #x <!a"),
            best("a =0 !0 #x; b =0 !1"),
            best("c =1 !1; m/2 =0 !0"),
            atomic("a =0 !1 +f .r(<c) <b; -m"),
            Move::CarryOut(0),
            Move::Foreign(0, 0),
            Move::Answer,
            best("B =2 !1 #x; b =1 !0 .*s <A <a; -d; m/1 =1 !0 <A; m/2 =0 !0 .t(.q) <a"),
            Move::Read,
        ],
    );
}

/// A value lost what it needs, and could not be deleted: what it needs does not come back to rest on it.
#[test]
fn nothing_new_rests_on_what_has_to_go() {
    ends_well(
        &[4],
        vec![
            best("A =0 !0 <a"),
            best("a =0 !0"),
            Move::CarryOut(0),
            Move::Answer,
            atomic("b =0 !0 <a; m/1 =1 !0 .*s .r(<c)"),
            Move::CarryOut(1),
            Move::Lose("a"),
            best("a =1 !0 +g .p <A; -d"),
        ],
    );
}

/// The same while the one who gets the identity is on its way.
#[test]
fn whoever_gets_an_identity_that_came_back_meanwhile_gives_it_up() {
    ends_well(
        &[15],
        vec![
            best("a =0 !1 .p; c =0 !0 #x .p; m/1"),
            atomic("B =0 !1; b =2 !1"),
            Move::CarryOut(0),
            Move::Foreign(0, 0),
            Move::Foreign(0, 1),
            Move::CarryOut(0),
            Move::Notice,
            best("B =2 !1 <m/1; a =2 !1 .t(.q) <b; -d; e =2 !1; m =2 !1 #x <?f"),
            Move::Foreign(0, 1),
            atomic("c =2 !1 <m/; -d"),
        ],
    );
}

/// A late notice shows a value as it was before it came to need another one, which must not come to need it in turn.
#[test]
fn nothing_leans_on_itself_by_way_of_a_late_notice() {
    ends_well(
        &[],
        vec![
            best("a =0 !0 <!b"),
            best("A =0 !0 ; a =0 !0 .t(.q)"),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(1),
            Move::Crash,
            best("A =1 !0 #y; b =0 !1 :up"),
            atomic("A =1 !0 #y <b; B =2 !1 ; -m; m/1 =2 !1 <?g"),
            Move::CarryOut(0),
            best(
                "b =2 !1 #x <A; c =2 !1 <a <a:up <m/1; e =2 !0 ; m =0 !1 ; m/2 =0 !1 .*s .r(<c) :up",
            ),
            Move::CarryOut(1),
            Move::Foreign(1, 0),
            Move::Foreign(0, 1),
            Move::Answer,
            Move::Read,
        ],
    );
}

/// What was completed and not seen, and so fails late, has told those behind it already.
#[test]
fn whoever_is_behind_hears_of_an_end_once() {
    ends_well(
        &[11, 5],
        vec![
            best("A =0 !0 <!a; c =0 !0"),
            best("B =0 !0; a =0 !1 <A; -c"),
            atomic("-d; e =2 !0 .r(<c) <a"),
            best("m =1 !1 .t(.q) :up <a; m/2 =0 !1"),
            best("a =1 !1 .r(<c) .t(.q) <b; b; e <?f; m/1 =2 !1 <A; m/2 =2 !0 .r(<c)"),
        ],
    );
}

/// A value goes while it waits for its turn in a change that fails: it is missing when the change is taken back.
#[test]
fn what_was_lost_before_its_turn_comes_back_with_the_way_back() {
    ends_well(
        &[],
        vec![
            best("b =0 !1"),
            atomic("A =0 !0 <b; b =0 !1 <A"),
            Move::CarryOut(0),
            Move::Answer,
            Move::Notice,
            Move::CarryOut(0),
            Move::Notice,
            Move::Answer,
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Lose("b"),
        ],
    );
}

/// A value was parked because of one that could not be deleted, and has another one to rest on by the time that goes.
#[test]
fn whoever_was_parked_for_a_failed_delete_rests_on_another_value() {
    ends_well(
        &[13],
        vec![
            best("d =0 !0 .*s <b; m/1 =0 !0 #y .t(.q)"),
            Move::Foreign(1, 1),
            best("B =1 !1 #y <?g <b; -b; e =1 !0 <?f <A"),
            best("B =0 !1 <!d; a =2 !1 #x .*s <!A; b =0 !0 #y .t(.q)"),
            best("B =2 !0 .p; a =0 !1 +10.0.0.0/8 .r(<c); -c; m/1 =1 !0 .*s"),
            best("-A; B =2 !1 #x <c; m/1 =2 !1 .p"),
        ],
    );
}

/// A value was parked for a delete that failed; then the other one is wanted again.
#[test]
fn whoever_was_parked_for_a_failed_delete_comes_back_when_that_is_not_wanted() {
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

/// The same, with more than one failure and an atomic change at the end.
#[test]
fn whoever_was_parked_comes_back_beside_an_atomic_change() {
    ends_well(
        &[7, 24],
        vec![
            best("a =0 !1"),
            best("a =0 !0 <!b; c =0 !1 .r(<c)"),
            best("c =0 !1 .r(<c) <m/; d =0 !0 ; m/2 =0 !0 <!a"),
            best("a =1 !0 +f +g :up; -d; e =2 !1 .p .r(<c)"),
            atomic("B =2 !1 <b:up; d =2 !1 .*s"),
        ],
    );
}

/// What a life before left behind could not be deleted, is wanted by now, and is gone: nothing is in the way.
#[test]
fn what_is_wanted_comes_when_the_remains_under_its_key_are_gone() {
    ends_well(
        &[6],
        vec![
            atomic("A =1 !1 ; B =0 !0 ; c =0 !0"),
            Move::CarryOut(0),
            Move::CarryOut(1),
            Move::CarryOut(1),
            Move::Crash,
            Move::Read,
            Move::Answer,
            Move::Read,
            Move::Read,
            Move::Answer,
            Move::CarryOut(1),
            Move::Lose("c"),
            Move::Read,
            Move::Read,
            Move::Read,
            Move::Read,
            Move::CarryOut(1),
            Move::Answer,
            Move::Notice,
            Move::CarryOut(1),
            Move::Time,
            Move::CarryOut(1),
            Move::CarryOut(1),
            Move::Answer,
            Move::Lose("B"),
            Move::Answer,
            Move::Notice,
            Move::Lose("b"),
            Move::Answer,
            Move::CarryOut(1),
            Move::Answer,
            best("A =2 !0 ; c =1 !1 ; e =2 !1 :up; m/1 =0 !0 #y <b"),
            Move::Answer,
            Move::Foreign(0, 0),
            Move::Read,
            Move::CarryOut(0),
            Move::Notice,
            atomic("-b; e =1 !1 .p <b; m =1 !0 :up <?f; m/1 =2 !0"),
            best("B =1 !1 <!e; e =1 !1; m =0 !0 .p :up"),
            Move::Time,
            best("A =1 !1 :up <a; a =2 !1 +g; m =0 !0 ; m/1 =1 !0 <A <a"),
            Move::Read,
            Move::Read,
            Move::CarryOut(0),
            Move::Time,
            Move::CarryOut(1),
            Move::Answer,
            Move::Read,
            Move::CarryOut(1),
            Move::CarryOut(0),
            Move::Lose("m/2"),
            best("d =0 !0 .*s :up <m/; m/2 =2 !0 <?f"),
            Move::Read,
        ],
    );
}

/// What a life before left behind was to become a value that needs another one, which does not come.
#[test]
fn remains_do_not_outlive_what_they_should_have_become() {
    ends_well(
        &[4],
        vec![
            best("a =0 !1 <b; b =0 !0 #y"),
            atomic("a =2 !1 ; c =0 !0 #x <!e; -d; e =2 !0 <b:up"),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Answer,
            Move::Read,
            Move::Lose("b"),
            Move::Answer,
            Move::Read,
            Move::CarryOut(0),
            Move::Crash,
            best("A =2 !0 <a <b; d =0 !1 <b:up; m/1 =2 !0 #y"),
            Move::Foreign(1, 0),
            Move::Answer,
            Move::Read,
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(1),
            Move::Answer,
            atomic("m =1 !1 .t(.q) <@10.0.0.1 <a"),
            Move::Answer,
            Move::Notice,
            Move::Answer,
        ],
    );
}

/// An operation on what a life before left behind was not tried, and it is gone by then.
#[test]
fn what_was_not_tried_and_is_gone_counts_as_gone() {
    ends_well(
        &[9],
        vec![
            best("A =0 !1 #x +f .r(<c); c =0 !0 <?f <m/; m =0 !1 <a"),
            Move::CarryOut(1),
            atomic("a =1 !1 +f; -d; m =0 !1 .t(.q); m/1 =1 !1 <?f"),
            Move::Answer,
            Move::Notice,
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Crash,
            Move::Answer,
            Move::CarryOut(1),
            Move::CarryOut(1),
            Move::Lose("m"),
            atomic("-a; c =0 !0 :up <?f; -d; -m/1; m/2 =1 !0 <?f"),
            Move::CarryOut(0),
            Move::Time,
            Move::Read,
            Move::Answer,
            best(
                "A =2 !0 +f <!b; B =0 !0 <e <m; c =1 !0 .t(.q) <?f <B; e =1 !1 .*s .r(<c) .t(.q); -m/1",
            ),
            Move::Time,
            Move::CarryOut(1),
            Move::Time,
            Move::Answer,
            Move::Read,
            Move::Notice,
            Move::Read,
            Move::Answer,
            Move::Notice,
            Move::Notice,
            Move::CarryOut(0),
            Move::Lose("m/2"),
            Move::Lose("c"),
            best("A =0 !1 +f .r(<c); d =1 !1 <a; -e; m =0 !0 .p <?f"),
            Move::Read,
            Move::Read,
            Move::Read,
            best("A =1 !0 ; B =2 !0 <m/1; a =1 !1 ; m/2 =0 !1 .*s <b"),
            Move::Foreign(0, 2),
            Move::Notice,
            Move::CarryOut(0),
            Move::CarryOut(1),
            Move::Answer,
            Move::Foreign(1, 0),
            Move::Answer,
            Move::Foreign(1, 2),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Answer,
            Move::Foreign(0, 1),
            Move::CarryOut(0),
            atomic("A =2 !1 +f; B =0 !0 .r(<c) <a:up; a =2 !1 <A; -b; e =2 !1 <@10.0.0.1 <a:up"),
            Move::CarryOut(1),
            Move::Answer,
            Move::Answer,
            Move::CarryOut(0),
            Move::Notice,
        ],
    );
}

/// The holder of an identity goes while whoever waits for it is still to be deleted.
#[test]
fn an_identity_that_comes_free_early_is_not_missed() {
    ends_well(
        &[],
        vec![
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Crash,
            best("a =0 !0 .t(.q); d =0 !0"),
            atomic("A =2 !0 ; m =0 !0 #x #y .t(.q); -m/1; m/2 =0 !1 .t(.q) <?f <b"),
            Move::CarryOut(0),
            best("a =0 !1 #y .p"),
            Move::CarryOut(0),
            Move::Answer,
            Move::Answer,
            Move::Read,
            Move::Read,
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Answer,
            Move::CarryOut(1),
            best("e =0 !0; m =2 !1 <?f"),
            Move::Read,
            Move::Lose("m"),
        ],
    );
}

/// A delete fails while an older failure of its value still has its time to be looked at.
#[test]
fn a_delete_that_fails_is_tried_again_whatever_failed_before() {
    ends_well(
        &[12],
        vec![
            best("a =0 !0 .t(.q)"),
            best("a =0 !1 #y; m/1 =0 !0 "),
            Move::Notice,
            Move::CarryOut(1),
            best("a =0 !0 ; e =2 !1 .p <b:up; m/1 =2 !1 .r(<c) <?g; m/2 =2 !0 <@10.0.0.1 <A"),
            Move::Answer,
            best("A =1 !1 <!a; b =1 !0 #y; -c; m/1 =0 !1 .r(<c) <a"),
            Move::Foreign(0, 1),
            Move::Read,
            Move::CarryOut(0),
            Move::Answer,
            Move::Read,
        ],
    );
}

/// Something else offers what a value needs while the one who offered it before may not be relied upon.
#[test]
fn who_did_not_rely_on_one_comes_by_another() {
    ends_well(
        &[],
        vec![
            atomic("e =1 !1 ; m/1 =0 !0 .p"),
            Move::CarryOut(0),
            Move::Notice,
            Move::CarryOut(0),
            Move::CarryOut(0),
            Move::Notice,
            Move::Answer,
            Move::Answer,
            Move::Answer,
            Move::Lose("e"),
            Move::Read,
            Move::Crash,
            Move::Notice,
            Move::CarryOut(1),
            atomic("a =1 !1 +g :up <b; -c; e =2 !0 <m/"),
            Move::Answer,
            Move::Read,
            Move::Read,
            Move::Read,
            Move::Notice,
            Move::Lose("m/1"),
            atomic("d =2 !0 .p; m =2 !1 "),
            Move::Read,
            Move::Read,
            Move::Read,
            Move::Read,
            Move::Read,
            Move::Foreign(1, 0),
            Move::Read,
            Move::Notice,
            Move::Notice,
            best("a =2 !0 #y"),
            Move::CarryOut(1),
            Move::Read,
        ],
    );
}

/// By a late notice, a value seemed to offer less than it does: what went for want of that comes back.
#[test]
fn what_went_because_of_a_late_notice_comes_back() {
    ends_well(
        &[15],
        vec![
            atomic("A =0 !0 .*s; B =0 !0 ; m/2 =0 !1 <?f <@10.0.0.1"),
            atomic("B =2 !0 <b <m; a =1 !0 <b; m/2 =0 !0 .r(<c) <?f"),
            Move::CarryOut(1),
            Move::Foreign(0, 1),
            atomic("d =0 !1 .p <?f <a; m =2 !0 ; -m/1; m/2 =1 !0 .*s"),
            Move::Answer,
            Move::CarryOut(0),
            Move::Answer,
            atomic("A =2 !1 ; c =1 !1 ; -d"),
            Move::CarryOut(1),
            Move::Notice,
            Move::Foreign(1, 0),
            Move::Read,
            Move::Read,
        ],
    );
}
