//! Full, upstream and downstream resync, and kinds that are taught late.

use std::time::Duration;

use crate::common::{Lab, changes, delta, error, fact, key};
use holdfast_scheduler::{Effect, IntentSource, Key, KindId, Origin, SharedValue, TransportId};

const MINUTE: Duration = Duration::from_secs(60);

fn intent(text: &str) -> Vec<(Key, SharedValue)> {
    changes(text).into_iter().map(|(key, value)| (key, value.unwrap())).collect()
}

#[test]
fn upstream_makes_the_given_values_the_whole_intent_of_one_source() {
    let other = IntentSource { priority: 3, id: 1 };
    let mut lab = Lab::having("f", "a =1; b; c <b");
    lab.commit_delta(delta("o").from_source(other)).unwrap();
    lab.log();
    lab.outside_unheard("a =9");
    let change = lab.engine.completing(IntentSource::default(), intent("a =1; d; b =1"));
    let keys: Vec<&Key> = change.changes.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&key("b"), &key("c"), &key("d")], "what is equal is left out");
    lab.commit_delta(change).unwrap();
    assert_eq!(lab.log(), "delete c; update b; create d", "and nothing is retrieved");
    assert_eq!(lab.shown(), "a =9; b =1; d; f; o");
}

#[test]
fn a_full_resync_is_one_transaction_from_the_facts_to_the_intent() {
    let mut lab = Lab::having("f", "a =1; b; c <b");
    lab.strict = false;
    lab.log();
    lab.outside_unheard("a =9; -c");
    let before = lab.engine.history().records().count();
    let (source, want) = (IntentSource::default(), intent("a =1; d <b; b"));
    let (txn, step) = lab.engine.full_resync(source, want, lab.facts(), lab.now());
    lab.follow(step);
    assert_eq!(lab.log(), "update a; create d");
    assert_eq!(lab.shown(), "a =1; b; d <b; f");
    assert_eq!(lab.engine.history().records().count(), before + 1);
    assert_eq!(lab.engine.history().record(txn).unwrap().origin, Origin::Resync);
    let (_, step) = lab.engine.full_resync(source, intent("a =1; d <b; b"), lab.facts(), lab.now());
    lab.follow(step);
    assert_eq!(lab.log(), "", "in sync, nothing is done");
}

// proves kv.X24
#[test]
fn a_full_resync_with_nothing_intended_removes_all_of_ours() {
    let mut lab = Lab::having("f", "a; b <a");
    lab.log();
    let (_, step) =
        lab.engine.full_resync(IntentSource::default(), Vec::new(), lab.facts(), lab.now());
    lab.follow(step);
    assert_eq!((lab.log().as_str(), lab.shown().as_str()), ("delete b; delete a", "f"));
}

#[test]
fn a_full_resync_waits_for_whoever_is_in_its_way() {
    let mut lab = Lab::having("", "a =1");
    let (_, hanging) = crate::begin(&mut lab, delta("a =2"));
    let (txn, step) =
        lab.engine.full_resync(IntentSource::default(), intent("a =3"), lab.facts(), lab.now());
    assert!(step.submit.is_empty());
    lab.follow(step);
    crate::answer(&mut lab, &hanging);
    assert!(lab.finished.iter().any(|outcome| outcome.txn() == txn));
    assert_eq!(lab.shown(), "a =3");
}

#[test]
fn everything_is_retrieved_by_the_clock() {
    let mut lab = Lab::having("", "a");
    let step = lab.engine.resync_every(Some(MINUTE), lab.now());
    assert_eq!(step.deadline, Some(lab.now + MINUTE));
    for _ in 0..3 {
        lab.now += MINUTE;
        let step = lab.engine.due(lab.now());
        assert!(step.retrieve);
        assert_eq!(step.deadline, Some(lab.now + MINUTE));
    }
    assert!(!lab.engine.due(lab.now()).retrieve);
    assert_eq!(lab.engine.resync_every(None, lab.now()).deadline, None);
}

#[derive(Debug)]
struct Late;

impl holdfast_scheduler::Descriptor for Late {
    type Value = String;

    fn kind(&self) -> KindId {
        KindId(77)
    }

    fn name(&self) -> &'static str {
        "late"
    }

    fn key(&self, value: &String) -> Key {
        Key::of(KindId(77)).str(value)
    }

    fn label(&self, value: &String) -> String {
        value.clone()
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(0))
    }
}

#[test]
fn a_kind_that_is_taught_late_is_planned_for_then() {
    let mut lab = Lab::default();
    let value = std::sync::Arc::new("x".to_owned()) as SharedValue;
    let key = Key::of(KindId(77)).str("x");
    let change = holdfast_scheduler::Delta::new(vec![(key.clone(), Some(value))]);
    lab.commit_delta(change.best_effort()).unwrap();
    assert_eq!(lab.engine.state(&key).to_string(), "UNIMPLEMENTED");
    let step = lab.engine.register(Late, lab.now()).unwrap();
    let created: Vec<&Key> = step.submit.iter().map(|op| &op.key).collect();
    assert_eq!(created, [&key]);
    assert!(lab.engine.register(Late, lab.now()).is_err(), "but not twice");
}

#[test]
fn facts_of_a_failed_operation_that_nobody_heard_of_are_not_lost() {
    let mut lab = Lab::having("", "a =1");
    let (_, _) = crate::begin(&mut lab, delta("a =2"));
    lab.system.remove(&key("a"));
    let step = lab.engine.observed(vec![fact(&key("a"), None)], lab.now());
    lab.follow(step);
    lab.failing.insert("update a".into(), error(2, "no such thing", false));
    for _ in 0..20 {
        lab.pass_time();
    }
    lab.failing.clear();
    lab.settle(MINUTE);
    assert_eq!(lab.shown(), "a =1", "what vanished under a hanging operation is made again");
}
