//! Service plans: which states an instance reaches, what they wait for, and how it backs out.

use std::collections::BTreeSet;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Applied, BackTrack, Book, BoxState, ComponentPlan, ForcedBackTrack, StatePlan, Surroundings,
};
use holdfast_config::{
    ClaimKey, Configuration, Layers, PathPattern, ServiceTag, Value, layer_rows_diff,
};

use super::types::{TEMPLATE, YANG, made, refused, set};
use super::*;
use crate::ServiceTypes;

/// A box with one answer for each question.
#[derive(Clone, Debug, Default)]
pub(super) struct FixedBox {
    /// Operational status of every link; empty where there is none.
    pub(super) status: &'static str,
    /// Name of the state whose claim is not in the kernel, with the answer.
    pub(super) unapplied: Option<(&'static str, Applied)>,
}

impl BoxState for FixedBox {
    fn leaves(&self, _: Origin, _: &PathPattern) -> Vec<Value> {
        Some(self.status)
            .filter(|it| !it.is_empty())
            .map(|it| Value::Str(it.into()))
            .into_iter()
            .collect()
    }

    fn applied(&self, claim: &ClaimKey) -> Applied {
        match &self.unapplied {
            Some((state, applied)) if claim.state == *state => applied.clone(),
            _ => Applied::Done,
        }
    }
}

pub(super) const UP: FixedBox = FixedBox { status: "UP", unapplied: None };
const DOWN: FixedBox = FixedBox { status: "DOWN", unapplied: None };

/// A component for the port, whose second state has the lines `GATE`.
pub(super) const PORT: &str = r#"[service]
name = "access"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/oper-status"]
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "main.cli"
  [[component.state]]
  name = "sized"
  GATE
  work = "size.cli"
[[tree]]
if = "params.port is defined"
create = { type = "port", name = "params.port" }
"#;

/// The gate of a link that is up.
pub(super) const LINK_UP: &str =
    r#"when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'""#;

pub(super) const SIZE: &str = "interface {{ component.name }}\n  mtu 1400\n";
pub(super) const ACME: &str = r#"update acme {"port":"eth1","bridge":"br0"}"#;
pub(super) const ATTACHED: &str = "interface br0\n  type bridge\ninterface eth1\n  master br0\n";
pub(super) const SIZED: &str =
    "interface br0\n  type bridge\ninterface eth1\n  mtu 1400\n  master br0\n";

pub(super) fn types_with(outline: &str, size: &str) -> Arc<ServiceTypes> {
    let templates = [("templates/main.cli", TEMPLATE), ("templates/size.cli", size)];
    Arc::new(access_types(outline, YANG, &templates))
}

pub(super) fn box_of(types: Arc<ServiceTypes>) -> Configuration {
    Configuration::new(Arc::clone(types.models()), Layers::new()).with_services(Some(types))
}

pub(super) fn box_with(outline: &str, size: &str) -> Configuration {
    box_of(types_with(outline, size))
}

/// A box whose second state has these lines, with the state of `on`.
fn gated(lines: &str, on: FixedBox) -> Configuration {
    see(&box_with(&PORT.replace("GATE", lines), SIZE), on)
}

pub(super) fn acme() -> ServiceTag {
    "access[name='acme']".parse().unwrap()
}

/// Configuration in which requests see this state, and may be refused.
pub(super) fn see(before: &Configuration, state: FixedBox) -> Configuration {
    let state: Option<Arc<dyn BoxState>> = Some(Arc::new(state));
    before.clone().with_surroundings(Surroundings { state, now_ns: 1, ..Surroundings::default() })
}

/// Surroundings in which `acme` is due.
pub(super) fn due(state: FixedBox, now_ns: u64) -> Surroundings {
    Surroundings {
        state: Some(Arc::new(state)),
        now_ns,
        is_lenient: true,
        due: BTreeSet::from([acme()]),
        ..Surroundings::default()
    }
}

/// Walks `acme` once.
#[track_caller]
fn walk(before: &Configuration, state: FixedBox) -> Configuration {
    before.clone().with_surroundings(due(state, 2)).walked().unwrap()
}

/// Walks `acme` until nothing changes.
#[track_caller]
pub(super) fn settle(before: &Configuration, state: &FixedBox) -> Configuration {
    let mut configuration = before.clone();
    for _ in 0..10 {
        if configuration.trial(&due(state.clone(), 2)).is_empty() {
            return configuration;
        }
        configuration = walk(&configuration, state.clone());
    }
    panic!("the walks do not end: {}", plan(&configuration));
}

/// The service plan of `acme`: a line for each component, with the status of each state and what it waits for.
pub(super) fn plan(configuration: &Configuration) -> String {
    let Some(plan) = configuration.layers().book.get(&acme()) else { return "none".to_owned() };
    let state = |it: &StatePlan| {
        let text = it.failure.as_ref().or(it.waits_for.as_ref());
        let text = text.map(|text| format!(" ({text})")).unwrap_or_default();
        format!("{} {}{text}", it.name, it.status().name())
    };
    let component = |it: &ComponentPlan| {
        let states: Vec<_> = it.states.iter().map(state).collect();
        let back = match &it.back_track {
            None => String::new(),
            Some(BackTrack::Whole) => " backs out".to_owned(),
            Some(BackTrack::To(state)) => format!(" backs out to {state}"),
        };
        format!("{} {}{back}: {}\n", it.component_type, it.name, states.join(", "))
    };
    plan.components.iter().map(component).collect()
}

#[track_caller]
pub(super) fn has(configuration: &Configuration, parts: &[&str]) {
    let plan = plan(configuration);
    parts.iter().for_each(|part| assert!(plan.contains(part), "{part}: {plan}"));
}

pub(super) const ALL_READY: &str = "self self: init reached, ready reached
port eth1: init reached, attached reached, sized reached, ready reached
";

// proves sv.B5, sv.B9, sv.B10, sv.B13, sv.B38
#[test]
fn an_instance_without_obstacles_is_ready_after_the_walk_that_follows() {
    let made_now = set(&gated(LINK_UP, UP), ACME);
    assert_eq!(made(&made_now), SIZED);
    has(&made_now, &["ready not-reached (the objects of this change)"]);
    let ready = settle(&made_now, &UP);
    assert_eq!(plan(&ready), ALL_READY);
    assert!(ready.trial(&due(UP, 9)).is_empty(), "a walk without a reason changes nothing");
    let since = |it: &Configuration| {
        let plan = it.layers().book.get(&acme()).cloned().unwrap();
        plan.components.iter().flat_map(|it| &it.states).map(|it| it.since_ns).collect::<Vec<_>>()
    };
    assert_eq!(since(&ready), [1, 2, 1, 1, 1, 2], "each state has the time of its last change");
}

// proves sv.B16
#[test]
fn a_closed_gate_stops_its_component_until_it_opens() {
    let stopped = settle(&set(&gated(LINK_UP, DOWN), ACME), &DOWN);
    assert_eq!(made(&stopped), ATTACHED);
    has(
        &stopped,
        &[
            "attached reached, sized not-reached (gate `state(",
            "ready not-reached (component port eth1)",
        ],
    );
    let opened = settle(&stopped, &UP);
    assert_eq!((made(&opened), plan(&opened)), (SIZED.to_owned(), ALL_READY.to_owned()));
}

// proves sv.B51, sv.B57, sv.B61
#[test]
fn a_gate_that_closes_backs_its_state_out_unless_it_is_sticky() {
    let ready = settle(&set(&gated(LINK_UP, UP), ACME), &UP);
    let back = settle(&ready, &DOWN);
    assert_eq!(made(&back), ATTACHED);
    has(&back, &["attached reached, sized not-reached (gate `state("]);
    assert_eq!(plan(&settle(&back, &UP)), ALL_READY);

    let sticky = format!("{LINK_UP}\n  sticky = true");
    let ready = settle(&set(&gated(&sticky, UP), ACME), &UP);
    let kept = settle(&ready, &DOWN);
    assert_eq!((made(&kept), plan(&kept)), (SIZED.to_owned(), ALL_READY.to_owned()));
}

#[test]
fn an_object_that_waits_keeps_the_component_where_it_is() {
    let unapplied = Some(("attached", Applied::Pending("link eth1".into())));
    let absent = FixedBox { status: "DOWN", unapplied: unapplied.clone() };
    let waiting = settle(&set(&gated(LINK_UP, absent.clone()), ACME), &absent);
    has(&waiting, &["attached reached, sized not-reached (link eth1)"]);
    let up_but_waiting = settle(&waiting, &FixedBox { status: "UP", unapplied });
    has(&up_but_waiting, &["sized not-reached (link eth1)"]);
    assert_eq!(plan(&settle(&waiting, &UP)), ALL_READY);

    let gone = FixedBox { status: "UP", ..absent };
    let ready = settle(&set(&gated(LINK_UP, UP), ACME), &UP);
    assert_eq!(plan(&settle(&ready, &gone)), ALL_READY, "what waits later takes no state back");
}

// proves sv.B101
#[test]
fn an_object_that_the_kernel_refuses_fails_its_state_until_it_is_there() {
    let reason: Arc<str> = "link eth1: EINVAL".into();
    let refused = FixedBox { status: "UP", unapplied: Some(("sized", Applied::Failed(reason))) };
    let ready = settle(&set(&gated(LINK_UP, UP), ACME), &UP);
    let failed = settle(&ready, &refused);
    has(
        &failed,
        &["sized failed (link eth1: EINVAL)", "ready failed (port eth1, sized: link eth1"],
    );
    assert_eq!(made(&failed), SIZED, "the claim stays");
    assert_eq!(plan(&settle(&failed, &UP)), ALL_READY);
}

// proves sv.B29, sv.B34, sv.B58, sv.B59, sv.B105
#[test]
fn components_that_the_tree_has_no_more_back_out() {
    let ready = settle(&set(&gated(LINK_UP, UP), ACME), &UP);
    let moved = set(&see(&ready, UP), r#"update acme {"port":"eth2"}"#);
    assert!(!plan(&moved).contains("eth1"), "{}", plan(&moved));
    assert_eq!(made(&moved), SIZED.replace("eth1", "eth2"));
    let none = set(&see(&moved, UP), "delete /services/access[name=acme]/port");
    assert_eq!(
        (made(&none), plan(&settle(&none, &UP))),
        (String::new(), "self self: init reached, ready reached\n".to_owned())
    );
    let undeployed = set(&see(&moved, UP), r#"update acme {"deploy":false}"#);
    assert_eq!((made(&undeployed), plan(&undeployed)), (String::new(), "none".to_owned()));
}

/// A port that stays while its link is up.
const GUARDED: &str = r#"delete = { when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) != 'UP'" }"#;

// proves sv.B52, sv.B53, sv.B55, sv.B78, sv.B79, sv.B81
#[test]
fn a_closed_delete_gate_keeps_what_was_made_and_the_name() {
    let ready = settle(&set(&gated(GUARDED, UP), ACME), &UP);
    let zombie = set(&see(&ready, UP), "delete acme");
    assert_eq!(made(&zombie), SIZED, "`attached` was reached before it, and goes after it");
    has(
        &zombie,
        &[
            "port eth1 backs out: init reached, attached reached, sized reached (delete gate `state(",
        ],
    );
    let parts = ["zombie of access[name='acme']: port eth1, sized waits for delete gate"];
    refused(&see(&zombie, UP), ACME, &parts);
    let other = set(
        &see(&zombie, UP),
        &ACME.replace("acme", "bolt").replace("br0", "br1").replace("eth1", "eth2"),
    );
    assert!(made(&other).contains("eth2"), "other names are free");
    let gone = settle(&zombie, &DOWN);
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()));
    assert_eq!(plan(&settle(&set(&see(&gone, UP), ACME), &UP)), ALL_READY);
}

// proves sv.B81
#[test]
fn what_backs_out_waits_for_nothing_but_its_way_out() {
    let held = "name = \"attached\"\n  delete = { when = \"params.bridge == 'br9'\" }";
    let outline = PORT.replace("GATE", LINK_UP).replace("name = \"attached\"", held);
    let made = settle(&set(&see(&box_with(&outline, SIZE), DOWN), ACME), &DOWN);
    has(&made, &["attached reached, sized not-reached (gate `state("]);
    let zombie = set(&see(&made, DOWN), "delete acme");
    has(&zombie, &["attached reached (delete gate `params.bridge == 'br9'`), sized not-reached,"]);
    let shown = plan(&zombie);
    assert_eq!(shown.matches('(').count(), 1, "nothing else waits: {shown}");
    let parts = ["zombie of access[name='acme']: port eth1, attached waits for delete gate"];
    refused(&see(&zombie, DOWN), ACME, &parts);
}

// proves sv.B22, sv.B60
#[test]
fn a_deleted_service_asks_its_gates_with_the_parameters_it_had() {
    let gate = r#"delete = { when = "service.leaving and params.port == 'eth1'" }"#;
    let ready = settle(&set(&gated(gate, UP), ACME), &UP);
    let gone = set(&see(&ready, UP), "delete acme");
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()));
}

