//! Cases that broke other engines.

use std::time::Duration;

use std::collections::BTreeMap;

use holdfast_scheduler::{Engine, Key, Registry, Scope, TransactionOutcome};

use crate::common::{Lab, Thing, delta, fact, key, things};
use crate::{LONG, Row, check, check_states, hinder, refuse};

/// Log of an operation that fails permanently.
const NO: &str = "FAILED not so (errno 22)";

fn intent(text: &str) -> BTreeMap<Key, Thing> {
    things(text).into_iter().map(|thing| (thing.key(), thing)).collect()
}

// proves kv.X12
#[test]
fn an_undone_change_leaves_no_intent() {
    let mut lab = Lab::having("", "a =1 <b; b; c .p");
    let before: Vec<_> = lab.engine.statuses().into_iter().map(|it| it.intended).collect();
    refuse(&mut lab, "create z");
    let outcome = lab.commit("a =2 <b; -c; d; z").unwrap();
    assert!(matches!(outcome, TransactionOutcome::Failed { undone: true, .. }), "{outcome:?}");
    let after: Vec<_> = lab.engine.statuses().into_iter().map(|it| it.intended).collect();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    lab.failing.clear();
    lab.log();
    lab.resync();
    lab.run_until_idle(LONG);
    assert_eq!((lab.log().as_str(), lab.state("z").as_str()), ("", "-"), "nothing is tried again");
}

// proves kv.X15
#[test]
fn a_crash_after_any_operation_ends_in_the_old_or_in_the_new_intent() {
    for (old, change, new) in [
        ("a; b <a", "-a; -b; c", "c"),
        ("a <b; b !1", "b !2", "a <b; b !2"),
        ("a .p .q; b <a.p", "a =1 .q; -b", "a =1 .q"),
        ("", "a <b; b <c; c; d; e <d", "a <b; b <c; c; d; e <d"),
        ("a #x; b #y", "a #y !1; b #x !1", "a #y !1; b #x !1"),
        ("A <b; b !1; c <A", "b !2", "A <b; b !2; c <A"),
    ] {
        for committed in [false, true] {
            for executed in 0..=8 {
                let mut half = Lab::having("", old);
                half.start_and_crash(delta(change), executed);
                let expected = intent(if committed { new } else { old });
                let mut again = half.restarted(&expected);
                again.run_until_idle(LONG);
                let want: Vec<String> = with_parts(&expected);
                assert_eq!(
                    again.system_text(),
                    want.join("; "),
                    "{change} after {executed} operations"
                );
                again.engine.audit().unwrap();
            }
        }
    }
}

fn with_parts(intent: &BTreeMap<Key, Thing>) -> Vec<String> {
    let mut all = intent.clone();
    all.extend(intent.values().flat_map(Thing::operation_parts));
    all.values().map(Thing::to_string).collect()
}

// proves kv.V9, kv.V10
#[test]
fn a_scoped_resync_reconciles_its_scope_and_dependents() {
    let mut lab = Lab::having("", "m; m/1 <m; m/2 <m; n; n/1 <n; u <m/1");
    lab.strict = false;
    lab.change_outside_silently("-m/2; -n/1");
    let under: Vec<_> =
        lab.facts().into_iter().filter(|fact| fact.key.starts_with(&key("m"))).collect();
    let step = lab.engine.retrieved(Scope::Under(key("m")), under, lab.now());
    lab.follow(step);
    assert_eq!(lab.log(), "create m/2", "what is outside of the part was not looked at");
    lab.resync();
    assert_eq!(lab.log(), "create n/1");
    check(
        &mut lab,
        &[
            Row { change: "-m/2; n/2 <n", log: "delete m/2; create n/2", states: "n/2 CONFIGURED" },
            Row {
                change: "m !1",
                log: "delete u; delete m/1; delete m; create m; create m/1; create u",
                states: "u CONFIGURED",
            },
            Row {
                change: "-m; -m/1",
                log: "delete u; delete m/1; delete m",
                states: "u PENDING <m/1, n/2 CONFIGURED",
            },
        ],
    );
}

