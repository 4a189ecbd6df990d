//! Rows for the planner: foreign values, values of ours, a change, and its plan.
//!
//! The language of the rows is in `README.md` beside this file.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

mod common;

use std::collections::BTreeSet;

use common::{Lab, delta, key};
use holdfast_scheduler::{Delta, IntentChange, Key, Owner, Plan, PlanError, PlannedOperation};

/// Checks the plan of a change, that executing it does the same, and that a second plan is empty. `foreign` values
/// exist in the system, `ours` are committed before.
#[track_caller]
fn check(foreign: &str, ours: &str, change: &str, want: &str) {
    let mut lab = Lab::having(foreign, ours);
    let plan = lab.plan(change).expect("the change is planned");
    assert_eq!(plan.to_string(), want, "plan");
    let hash = plan.hash();
    assert_eq!(lab.plan(change).unwrap().hash(), hash, "the same plan again");
    let outcome = lab.commit(change).unwrap();
    assert!(matches!(outcome, holdfast_scheduler::TransactionOutcome::Done { .. }), "{outcome:?}");
    assert_eq!(lab.log(), want, "what is planned is what is done");
    assert_eq!(lab.plan(change).unwrap().to_string(), "", "nothing is left to do");
}

/// The value of a digit is replaced without a gap: the new one is there before the old one goes.
#[test]
fn kinds_that_are_removed_last_go_after_others_have_come() {
    check("", "1", "-1; 2", "create 2; delete 1");
    check("", "1; a", "-1; -a; 2; b", "delete a; create b; create 2; delete 1");
    check("", "1 <a; a", "-1; -a; 2", "create 2; delete 1; delete a");
    check("", "1 <a; a !1", "a !2; 2", "create 2; delete 1; delete a; create a; create 1");
    check("", "1 #x", "-1; 2 #x", "delete 1; create 2");
}

#[test]
fn creates_follow_their_dependencies() {
    check("", "", "a <b; b", "create b; create a");
    check("", "", "a <b; b <c; c", "create c; create b; create a");
    check("", "", "a <?f; b +f", "create b; create a");
    check("", "", "a <@10.1.2.3; b +10.0.0.0/8", "create b; create a");
    check("", "", "a <@10.1.2.3; b +11.0.0.0/8", "create b");
    check("", "", "a <m/; m/n; mm/n", "create m/n; create mm/n; create a");
    check("p +f", "", "a <p; b <?f", "create a; create b");
    check("", "", "a <b:up; b :up", "create b; create a");
    check("", "", "a <b:up; b", "create b");
}

#[test]
fn reducible_values_get_the_available_members() {
    check("", "", "r |a |b; a; b", "create a; create b; create r");
    check("", "", "r |a |b; a", "create a; create r");
    check("", "", "r |a |b", "");
    check("", "", "r |a |b <c; a", "create a");
    check("", "", "r |a&?f |b; a; b", "create a; create b; create r");
    check("", "", "r |a |b; x .y(|a,|b); a", "create a; create x; create r; create x.y");
    // A member is added; all of them at once, when several come.
    check("", "r |a |b; a", "b", "create b; update r");
    check("", "r |a |b |c; a", "b; c", "create b; create c; update r");
    check("", "r |a |b", "b", "create b; create r");
    check("", "r |a&c |b; b", "a", "create a");
    check("", "r |a&c |b; b; a", "c", "create c; update r");
    // A member is dropped before its target goes; the value itself is never deleted.
    check("", "r |a |b; a; b", "-a", "update r; delete a");
    check("", "r |a |b; a; b", "-a; r =1 |a |b", "update r; delete a");
    check("", "r |a |b; a", "-a; b", "create b; update r; delete a");
    check("", "r |a:up |b; a :up; b", "a", "update r; update a");
    check("", "r |?f |b; a +f; b", "a", "update r; update a");
    check("", "r |a |b; a; b; c <a", "-a", "delete c; update r; delete a");
    check("", "r |a |b; a; b; u <r", "-a", "update r; delete a");
    check("", "m ~/; m/a <m; r |m/a |b; b", "-m; -m/a", "update r; delete m");
    // A target is re-created or replaced: the value does without it meanwhile.
    check("", "r |a |b; a; b", "a !1", "update r; delete a; create a; update r");
    check("", "r |a |b; a #x; b", "-a; c #x; r |b |c", "update r; delete a; create c; update r");
    // The last member is lost, or no wanted member is available: the value goes.
    check("", "r |a |b; a", "-a", "delete r; delete a");
    check("", "r |a |b; a; b", "-a; -b", "delete r; delete a; delete b");
    check("", "r |a |b; a", "r |b |c", "delete r");
    // Another intent with another reduction.
    check("", "r |a |b; a", "r =1 |a |b", "update r");
    check("", "r |a |b; a; c", "r |b |c", "update r");
    check("", "r |a |b; a", "r |a", "");
    check("", "r |a |b; a", "r !1 |a |b", "delete r; create r");
    // A value gets no member that depends on the value itself.
    check("", "r |a |b; a", "b <r", "create b");
    check("", "r |a |b; a; b <r", "-a", "delete b; delete r; delete a");
}