// proves sv.B102
#[test]
fn a_type_that_converges_after_the_request_has_its_first_walk_later() {
    let outline =
        PORT.replace("GATE", LINK_UP).replace("[grants]", "converge = \"after\"\n[grants]");
    let stored = set(&see(&box_with(&outline, SIZE), UP), ACME);
    assert_eq!(made(&stored), "");
    assert_eq!(plan(&stored), "self self: init not-reached (its first walk), ready not-reached\n");
    let ready = settle(&stored, &UP);
    assert_eq!((made(&ready), plan(&ready)), (SIZED.to_owned(), ALL_READY.to_owned()));
    let changed = set(&see(&ready, UP), r#"update acme {"bridge":"br1"}"#);
    assert_eq!((made(&changed), plan(&changed)), (SIZED.to_owned(), ALL_READY.to_owned()));
    assert_eq!(made(&settle(&changed, &UP)), SIZED.replace("br0", "br1"));

    refused(&see(&ready, UP), r#"update acme {"bridge":"a name that is too long"}"#, &["bridge"]);
    let failing = "interface {{ component.name }}\n  mtu {{ params.gateway }}\n";
    let stored = set(&see(&box_with(&outline, failing), UP), ACME);
    has(&settle(&stored, &UP), &["sized failed (access 1.0.0: templates/size.cli line 2"]);
    let gone = set(&see(&ready, UP), "delete acme");
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()));
}