#[test]
fn a_resync_of_what_is_on_an_object_leaves_the_rest_as_it_was() {
    let mut lab = Lab::having("", "m; n; a <m; b <m; c <n; d <n; E <m");
    lab.strict = false;
    lab.change_outside_silently("-a; -c; -E; d <n x");
    let on = Scope::On { kind: key("a").kind(), object: key("m") };
    let here: Vec<_> = lab.facts().into_iter().filter(|fact| fact.key == key("b")).collect();
    let step = lab.engine.retrieved(on, here, lab.now());
    lab.follow(step);
    assert_eq!(lab.log(), "create a");
    lab.resync();
    assert_eq!(lab.log(), "update d; create c; create E");
}

// proves kv.V12
#[test]
fn a_failed_delete_keeps_its_dependencies() {
    let mut lab = Lab::having("", "A <b; b; C <A");
    refuse(&mut lab, "delete A");
    lab.commit_delta(delta("-A; -b; -C").best_effort()).unwrap();
    assert_eq!(lab.log(), "delete C; delete A FAILED not so (errno 22)");
    check_states(&lab, "A FAILED, C -");
    assert_eq!(lab.system_text(), "b; A <b", "the value under it was not touched");
    let record = lab.engine.history().records().last().unwrap();
    let results: Vec<String> =
        record.operations.iter().map(|op| format!("{} {:?}", op.action, op.result)).collect();
    assert!(results[1].contains("not so") && results[2].contains("NotTried"), "{results:?}");
}

// proves kv.X18
#[test]
fn a_value_that_vanished_before_its_update_is_created() {
    for (change, atomic) in [("a =1; b", true), ("a =1; b", false)] {
        let mut lab = Lab::having("", "a; d <a");
        lab.strict = false;
        lab.failed_in_batch = true;
        lab.change_outside_silently("-a; -d");
        let mut delta = delta(change);
        if !atomic {
            delta = delta.best_effort();
        }
        let outcome = lab.commit_delta(delta).unwrap();
        lab.run_until_idle(LONG);
        assert_eq!(matches!(outcome, TransactionOutcome::Failed { undone: true, .. }), atomic);
        let want = if atomic { "a; d <a" } else { "a =1; b; d <a" };
        assert_eq!(lab.system_text(), want);
        lab.engine.audit().unwrap();
    }
}

// proves kv.V13
#[test]
fn only_dependents_wait_for_a_slow_operation() {
    let silent = vec!["create A".into(), "create B".into()];
    let mut lab = Lab { silent, ..Lab::default() };
    let plan = lab.plan("A; B; a <A; c; d <c; e <a").unwrap();
    let (_, step) = lab.engine.start(plan, lab.now());
    let slow: Vec<_> =
        step.submit.iter().filter(|op| op.key == key("A") || op.key == key("B")).cloned().collect();
    lab.follow(step);
    assert_eq!(
        lab.log(),
        "create c; create A silent; create B silent; create d",
        "siblings go at once, and so does what is unrelated"
    );
    lab.silent.clear();
    // Answers in reverse order.
    for op in slow.iter().rev() {
        let completion = lab.execute(op).unwrap();
        let step = lab.engine.completed(vec![completion], lab.now());
        lab.follow(step);
    }
    assert_eq!(lab.log(), "create B; create A; create a; create e");
    check_states(&lab, "A CONFIGURED, B CONFIGURED, a CONFIGURED, d CONFIGURED, e CONFIGURED");
}

