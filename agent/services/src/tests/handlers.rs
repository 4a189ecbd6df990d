//! Work of handlers in walks: which calls are named, and which answers count.

use std::collections::BTreeSet;

use holdfast_config::limits::CLAIM_LEAVES;
use holdfast_config::services::{
    Answers, CallPhase, EditContent, HandlerAnswer, HandlerCall, HandlerWork, LeafRead, Plane,
    ServedCall, Services, Surroundings, TypeVersion, WorkFailureKind,
};
use holdfast_config::{Configuration, EditCause, EditErrors, GrowingClaim, Value};

use super::incremental::restarted;
use super::plans::{ACME, FixedBox, UP, acme, box_of, plan, types_with};
use super::types::{edit, made};
use super::*;
use crate::ServiceTypes;

/// A component for the port: a handler attaches it, and a template sizes it with a value of the handler.
const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
missing-handler = "MISSING"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/oper-status"]
[handler]
user = "root"
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "handler"
  DELETE
  [[component.state]]
  name = "sized"
  work = "size.cli"
[[tree]]
create = { type = "port", name = "params.port" }
"#;

const SIZE: &str = "interface {{ component.name }}\n  mtu {{ mtu }}\n";
const MADE: &str = "interface br0\n  type bridge\ninterface eth1\n  mtu 1450\n  master br0\n";

fn types(missing: &str, delete: &str) -> Arc<ServiceTypes> {
    types_with(&OUTLINE.replace("MISSING", missing).replace("DELETE", delete), SIZE)
}

/// All calls of the type are taken by somebody.
pub(super) fn served() -> Answers {
    let call = |phase| ServedCall { service: "access".into(), component: None, state: None, phase };
    let phases = [
        CallPhase::PreModification,
        CallPhase::Create,
        CallPhase::Delete,
        CallPhase::PostModification,
    ];
    let calls = BTreeSet::from(phases.map(call));
    Answers::default().with_served(calls)
}

pub(super) fn surroundings(answers: Answers, is_lenient: bool) -> Surroundings {
    Surroundings {
        state: Some(Arc::new(UP)),
        now_ns: 1,
        is_lenient,
        answers,
        may_ask: true,
        ..Surroundings::default()
    }
}

/// Sets an instance with these answers at hand.
pub(super) fn set_with(
    before: &Configuration,
    answers: Answers,
    change: &str,
) -> Result<Configuration, EditErrors> {
    let seen = before.clone().with_surroundings(surroundings(answers, false));
    seen.edit(&edit(change))
}

/// The only call that a Set needs.
fn needed(before: &Configuration, answers: Answers, change: &str) -> HandlerCall {
    let errors = set_with(before, answers, change).unwrap_err();
    let needed = errors.needed_calls().expect("a call without an answer");
    let [call] = &needed.calls[..] else { panic!("{:?}", needed.calls) };
    call.clone()
}

/// Work of the handler of the tests.
fn work(types: &ServiceTypes, mtu: u16) -> HandlerWork {
    let mut growing = GrowingClaim::default();
    for (path, value) in [
        ("/interfaces/interface[name=br0]/type", "\"bridge\""),
        ("/interfaces/interface[name=eth1]/master", "\"br0\""),
    ] {
        let edit = EditContent::Document { path, value: value.as_bytes() };
        types.add_edit(TypeVersion::newest("access"), &mut growing, edit).unwrap();
    }
    let opaque = Some(format!("{{\"mtu\":{mtu}}}").into());
    HandlerWork { claim: growing.claim, opaque, ..HandlerWork::default() }
}

fn known(mut answers: Answers, call: &HandlerCall, answer: HandlerAnswer) -> Answers {
    answers.know(call.clone(), answer);
    answers
}

