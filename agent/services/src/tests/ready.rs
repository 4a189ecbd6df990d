//! `ready` in the transaction that made the objects: what verification opens, and what it leaves to the walk that
//! follows.

use std::collections::BTreeSet;

use holdfast_config::services::{Applied, ChangeAuthor, ChangeOrigin, Surroundings};
use holdfast_config::{Configuration, layer_rows_diff};

use super::plans::{
    ACME, ALL_READY, FixedBox, LINK_UP, PORT, SIZE, UP, acme, box_with, due, has, plan, see, settle,
};
use super::types::set;

/// Judges `ready` of `acme`. Only its row may differ.
#[track_caller]
fn judged(before: &Configuration, state: &FixedBox) -> Configuration {
    let after = before.with_ready_judged(&due(state.clone(), 5));
    assert!(after.layers().claims().is_same(before.layers().claims()));
    let rows = layer_rows_diff(before.models(), before.layers(), after.layers());
    let differs = before.layers().book.get(&acme()) != after.layers().book.get(&acme());
    assert_eq!(rows.len(), usize::from(differs));
    after
}

/// A box with the instance `acme`, whose second state has these lines.
fn made_with(lines: &str) -> Configuration {
    let outline = PORT.replace("GATE", lines);
    set(&see(&box_with(&outline, SIZE), UP), ACME)
}

fn unapplied(state: &'static str, applied: Applied) -> FixedBox {
    FixedBox { unapplied: Some((state, applied)), ..UP }
}

// proves sv.B6
#[test]
fn an_instance_with_nothing_to_wait_for_is_ready_when_its_objects_are_verified() {
    let made = made_with(LINK_UP);
    has(&made, &["ready not-reached (the objects of this change)"]);
    let ready = judged(&made, &UP);
    assert_eq!(plan(&ready), ALL_READY);
    assert!(ready.trial(&due(UP, 9)).is_empty(), "no walk follows");
    let record = &ready.layers().book.get(&acme()).unwrap().record;
    assert_eq!(record.last_run_ns, 5);
    assert!(record.log.iter().any(|line| line.text.contains("self self, ready: reached")));

    let instances = Surroundings { due: BTreeSet::new(), ..due(UP, 5) };
    assert!(made.with_ready_judged(&instances).is_same(&made), "nobody else is judged");
    assert!(judged(&ready, &UP).is_same(&ready), "it is judged once");
}

#[test]
fn an_object_that_is_not_there_keeps_its_instance_from_being_ready() {
    let made = made_with("");
    let waits = unapplied("sized", Applied::Pending("link eth1".into()));
    let waiting = judged(&made, &waits);
    has(&waiting, &["sized reached, ready not-reached (link eth1)"]);
    has(&waiting, &["init reached, ready not-reached (component port eth1)"]);
    let refused = unapplied("sized", Applied::Failed("eth1: EINVAL".into()));
    has(&judged(&made, &refused), &["sized reached, ready not-reached (eth1: EINVAL)"]);
    assert_eq!(plan(&settle(&waiting, &UP)), ALL_READY);
}

#[test]
fn only_ready_is_entered() {
    let work = "  work = \"main.cli\"";
    let outline = PORT.replace("GATE", "").replace(work, &format!("{work}\n  commit-after = true"));
    let staged = set(&see(&box_with(&outline, SIZE), UP), ACME);
    has(
        &staged,
        &["attached reached, sized not-reached", "ready not-reached (component port eth1)"],
    );
    assert!(judged(&staged, &UP).is_same(&staged), "what follows has a transaction of its own");
    has(&judged(&made_with("commit-after = true"), &UP), &["sized reached, ready reached"]);
}

#[test]
fn a_gate_that_closed_meanwhile_leaves_all_to_the_walk_that_follows() {
    let made = made_with(LINK_UP);
    let down = FixedBox { status: "DOWN", ..UP };
    has(&judged(&made, &down), &["sized reached, ready not-reached"]);
}

/// An outline whose `ready` has these lines.
fn with_ready(lines: &str) -> String {
    let named = format!("  [[component.state]]\n  name = \"ready\"\n  {lines}\n[[tree]]");
    PORT.replace("[[tree]]", &named)
}

/// A change beside this one may be about to change what the walks have not read.
#[test]
fn a_gate_on_other_configuration_is_left_to_the_walk_that_follows() {
    let mtu = "when = \"config('/interfaces/interface[name=eth7]/mtu') is none\"";
    let outline = with_ready(mtu)
        .replace("GATE", "")
        .replace("read = [", "read = [\"/interfaces/interface/mtu\", ");
    let made = set(&see(&box_with(&outline, SIZE), UP), ACME);
    assert!(judged(&made, &UP).is_same(&made));
    assert_eq!(plan(&settle(&made, &UP)), ALL_READY);
    let outline = outline.replace("work = \"size.cli\"", &format!("{mtu}\n  work = \"size.cli\""));
    let made = set(&see(&box_with(&outline, SIZE), UP), ACME);
    assert_eq!(plan(&judged(&made, &UP)), ALL_READY, "the walk has read it for another state");
}

/// `ready` has a gate and an action of its own.
#[test]
fn the_action_of_ready_is_asked_for_with_it() {
    let ping = "action = { builtin = \"ping\", params = { destination = \"'192.0.2.1'\" } }";
    let outline = with_ready(&format!("{LINK_UP}\n  {ping}")).replace("GATE", "");
    let made = set(&see(&box_with(&outline, SIZE), UP), ACME);
    let ready = judged(&made, &UP);
    has(&ready, &["sized reached, ready reached"]);
    has(&ready, &["init reached, ready not-reached (the action of ready of port eth1)"]);
    let book = &ready.layers().book;
    assert_eq!(book.get(&acme()).unwrap().calls().count(), 1);
    let down = FixedBox { status: "DOWN", ..UP };
    let closed = judged(&made, &down);
    assert_eq!(closed.layers().book.get(&acme()).unwrap().calls().count(), 0);
}

#[test]
fn an_instance_that_backs_out_is_not_judged() {
    let outline = PORT.replace("GATE", "delete = { when = \"params.bridge == 'br9'\" }");
    let made = set(&see(&box_with(&outline, SIZE), UP), ACME);
    let author = ChangeAuthor { user: "ops".into(), trace: "t".into() };
    let origin = ChangeOrigin { author, is_requested: true, ..ChangeOrigin::default() };
    let seen = made.with_surroundings(Surroundings { origin, ..due(UP, 3) });
    let zombie = set(&seen, "delete acme");
    has(&zombie, &["backs out"]);
    assert!(judged(&zombie, &UP).is_same(&zombie));
}
