//! Output of handlers that lasts: of modification calls, and of calls for states that are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Answers, CallPhase, EditContent, HandlerAnswer, HandlerCall, HandlerWork, Services,
    StateStatus, Surroundings, TypeVersion, WorkFailureKind,
};
use holdfast_config::{
    Claim, ClaimKey, Configuration, EditCause, EditErrors, EditScope, Footprint, GrowingClaim,
    ServiceTag,
};
use proptest::prelude::*;

use super::handlers::{served, set_with, surroundings};
use super::incremental::{check_owners, restarted};
use super::plans::{ACME, acme, box_of, types_with};
use super::types::{edit, made, set};
use super::*;
use crate::ServiceTypes;

/// A component for the port: a handler attaches it, and a template sizes it with a value of the call before all.
const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
missing-handler = "MISSING"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/oper-status"]
[handler]
user = "root"
modification = true
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "handler"
  delete = { work = "handler" }
  [[component.state]]
  name = "sized"
  work = "size.cli"
[[tree]]
create = { type = "port", name = "params.port" }
"#;

const SIZE: &str = "interface {{ component.name }}\n  mtu {{ mtu }}\n";

fn types(missing: &str) -> Arc<ServiceTypes> {
    types_with(&OUTLINE.replace("MISSING", missing), SIZE)
}

static TYPES: LazyLock<Arc<ServiceTypes>> = LazyLock::new(|| types("fail"));
static EMPTY: LazyLock<Configuration> = LazyLock::new(|| box_of(Arc::clone(&TYPES)));

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

fn of_type() -> ClaimKey {
    ClaimKey::persistent(ServiceTag::of_type("access".into()))
}

/// Work that puts out the description of a link.
fn describes(link: &str, text: &str) -> HandlerWork {
    let mut growing = GrowingClaim::default();
    let path = format!("/interfaces/interface[name={link}]/description");
    let value = format!("\"{text}\"");
    let edit = EditContent::Document { path: &path, value: value.as_bytes() };
    TYPES.add_edit(TypeVersion::newest("access"), &mut growing, edit).unwrap();
    HandlerWork { claim: growing.claim, ..HandlerWork::default() }
}

fn is_described(link: &str, text: &str) -> String {
    format!("interface {link}\n  description {text}\n")
}

/// A handler that puts out what the phase and the parameters say.
fn handle(call: &HandlerCall) -> HandlerAnswer {
    let params: serde_json::Value = serde_json::from_str(&call.params).unwrap();
    let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
    HandlerAnswer::Done(match call.place.phase {
        CallPhase::PreModification => HandlerWork {
            opaque: Some("{\"mtu\":1450}".into()),
            ..describes(&text("bridge"), "pre")
        },
        CallPhase::Create => {
            let mut growing = GrowingClaim::default();
            let path = format!("/interfaces/interface[name={}]/enabled", text("port"));
            let edit = EditContent::Document { path: &path, value: b"true" };
            TYPES.add_edit(TypeVersion::newest("access"), &mut growing, edit).unwrap();
            HandlerWork { claim: growing.claim, ..HandlerWork::default() }
        }
        CallPhase::Delete => describes(&text("port"), "left"),
        CallPhase::PostModification => {
            let gateway = text("gateway");
            let text = if gateway.is_empty() { "post" } else { &*gateway };
            describes("lo0", text)
        }
    })
}

/// An examination with the answers of a handler to all that it needs, and the phases of the calls in their order.
fn answered(
    examine: impl Fn(Answers) -> Result<Configuration, EditErrors>,
    handler: impl Fn(&HandlerCall) -> HandlerAnswer,
) -> (Result<Configuration, EditErrors>, Vec<CallPhase>) {
    let mut own = Vec::new();
    let mut phases = Vec::new();
    loop {
        let examined = examine(served().with_own(own.clone()));
        let needed = examined.as_ref().err().and_then(EditErrors::needed_calls).cloned();
        let Some(needed) = needed else { return (examined, phases) };
        for call in &needed.calls {
            phases.push(call.place.phase);
            own.push((call.clone(), handler(call)));
        }
    }
}