// proves kv.V13
#[test]
fn deletes_wait_for_their_dependents_only() {
    let mut lab =
        Lab { strict: false, ..Lab::having("", "A <b; b <c; c; d; e <d; l ~/; l/1 <l; B <l/1") };
    lab.silent = vec!["delete A".into(), "delete B".into()];
    let plan = lab.plan("-A; -b; -c; -d; -e; -l; -l/1; -B").unwrap();
    let (_, step) = lab.engine.start(plan, lab.now());
    let slow: Vec<_> = step.submit.iter().filter(|op| op.transport.0 == 1).cloned().collect();
    lab.follow(step);
    assert_eq!(lab.log(), "delete e; delete A silent; delete B silent; delete d");
    lab.silent.clear();
    for op in &slow {
        let completion = lab.execute(op).unwrap();
        let step = lab.engine.completed(vec![completion], lab.now());
        lab.follow(step);
    }
    // The link cascades to its entries, and waits for their dependents.
    assert_eq!(lab.log(), "delete A; delete b; delete c; delete B; delete l");
    assert_eq!(lab.system_text(), "");
}

#[test]
fn a_recreation_is_retried_until_its_delete_succeeds() {
    for seed in 0..8 {
        let mut lab = Lab::having("", "a !1; b <a");
        lab.engine = std::mem::replace(&mut lab.engine, Engine::new(Registry::new())).seeded(seed);
        hinder(&mut lab, "delete a");
        lab.commit_delta(delta("a !2").best_effort()).unwrap();
        lab.run_until_idle(LONG);
        check_states(&lab, "a RETRYING");
        lab.failing.clear();
        lab.run_until_idle(LONG);
        assert_eq!(lab.system_text(), "a !2; b <a", "seed {seed}");
    }
}

#[test]
fn a_failed_update_is_deleted_when_a_new_dependency_is_lost() {
    let mut lab = Lab::having("f", "a =1");
    refuse(&mut lab, "update a");
    lab.commit_delta(delta("a =2 <f").best_effort()).unwrap();
    assert_eq!((lab.state("a").as_str(), lab.system_text().as_str()), ("FAILED", "a =1; f"));
    lab.strict = false;
    lab.outside("-f");
    lab.run_until_idle(LONG);
    assert_eq!((lab.state("a").as_str(), lab.system_text().as_str()), ("PENDING <f", ""));
    lab.outside("f");
    lab.run_until_idle(LONG);
    assert_eq!(lab.system_text(), "a =2 <f; f");
}

#[test]
fn a_value_deleted_for_a_stale_fact_returns() {
    let mut lab = Lab::having("", "a .*s; b .*s");
    lab.strict = false;
    // Written before `b` was created, the fact says that `b` is gone.
    let stale = fact(&key("b"), None);
    let true_again = fact(&key("b"), lab.system.get(&key("b")));
    lab.report_facts_only(vec![stale]);
    let plan = lab.plan("a").unwrap();
    assert_eq!(plan.to_string(), "delete s; update a");
    let (_, mut step) = lab.engine.start(plan, lab.now());
    lab.report_facts_only(vec![true_again]);
    let submit = std::mem::take(&mut step.submit);
    let completions = submit.iter().filter_map(|op| lab.execute(op)).collect();
    let step = lab.engine.completed(completions, lab.now());
    lab.follow(step);
    lab.run_until_idle(LONG);
    assert_eq!(lab.system_text(), "a; b .*s; s");
    lab.engine.audit().unwrap();
}

#[test]
fn a_part_without_its_whole_is_deleted() {
    let mut lab = Lab { strict: false, ..Lab::default() };
    refuse(&mut lab, "create a");
    lab.commit_delta(delta("a .p").best_effort()).unwrap();
    // The second time is that of the slow retry.
    for seconds in [29, 40] {
        lab.run_until_idle(Duration::from_secs(seconds));
        assert_eq!(lab.log(), format!("create a {NO}; create a.p; delete a.p"));
        assert_eq!(lab.system_text(), "");
    }
}

#[test]
fn a_value_in_place_clears_its_error() {
    let mut lab = Lab::having("f", "a <f");
    hinder(&mut lab, "delete a");
    lab.strict = false;
    lab.outside("-f");
    lab.pass_time();
    check_states(&lab, "a RETRYING <f");
    lab.outside("f");
    lab.run_until_idle(LONG);
    check_states(&lab, "a CONFIGURED");
    assert_eq!(lab.engine.pending().len(), 0);
}