#[test]
fn deletes_precede_their_dependencies() {
    check("", "a <b; b", "-a; -b", "delete a; delete b");
    check("", "a <b; b <c; c", "-c; -b; -a", "delete a; delete b; delete c");
    check("", "a <?f; b +f; c +f", "-b; -a", "delete a; delete b");
    check("", "a <@10.1.2.3; b +10.0.0.0/8", "-b", "delete a; delete b");
    check("", "a <m/; m/n", "-m/n", "delete a; delete m/n");
}

// proves kv.V1, kv.V2
#[test]
fn only_differences_are_changed() {
    check("", "a; b =1", "a; b =2", "update b");
    check("", "a; b =1", "c", "create c");
    check("", "a; b =1", "-a", "delete a");
    check("", "a; b =1", "a; b =1", "");
    check("", "a <b; b =1", "b =2", "update b");
    check("", "a <b; b =1", "-b", "delete a; delete b");
}

// proves kv.V4, kv.M3
#[test]
fn recreation_parks_and_restores_dependents() {
    check("", "a <b; b !1", "b !2", "delete a; delete b; create b; create a");
    check(
        "",
        "a <b; b <c; c !1",
        "c !2",
        "delete a; delete b; delete c; create c; create b; create a",
    );
    check("", "a <?f; b +f !1; c +f", "b +f !2", "delete b; create b");
}

// proves kv.X26
#[test]
fn a_new_provider_is_created_before_the_old_is_deleted() {
    check("", "a <?f; b +f", "-b; c +f", "create c; delete b");
    check("", "a <?f; b +f; c +f", "-b; -c; d +f", "delete b; create d; delete c");
    check("", "a <?f; b +f #x", "-b; c +f #x", "delete a; delete b; create c; create a");
}

#[test]
fn an_identity_is_released_before_it_is_claimed() {
    check("", "a/1 #ip", "-a/1; b/1 #ip", "delete a/1; create b/1");
    check("", "a #x; b #y", "a #y !1; b #x !1", "delete a; delete b; create a; create b");
    check(
        "",
        "a; b; a/1 <a #1; b/2 <b #2",
        "-a/1; -b/2; a/2 <a #2; b/1 <b #1",
        "delete a/1; delete b/2; create a/2; create b/1",
    );
}

#[test]
fn an_identity_is_held_by_one_side() {
    check("", "a #x/s; b #x/s", "c #x/s", "create c");
    check("", "a #x/s; b #x/s", "-a; -b; c #x/t; d #x/t", "delete a; delete b; create c; create d");
    check("", "a #x/s; b #x/s", "-a; -b; c #x", "delete a; delete b; create c");
    check("", "a #x", "-a; b #x/s; c #x/s", "delete a; create b; create c");
    check("", "a #x/s; b #x/s", "-a; c #x/s", "delete a; create c");
    check("", "a #x/s", "a #x/t; b #x/t", "update a; create b");
}

// proves kv.V7, kv.V8
#[test]
fn changes_move_dependencies_and_offers() {
    check("", "a =1 <b; b; c", "a =2 <c; -b", "update a; delete b");
    check("", "a =1 <b; b", "a =2 <c; -b; c", "create c; update a; delete b");
    check("", "a =1 <b; b", "a =2 <c", "delete a");
    check("", "a <?f; b +f =1", "b =2", "delete a; update b");
    check("", "a <?f; b =1", "b =2 +f", "update b; create a");
    check("", "a =1 <c; b =1 <d; c; d", "a =2 <d; b =2 <c", "update a; update b");
}