/// Surroundings in which `acme` backs out of a component by force.
fn forced(state: Option<&str>) -> Surroundings {
    let component = ["port".into(), "eth1".into()];
    let forced = ForcedBackTrack { component, state: state.map(Into::into) };
    Surroundings { forced: [(acme(), forced)].into(), ..due(UP, 2) }
}

// proves sv.B85
#[test]
fn a_component_backs_out_by_force_though_its_delete_gate_is_closed() {
    let ready = settle(&set(&gated(GUARDED, UP), ACME), &UP);
    let zombie = set(&see(&ready, UP), "delete acme");
    let gone = zombie.with_surroundings(forced(None)).walked().unwrap();
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()));

    let partly = ready.clone().with_surroundings(forced(Some("sized"))).walked().unwrap();
    assert_eq!(made(&partly), ATTACHED);
    has(&partly, &["attached reached, sized not-reached"]);
    assert_eq!(plan(&settle(&partly, &UP)), ALL_READY, "one that is not deleted goes on again");
    let wholly = ready.clone().with_surroundings(forced(None)).walked().unwrap();
    assert_eq!(made(&wholly), "");
    assert_eq!(plan(&settle(&wholly, &UP)), ALL_READY);

    let mut unknown = forced(None);
    unknown.forced.get_mut(&acme()).unwrap().component[1] = "eth7".into();
    assert_eq!(plan(&ready.with_surroundings(unknown).walked().unwrap()), ALL_READY);
}

