//! Unsolicited facts: foreign values that appear, change and vanish.

use holdfast_scheduler::{TransactionOutcome, ValueState};

use crate::common::{Lab, delta, key};
use crate::{LONG, check_states, hinder};

// proves kv.N1
#[test]
fn a_pending_value_is_intended_only() {
    let mut lab = Lab::default();
    lab.commit("a <port .p .q(<port:up)").unwrap();
    assert_eq!(lab.engine.planes(&key("a")).map(|plane| plane.is_some()), [true, false, false]);
    assert_eq!(lab.engine.planes(&key("port")).map(|plane| plane.is_some()), [false; 3]);
    check_states(&lab, "a PENDING <port, port -");
}

// proves kv.N2, kv.N3, kv.N4
#[test]
fn dependents_follow_the_properties_of_a_foreign_value() {
    let mut lab = Lab::default();
    lab.commit("a <port .p .q(<port:up); b <a.q").unwrap();
    lab.outside("port =5");
    assert_eq!(lab.log(), "create a; create a.p");
    check_states(&lab, "port OBTAINED, a CONFIGURED, a.p CONFIGURED, a.q PENDING <port:up");
    lab.outside("port =6 :up");
    assert_eq!(lab.log(), "create a.q; create b", "no operation on what was notified");
    lab.strict = false; // the system did not ask us first
    lab.outside("-port");
    lab.run_until_idle(LONG);
    assert_eq!(lab.log(), "delete b; delete a.q; delete a.p; delete a");
    check_states(&lab, "a PENDING <port, b PENDING <a.q, port -");
    assert!(lab.engine.planes(&key("a"))[0].is_some(), "parked, not forgotten");
    assert_eq!(lab.engine.state(&key("port")), ValueState::Nonexistent);
}

// proves kv.N5
#[test]
fn each_failure_has_its_own_retry_schedule() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a <port .p").best_effort()).unwrap();
    lab.commit_delta(delta("b <port; c <b").best_effort()).unwrap();
    hinder(&mut lab, "create a.p");
    hinder(&mut lab, "create b");
    lab.log();
    lab.outside("port");
    assert_eq!(
        lab.log(),
        "create a; create b FAILED busy (errno 16); create a.p FAILED busy (errno 16); create c FAILED unreachable (errno 101)"
    );
    check_states(&lab, "a CONFIGURED, a.p RETRYING, b RETRYING, c PENDING <b");
    let due = |lab: &Lab, name: &str| lab.engine.status(&key(name)).unwrap().detail.retry_at;
    assert!(due(&lab, "a.p").is_some() && due(&lab, "b").is_some());
    assert_ne!(due(&lab, "a.p"), due(&lab, "b"));
    lab.failing.remove("create b");
    lab.run_until_idle(std::time::Duration::from_secs(1));
    check_states(&lab, "a.p RETRYING, b CONFIGURED, c CONFIGURED");
    lab.failing.clear();
    lab.run_until_idle(LONG);
    check_states(&lab, "a.p CONFIGURED, b CONFIGURED, c CONFIGURED");
}

// proves kv.X10
#[test]
fn many_facts_of_one_key_count_as_the_last() {
    let mut lab = Lab::having("", "w <port:up");
    let transactions = lab.engine.counters().transactions;
    let mut facts = Vec::new();
    for _ in 0..1000 {
        facts.extend(lab.change_outside_silently("port"));
        facts.extend(lab.change_outside_silently("-port"));
    }
    facts.extend(lab.change_outside_silently("port :up"));
    lab.report(facts);
    assert_eq!((lab.log().as_str(), lab.state("w").as_str()), ("create w", "CONFIGURED"));
    assert_eq!(lab.engine.counters().transactions - transactions, 1);
}

// proves kv.X11, kv.I9
#[test]
fn an_occasional_watcher_sees_the_last_state() {
    // No queue can overflow: a step names keys, and the watcher asks for their state.
    let mut lab = Lab::default();
    for round in 0..50 {
        lab.commit(&format!("a ={round} <port; b <a")).unwrap();
        lab.outside(if round % 2 == 0 { "port" } else { "-port" });
        lab.strict = false;
    }
    lab.run_until_idle(LONG);
    for status in lab.engine.statuses() {
        let want = crate::common::watched(&lab.engine, &status.key);
        assert_eq!(lab.watched[&status.key], want, "{}", status.label);
    }
    check_states(&lab, "a PENDING <port, b PENDING <a");
}

// proves kv.X21
#[test]
fn an_object_renamed_outside_is_created_again() {
    let mut lab = Lab::having("", "l; l/1 <l; r <l/1");
    lab.strict = false;
    lab.outside("-l; -l/1; m; m/1");
    lab.run_until_idle(LONG);
    assert_eq!(lab.system_text(), "l; l/1 <l; m; m/1; r <l/1");
    check_states(&lab, "l CONFIGURED, l/1 CONFIGURED, r CONFIGURED, m OBTAINED, m/1 OBTAINED");
}

// proves kv.X23
#[test]
fn values_of_a_vanished_namespace_wait_or_return() {
    let mut lab = Lab::having("ns", "ns/a <ns; ns/b <ns/a; x");
    lab.strict = false;
    lab.outside("-ns; -ns/a; -ns/b");
    lab.run_until_idle(LONG);
    assert_eq!(lab.log(), "", "nothing is tried on what is not there");
    check_states(&lab, "ns/a PENDING <ns, ns/b PENDING <ns/a, x CONFIGURED");
    lab.commit("-ns/b").unwrap();
    assert_eq!(lab.log(), "", "nor deleted");
    lab.outside("ns");
    check_states(&lab, "ns/a CONFIGURED, ns/b -");
    assert!(matches!(lab.finished.last(), Some(TransactionOutcome::Done { .. })));
}
