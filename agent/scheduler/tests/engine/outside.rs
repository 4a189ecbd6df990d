//! Rows for outside facts: values that appear, vanish or drift, and adopted objects.

use std::sync::Arc;

use holdfast_scheduler::{SharedValue, TransactionOutcome};

use crate::common::{Lab, Thing, fact, key, things};
use crate::{MINUTES, SECOND, failed};

/// Two adopted objects, one of them intended, exchange their keys, by a third one or at once: what each was before
/// goes with it.
#[test]
fn what_an_object_was_before_follows_it_to_another_key() {
    let swap = |change: &str, after: &str| {
        let mut lab = Lab::having(
            "p =1 port ^7; p.s =1 port; q =2 port ^8; q.s =2 port",
            "p =5 port; p.s =5 port",
        );
        lab.strict = false;
        lab.outside(change);
        lab.run_until_idle(MINUTES);
        assert_eq!(lab.system_text(), after, "{change}");
        lab.commit("-p; -p.s").unwrap();
        lab.run_until_idle(MINUTES);
        lab.system_text()
    };
    // The one that came is adopted, the one that left is given back.
    let exchanged = "p =5 port ^8; p.s =5 port; q =1 port ^7; q.s =1 port";
    let end = "p =2 port ^8; p.s =2 port; q =1 port ^7; q.s =1 port";
    for change in [
        "-p; -p.s; t =5 port ^7; t.s =5 port; -q; -q.s; p =2 port ^8; p.s =2 port; -t; -t.s; q =5 port ^7; q.s =5 port",
        "p =2 port ^8; p.s =2 port; q =5 port ^7; q.s =5 port",
        "q =5 port ^7; q.s =5 port; p =2 port ^8; p.s =2 port",
    ] {
        assert_eq!(swap(change, exchanged), end, "{change}");
    }
}

/// Both are intended.
#[test]
fn objects_that_exchange_their_keys_exchange_what_they_were() {
    let mut lab = Lab::having("p =1 port ^7; q =2 port ^8", "p =5 port; q =6 port");
    lab.strict = false;
    lab.outside("p =6 port ^8; q =5 port ^7");
    lab.run_until_idle(MINUTES);
    assert_eq!(lab.system_text(), "p =5 port ^8; q =6 port ^7");
    lab.commit("-p; -q").unwrap();
    lab.run_until_idle(MINUTES);
    assert_eq!(lab.system_text(), "p =2 port ^8; q =1 port ^7");
}

/// Across a restart of ours, the number alone does not tell an object: the system may have begun anew.
#[test]
fn what_an_object_was_before_follows_it_over_a_restart() {
    let check = |system: &str, after: &str| {
        let system = things(system).into_iter().map(|thing| (thing.key(), thing)).collect();
        let mut lab = Lab { system, ..Lab::default() };
        let value = |text: &str| Thing::parse(text);
        let before: SharedValue = Arc::new(value("p =1 port ^7"));
        let intended: SharedValue = Arc::new(value("p =5 port"));
        lab.engine.load(vec![(key("p"), intended)], vec![(key("p"), before)]);
        lab.resync();
        lab.run_until_idle(MINUTES);
        assert_eq!(lab.system_text(), after);
    };
    check("p =2 port ^8; q =5 port ^7", "p =5 port ^8; q =1 port ^7");
    check("p =2 port ^8; q =3 !1 port ^7", "p =5 port ^8; q =3 !1 port ^7");
}

// proves kv.N1, kv.N2, kv.N3, kv.N4, kv.V5, kv.V11
#[test]
fn dependents_follow_foreign_values() {
    let mut lab = Lab::default();
    lab.commit("a <port; b <a; c <port:up").unwrap();
    assert_eq!(lab.engine.planes(&key("a")).map(|plane| plane.is_some()), [true, false, false]);
    assert_eq!((lab.state("a").as_str(), lab.state("b").as_str()), ("PENDING <port", "PENDING <a"));
    lab.outside("port =5");
    assert_eq!(
        (lab.log().as_str(), lab.state("port").as_str()),
        ("create a; create b", "OBTAINED")
    );
    assert_eq!(lab.state("c"), "PENDING <port:up");
    lab.outside("port =5 :up");
    assert_eq!(lab.log(), "create c", "the content of what is observed counts");
    lab.strict = false; // the system does not ask us first
    lab.outside("-port");
    lab.run_until_idle(SECOND);
    assert_eq!(lab.log(), "delete c; delete b; delete a");
    assert_eq!((lab.state("a").as_str(), lab.state("port").as_str()), ("PENDING <port", "-"));
}