// proves sv.B84
#[test]
fn a_zombie_comes_back_as_it_was() {
    let ready = settle(&set(&gated(GUARDED, UP), ACME), &UP);
    let zombie = set(&see(&ready, UP), "delete acme");
    let comes_back = Surroundings { resurrected: Some(acme()), ..due(UP, 3) };
    let back = set(&zombie.with_surroundings(comes_back), ACME);
    assert_eq!((made(&back), plan(&back)), (SIZED.to_owned(), ALL_READY.to_owned()));
    assert_eq!(back.layers().claims(), ready.layers().claims());
    assert!(back.trial(&due(UP, 9)).is_empty());
}

/// Two states, the first to be committed alone.
fn in_two_commits() -> Configuration {
    let outline = PORT.replace("name = \"attached\"", "name = \"attached\"\n  commit-after = true");
    let outline = outline.replace("GATE", "delete = { commit-after = true }");
    see(&box_with(&outline, SIZE), UP)
}

// proves sv.B14
#[test]
fn commit_after_ends_the_way_of_a_component_in_a_walk() {
    let first = set(&in_two_commits(), ACME);
    assert_eq!(made(&first), ATTACHED);
    has(
        &first,
        &["attached reached, sized not-reached (the commit of attached), ready not-reached"],
    );
    let second = walk(&first, UP);
    assert_eq!(made(&second), SIZED);
    assert_eq!(plan(&settle(&second, &UP)), ALL_READY);
}