fn set_and_answer(before: &Configuration, change: &str) -> (Configuration, Vec<CallPhase>) {
    let (after, phases) = answered(|answers| set_with(before, answers, change), handle);
    let after = after.unwrap_or_else(|errors| panic!("{change}: {errors}"));
    (after.with_surroundings(Surroundings::default()), phases)
}

/// A walk of instances that nobody asked for.
fn walk_and_answer(
    before: &Configuration,
    due: impl IntoIterator<Item = ServiceTag>,
    change: impl Fn(&mut Surroundings),
) -> (Configuration, Vec<CallPhase>) {
    let due: BTreeSet<_> = due.into_iter().collect();
    let walk = |answers| {
        let mut surroundings = Surroundings { due: due.clone(), ..surroundings(answers, true) };
        change(&mut surroundings);
        before.clone().with_surroundings(surroundings).walked()
    };
    let (after, phases) = answered(walk, handle);
    (after.unwrap().with_surroundings(Surroundings::default()), phases)
}

fn redeploy(surroundings: &mut Surroundings) {
    surroundings.answers = std::mem::take(&mut surroundings.answers).without_known();
}

const ALL: [CallPhase; 3] =
    [CallPhase::PreModification, CallPhase::Create, CallPhase::PostModification];

// proves sv.B44
#[test]
fn modification_calls_come_before_the_components_and_after_the_last_state() {
    let (after, phases) = set_and_answer(&EMPTY, ACME);
    assert_eq!(phases, ALL);
    let own = "interface eth1\n  enabled true\n  mtu 1450\n";
    let all = [is_described("br0", "pre"), own.to_owned(), is_described("lo0", "post")].concat();
    assert_eq!(made(&after), all, "the template has the value of the call before");
    let plan = after.layers().book.get(&acme()).unwrap();
    let log: Vec<_> = plan.record.log.iter().map(|line| &*line.text).collect();
    assert_eq!(log.first(), Some(&"pre-modification done"), "{log:?}");
    assert_eq!(log.last(), Some(&"post-modification done"), "{log:?}");

    // The first call knows no component, and the last one what all before it gave.
    let needed = |own: Vec<(HandlerCall, HandlerAnswer)>| {
        let errors = set_with(&EMPTY, served().with_own(own), ACME).unwrap_err();
        let needed = errors.needed_calls().unwrap();
        let [call] = &needed.calls[..] else { panic!("{:?}", needed.calls) };
        call.clone()
    };
    let first = needed(Vec::new());
    assert_eq!((&*first.vars, &*first.opaque), ("", ""));
    assert_eq!(first.place.to_string(), "pre-modification");
    let own = vec![(first.clone(), handle(&first))];
    let second = needed(own.clone());
    let own = own.into_iter().chain([(second.clone(), handle(&second))]).collect();
    assert_eq!(&*needed(own).opaque, "{\"mtu\":1450}");
}

// proves sv.B45
#[test]
fn what_modification_calls_put_out_stays_until_it_is_purged() {
    let (made_before, _) = set_and_answer(&EMPTY, ACME);
    let (gone, phases) = set_and_answer(&made_before, "delete acme");
    assert_eq!(phases, [CallPhase::Delete], "nobody is asked for an instance that goes");
    assert!(gone.layers().book.is_empty());
    let left = [is_described("br0", "pre"), is_described("eth1", "left")].concat();
    assert_eq!(made(&gone), format!("{left}{}", is_described("lo0", "post")));

    let claims = gone.layers().claims();
    let names: Vec<_> = claims.iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(names, ["persist:access", "persist:access[name='acme']"]);
    for (key, _) in claims.iter() {
        assert_eq!(ClaimKey::parse_left(&key.to_string()), Ok(key.clone()));
    }
    let path = "/interfaces/interface[name=lo0]".parse().unwrap();
    let path = gone.models().native.resolve_write(&path).unwrap();
    assert_eq!(claims.owners(gone.models(), &path), BTreeSet::from(["persist:access".into()]));
    let started = restarted(&gone, &TYPES);
    assert_eq!(started.layers(), gone.layers(), "it outlasts a restart");

    let purged = started.purged(&of_type()).unwrap();
    assert_eq!(made(&purged), is_described("eth1", "left"));
    let purged = purged.purged(&ClaimKey::persistent(acme())).unwrap();
    assert!(purged.layers().claims().is_empty());
    assert!(purged.effective().root().children().is_empty());
}

