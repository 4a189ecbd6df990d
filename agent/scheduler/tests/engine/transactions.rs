//! Rows for the order of transactions and what they leave behind.

use holdfast_scheduler::{Mode, TransactionOutcome, Trigger, TxnId};

use crate::common::{self, Lab, delta, fact, key};
use crate::{handed_out, success};

// proves kv.M5, kv.V6
#[test]
fn pending_values_are_created_when_each_dependency_is_met() {
    let mut lab = Lab::default();
    let intent = common::changes("a <x; b <?f; c <a <b; never <nobody");
    lab.engine
        .load(intent.into_iter().map(|(key, value)| (key, value.unwrap())).collect(), Vec::new());
    lab.resync();
    let states = |lab: &Lab| ["a", "b", "c", "never"].map(|name| lab.state(name)).join("; ");
    assert_eq!(states(&lab), "PENDING <x; PENDING <?f; PENDING <a <b; PENDING <nobody");
    lab.commit("x +f").unwrap();
    assert_eq!(states(&lab), "CONFIGURED; CONFIGURED; CONFIGURED; PENDING <nobody");
    assert_eq!(lab.log(), "create x; create a; create b; create c");
}

// proves kv.V17
#[test]
fn a_recreation_ends_with_late_completions() {
    let mut lab = Lab::having("", "A !1; b <A; C <b");
    let (txn, mut ops) = handed_out(&mut lab, "A !2");
    let mut order = Vec::new();
    for _ in 0..20 {
        let Some(op) = ops.pop() else { break };
        order.push(format!("{} {}", op.action, lab.engine.registry().label(&op.key, None)));
        let completion = lab.execute(&op).unwrap();
        let step = lab.engine.completed(vec![completion], lab.now());
        let facts = step.read.iter().map(|key| fact(key, lab.system.get(key))).collect();
        ops.extend(step.submit.iter().rev().cloned());
        lab.finished.extend(step.finished);
        let step = lab.engine.observed(facts, lab.now());
        ops.extend(step.submit.iter().rev().cloned());
        lab.finished.extend(step.finished);
    }
    assert!(lab.finished.iter().any(|outcome| outcome.txn() == txn), "{order:?}");
    assert_eq!(lab.system_text(), "b <A; A !2; C <b");
}

#[test]
fn facts_flow_while_operations_run_and_changes_queue() {
    let mut lab = Lab::having("", "w <f; v <a");
    let (first, ops) = handed_out(&mut lab, "a");
    let (second, queued) = handed_out(&mut lab, "b <a");
    assert!(queued.is_empty(), "what it needs is on its way");
    let facts = lab.change_outside_silently("f");
    let step = lab.engine.observed(facts, lab.now());
    let woken: Vec<_> = step.submit.iter().map(|op| op.key.clone()).collect();
    assert_eq!(woken, [key("w")], "what has nothing to do with them does not wait");
    lab.follow(step);
    let step = lab.engine.completed(ops.iter().map(success).collect(), lab.now());
    for op in &ops {
        lab.system.insert(
            op.key.clone(),
            common::Thing::parse(if op.key == key("a") { "a" } else { "v <a" }),
        );
    }
    lab.follow(step);
    let ended: Vec<TxnId> = lab.finished.iter().map(TransactionOutcome::txn).collect();
    let at = |txn| ended.iter().position(|ended| *ended == txn).unwrap();
    assert!(at(first) < at(second));
    assert_eq!(lab.system_text(), "a; b <a; f; v <a; w <f");
}

#[test]
fn a_stale_plan_is_replaced_at_start() {
    let mut lab = Lab::default();
    let plan = lab.plan("a <f").unwrap();
    assert!(plan.is_empty());
    lab.outside("f");
    let (_, step) = lab.engine.start(plan, lab.now());
    assert_eq!(step.submit.len(), 1);
    lab.follow(step);

    let stale = lab.plan("b #x").unwrap();
    lab.commit("c #x").unwrap();
    let (_, step) = lab.engine.start(stale, lab.now());
    assert!(matches!(&step.finished[0], TransactionOutcome::Refused { .. }), "{:?}", step.finished);
    assert_eq!(lab.system_text(), "a <f; c #x; f");
}

// proves kv.X27
#[test]
fn an_intent_changed_back_ends_with_its_first_value() {
    let mut lab = Lab::having("", "a =1");
    let (_, ops) = handed_out(&mut lab, "a =2");
    let (_, none) = handed_out(&mut lab, "a =1");
    assert_eq!((ops.len(), none.len()), (1, 0));
    lab.system.insert(key("a"), common::Thing::parse("a =2"));
    let step = lab.engine.completed(vec![success(&ops[0])], lab.now());
    lab.follow(step);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("update a", "a =1"));
}

#[test]
fn history_records_triggers() {
    let mut lab = Lab::default();
    lab.commit_delta(delta("a; b <f").described("the first")).unwrap();
    lab.outside("f");
    let records: Vec<(Trigger, &str, usize)> = lab
        .engine
        .history()
        .records()
        .map(|record| (record.trigger, record.description.as_str(), record.operations.len()))
        .collect();
    assert_eq!(records, [(Trigger::Change, "the first", 1), (Trigger::Convergence, "", 1)]);
    assert_eq!(delta("a").mode, Mode::Atomic);
}

// proves kv.M4
#[test]
fn a_mixed_change_parks_only_dependents_of_deletes() {
    let mut lab = Lab::having("", "i1 =1; i2 =1; i3; bd .*m1; m1x <i3; fib <m1x <i3");
    lab.commit("i1 =2; i2 =2; -i3").unwrap();
    assert_eq!(lab.log(), "delete fib; delete m1x; delete i3; update i1; update i2");
    assert_eq!(
        (lab.state("fib").as_str(), lab.state("m1x").as_str()),
        ("PENDING <i3 <m1x", "PENDING <i3")
    );
}

// proves kv.M7, kv.M8
#[test]
fn a_thousand_changes_one_after_the_other() {
    let mut lab = Lab { strict: false, ..Lab::default() };
    let mut members = String::new();
    for number in 0..1000 {
        members += &format!(" .m{number}");
        lab.commit(&format!("i{number}; bd{members}; f{number} <i{number} <bd")).unwrap();
        assert_eq!(lab.log.len(), 4);
        lab.log.clear();
    }
    assert_eq!(lab.system.len(), 3001);
}