// proves kv.X19
#[test]
fn cascades_need_no_deletes() {
    check("", "l ~/; l/1 <l; l/2 <l", "-l; -l/1; -l/2", "delete l");
    check("", "l ~/; l/1 <l; r <l/1 +v; l/1 <l", "-l; -l/1; -r", "delete r; delete l");
    check("", "l ~/ !1; l/1 <l", "l ~/ !2", "delete l; create l; create l/1");
    check("", "l :up~v =1; r <l:up +v", "l =2", "update l");
    check("", "l :up~v =1; r <l:up +v", "l =2; -r", "update l");
    check("", "l ~/ ~v; l/1 <l ~v; r <l/1 +v", "-l; -l/1; -r", "delete l");
}

// proves kv.D4, kv.X7
#[test]
fn cycles_are_not_created() {
    check("", "", "a <b; b <c; c <a <d", "");
    check("", "", "a <a", "");
    check("", "a <b; b <c; c <a <d", "d", "create d");
    let lab = Lab::having("", "a <b; b <c; c <a <d");
    assert_eq!(
        ["a", "b", "c"].map(|name| lab.state(name)),
        ["CYCLIC <b", "CYCLIC <c", "CYCLIC <a <d"]
    );
}

// proves kv.X7
#[test]
fn cycles_are_reported_with_their_members() {
    let mut lab = Lab::default();
    lab.commit("a <b; b <c; c <a; d <a; s <s").unwrap();
    let circle = |name: &str| lab.engine.status(&key(name)).unwrap().detail.cycle;
    assert_eq!(circle("a"), [key("a"), key("b"), key("c")]);
    assert_eq!(circle("s"), [key("s")]);
    assert_eq!(circle("d"), []);
    assert_eq!(lab.state("s"), "CYCLIC <s");
}

// proves kv.X7
#[test]
fn updates_do_not_close_cycles() {
    check("", "m/1", "a <m/; m/1 =1 <a", "create a; delete a; delete m/1");
    check("", "b +f", "a <?f; b =1 +f <a", "create a; delete a; delete b");
    check("", "a <?f; b +f", "c <a; b =1 +f <c", "create c; delete c; delete a; delete b");
    check("", "a <@10.0.0.1; b +10.0.0.0/8", "b =1 +10.0.0.0/8 <a", "delete a; delete b");
    check("", "a <?f; b +f; c +f", "b =1 +f <a", "update b");
    check("", "a <?f; b +f; c =1 +f <b", "b =1 +f <a", "delete c; delete a; delete b");
    let lab = Lab::having("", "a <m/; m/1 <a");
    assert_eq!([lab.state("a"), lab.state("m/1")], ["PENDING <m/", "PENDING <a"]);
}

#[test]
fn parts_come_and_go_with_their_value() {
    check("", "", "a .p .q", "create a; create a.p; create a.q");
    check("", "a .p .q", "-a", "delete a.p; delete a.q; delete a");
    check("", "a .p .q", "a .p", "delete a.q; update a");
    check("", "a .p", "a .p .q", "update a; create a.q");
    check("", "a .p=1", "a .p=2", "update a; update a.p");
    check("", "a .p !1", "a .p !2", "delete a.p; delete a; create a; create a.p");
    check("", "b <a.p; a .p", "a", "delete b; delete a.p; update a");
}

// proves kv.X8
#[test]
fn a_shared_part_lives_as_long_as_one_of_its_wholes() {
    check("", "", "a .*s; b .*s", "create a; create b; create s");
    check("", "a .*s; b .*s", "-a", "delete a");
    check("", "a .*s; b .*s", "-a; -b", "delete a; delete s; delete b");
    let lab = Lab::having("", "a .*s=1");
    let refused = lab.plan("b .*s=2").unwrap_err();
    assert_eq!(refused.to_string(), "s conflicts with b: only one of them can exist");
    let mut lab = Lab::having("", "a .*s=1");
    lab.commit_delta(common::delta("b .*s=2").best_effort()).unwrap();
    assert_eq!(lab.system_text(), "a .*s=1; b .*s=2; s =1");
    assert_eq!(lab.engine.status(&key("s")).unwrap().detail.conflict, Some(key("b")));
}

/// A change on behalf of owners: `one: a =1; two: -b`.
fn owned(text: &str) -> Delta {
    let changes = text.split(';').flat_map(|item| {
        let (owner, change) = item.trim().split_once(": ").unwrap();
        let owned = |change: (Key, _)| IntentChange {
            owner: Some(Owner::new(owner.into())),
            ..change.into()
        };
        common::changes(change).into_iter().map(owned)
    });
    Delta::new(changes.collect())
}

