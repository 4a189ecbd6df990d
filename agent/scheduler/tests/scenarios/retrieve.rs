//! Complete retrievals: present values, intended values, and the operations planned.

use holdfast_scheduler::{Scope, TransactionOutcome, ValueState};

use crate::common::{Lab, changes, delta, key, things};
use crate::{LONG, Row, check, check_states, hinder};

/// An engine with this intent in its store, on a system with this content.
fn started(intent: &str, system: &str) -> Lab {
    let mut lab = Lab::default();
    let values = changes(intent).into_iter().map(|(key, value)| (key, value.unwrap()));
    lab.engine.load(values.collect(), Vec::new());
    lab.system = things(system).into_iter().map(|thing| (thing.key(), thing)).collect();
    lab.strict = false;
    lab.resync();
    lab
}

// proves kv.R1
#[test]
fn an_empty_intent_on_an_empty_system_plans_nothing() {
    let mut lab = started("", "");
    let counters = lab.engine.counters();
    assert_eq!((lab.log().as_str(), counters.transactions, counters.facts), ("", 0, 0));
    assert_eq!(lab.engine.history().records().count(), 0);
    assert!(lab.engine.is_idle() && lab.engine.statuses().is_empty());
}

// proves kv.R2, kv.R3
#[test]
fn mutual_dependencies_on_parts_are_interleaved() {
    let mut lab = started("a .1 .2(<b.1); b .1 <a.1", "");
    assert_eq!(lab.log(), "create a; create a.1; create b; create b.1; create a.2");
    assert_eq!(lab.engine.state_counts(), [(ValueState::Configured, 5)]);
    for name in ["a", "a.1", "a.2", "b", "b.1"] {
        let [intended, applied, observed] =
            lab.engine.planes(&key(name)).map(|plane| plane.cloned());
        assert!(intended.is_some() && applied.is_some() && observed.is_some(), "{name}");
    }
    check(
        &mut lab,
        &[Row {
            change: "-a; -b",
            log: "delete a.2; delete b.1; delete b; delete a.1; delete a",
            states: "a -, a.1 -, a.2 -, b -, b.1 -",
        }],
    );
    assert!(lab.engine.statuses().is_empty(), "no part is left behind");
    lab.resync();
    assert_eq!(lab.log(), "");
}

// proves kv.R4, kv.R6
#[test]
fn a_resync_plans_differences_in_any_order_of_facts() {
    // Three kinds that depend on one another, retrieved in one batch in either order.
    let intent = "a =2 .new <l; b !2 <l; c .same .late(<nobody) <l; D =1 <c; l";
    let system = "a =1 .old <l mine; a.old mine; b !1 <l mine; c .same <l mine; c.same mine; D =1 <c mine; l mine; foreign";
    let want = "delete a.old; delete b; update a; update c; create a.new; create b";
    for backwards in [false, true] {
        let mut lab = Lab::default();
        let values = changes(intent).into_iter().map(|(key, value)| (key, value.unwrap()));
        lab.engine.load(values.collect(), Vec::new());
        lab.system = things(system).into_iter().map(|thing| (thing.key(), thing)).collect();
        lab.strict = false;
        let mut facts = lab.facts();
        if backwards {
            facts.reverse();
        }
        let step = lab.engine.resync(facts, lab.now());
        lab.follow(step);
        assert_eq!(lab.log(), want);
        check_states(
            &lab,
            "c.late PENDING <nobody, c.same CONFIGURED, D CONFIGURED, foreign OBTAINED",
        );
        lab.engine.audit().unwrap();
    }
}

// proves kv.R5
#[test]
fn foreign_values_are_providers_and_stay() {
    let mut lab = started("a <f", "f =3");
    assert_eq!(lab.log(), "create a");
    let status = lab.engine.status(&key("f")).unwrap();
    assert_eq!((status.state, status.last), (ValueState::Obtained, None));
    assert!(status.intended.is_none() && status.applied.is_none() && status.observed.is_some());
    lab.commit("-a").unwrap();
    lab.resync();
    lab.run_until_idle(LONG);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete a", "f =3"));
}

// proves kv.R7
#[test]
fn a_failed_part_is_retried_alone_after_a_resync() {
    let mut lab = Lab::default();
    let values = changes("a .p; b").into_iter().map(|(key, value)| (key, value.unwrap()));
    lab.engine.load(values.collect(), Vec::new());
    lab.watched = Default::default();
    hinder(&mut lab, "create a.p");
    lab.resync();
    assert_eq!(lab.log(), "create a; create b; create a.p FAILED busy (errno 16)");
    check_states(&lab, "a CONFIGURED, a.p RETRYING, b CONFIGURED");
    assert!(lab.watched[&key("a.p")].starts_with("RETRYING"), "whoever watches is told");
    let reads = lab.reads;
    let Some(TransactionOutcome::Done { failed, .. }) = lab.finished.last().cloned() else {
        panic!()
    };
    assert_eq!(failed, [key("a.p")]);
    lab.failing.clear();
    lab.pass_time();
    // The whole is not created again, and only the part is read.
    assert_eq!((lab.log().as_str(), lab.reads - reads), ("create a.p", 1));
    assert!(lab.watched[&key("a.p")].starts_with("CONFIGURED"));
}

// proves kv.X17
#[test]
fn kinds_outside_the_scope_keep_their_state() {
    let mut lab = Lab::having("f", "a <f; C <f; d <C");
    lab.change_outside_silently("-a; -C");
    lab.strict = false;
    // The other transport did not answer: its kind is not in the scope.
    let kinds = vec![key("a").kind()];
    let facts: Vec<_> =
        lab.facts().into_iter().filter(|fact| kinds.contains(&fact.key.kind())).collect();
    let step = lab.engine.retrieved(Scope::Kinds(kinds), facts, lab.now());
    lab.follow(step);
    assert_eq!(lab.log(), "create a", "neither `C` made blindly nor `d` deleted");
    check_states(&lab, "a CONFIGURED, C CONFIGURED, d CONFIGURED");
}

// proves kv.X24
#[test]
fn an_empty_intent_deletes_marked_values() {
    let mut lab = started("", "a <b mine; b <?f mine; c +f mine; g <h");
    assert_eq!(lab.system_text(), "g <h", "{:?}", lab.log);
    let outcome = lab.commit_delta(delta("")).unwrap();
    assert!(matches!(outcome, TransactionOutcome::Done { .. }));
    lab.engine.audit().unwrap();
}