// proves sv.B14, sv.B78
#[test]
fn commit_after_of_a_delete_part_takes_a_zombie_out_in_stages() {
    let ready = settle(&set(&in_two_commits(), ACME), &UP);
    let zombie = set(&see(&ready, UP), "delete acme");
    assert_eq!(made(&zombie), ATTACHED);
    has(&zombie, &["attached reached (the commit of sized), sized not-reached"]);
    let gone = walk(&zombie, UP);
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()));
}

/// The status of `sized` in a walk at this time, in seconds after the state before it was reached, and the time at
/// which the next walk is due.
fn sized_after(before: &Configuration, seconds: u64) -> (Configuration, String, Option<u64>) {
    let surroundings = due(DOWN, 1 + seconds * 1_000_000_000);
    let wake_at = before.trial(&surroundings).wake_at_ns.get(&acme()).copied();
    let walked = before.clone().with_surroundings(surroundings).walked().unwrap();
    let plan = walked.layers().book.get(&acme()).cloned().unwrap();
    let sized = plan.component("port", "eth1").and_then(|it| it.state("sized")).unwrap();
    let failure = sized.failure.as_deref().unwrap_or(sized.status().name()).to_owned();
    assert!(sized.waits_for.is_some(), "it goes on waiting");
    (walked, failure, wake_at.map(|at| (at - 1) / 1_000_000_000))
}