// proves kv.X8
#[test]
fn a_value_of_two_owners_is_refused_and_follows_the_first_one_where_it_is_loaded() {
    let mut lab = Lab::default();
    lab.commit_delta(owned("two: a =2")).unwrap();
    for (change, want) in [
        ("one: a =1", "a conflicts with that of two: only one of them can exist"),
        ("three: a =1", "a conflicts with that of two: only one of them can exist"),
        ("one: b =1; two: b =2", "b conflicts with that of one: only one of them can exist"),
        ("one: b =1; one: b =2", "b is named twice in one change, with different values"),
        ("one: b =1; two: b =1; one: -b", "b is named twice in one change, with different values"),
    ] {
        assert_eq!(lab.engine.plan(owned(change)).unwrap_err().to_string(), want, "{change}");
    }
    // An owner that gives the key up makes room for the other, in any order of names.
    for (change, system) in
        [("one: a =1; two: -a", "a =1"), ("one: -a; two: a =2", "a =2"), ("one: -a", "a =2")]
    {
        lab.commit_delta(owned(change)).unwrap();
        assert_eq!(lab.system_text(), system, "{change}");
    }
    // Values of both were accepted earlier: the second takes over where the first gives up.
    lab.commit_delta(owned("one: a =1").best_effort()).unwrap();
    assert_eq!(lab.system_text(), "a =1");
    let other = lab.engine.status(&key("a")).unwrap().detail.other_owner;
    assert_eq!(other, Some(Owner::new("two".into())));
    lab.commit_delta(owned("one: -a")).unwrap();
    assert_eq!((lab.system_text().as_str(), lab.state("a").as_str()), ("a =2", "CONFIGURED"));
    lab.commit_delta(owned("two: -a")).unwrap();
    assert_eq!(lab.system_text(), "");
}

#[test]
fn a_failed_change_gives_a_value_back_to_its_owner() {
    let mut lab = Lab::default();
    lab.commit_delta(owned("two: a =2")).unwrap();
    lab.failing.insert("create b".to_owned(), common::error(22, "refused", false));
    lab.commit_delta(owned("one: a =1; two: -a; one: b <a")).unwrap();
    assert_eq!(lab.system_text(), "a =2");
    lab.commit_delta(owned("two: -a")).unwrap();
    assert_eq!(lab.system_text(), "");
}

#[test]
fn existing_objects_are_adopted_and_given_back() {
    check("p =1 port", "", "p =2", "adopt p");
    check("p =1 port", "", "p =2; a <p", "adopt p; create a");
    check("p =1 port", "a <p", "p =2", "adopt p");
    check("p =1 port", "p =2; a <p", "-p; -a", "delete a; release p");
    check("p =1 port", "p =2 +f; a <?f", "-p", "delete a; release p");
    check("p =1 port", "p =2 <b; b", "-b", "release p; delete b");
    let mut lab = Lab::having("p =1 port", "p =2");
    assert_eq!(lab.restores[&key("p")].content, 1);
    lab.commit("p =3").unwrap();
    assert_eq!(lab.restores[&key("p")].content, 1, "the pre-image is that of the first touch");
    lab.commit("-p").unwrap();
    assert_eq!((lab.system_text().as_str(), lab.restores.len()), ("p =1 port", 0));
    assert_eq!(lab.state("p"), "OBTAINED");
}

#[test]
fn two_transports_wait_for_one_another() {
    check("", "", "A <b; b; c <A", "create b; create A; create c");
    check("", "A <b; b; c <A", "-b; -c; -A", "delete c; delete A; delete b");
    let mut lab = Lab::default();
    let plan = lab.plan("A <b; b; c <A").unwrap();
    let after: Vec<Vec<u32>> = plan.operations().iter().map(|op| op.after.to_vec()).collect();
    assert_eq!(after, [vec![], vec![0], vec![1]]);
    let (_, step) = lab.engine.start(plan, lab.now());
    assert_eq!(step.submit.len(), 1, "the other transport is not started before its turn");
    lab.follow(step);
    assert_eq!(lab.system_text(), "b; c <A; A <b");
}