// proves sv.B45, sv.J20
#[test]
fn an_answer_is_put_out_once_and_asked_for_again_when_its_input_differs() {
    let (made_before, _) = set_and_answer(&EMPTY, ACME);
    // A crash before the record leaves nothing: everything is asked. After it nothing is.
    assert_eq!(set_and_answer(&restarted(&EMPTY, &TYPES), ACME).1, ALL);
    let started = restarted(&made_before, &TYPES);
    let (walked, phases) = walk_and_answer(&started, [acme()], |_| {});
    assert_eq!((phases, made(&walked)), (Vec::new(), made(&started)));

    let purged = started.purged(&of_type()).unwrap();
    let (walked, phases) = walk_and_answer(&purged, [acme()], |_| {});
    assert_eq!((phases, made(&walked)), (Vec::new(), made(&purged)), "nothing comes back");
    let (redeployed, phases) = walk_and_answer(&purged, [acme()], redeploy);
    assert_eq!((phases, made(&redeployed)), (ALL.to_vec(), made(&made_before)));

    let (changed, phases) = set_and_answer(&made_before, r#"update acme {"bridge":"br7"}"#);
    assert_eq!(phases, ALL);
    let described = [is_described("br0", "pre"), is_described("br7", "pre")].concat();
    assert!(made(&changed).starts_with(&described), "{}", made(&changed));
}

#[test]
fn instances_that_put_out_different_values_together_are_refused_by_name() {
    let bolt = r#"update bolt {"port":"eth2","bridge":"br0","gateway":"10.0.0.1/24"}"#;
    let both = format!("{ACME}\n{bolt}");
    let (refused, _) = answered(|answers| set_with(&EMPTY, answers, &both), handle);
    let refused = refused.unwrap_err().to_string();
    for part in ["[name='acme'] (self, post-", "[name='bolt'] (self, post-", "`post`", "10.0.0.1"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    // One after the other, the newest value counts.
    let (first, _) = set_and_answer(&EMPTY, ACME);
    let (second, _) = set_and_answer(&first, bolt);
    assert!(made(&second).ends_with("interface lo0\n  description 10.0.0.1/24\n"));
}

#[test]
fn what_lasts_is_in_conflict_with_others_like_any_claim() {
    let client = set(&EMPTY, r#"update /interfaces/interface[name=lo0]/description "mine""#);
    let (refused, _) = answered(|answers| set_with(&client, answers, ACME), handle);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("persist:access") && refused.contains("`mine`"), "{refused}");

    // In a walk that nobody asked for, the call has failed, and its output is left out.
    let (stored, _) = set_and_answer(&EMPTY, ACME);
    let lets_go = stored.purged(&of_type()).unwrap();
    let client = set(&lets_go, r#"update /interfaces/interface[name=lo0]/description "mine""#);
    let refused = |surroundings: &mut Surroundings| {
        redeploy(surroundings);
        surroundings.refused = BTreeMap::from([(acme(), "it contradicts".into())]);
    };
    let (walked, _) = walk_and_answer(&client, [acme()], refused);
    assert_eq!(walked.layers().claims().get(&of_type()), None);
    let plan = walked.layers().book.get(&acme()).unwrap();
    let ready = plan.component("self", "self").unwrap().state("ready").unwrap();
    let failure = ready.failure.as_deref();
    assert_eq!(failure, Some("pre-modification: it contradicts"));
}

// proves sv.A44
#[test]
fn without_a_handler_an_instance_waits_before_its_components() {
    let refused = set_with(&EMPTY, Answers::default(), ACME).unwrap_err();
    let EditCause::Work { kind, text } = &refused.first().cause else { panic!("{refused}") };
    assert_eq!(*kind, WorkFailureKind::Unavailable);
    assert!(text.contains("access 1.0.0: pre-modification: no handler"), "{text}");

    let stored = set_with(&box_of(types("defer")), Answers::default(), ACME).unwrap();
    let plan = stored.layers().book.get(&acme()).unwrap();
    let ready = plan.component("self", "self").unwrap().state("ready").unwrap();
    assert_eq!((plan.components.len(), made(&stored)), (1, String::new()));
    assert_eq!(ready.waits_for.as_deref(), Some("a handler of access"));
    let (walked, phases) = walk_and_answer(&stored, [acme()], |_| {});
    assert_eq!(phases, ALL);
    assert!(made(&walked).contains("mtu 1450"));
}

// proves sv.B50
#[test]
fn a_modification_call_that_fails_refuses_a_request_and_holds_back_other_walks() {
    let fails = |phase| {
        move |call: &HandlerCall| {
            if call.place.phase == phase {
                HandlerAnswer::Failed { kind: WorkFailureKind::Work, text: "no".into() }
            } else {
                handle(call)
            }
        }
    };
    let (stored, _) = set_and_answer(&EMPTY, ACME);
    for phase in [CallPhase::PreModification, CallPhase::PostModification] {
        let (refused, _) = answered(|answers| set_with(&EMPTY, answers, ACME), fails(phase));
        let text = format!("access 1.0.0: {}: no", phase.name());
        assert!(refused.unwrap_err().to_string().contains(&text));

        let walk = |answers| {
            let due = BTreeSet::from([acme()]);
            let mut surroundings = Surroundings { due, ..surroundings(answers, true) };
            redeploy(&mut surroundings);
            stored.clone().with_surroundings(surroundings).walked()
        };
        let walked = answered(walk, fails(phase)).0.unwrap();
        assert_eq!(made(&walked), made(&stored), "all stays as it was");
        let plan = walked.layers().book.get(&acme()).unwrap();
        let ready = plan.component("self", "self").unwrap().state("ready").unwrap();
        assert_eq!(ready.status(), StateStatus::Failed);
        let (mended, _) = walk_and_answer(&walked, [acme()], redeploy);
        let plan = mended.layers().book.get(&acme()).unwrap();
        assert!(plan.modifications.values().all(|it| it.failure.is_none()));
    }
}

// proves sv.B56
#[test]
fn a_delete_call_vetoes_or_overrides_the_status_and_what_it_puts_out_stays() {
    let (stored, _) = set_and_answer(&EMPTY, ACME);
    let keeps = |call: &HandlerCall| {
        let HandlerAnswer::Done(work) = handle(call) else { panic!("it is done") };
        HandlerAnswer::Done(HandlerWork { keeps: Some("in use".into()), ..work })
    };
    let delete = |answers| set_with(&stored, answers, "delete acme");
    let kept = answered(delete, keeps).0.unwrap().with_surroundings(Surroundings::default());
    let state_of = |it: &Configuration| {
        let plan = it.layers().book.get(&acme()).unwrap();
        plan.component("port", "eth1").unwrap().state("attached").unwrap().clone()
    };
    let state = state_of(&kept);
    assert_eq!((state.is_reached, state.waits_for.as_deref()), (true, Some("in use")));
    let persistent = ClaimKey::persistent(acme());
    assert!(made(&kept).contains(&is_described("eth1", "left")), "{}", made(&kept));

    // An answer that is known does not put out again what an operator has purged; a new one does.
    let purged = kept.purged(&persistent).unwrap();
    let call = set_with(&stored, served(), "delete acme").unwrap_err();
    let call = call.needed_calls().unwrap().calls[0].clone();
    let known = |surroundings: &mut Surroundings| {
        surroundings.answers.know(call.clone(), keeps(&call));
    };
    let (walked, phases) = walk_and_answer(&purged, [acme()], known);
    assert_eq!((phases, walked.layers().claims().get(&persistent)), (Vec::new(), None));
    let (gone, phases) = walk_and_answer(&purged, [acme()], redeploy);
    assert_eq!(phases, [CallPhase::Delete]);
    assert!(gone.layers().book.is_empty() && gone.layers().claims().get(&persistent).is_some());

    // Its word fails the state.
    let text: Arc<str> = "the shelf is locked".into();
    let fails =
        |_: &HandlerCall| HandlerAnswer::Failed { kind: WorkFailureKind::Work, text: text.clone() };
    assert!(answered(delete, fails).0.unwrap_err().to_string().contains("the shelf is locked"));
    let walk = |answers| {
        let due = BTreeSet::from([acme()]);
        let mut surroundings = Surroundings { due, ..surroundings(answers, true) };
        redeploy(&mut surroundings);
        purged.clone().with_surroundings(surroundings).walked()
    };
    let failed = answered(walk, fails).0.unwrap();
    assert_eq!(state_of(&failed).status(), StateStatus::Failed);
}

#[test]
fn a_state_that_was_kept_without_its_claim_has_its_handler_asked_after_a_restart() {
    let (stored, _) = set_and_answer(&EMPTY, ACME);
    let keeps = |_: &HandlerCall| {
        let keeps = Some("in use".into());
        HandlerAnswer::Done(HandlerWork { keeps, ..HandlerWork::default() })
    };
    let delete = |answers| set_with(&stored, answers, "delete acme");
    let kept = restarted(&answered(delete, keeps).0.unwrap(), &TYPES);
    let back = |answers| {
        let resurrected = Some(acme());
        let surroundings = Surroundings { resurrected, ..surroundings(answers, false) };
        kept.clone().with_surroundings(surroundings).edit(&edit(ACME))
    };
    let (back, phases) = answered(back, handle);
    assert_eq!(phases, [CallPhase::Create]);
    assert!(made(&back.unwrap()).contains("enabled true"), "the state has its claim again");
}

#[test]
fn changes_that_put_out_to_one_claim_wait_for_one_another() {
    let examined = |base: &Configuration, change: &str| {
        let scope = std::cell::RefCell::new(EditScope::default());
        let examine = |answers| {
            let seen = base.clone().with_surroundings(surroundings(answers, false));
            let (after, found) = seen.examined(&edit(change))?;
            *scope.borrow_mut() = found;
            Ok(after)
        };
        let after = answered(examine, handle).0.unwrap();
        let after = after.with_surroundings(Surroundings::default());
        let footprint = Footprint::of(base, &after, &scope.borrow());
        (after, footprint)
    };
    let instance = |name: &str, port: u8, bridge: &str| {
        format!(r#"update {name} {{"port":"eth{port}","bridge":"{bridge}"}}"#)
    };
    let acme = examined(&EMPTY, &instance("acme", 1, "br0"));
    let bolt = examined(&EMPTY, &instance("bolt", 2, "br1"));
    assert!(!acme.1.keeps_clear_of(&bolt.1), "both add to persist:access");

    // Existing values are not written, and both can be rebased.
    let base = acme.0;
    let bolt = examined(&base, &instance("bolt", 2, "br0"));
    let cord = examined(&base, &instance("cord", 3, "br0"));
    assert!(bolt.1.keeps_clear_of(&cord.1));
    let rebased = cord.0.rebased(&base, &bolt.0);
    let (serial, _) = set_and_answer(&bolt.0, &instance("cord", 3, "br0"));
    assert_eq!(rebased.layers().claims(), serial.layers().claims());
    assert_eq!(rebased.effective(), serial.effective());

    // A purge takes what the other one relies on.
    let purged = base.purged(&of_type()).unwrap();
    let purge = Footprint::of(&base, &purged, &EditScope::default());
    assert!(!purge.keeps_clear_of(&bolt.1) && !bolt.1.keeps_clear_of(&purge));
    let other = set(&base, r#"update /interfaces/interface[name=eth9]/description "x""#);
    let other = Footprint::of(&base, &other, &EditScope::default());
    assert!(purge.keeps_clear_of(&other));
}

#[derive(Clone, Debug)]
enum Event {
    Set {
        name: &'static str,
        bridge: &'static str,
    },
    Delete(&'static str),
    Walk(&'static str),
    Redeploy(&'static str),
    /// Purge of the output that lasts, of the type or of an instance.
    Purge(Option<&'static str>),
    /// The agent ends between the answers and the record of a Set, and starts again.
    Crash {
        name: &'static str,
        bridge: &'static str,
    },
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let name = || prop::sample::select(vec!["acme", "bolt"]);
    let bridge = || prop::sample::select(vec!["br0", "br1", "br2"]);
    prop_oneof![
        4 => (name(), bridge()).prop_map(|(name, bridge)| Event::Set { name, bridge }),
        2 => name().prop_map(Event::Delete),
        2 => name().prop_map(Event::Walk),
        1 => name().prop_map(Event::Redeploy),
        2 => prop::option::of(name()).prop_map(Event::Purge),
        1 => (name(), bridge()).prop_map(|(name, bridge)| Event::Crash { name, bridge }),
        1 => Just(Event::Restart),
    ]
}

/// Links that are described, by the name of the claim that holds them.
type Model = BTreeMap<String, BTreeSet<String>>;

/// The model after calls for an instance: modification calls describe the bridge and lo0, delete calls the port.
fn note(model: &mut Model, name: &str, bridge: &str, phases: &[CallPhase]) {
    for phase in phases {
        let (claim, link) = match phase {
            CallPhase::PreModification => ("persist:access".to_owned(), bridge.to_owned()),
            CallPhase::PostModification => ("persist:access".to_owned(), "lo0".to_owned()),
            CallPhase::Delete => (format!("persist:{}", tag(name)), port(name).to_owned()),
            CallPhase::Create => continue,
        };
        model.entry(claim).or_default().insert(link);
    }
}

fn port(name: &str) -> &'static str {
    if name == "acme" { "eth1" } else { "eth2" }
}

fn params(name: &str, bridge: &str) -> String {
    format!(r#"update {name} {{"port":"{}","bridge":"{bridge}"}}"#, port(name))
}

/// Links by the claims without an owner that describe them.
fn lasting(configuration: &Configuration) -> Model {
    let left = configuration.layers().claims().iter().filter(|(key, _)| key.is_left());
    let links = |claim: &Claim| {
        let schema = &configuration.models().native;
        let mut links = BTreeSet::new();
        claim.tree(Origin::Native).walk(&mut |path, _| {
            let keys = path.0.iter().find_map(|step| step.keys.clone());
            links.extend(keys.and_then(|keys| keys.first().map(ToString::to_string)));
            assert!(schema.innermost_object(&path.0).is_some(), "{path:?}");
        });
        links
    };
    left.map(|(key, claim)| (key.to_string(), links(claim))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_lasts_is_all_that_was_put_out_since_it_was_purged(
        events in prop::collection::vec(event(), 1..20)
    ) {
        let mut box_ = EMPTY.clone();
        let mut model = Model::new();
        let mut bridges = BTreeMap::new();
        for event in events {
            match event {
                Event::Set { name, bridge } => {
                    let is_same = bridges.insert(name, bridge) == Some(bridge);
                    let (after, phases) = set_and_answer(&box_, &params(name, bridge));
                    prop_assert_eq!(phases.is_empty(), is_same, "what is the same asks nobody");
                    note(&mut model, name, bridge, &phases);
                    box_ = after;
                }
                Event::Delete(name) => {
                    let (after, phases) = set_and_answer(&box_, &format!("delete {name}"));
                    note(&mut model, name, bridges.remove(name).unwrap_or_default(), &phases);
                    box_ = after;
                }
                Event::Walk(name) => {
                    let (after, phases) = walk_and_answer(&box_, [tag(name)], |_| {});
                    prop_assert_eq!(phases, []);
                    box_ = after;
                }
                Event::Redeploy(name) => {
                    let (after, phases) = walk_and_answer(&box_, [tag(name)], redeploy);
                    note(&mut model, name, bridges.get(name).unwrap_or(&""), &phases);
                    box_ = after;
                }
                Event::Purge(name) => {
                    let key = name.map_or_else(of_type, |name| ClaimKey::persistent(tag(name)));
                    model.remove(&key.to_string());
                    box_ = box_.purged(&key).unwrap();
                }
                Event::Crash { name, bridge } => {
                    let _lost = set_and_answer(&box_, &params(name, bridge));
                    box_ = restarted(&box_, &TYPES);
                }
                Event::Restart => box_ = restarted(&box_, &TYPES),
            }
            prop_assert_eq!(lasting(&box_), model.clone());
            check_owners(&box_);
        }
    }
}