// proves sv.A15, sv.A17, sv.B22
#[test]
fn a_walk_names_the_calls_that_it_needs_and_goes_on_with_their_answers() {
    let types = types("fail", "");
    let before = box_of(Arc::clone(&types));
    let call = needed(&before, served(), ACME);
    assert_eq!(call.place.state.tag, acme());
    assert_eq!(call.place.state.component, ["port", "eth1"]);
    assert_eq!(call.place.state.state, "attached");
    let params: serde_json::Value = serde_json::from_str(&call.params).unwrap();
    assert_eq!(params["bridge"], "br0", "{params}");

    let done = HandlerAnswer::Done(work(&types, 1450));
    let own = served().with_own([(call.clone(), done.clone())]);
    let after = set_with(&before, own, ACME).unwrap();
    assert_eq!(made(&after), MADE);
    let plan = after.layers().book.get(&acme()).unwrap();
    let state = plan.component("port", "eth1").unwrap().state("attached").unwrap();
    assert!(state.is_reached);
    assert_eq!(&*state.opaque, "{\"mtu\":1450}");

    // A walk that finds the same asks nobody; own opaque values are not another input.
    let mut again = surroundings(known(served(), &call, done), true);
    again.due = BTreeSet::from([acme()]);
    let digests = [1, 0].map(|digests| (Vec::new(), digests));
    let trial = || {
        let outcome = after.trial(&again);
        (outcome.calls, outcome.work.digests)
    };
    assert_eq!([trial(), trial()], digests, "a kept answer keeps its digests");
    again.answers = served().without_known();
    let asked = after.trial(&again).calls;
    assert_eq!(asked.len(), 1, "an operator has it asked again");
    assert_eq!(&*asked[0].own_opaque, "{\"mtu\":1450}");
    assert!(asked[0].has_same_input(&call));
}