#[test]
fn reduced_values_follow_foreign_providers() {
    let mut lab = Lab::default();
    lab.commit("r |p |q <x; x").unwrap();
    let listed = |lab: &Lab| {
        let pending = lab.engine.pending().into_iter();
        pending.map(|it| format!("{} {}", it.label, it.detail.unmet.join(" "))).collect::<Vec<_>>()
    };
    assert_eq!((lab.log().as_str(), lab.state("r").as_str()), ("create x", "PENDING <p <q"));
    assert_eq!(listed(&lab), ["r p q"]);
    lab.outside("p");
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("create r", "p; r |p <x; x"));
    assert_eq!(lab.state("r"), "CONFIGURED <q", "it says what it does without");
    assert_eq!(listed(&lab), ["r q"], "reduced is not in place");
    let needs = lab.engine.needs(&key("r"));
    let needs: Vec<_> = needs.iter().map(|need| (need.label.as_str(), need.met)).collect();
    assert_eq!(needs, [("p", true), ("q", false), ("x", true)]);
    lab.outside("q");
    assert_eq!((lab.log().as_str(), lab.state("r").as_str()), ("update r", "CONFIGURED"));
    assert_eq!(listed(&lab), [""; 0]);
    lab.strict = false; // the system does not ask us first
    lab.outside("-p");
    lab.run_until_idle(SECOND);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("update r", "q; r |q <x; x"));
    assert_eq!(listed(&lab), ["r p"]);
    // Restored to its reduction, and found in place by a resync.
    lab.outside("r |p |q <x");
    lab.run_until_idle(SECOND);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("update r", "q; r |q <x; x"));
    lab.resync();
    assert_eq!(lab.log(), "");
    lab.outside("-q");
    lab.run_until_idle(SECOND);
    assert_eq!((lab.log().as_str(), lab.state("r").as_str()), ("delete r", "PENDING <p <q"));
}

/// The system removes a member, since its target is gone.
#[test]
fn a_member_removed_by_the_system_is_reduced() {
    let mut lab = Lab::default();
    lab.outside("p; x");
    lab.commit("r |p |q; q <x").unwrap();
    assert_eq!(lab.log(), "create q; create r");
    lab.strict = false;
    for (name, thing) in [("r", Some("r |p")), ("x", None)] {
        let thing = thing.map(crate::common::Thing::parse);
        match thing {
            Some(thing) => lab.system.insert(key(name), thing),
            None => lab.system.remove(&key(name)),
        };
    }
    lab.resync();
    lab.run_until_idle(MINUTES);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete q", "p; r |p"));
    lab.engine.audit().unwrap();
}

/// A failed change restores dropped members; a failed delete leaves them in place.
#[test]
fn an_undone_change_restores_reduced_members() {
    let mut lab = Lab::having("", "r |a |b; a; b");
    lab.failing.insert("delete a".into(), crate::common::error(16, "busy", false));
    let outcome = lab.commit("-a; c").unwrap();
    assert!(matches!(outcome, TransactionOutcome::Failed { undone: true, .. }), "{outcome:?}");
    assert_eq!(lab.system_text(), "a; b; r |a |b");
    lab.log.clear();
    lab.commit_delta(crate::common::delta("-a").best_effort()).unwrap();
    lab.run_until_idle(MINUTES);
    assert_eq!(
        (lab.system_text().as_str(), lab.state("r").as_str()),
        ("a; b; r |a |b", "CONFIGURED")
    );
    lab.failing.clear();
    lab.outside("b =1");
    lab.run_until_idle(MINUTES);
    lab.engine.audit().unwrap();
}

#[test]
fn foreign_values_are_never_touched() {
    let mut lab = Lab::having("f =1", "a <f");
    lab.outside("f =2");
    lab.outside("g");
    lab.run_until_idle(MINUTES);
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("", "a <f; f =2; g"));
    lab.resync();
    assert_eq!(lab.log(), "");
}

#[test]
fn drift_is_repaired_within_a_second_and_damped() {
    let mut lab = Lab::having("", "a =1; b <a");
    for (drift, want) in [("-b", "create b"), ("a =7", "update a")] {
        lab.outside(drift);
        assert_ne!(lab.engine.pending().len() + usize::from(lab.state("a") == "DRIFTED"), 0);
        lab.run_until_idle(SECOND);
        assert_eq!((lab.log().as_str(), lab.system_text().as_str()), (want, "a =1; b <a"));
    }
    let begun = lab.now;
    for _ in 0..20 {
        lab.outside("a =7");
        lab.run_until_idle(MINUTES);
    }
    assert!(lab.now - begun > MINUTES, "a fight over a value slows down");
}

