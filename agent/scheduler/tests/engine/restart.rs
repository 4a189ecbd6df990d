//! Rows for restarts and complete retrievals.

use holdfast_scheduler::{IntentChange, Scope, SharedValue};

use crate::SECOND;
use crate::common::{self, Lab, key};

/// An engine that has started with this intent in the store, and this content of the system.
fn started(intent: &str, system: &str) -> Lab {
    let mut lab = Lab { strict: false, ..Lab::default() };
    let values = common::changes(intent).into_iter().map(|(key, value)| (key, value.unwrap()));
    lab.engine.load(values.collect(), Vec::new());
    lab.system = common::things(system).into_iter().map(|thing| (thing.key(), thing)).collect();
    lab.resync();
    lab.run_until_idle(SECOND);
    lab
}

/// Intent in the store, content of the system, and the operations planned.
#[track_caller]
fn check_restart(intent: &str, system: &str, want: &str) {
    let mut lab = started(intent, system);
    assert_eq!(lab.log(), want);
    assert_eq!(
        lab.engine.counters().operations_planned,
        want.split(';').filter(|t| !t.is_empty()).count() as u64
    );
    lab.resync();
    assert_eq!(lab.log(), "", "in sync");
}

// proves kv.R4, kv.R5, kv.X24
#[test]
fn a_restart_plans_only_differences() {
    check_restart("", "", "");
    check_restart("", "f; g <f", "");
    check_restart("a <f; b <a", "f; a <f mine; b <a mine", "");
    check_restart("a =1 <f; b <a", "f; a =2 <f mine; b <a mine", "update a");
    check_restart("a !1; b <a", "a !2 mine; b <a mine", "delete b; delete a; create a; create b");
    check_restart("a", "a mine; z mine; f", "delete z");
    check_restart("a .p; b <f", "a .p mine", "create a.p");
    check_restart("a <x; b <y", "a <x mine", "delete a");
    check_restart("a twice; b", "", "create b");
    check_restart("p =2", "p =1 port", "adopt p");
    check_restart(
        "a =2 .new; b !2; c .late; C =2 <c; late2 <nobody; d",
        "a =1 .old mine; a.old mine; b !1 mine; c mine; C =1 <c mine; d mine",
        "delete a.old; delete b; update a; update c; update C; create a.new; create b; create c.late",
    );
}

/// Intent, system, and what becomes of it; how many values are recorded as applied without a plan.
#[test]
fn what_a_start_finds_in_place_needs_no_plan() {
    for (intent, system, states, found) in [
        ("a <f; b <f", "f; a <f mine; b <f mine", ["CONFIGURED", "CONFIGURED"], 2),
        // Another value relies on `a`, or `b` lacks what it needs.
        ("a; b <a", "a mine; b <a mine", ["CONFIGURED", "CONFIGURED"], 1),
        ("a; b <x", "a mine; b <x mine", ["CONFIGURED", "PENDING <x"], 1),
        // Nothing else supports them.
        ("a <b; b <a", "a <b mine; b <a mine", ["CYCLIC <b", "CYCLIC <a"], 0),
        // One of them may have the identity.
        ("a #1; b #1", "a #1 mine; b #1 mine", ["CONFIGURED", "CONFLICT"], 0),
        // Not as intended, not there, and of others, whose value comes back.
        ("a =1; b", "a =2 mine", ["CONFIGURED", "CONFIGURED"], 0),
        ("a =1 port; b", "a =1 port; b mine", ["CONFIGURED", "CONFIGURED"], 1),
    ] {
        let lab = started(intent, system);
        assert_eq!(["a", "b"].map(|name| lab.state(name)), states, "{intent}, {system}");
        assert_eq!(lab.engine.counters().found_in_place, found, "{intent}, {system}");
        lab.engine.audit().unwrap();
    }
    let mut lab = started("p =2 port", "p =2 port");
    lab.commit("-p").unwrap();
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("release p", "p =2 port"));
}

// proves kv.R3
#[test]
fn an_empty_intent_removes_everything_of_ours() {
    let mut lab = Lab::having("f", "a .p .q; b <a.p; a/2 <b");
    lab.commit("-a; -b; -a/2").unwrap();
    assert_eq!(lab.log(), "delete a/2; delete a.q; delete b; delete a.p; delete a");
    assert_eq!(lab.system_text(), "f");
    assert_eq!(lab.engine.statuses().len(), 1);
}

// proves kv.X17
#[test]
fn a_resync_detects_values_that_vanished() {
    let mut lab = Lab::having("f", "a; b <f; C");
    lab.change_outside_silently("-a; -f; -C");
    lab.strict = false;
    let things: Vec<_> =
        lab.facts().into_iter().filter(|fact| fact.key.kind() == key("a").kind()).collect();
    let step = lab.engine.retrieved(Scope::Kinds(vec![key("a").kind()]), things, lab.now());
    lab.follow(step);
    lab.run_until_idle(SECOND);
    assert_eq!(lab.system_text(), "a");
    assert_eq!(
        (lab.state("b").as_str(), lab.state("C").as_str()),
        ("PENDING <f", "CONFIGURED"),
        "what was not retrieved stays"
    );
    lab.resync();
    assert_eq!(lab.system_text(), "a; C");
}

#[test]
fn pre_images_survive_a_restart() {
    let mut lab = Lab::default();
    let value = |text: &str| common::changes(text).remove(0).1.unwrap();
    lab.engine.load(Vec::<IntentChange>::new(), vec![(key("p"), value("p =1 port"))]);
    lab.system.insert(key("p"), common::Thing::parse("p =2"));
    lab.resync();
    assert_eq!(
        (lab.log().as_str(), lab.system_text().as_str()),
        ("release p", "p =1 port"),
        "its entry went while we were away"
    );

    let mut lab = Lab::default();
    lab.engine.load(vec![(key("p"), value("p =2"))], vec![(key("p"), value("p =1 port"))]);
    lab.system.insert(key("p"), common::Thing::parse("p =3"));
    lab.resync();
    assert_eq!(lab.log(), "update p");
    lab.commit("-p").unwrap();
    assert_eq!(lab.system_text(), "p =1 port");
}

#[test]
fn pre_images_are_reported_before_the_adoption() {
    let lab = Lab::with("p =1 port");
    let plan = lab.plan("p =2").unwrap();
    let restores: Vec<(_, SharedValue)> = plan.restores().to_vec();
    assert_eq!(restores.len(), 1);
    assert_eq!(restores[0].0, key("p"));
}