// proves sv.B8
#[test]
fn a_state_that_waits_for_longer_than_its_timeout_is_failed_until_it_is_reached() {
    let waiting = set(&gated(&format!("{LINK_UP}\n  timeout = 60"), DOWN), ACME);
    let (waiting, status, wake_at) = sized_after(&waiting, 59);
    assert_eq!((&*status, wake_at), ("not-reached", Some(60)));
    let (late, status, wake_at) = sized_after(&waiting, 60);
    assert_eq!((&*status, wake_at), ("not reached within 60 s", None));
    has(&late, &["ready failed (port eth1, sized: not reached within 60 s)"]);
    let (late, status, _) = sized_after(&late, 61);
    assert_eq!(status, "not reached within 60 s");
    assert_eq!(plan(&settle(&late, &UP)), ALL_READY);
}

#[test]
fn a_walk_that_may_not_be_refused_turns_failures_into_states() {
    let size = "interface {{ component.name }}\n  mtu {{ params.gateway | prefixlen }}00\n";
    let before = see(&box_with(&PORT.replace("GATE", LINK_UP), size), DOWN);
    let stopped = settle(&set(&before, ACME), &DOWN);
    let parts = ["failed in access 1.0.0: templates/size.cli line 2", "undefined"];
    refused(&see(&stopped, UP), r#"update acme {"deploy":true,"bridge":"br1"}"#, &parts);
    let failed = settle(&stopped, &UP);
    has(
        &failed,
        &[
            "attached reached, sized failed (access 1.0.0: templates/size.cli line 2",
            "ready failed (port eth1, sized",
        ],
    );
    assert_eq!(made(&failed), ATTACHED);
    let mended = set(&see(&failed, UP), r#"update acme {"gateway":"10.0.0.1/14"}"#);
    has(&mended, &["sized reached"]);
}

#[test]
fn a_refused_walk_fails_the_states_that_it_would_change() {
    let stopped = settle(&set(&gated(LINK_UP, DOWN), ACME), &DOWN);
    let mut surroundings = due(UP, 3);
    surroundings.refused.insert(acme(), "`1400` by acme and `9000` by client native".into());
    let failed = stopped.clone().with_surroundings(surroundings).walked().unwrap();
    has(&failed, &["attached reached, sized failed (`1400` by acme and `9000`"]);
    assert_eq!(made(&failed), ATTACHED);
    assert_eq!(plan(&settle(&failed, &UP)), ALL_READY, "a later walk tries again");
}

#[test]
fn walks_say_what_they_have_read() {
    let stopped = settle(&set(&gated(LINK_UP, DOWN), ACME), &DOWN);
    let reads = stopped.trial(&due(DOWN, 2)).reads;
    assert_eq!(reads[&acme()].len(), 1, "{reads:?}");
    let unknown = box_with(&PORT.replace("GATE", LINK_UP), SIZE);
    refused(&unknown, ACME, &["failed in access 1.0.0", "state is not known"]);
}

#[test]
fn service_plans_are_stored_rolled_back_and_rebased() {
    let none = gated(LINK_UP, DOWN);
    let stopped = settle(&set(&none, ACME), &DOWN);
    let rows = layer_rows_diff(stopped.models(), &Layers::new(), stopped.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, unknown) = Layers::from_rows(stopped.models(), rows).unwrap();
    assert_eq!((&layers.book, unknown), (&stopped.layers().book, 0));

    let ready = settle(&stopped, &UP);
    let back = see(&ready, DOWN).with_client_of(stopped.layers());
    assert_eq!((plan(&back), made(&back)), (plan(&stopped), made(&stopped)));
    let bolt = set(&none, r#"update bolt {"port":"eth2","bridge":"br1"}"#);
    let both = bolt.rebased(&none, &ready);
    assert_eq!(plan(&both), ALL_READY);
    assert_eq!(both.layers().book.iter().count(), 2);
    let gone = set(&see(&both, UP), "delete acme\ndelete bolt");
    assert_eq!(gone.layers().book, Book::default());
    let rows = layer_rows_diff(gone.models(), both.layers(), gone.layers());
    assert!(rows.iter().all(|row| row.value.is_none()), "{rows:?}");
}