// proves sv.J20
#[test]
fn after_a_start_a_handler_is_asked_where_something_differs_that_its_answer_depended_on() {
    let types = types("fail", "");
    let before = box_of(Arc::clone(&types));
    let call = needed(&before, served(), ACME);
    let mut read_by_handler = work(&types, 1450);
    let path = "/interfaces/interface[name=eth1]/state/oper-status";
    let read = types.readable(TypeVersion::newest("access"), Plane::State, path).unwrap();
    read_by_handler.reads = vec![(read, vec![Value::Str("UP".into())])];
    let own = served().with_own([(call, HandlerAnswer::Done(read_by_handler))]);
    let made_before = set_with(&before, own, ACME).unwrap();

    let started = restarted(&made_before, &types);
    let mut looked = surroundings(served(), true);
    looked.due = BTreeSet::from([acme()]);
    let outcome = started.trial(&looked);
    assert_eq!((outcome.calls, outcome.claims.len()), (Vec::new(), 0), "nothing differs");
    assert_eq!(outcome.work.digests, 1, "that of the call, to be compared");
    assert!(
        !outcome.reads[&acme()].is_empty(),
        "what the handler has read still wakes the instance"
    );

    let mut down = looked.clone();
    down.state = Some(Arc::new(FixedBox { status: "DOWN", unapplied: None }));
    assert_eq!(started.trial(&down).calls.len(), 1, "what it has read differs");
    let changed = set_with(&started, served(), r#"update acme {"bridge":"br7"}"#).unwrap_err();
    assert_eq!(changed.needed_calls().unwrap().calls.len(), 1, "a parameter differs");
}

#[test]
fn an_answer_counts_while_what_it_depends_on_is_the_same() {
    let types = types("fail", "");
    let before = box_of(Arc::clone(&types));
    let call = needed(&before, served(), ACME);
    let read = types
        .readable(
            TypeVersion::newest("access"),
            Plane::State,
            "/interfaces/interface[name=eth1]/state/oper-status",
        )
        .unwrap();
    let answer = |seen: &str| {
        let values = vec![Value::Str(seen.into())];
        let reads: Vec<(LeafRead, _)> = vec![(read.clone(), values)];
        HandlerAnswer::Done(HandlerWork { reads, ..work(&types, 1450) })
    };
    let with = |call: &HandlerCall, seen| served().with_own([(call.clone(), answer(seen))]);
    assert!(set_with(&before, with(&call, "UP"), ACME).is_ok());
    needed(&before, with(&call, "DOWN"), ACME);
    let other = HandlerCall { vars: "{\"a\":1}".into(), ..call };
    needed(&before, with(&other, "UP"), ACME);
}

// proves sv.A44
#[test]
fn without_a_handler_a_request_is_refused_or_its_states_wait() {
    let refused = set_with(&box_of(types("fail", "")), Answers::default(), ACME).unwrap_err();
    let EditCause::Work { kind, text } = &refused.first().cause else { panic!("{refused}") };
    assert_eq!(*kind, WorkFailureKind::Unavailable);
    assert!(text.contains("access 1.0.0: port eth1, attached: no handler"), "{text}");

    let stored = set_with(&box_of(types("defer", "")), Answers::default(), ACME).unwrap();
    assert_eq!(made(&stored), "");
    let plan = stored.layers().book.get(&acme()).unwrap();
    let state = plan.component("port", "eth1").unwrap().state("attached").unwrap();
    assert_eq!(state.waits_for.as_deref(), Some("a handler of access"));
    let mut attached = surroundings(served(), true);
    attached.due = BTreeSet::from([acme()]);
    assert_eq!(stored.trial(&attached).calls.len(), 1, "it is asked once it is attached");
    attached.may_ask = false;
    assert!(stored.trial(&attached).is_empty(), "what nothing may refuse asks no handler");
}

/// Status of the states of the port and of the instance, with what they wait for.
fn shown(configuration: &Configuration) -> String {
    plan(configuration).lines().rev().collect::<Vec<_>>().join("; ")
}

// proves sv.A44
#[test]
fn a_reached_state_waits_for_its_handler_where_its_input_changes_meanwhile() {
    const PORT: &str = "port eth1: init reached, ";
    let types = types("defer", "");
    let before = box_of(Arc::clone(&types));
    let call = needed(&before, served(), ACME);
    let done = HandlerAnswer::Done(work(&types, 1450));
    let made_before = set_with(&before, served().with_own([(call, done)]), ACME).unwrap();
    let walked = |before: &Configuration, answers: Answers| {
        let mut walk = surroundings(answers, true);
        walk.due = BTreeSet::from([acme()]);
        before.clone().with_surroundings(walk).walked().unwrap()
    };
    let ready = walked(&made_before, Answers::default());
    let all = format!("{PORT}attached reached, sized reached, ready reached");
    assert_eq!(shown(&ready), format!("{all}; self self: init reached, ready reached"));

    // The Set is stored, and what was made stays; nothing is ready until a handler has made the parameters true.
    let change = r#"update acme {"bridge":"br7"}"#;
    let stored = set_with(&ready, Answers::default(), change).unwrap();
    let waits = format!(
        "{PORT}attached reached (a handler of access), sized reached, ready reached; self self: init reached, ready not-reached (component port eth1)"
    );
    assert_eq!((made(&stored), shown(&stored)), (MADE.to_owned(), waits.clone()));
    assert_eq!(shown(&walked(&stored, Answers::default())), waits, "a reactive walk waits as well");
    let mut back = surroundings(served(), true);
    back.due = BTreeSet::from([acme()]);
    let [call] = &stored.trial(&back).calls[..] else { panic!("it is asked when it is back") };
    let done = HandlerAnswer::Done(work(&types, 1460));
    let mended = walked(&stored, served().with_own([(call.clone(), done)]));
    assert_eq!(made(&mended), MADE.replace("1450", "1460"));
    let mended = walked(&mended, Answers::default());
    assert_eq!(shown(&mended), format!("{all}; self self: init reached, ready reached"));

    // A walk that finds what its answer depends on as it was needs no handler.
    let same = set_with(&ready, Answers::default(), "update acme {\"bridge\":\"br0\"}").unwrap();
    assert_eq!(shown(&same), shown(&ready));
}

// proves sv.B50
#[test]
fn the_word_of_a_handler_refuses_a_request_and_fails_a_state_of_other_walks() {
    let types = types("fail", "");
    let before = box_of(Arc::clone(&types));
    let call = needed(&before, served(), ACME);
    let text = "failed in shelf: there is no power".into();
    let failed = HandlerAnswer::Failed { kind: WorkFailureKind::Work, text };
    let own = served().with_own([(call.clone(), failed.clone())]);
    let refused = set_with(&before, own, ACME).unwrap_err();
    assert!(refused.to_string().contains("failed in shelf: there is no power"), "{refused}");
    // A request asks again, whatever was said to an earlier one.
    needed(&before, known(served(), &call, failed.clone()), ACME);

    let own = served().with_own([(call.clone(), HandlerAnswer::Done(work(&types, 1450)))]);
    let made_before = set_with(&before, own, ACME).unwrap();
    let mut walk = surroundings(known(served(), &call, failed), true);
    walk.due = BTreeSet::from([acme()]);
    let after = made_before.with_surroundings(walk).walked().unwrap();
    assert_eq!(made(&after), MADE, "the old claim stays");
    let plan = after.layers().book.get(&acme()).unwrap();
    let state = plan.component("port", "eth1").unwrap().state("attached").unwrap();
    assert!(state.failure.as_ref().unwrap().contains("there is no power"));
}

#[test]
fn a_delete_call_may_keep_a_state_until_it_may_be_left() {
    let types = types("fail", "delete = { work = \"handler\" }");
    let before = box_of(Arc::clone(&types));
    let call = needed(&before, served(), ACME);
    let own = served().with_own([(call, HandlerAnswer::Done(work(&types, 1450)))]);
    let made_before = set_with(&before, own, ACME).unwrap();

    let call = needed(&made_before, served(), "delete acme");
    assert_eq!(call.place.phase, CallPhase::Delete);
    assert_eq!(&*call.own_opaque, "{\"mtu\":1450}");
    let keep = HandlerWork { keeps: Some("in use".into()), ..HandlerWork::default() };
    let own = served().with_own([(call.clone(), HandlerAnswer::Done(keep))]);
    let zombie = set_with(&made_before, own, "delete acme").unwrap();
    let plan = zombie.layers().book.get(&acme()).expect("it still backs out");
    let state = plan.component("port", "eth1").unwrap().state("attached").unwrap();
    assert_eq!(state.waits_for.as_deref(), Some("in use"));

    let mut walk = surroundings(served(), true);
    walk.due = BTreeSet::from([acme()]);
    let [call] = &zombie.trial(&walk).calls[..] else { panic!("it is asked again") };
    let done = HandlerAnswer::Done(HandlerWork::default());
    walk.answers = served().with_own([(call.clone(), done)]);
    let gone = zombie.with_surroundings(walk).walked().unwrap();
    assert!(gone.layers().book.is_empty() && gone.layers().claims().is_empty());
}

#[test]
fn edits_of_a_handler_are_read_as_the_output_of_a_template() {
    let types = types("fail", "");
    let refused = |path, value: &str| {
        let edit = EditContent::Document { path, value: value.as_bytes() };
        types
            .add_edit(TypeVersion::newest("access"), &mut GrowingClaim::default(), edit)
            .unwrap_err()
    };
    for (path, value, kind, part) in [
        ("/system/hostname", "\"a\"", WorkFailureKind::Denied, "not in the grants"),
        ("/interfaces/interface[name=eth1]/mtu", "\"a\"", WorkFailureKind::Parameters, "mtu"),
        ("/interfaces/interface[name=eth1]/none", "1", WorkFailureKind::Parameters, "none"),
        ("/interfaces/interface[name=*]/mtu", "1400", WorkFailureKind::Parameters, "*"),
        (
            "openconfig:/system/config/hostname",
            "\"a\"",
            WorkFailureKind::Denied,
            "not in the grants",
        ),
        ("interfaces", "{}", WorkFailureKind::Parameters, "begins with"),
    ] {
        let error = refused(path, value);
        assert!(error.kind == kind && error.text.contains(part), "{path}: {error:?}");
    }
}

#[test]
fn a_claim_is_counted_with_all_of_its_edits() {
    const LINKS: usize = 1000;
    let types = types("fail", "");
    let mut claim = GrowingClaim::default();
    let add = |claim: &mut GrowingClaim, round: usize| {
        let link = |at| format!(r#"{{"name":"eth{round}-{at}","mtu":1400}}"#);
        let links: Vec<_> = (0..LINKS).map(link).collect();
        let value = format!(r#"{{"interface":[{}]}}"#, links.join(","));
        let edit = EditContent::Document { path: "/interfaces", value: value.as_bytes() };
        types.add_edit(TypeVersion::newest("access"), claim, edit)
    };
    add(&mut claim, 0).unwrap();
    let of_one = claim.leaves;
    assert!(of_one >= LINKS, "{of_one}");
    for _ in 0..CLAIM_LEAVES.figure / of_one {
        add(&mut claim, 0).unwrap();
    }
    assert_eq!(claim.leaves, of_one, "what the claim has already is not counted again");

    let rounds = CLAIM_LEAVES.figure / of_one;
    (1..rounds).for_each(|round| add(&mut claim, round).unwrap());
    let full = claim.clone();
    let refused = add(&mut claim, rounds).unwrap_err();
    assert_eq!(refused.kind, WorkFailureKind::Limit);
    assert!(refused.text.contains("claim-leaves"), "{}", refused.text);
    assert_eq!((claim.leaves, &claim.claim), (full.leaves, &full.claim), "it is as it was");
}
