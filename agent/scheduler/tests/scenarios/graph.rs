//! Queries, each kind of dependency, and the state left behind by removed values.

use std::time::Duration;

use holdfast_scheduler::{Action, Key, ValueState};

use crate::common::{Lab, key};
use crate::{Row, check, check_states};

// proves kv.H1
#[test]
fn an_empty_engine_answers_every_question() {
    let lab = Lab::default();
    let engine = &lab.engine;
    assert!(engine.statuses().is_empty() && engine.pending().is_empty());
    assert!(engine.state_counts().is_empty() && engine.is_idle());
    assert!(engine.status(&key("a")).is_none());
    assert_eq!(engine.state(&key("a")), ValueState::Nonexistent);
    assert!(engine.planes(&key("a")).iter().all(Option::is_none));
    assert_eq!(engine.history().records().count(), 0);
    engine.audit().unwrap();
}

// proves kv.H2
#[test]
fn a_plan_has_no_effect_until_started() {
    let mut lab = Lab::default();
    let plan = lab.plan("a =1").unwrap();
    assert_eq!(plan.to_string(), "create a");
    assert!(lab.engine.statuses().is_empty(), "planned, and nobody sees it");
    drop(plan);
    lab.engine.audit().unwrap();
    let plan = lab.plan("a =1").unwrap();
    let (txn, step) = lab.engine.start(plan, lab.now());
    lab.follow(step);
    let status = lab.engine.status(&key("a")).unwrap();
    assert_eq!((status.label.as_str(), status.state), ("a", ValueState::Configured));
    assert_eq!(status.last.map(|last| (last.txn, last.action)), Some((txn, Action::Create)));
    assert_eq!(lab.engine.history().record(txn).unwrap().operations.len(), 1);
}