/// A kernel announces the end of an object and still lists it for a moment; what was read then is not the last word.
#[test]
fn a_value_that_was_read_after_its_end_was_announced_is_read_again() {
    let mut lab = Lab::having("", "a =1");
    lab.strict = false;
    let gone = lab.change_outside_silently("-a");
    lab.report_facts_only(gone);
    lab.report_facts_only(vec![fact(&key("a"), Some(&Thing::parse("a =1")))]);
    assert_eq!(lab.state("a"), "CONFIGURED", "the engine has read it");
    let reads = lab.reads;
    lab.run_until_idle(SECOND);
    assert_eq!((lab.log().as_str(), lab.state("a").as_str()), ("create a", "CONFIGURED"));
    // Confirmed drift, its repair and no further ones.
    assert!(lab.reads - reads <= 4, "{}", lab.reads - reads);
    // A value that really is there again is read once more, and left alone.
    let reads = lab.reads;
    lab.report_facts_only(vec![fact(&key("a"), None)]);
    lab.report_facts_only(vec![fact(&key("a"), Some(&Thing::parse("a =1")))]);
    lab.run_until_idle(MINUTES);
    assert_eq!((lab.log().as_str(), lab.reads - reads), ("", 1));
    lab.engine.audit().unwrap();
}

// proves kv.X2, kv.X3
#[test]
fn each_fact_of_a_batch_counts_for_itself() {
    let mut lab = Lab::having("", "a =1");
    lab.outside("p; a =1; q");
    assert_eq!(
        (lab.state("a").as_str(), lab.state("p").as_str(), lab.state("q").as_str()),
        ("CONFIGURED", "OBTAINED", "OBTAINED")
    );
    assert!(lab.engine.planes(&key("a"))[0].is_some(), "a fact never changes the intent");
}

#[test]
fn dependents_flushed_by_a_link_down_are_restored() {
    let mut lab = Lab::having("", "l :up~v; r <l:up +v; s <l");
    lab.strict = false;
    lab.system.remove(&key("r")); // the system says nothing about it
    lab.outside("l");
    lab.run_until_idle(SECOND);
    assert_eq!(lab.system_text(), "l :up~v; r <l:up +v; s <l");
    let log = lab.log();
    assert!(log.ends_with("update l; create r") || log == "update l; create r", "{log}");
}

#[test]
fn an_adopted_object_may_go_by_cascade() {
    let mut lab = Lab::having("l/1 =1 port", "l ~/");
    lab.commit("l/1 =2 port").unwrap();
    assert_eq!(lab.restores.len(), 1);
    lab.log();
    assert!(matches!(lab.commit("-l; -l/1"), Ok(TransactionOutcome::Done { .. })));
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete l", ""));
    assert_eq!(lab.restores.len(), 0, "there is nothing left to put back");
}

#[test]
fn an_adopted_object_created_again_is_ours() {
    let mut lab = Lab::having("p =1 port", "");
    lab.commit("p =2 port").unwrap();
    lab.outside("-p");
    lab.run_until_idle(MINUTES);
    assert_eq!((lab.log().as_str(), lab.restores.len()), ("adopt p; create p", 0));
    lab.commit("-p").unwrap();
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete p", ""));
}

#[test]
fn release_restores_the_object_that_replaced_the_adopted_one() {
    let after_release = |outside: &str| {
        let mut lab = Lab::having("p =1 port %7", "p =2 port");
        lab.outside("-p");
        lab.outside(outside);
        lab.run_until_idle(MINUTES);
        lab.commit("-p").unwrap();
        lab.system_text()
    };
    assert_eq!(after_release("p =5 port %7"), "p =1 port %7");
    assert_eq!(after_release("p =5 port %8"), "p =5 port %8");
    assert_eq!(after_release("p =2 port %8"), "p =2 port %8");
}

#[test]
fn a_setting_is_reset_by_its_delete() {
    let mut lab = Lab::having("", "s =2 stays");
    assert!(matches!(lab.commit("-s"), Ok(TransactionOutcome::Done { .. })));
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("delete s", "s stays"));
    assert_eq!(lab.state("s"), "OBTAINED");
    lab.run_until_idle(MINUTES);
    assert_eq!(lab.log(), "", "what is left is not ours");
    assert!(matches!(lab.commit("s =3 stays"), Ok(TransactionOutcome::Done { .. })));
    assert_eq!((lab.log().as_str(), lab.system_text().as_str()), ("adopt s", "s =3 stays"));
    lab.without_effect.push("delete s".into());
    failed(&lab.commit("-s").unwrap(), "s", true);
}
