//! Changes of intent: values with parts, cycles, failures.

use crate::common::{Lab, key};
use crate::{LONG, Row, check, check_states, hinder, refuse};

const NO: &str = "FAILED not so (errno 22)";

// proves kv.D1, kv.D2
#[test]
fn values_are_created_in_order_with_their_parts() {
    let mut lab = Lab::default();
    check(
        &mut lab,
        &[
            // Named in mixed order. Ready actions go in rounds, each ascending by key: wholes, then their parts.
            Row {
                change: "c .v(<a.w); a =1 .v .w2; b !1 .v .w",
                log: "create a; create b; create c; create a.v; create a.w2; create b.v; create b.w",
                states: "a CONFIGURED, a.v CONFIGURED, c CONFIGURED, c.v PENDING <a.w",
            },
            // A part that goes leaves before the update of `a`; one that comes follows it and unblocks its dependent.
            // `b` is created again, with the part that stays.
            Row {
                change: "a =2 .v .w; b !2 .v",
                log: "delete a.w2; delete b.w; update a; create a.w; create c.v; delete b.v; delete b; create b; create b.v",
                states: "a CONFIGURED, a.w2 -, b.w -, c.v CONFIGURED",
            },
        ],
    );
    assert_eq!(lab.engine.state_counts(), [(holdfast_scheduler::ValueState::Configured, 7)]);
    let first = lab.engine.history().records().next().unwrap().started_ns;
    let later = lab.engine.history().records().filter(|record| record.started_ns > first);
    assert!(later.count() <= 1);
}

// proves kv.D4
#[test]
fn a_cycle_stays_cyclic_when_its_outside_dependency_is_met() {
    let mut lab = Lab::default();
    check(
        &mut lab,
        &[
            Row {
                change: "c1 <c2; c2 <c3; c3 <c1 <c4",
                log: "",
                states: "c1 CYCLIC <c2, c2 CYCLIC <c3, c3 CYCLIC <c1 <c4",
            },
            Row {
                change: "c4",
                log: "create c4",
                states: "c1 CYCLIC <c2, c2 CYCLIC <c3, c3 CYCLIC <c1, c4 CONFIGURED",
            },
        ],
    );
}

// proves kv.D6, kv.D7
#[test]
fn a_value_that_cannot_be_deleted_is_the_only_failure() {
    let mut lab = Lab::having("", "c1 <c2; c2 =1; c3 <c1 <c4; c4");
    hinder(&mut lab, "delete c2");
    check(
        &mut lab,
        &[Row {
            change: "-c2",
            log: "delete c3; delete c1; delete c2 FAILED busy (errno 16)",
            states: "c1 PENDING, c2 RETRYING, c3 PENDING <c1, c4 CONFIGURED",
        }],
    );
    assert_eq!(lab.system_text(), "c2 =1; c4");
    lab.failing.clear();
    // Parked values return in a transaction of their own: the plan of the change has the update alone.
    lab.commit("c2 =2").unwrap();
    assert_eq!(lab.log(), "update c2; create c1; create c3");
    check_states(&lab, "c1 CONFIGURED, c2 CONFIGURED, c3 CONFIGURED, c4 CONFIGURED");
    lab.run_until_idle(LONG);
    assert_eq!(lab.log(), "", "the delete is not tried again");
}

/// The deviation kv.D8.
#[test]
fn a_failed_delete_of_a_part_keeps_its_whole() {
    // The part has a transport of its own. Within one transport the whole may be in the same batch, and the system
    // refuses it.
    let mut lab = Lab::having("", "a .*P");
    refuse(&mut lab, "delete P");
    assert_eq!(lab.plan("-a").unwrap().to_string(), "delete P; delete a");
    check(
        &mut lab,
        &[Row { change: "-a", log: &format!("delete P {NO}"), states: "P FAILED, a RETRYING" }],
    );
    assert_eq!(lab.system_text(), "a .*P; P", "its own delete was never tried");
    lab.failing.clear();
    lab.run_until_idle(LONG);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete P; delete a", ""));
}

// proves kv.D9
#[test]
fn a_part_is_retried_after_a_failed_recreation() {
    let mut lab = Lab::having("", "a =1 .p(!1)");
    hinder(&mut lab, "create a.p");
    check(
        &mut lab,
        &[Row {
            change: "a =2 .p(!2)",
            log: "delete a.p; update a; create a.p FAILED busy (errno 16)",
            states: "a CONFIGURED, a.p RETRYING",
        }],
    );
    let status = lab.engine.status(&key("a.p")).unwrap();
    assert_eq!((status.part_of, status.detail.attempts), (vec![key("a")], 1));
    lab.failing.clear();
    lab.pass_time();
    assert_eq!(
        (lab.log().as_str(), lab.system_text().as_str()),
        ("create a.p", "a =2 .p(!2); a.p !2")
    );
}

/// State left behind by a change that cannot be completed, at once and in the end.
#[test]
fn dependents_parked_for_a_failed_delete_return_or_wait() {
    for (ours, change, failing) in [
        ("a <b; b", "-b", "delete b"),
        ("a <B; B", "-B", "delete B"),
        ("a <?f; b +f", "-b", "delete b"),
    ] {
        let mut lab = Lab::having("", ours);
        refuse(&mut lab, failing);
        let log = format!("delete a; {failing} {NO}; create a");
        check(&mut lab, &[Row { change, log: &log, states: "a CONFIGURED" }]);

        let mut lab = Lab::having("", ours);
        hinder(&mut lab, failing);
        let log = format!("delete a; {failing} FAILED busy (errno 16)");
        check(&mut lab, &[Row { change, log: &log, states: "a PENDING" }]);
        lab.failing.clear();
        lab.run_until_idle(LONG);
        assert_eq!(lab.log(), failing);
        assert!(lab.state("a").starts_with("PENDING <"), "{}", lab.state("a"));
    }
}