// proves kv.H6
#[test]
fn values_are_listed_by_key_and_state() {
    let mut lab = Lab::having("f", "a; b <a; c <nobody; d <c");
    lab.commit_delta(crate::delta("e twice").best_effort()).unwrap();
    let labels = |statuses: Vec<holdfast_scheduler::ValueStatus>| {
        statuses.into_iter().map(|status| status.label).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(labels(lab.engine.statuses()), "a b c d e f");
    assert_eq!(labels(lab.engine.pending()), "c d e");
    let state_counts = |lab: &Lab| {
        let counts = lab.engine.state_counts();
        counts
            .iter()
            .map(|(state, count)| format!("{state} {count}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(state_counts(&lab), "OBTAINED 1, CONFIGURED 2, PENDING 2, INVALID 1");
    lab.commit("nobody").unwrap();
    lab.commit_delta(crate::delta("-e").best_effort()).unwrap();
    assert_eq!(labels(lab.engine.pending()), "");
    assert_eq!(state_counts(&lab), "OBTAINED 1, CONFIGURED 5");
}

// proves kv.H4, kv.H5
#[test]
fn each_kind_of_target_is_met_in_either_order() {
    // A dependency, a value that meets it, and one that nearly does.
    for (need, offer, near_miss) in [
        ("<b", "b", "bb"),
        ("<b/", "b/1", "bb/1"),
        ("<b/", "b", "c/b"),
        ("<?f", "x +f", "x +g"),
        ("<@10.1.2.3", "x +10.1.0.0/16", "x +10.2.0.0/16"),
        ("<x:up", "x :up", "x"),
        ("<x.p", "x .p", "x .q"),
    ] {
        for dependant_first in [true, false] {
            let mut lab = Lab::default();
            let value = format!("v {need}");
            let (one, other) = if dependant_first { (&*value, offer) } else { (offer, &*value) };
            lab.commit(one).unwrap();
            lab.commit(other).unwrap();
            assert_eq!(lab.state("v"), "CONFIGURED", "{need} {offer}");
            lab.engine.audit().unwrap();
        }
        for dependant_first in [true, false] {
            let mut lab = Lab::default();
            let value = format!("v {need}");
            let (one, other) =
                if dependant_first { (&*value, near_miss) } else { (near_miss, &*value) };
            lab.commit(one).unwrap();
            lab.commit(other).unwrap();
            assert!(lab.state("v").starts_with("PENDING"), "{need} {near_miss}");
            lab.engine.audit().unwrap();
        }
    }
}

// proves kv.E1, kv.E3
#[test]
fn prefixes_match_whole_segments() {
    let mut lab = Lab::default();
    lab.commit("any <m/; deep <m/1/; exact <m/1; both <m/ <m/1").unwrap();
    check(
        &mut lab,
        &[
            Row {
                change: "m/2",
                log: "create m/2; create any",
                states: "deep PENDING <m/1/, exact PENDING <m/1, both PENDING <m/1",
            },
            Row {
                change: "m/1/x",
                log: "create m/1/x; create deep",
                states: "exact PENDING <m/1, both PENDING <m/1",
            },
            Row { change: "m/1", log: "create m/1; create both; create exact", states: "" },
            Row { change: "-m/2", log: "delete m/2", states: "any CONFIGURED" },
            Row {
                change: "-m/1",
                log: "delete both; delete exact; delete m/1",
                states: "any CONFIGURED, deep CONFIGURED",
            },
            Row {
                change: "-m/1/x",
                log: "delete any; delete deep; delete m/1/x",
                states: "any PENDING <m/, both PENDING <m/1 <m/",
            },
            Row { change: "-any; -deep; -exact; -both", log: "", states: "any -, both -" },
        ],
    );
    assert!(lab.engine.statuses().is_empty());
}

// proves kv.E2, kv.E4
#[test]
fn a_plan_simulates_on_an_overlay() {
    let lab = Lab::having("", "a <?f; b +f; m/1; u <m/");
    // In the plan `c` replaces `b` and `m/2` replaces `m/1`; dropping the plan leaves no trace.
    for _ in 0..2 {
        let plan = lab.plan("-b; c +f; -m/1; m/2; w <c <m/2").unwrap();
        assert_eq!(
            plan.to_string(),
            "create c; create m/2; delete b; delete m/1; create w",
            "{:?}",
            plan.cost()
        );
        drop(plan);
        lab.engine.audit().unwrap();
        assert_eq!(lab.state("c"), "-");
        assert_eq!(lab.state("b"), "CONFIGURED");
    }
}

// proves kv.H7
#[test]
fn counts_of_neighbours_are_correct_after_deletes() {
    let mut lab = Lab::having("", "a <b; b <c +f; c; d <?f <b");
    check(
        &mut lab,
        &[
            Row {
                change: "-b",
                log: "delete a; delete d; delete b",
                states: "a PENDING <b, b -, d PENDING <b <?f, c CONFIGURED",
            },
            Row { change: "-c", log: "delete c", states: "a PENDING <b, c -" },
            Row { change: "b <c +f", log: "", states: "b PENDING <c, a PENDING <b" },
            Row {
                change: "c",
                log: "create c; create b; create a; create d",
                states: "a CONFIGURED, d CONFIGURED",
            },
        ],
    );
}

// proves kv.H8
#[test]
fn history_lists_each_operation_on_a_key_once() {
    let mut lab = Lab::default();
    for change in ["a =1; b", "-a", "b =1", "a =2", "a =3"] {
        lab.now += Duration::from_secs(10);
        lab.commit(change).unwrap();
    }
    let of = |operated: &Key| -> Vec<(u64, String)> {
        let records = lab.engine.history().records();
        let operations = records.flat_map(|record| {
            let own = record.operations.iter().filter(|op| op.key == *operated);
            own.map(|op| (record.started_ns / 1_000_000_000, op.action.to_string()))
        });
        operations.collect()
    };
    let want = [(1010, "create"), (1020, "delete"), (1040, "create"), (1050, "update")];
    assert_eq!(of(&key("a")), want.map(|(at, what)| (at, what.to_owned())));
    assert_eq!(of(&key("b")).len(), 2);
}

// proves kv.S1
#[test]
fn members_of_an_aggregate_can_have_dependents() {
    let mut lab = Lab::default();
    let members: String = (0..10).map(|n| format!(" .m{n}(<i{n})")).collect();
    let users: String = (0..10).map(|n| format!("i{n}; u{n} <bd.m{n};")).collect();
    lab.commit(&format!("bd{members}")).unwrap();
    assert_eq!(lab.log(), "create bd");
    lab.commit(&users).unwrap();
    assert_eq!(lab.log.len(), 30);
    lab.log();
    let status = lab.engine.status(&key("bd")).unwrap();
    assert_eq!((status.parts.len(), status.parts[3] == key("bd.m3")), (10, true));
    lab.commit("-i4").unwrap();
    assert_eq!(lab.log(), "delete u4; delete bd.m4; delete i4");
    check_states(&lab, "bd CONFIGURED, bd.m4 PENDING <i4, bd.m5 CONFIGURED, u4 PENDING <bd.m4");
}

// proves kv.W1
#[test]
fn cycles_and_unmet_dependencies_are_reported() {
    let mut lab = Lab::default();
    lab.commit("a <b; b <c; c <a; d <a <ghost; e <e").unwrap();
    let circle = |name: &str| lab.engine.status(&key(name)).unwrap().detail.cycle;
    assert_eq!(circle("b"), [key("b"), key("c"), key("a")]);
    assert_eq!(circle("e"), [key("e")]);
    assert!(circle("d").is_empty(), "it waits for a circle, and is not in it");
    check_states(&lab, "d PENDING <a <ghost");
    lab.commit("c").unwrap();
    check_states(&lab, "a CONFIGURED, b CONFIGURED, c CONFIGURED, d PENDING <ghost, e CYCLIC <e");
    assert!(lab.engine.status(&key("b")).unwrap().detail.cycle.is_empty());
}