// proves kv.X9, kv.M6
#[test]
fn a_change_is_refused_as_a_whole() {
    let lab = Lab::having("", "h #x");
    for (change, want) in [
        ("a; b boom", "b cannot exist: its descriptor panicked: boom"),
        ("a twice", "a cannot exist: two of its dependencies are labelled `same`"),
        ("a boom", "a cannot exist: its descriptor panicked: boom"),
        ("a =1; a =2", "a is named twice in one change, with different values"),
        ("a #x", "a conflicts with h: only one of them can exist, because both claim `x`"),
        ("a #y; b #y", "b conflicts with a: only one of them can exist, because both claim `y`"),
    ] {
        assert_eq!(lab.plan(change).unwrap_err().to_string(), want, "{change}");
    }
    assert_eq!(lab.system_text(), "h #x");
    assert_eq!(lab.engine.statuses().len(), 1);
    let unknown = (
        holdfast_scheduler::Key::of(holdfast_scheduler::KindId(9)),
        common::changes("a")[0].1.clone(),
    );
    let refused = lab.engine.plan(holdfast_scheduler::Delta::new(vec![unknown])).unwrap_err();
    assert!(matches!(refused, PlanError::Unimplemented { .. }), "{refused}");
}

// proves kv.I4
#[test]
fn a_plan_does_not_depend_on_the_order_of_its_change() {
    let lab = Lab::having("", "x !1; y <x; z <?f; w +f");
    let one = lab.plan("a <b; b <?f; c +f; x !2; -w; d #k; e <g; g <b").unwrap();
    let other = lab.plan("g <b; e <g; d #k; -w; x !2; c +f; b <?f; a <b").unwrap();
    assert_eq!(one.to_string(), other.to_string());
    assert_eq!(one.hash(), other.hash());
    assert_ne!(one.hash(), lab.plan("a").unwrap().hash());
    let beside =
        |text: &str| lab.engine.plan(delta("a").with_beside(text.to_owned())).unwrap().hash();
    assert_eq!(beside("users"), beside("users"));
    assert_ne!(beside("users"), beside("others"));
}

#[test]
fn a_plan_lists_pending_values() {
    let lab = Lab::default();
    let plan = lab.plan("a <b; c <a; d").unwrap();
    assert_eq!((plan.to_string().as_str(), plan.pending()), ("create d", vec![key("a"), key("c")]));
}

/// Number of changes in one request for which descriptors are called on several threads.
const LARGE: usize = 5_000;

// proves kv.I4
#[test]
fn a_large_change_is_validated_as_a_small_one() {
    let lab = Lab::default();
    let odd = "b boom; c twice; w .x .y=1; z <nobody";
    let many: String = (0..LARGE).map(|number| format!("v{number}; ")).collect();
    let both = format!("{many}{odd}");
    let plan = |change: &str| lab.engine.plan(delta(change).best_effort()).unwrap();
    let small = plan(odd);
    let large = plan(&both);
    assert_eq!(large.operations().len(), small.operations().len() + LARGE);
    let names = |op: &PlannedOperation| large.operations().iter().any(|it| it.key == op.key);
    assert!(small.operations().iter().all(names), "{small}");
    assert_eq!(large.pending(), small.pending());
    assert_eq!(large.cost().parts, small.cost().parts);
    let refusal = |change: &str| lab.engine.plan(delta(change)).unwrap_err();
    assert_eq!(refusal(&both), refusal(odd));
    let mut backwards = delta(&both).best_effort();
    backwards.changes.reverse();
    assert_eq!(lab.engine.plan(backwards).unwrap().hash(), large.hash());
    // A change is cut into portions that end at powers of two: a duplicate key is found across the cut as well.
    let mut sorted = common::changes(&many);
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    for last in [1, 2, 4].map(|thousands| thousands * 1024 - 1) {
        let named = &sorted[last].0;
        let mut changes = sorted.clone();
        changes.push((named.clone(), None));
        let error = lab.engine.plan(Delta::new(changes)).unwrap_err();
        assert!(matches!(&error, PlanError::Twice { key, .. } if key == named), "{error}");
    }
}

// proves kv.I4
#[test]
fn parts_of_a_large_change_are_validated_as_of_a_small_one() {
    let lab = Lab::default();
    let plan = |count: usize| {
        let many: String = (0..count).map(|number| format!("v{number} .p(<w) .*s; ")).collect();
        let odd = "w; v7.p =9; v8.p twice; x .p(boom) .q";
        lab.engine.plan(delta(&format!("{many} {odd}")).best_effort()).unwrap()
    };
    let operations = |plan: &Plan| -> BTreeSet<String> {
        let operations = |op: &PlannedOperation| format!("{} {} {:?}", op.action, op.key, op.new);
        plan.operations().iter().map(operations).collect()
    };
    let small = plan(10);
    let large = plan(LARGE);
    assert!(operations(&small).is_subset(&operations(&large)), "{small}");
    assert_eq!(large.operations().len(), small.operations().len() + 2 * (LARGE - 10));
    assert_eq!(large.cost().parts, small.cost().parts + 2 * (LARGE as u64 - 10));
}
