//! Limits of the box: service plans, their states, and actions in the queue, at the figure and one above it.

use std::collections::BTreeSet;

use holdfast_config::limits::{SERVICE_ACTIONS, SERVICE_INSTANCES, SERVICE_STATES};
use holdfast_config::services::{
    ActionCall, ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionTarget, ActionUpdate,
    Book, ComponentPlan, PlanTotals, ServicePlan, StatePlan, Surroundings,
};
use holdfast_config::{ClaimKey, Configuration, Footprint, Layers, Limit, ServiceTag};

use super::plans::{
    ACME, FixedBox, LINK_UP, PORT, SIZE, UP, acme, due, has, plan, see, settle, types_with,
};
use super::types::{edit, refused, set};
use super::*;
use crate::ServiceTypes;

const BOLT: &str = r#"update bolt {"port":"eth2","bridge":"br1"}"#;
/// States of an instance with one port: two of `self`, and four of the port.
const STATES: usize = 6;

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

fn bolt() -> ServiceTag {
    tag("bolt")
}

/// Types whose first state asks for an action.
fn acting() -> Arc<ServiceTypes> {
    let ping = r#"{ builtin = "ping", params = { destination = "params.bridge" } }"#;
    let name = r#"name = "attached""#;
    let outline = PORT.replace(name, &format!("{name}\n  action = {ping}")).replace("GATE", "");
    types_with(&outline, SIZE)
}

fn gated() -> Arc<ServiceTypes> {
    types_with(&PORT.replace("GATE", LINK_UP), SIZE)
}

/// A plan with this number of states, and so many with an action in the queue.
fn filling(states: usize, actions: usize) -> ServicePlan {
    let call = ActionCall {
        target: ActionTarget::Builtin("ping".into()),
        params: "{}".into(),
        serial: "".into(),
        timeout_s: 1,
    };
    let state = |number: usize| {
        let queued = || ActionPlan {
            id: number as u64,
            phase: ActionPhase::Create,
            progress: ActionProgress::Queued,
            attempts: 0,
            since_ns: 0,
            call: call.clone(),
            cause: None,
        };
        let action = (number < actions).then(queued);
        StatePlan { action, ..StatePlan::new(format!("s{number}").into(), 0) }
    };
    let states = (0..states.max(actions)).map(state).collect();
    let component_type = "filling".into();
    let name = "filling".into();
    let component =
        ComponentPlan { component_type, name, vars: "".into(), back_track: None, states };
    ServicePlan { components: vec![component], ..ServicePlan::default() }
}

/// A box that has so many plans, states and actions beside its instances.
fn box_beside(types: &Arc<ServiceTypes>, totals: PlanTotals) -> Configuration {
    let mut layers = Layers::new();
    let PlanTotals { instances, states, actions } = totals;
    layers.book.set((tag("filling"), Some(filling(states, actions))));
    for number in 1..instances {
        layers.book.set((tag(&format!("filling-{number}")), Some(ServicePlan::default())));
    }
    let services = Arc::<ServiceTypes>::clone(types);
    let before =
        Configuration::new(Arc::clone(types.models()), layers).with_services(Some(services));
    see(&before, UP)
}

/// The sum over all plans, which the book does not make.
pub(super) fn counted(book: &Book) -> PlanTotals {
    let plans = book.iter().map(|(_, plan)| &**plan);
    plans.fold(PlanTotals::default(), |totals, plan| totals.replaced(None, Some(plan)))
}

fn lenient(before: &Configuration) -> Configuration {
    before.clone().with_surroundings(due(UP, 2))
}

/// Walks an instance where nothing may be refused.
fn walked(before: &Configuration, name: &str) -> Configuration {
    let surroundings = Surroundings { due: BTreeSet::from([tag(name)]), ..due(UP, 3) };
    before.clone().with_surroundings(surroundings).walked().unwrap()
}

fn over_limit(before: &Configuration, name: &str) -> BTreeSet<ServiceTag> {
    before.trial(&Surroundings { due: BTreeSet::from([tag(name)]), ..due(UP, 4) }).over_limit
}

#[track_caller]
fn is_refused(before: &Configuration, limit: &Limit, count: usize) {
    let count = format!("{count} with access[name='bolt']");
    refused(before, BOLT, &[limit.name, &limit.figure.to_string(), &count]);
}

#[test]
fn as_many_instances_as_the_limit_are_made_and_no_more() {
    let instances = SERVICE_INSTANCES.figure - 1;
    let before = box_beside(&gated(), PlanTotals { instances, ..PlanTotals::default() });
    let full = set(&before, ACME);
    assert_eq!(full.layers().book.totals(), counted(&full.layers().book));
    assert_eq!(full.layers().book.totals().instances, SERVICE_INSTANCES.figure);
    is_refused(&full, &SERVICE_INSTANCES, SERVICE_INSTANCES.figure + 1);
    let moved = set(&full, r#"update acme {"port":"eth3"}"#);
    has(&moved, &["port eth3: init reached, attached reached"]);
    let other = set(&full, &format!("delete acme\n{BOLT}"));
    assert!(other.layers().book.get(&bolt()).is_some(), "one that goes makes room");

    let stored = lenient(&full).edit(&edit(BOLT)).unwrap();
    assert!(stored.layers().book.get(&bolt()).is_none());
    assert_eq!(over_limit(&stored, "bolt"), BTreeSet::from([bolt()]));
    let room = stored.edit(&edit("delete acme")).unwrap();
    assert!(over_limit(&room, "bolt").is_empty());
    assert!(walked(&room, "bolt").layers().book.get(&bolt()).is_some());
}

#[test]
fn as_many_states_as_the_limit_are_made_and_no_more() {
    let states = SERVICE_STATES.figure - STATES;
    let before = box_beside(&gated(), PlanTotals { states, ..PlanTotals::default() });
    let full = set(&before, ACME);
    assert_eq!(full.layers().book.totals(), counted(&full.layers().book));
    assert_eq!(full.layers().book.totals().states, SERVICE_STATES.figure);
    is_refused(&full, &SERVICE_STATES, SERVICE_STATES.figure + STATES);
    has(&set(&full, r#"update acme {"port":"eth3"}"#), &["port eth3: init reached"]);

    let stored = lenient(&full).edit(&edit(BOLT)).unwrap();
    let failed = stored.layers().book.get(&bolt()).cloned().unwrap();
    let failure = failed.failure.as_deref().unwrap_or_default();
    assert!(failure.contains("limit `service-states`"), "{failure}");
    assert_eq!(over_limit(&stored, "bolt"), BTreeSet::from([bolt()]));
    let room = stored.edit(&edit("delete acme")).unwrap();
    let made = walked(&room, "bolt").layers().book.get(&bolt()).cloned().unwrap();
    assert_eq!((made.failure.clone(), PlanTotals::of(&made).states), (None, STATES));
}

/// News of the action of `acme`.
fn after(before: &Configuration, event: ActionEvent) -> Configuration {
    let component = ["port".into(), "eth1".into()];
    let state = ClaimKey { tag: acme(), component, state: "attached".into() };
    let plan = before.layers().book.get(&acme()).cloned().unwrap();
    let id = plan.calls().next().unwrap().action.id;
    let actions = vec![ActionUpdate { state, id, event }];
    before.clone().with_surroundings(Surroundings { actions, ..due(UP, 3) }).walked().unwrap()
}

#[test]
fn as_many_actions_as_the_limit_are_queued_and_no_more() {
    let actions = SERVICE_ACTIONS.figure - 1;
    let before = box_beside(&acting(), PlanTotals { actions, ..PlanTotals::default() });
    let full = set(&before, ACME);
    assert_eq!(full.layers().book.totals(), counted(&full.layers().book));
    assert_eq!(full.layers().book.totals().actions, SERVICE_ACTIONS.figure);
    is_refused(&full, &SERVICE_ACTIONS, SERVICE_ACTIONS.figure + 1);
    refused(&full, BOLT, &["service.toml line 10"]);

    let stored = lenient(&full).edit(&edit(BOLT)).unwrap();
    let failed = format!("{:?}", stored.layers().book.get(&bolt()));
    assert!(failed.contains("limit `service-actions`"), "{failed}");
    assert_eq!(over_limit(&stored, "bolt"), BTreeSet::from([bolt()]));
    assert_eq!(stored.layers().book.totals().actions, SERVICE_ACTIONS.figure);

    let begun = after(&stored, ActionEvent::Dispatched);
    let done = after(&begun, ActionEvent::Ended(r#"{"received":1}"#.into()));
    assert_eq!(done.layers().book.totals().actions, actions, "news is taken in a full queue");
    assert!(over_limit(&done, "bolt").is_empty());
    let queued = walked(&done, "bolt");
    assert_eq!(queued.layers().book.totals(), counted(&queued.layers().book));
    assert_eq!(queued.layers().book.totals().actions, SERVICE_ACTIONS.figure);
}

/// A box that is beyond a limit, as an earlier version of the agent may have left it, goes on with what it has.
#[test]
fn what_does_not_grow_is_not_refused() {
    let totals = PlanTotals {
        instances: SERVICE_INSTANCES.figure,
        states: SERVICE_STATES.figure,
        actions: SERVICE_ACTIONS.figure,
    };
    let before = set(&box_beside(&acting(), PlanTotals::default()), ACME);
    let full = box_beside(&acting(), totals);
    let mut layers = before.layers().clone();
    for (tag, plan) in full.layers().book.iter() {
        layers.book.set((tag.clone(), Some((**plan).clone())));
    }
    let types = acting();
    let beyond = Configuration::new(Arc::clone(types.models()), layers).with_services(Some(types));
    let beyond = see(&beyond, UP);
    assert!(beyond.layers().book.totals().states > SERVICE_STATES.figure);
    let moved = set(&beyond, r#"update acme {"port":"eth3"}"#);
    has(&moved, &["port eth3: init reached, attached reached"]);
    assert_eq!(plan(&set(&moved, "delete acme")), "none");
    is_refused(&beyond, &SERVICE_INSTANCES, SERVICE_INSTANCES.figure + 2);
}

#[test]
fn changes_side_by_side_cannot_both_have_the_last_place() {
    let types = acting();
    let footprint = |before: &Configuration, operations: &str| {
        let (after, scope) = before.examined(&edit(operations)).unwrap();
        Footprint::of(before, &after, &scope)
    };
    let check = |totals: PlanTotals, clear: bool| {
        let before = box_beside(&types, totals);
        let [one, other] = [ACME, BOLT].map(|it| footprint(&before, it));
        assert_eq!(one.keeps_clear_of(&other), clear, "{totals:?}");
        assert_eq!(other.keeps_clear_of(&one), clear, "{totals:?}");
        let host = footprint(&before, "update /system/hostname \"box\"");
        assert!(one.keeps_clear_of(&host), "{totals:?}");
    };
    let none = PlanTotals::default();
    check(none, true);
    check(PlanTotals { instances: SERVICE_INSTANCES.figure - 1, ..none }, false);
    check(PlanTotals { states: SERVICE_STATES.figure - STATES, ..none }, false);
    check(PlanTotals { actions: SERVICE_ACTIONS.figure - 1, ..none }, false);
}

#[test]
fn a_ready_state_whose_action_might_be_one_too_many_is_left_to_the_walk_that_follows() {
    let ping = r#"action = { builtin = "ping", params = { destination = "'192.0.2.1'" } }"#;
    let ready = format!("[[component.state]]\n  name = \"ready\"\n  {ping}\n[[tree]]");
    let outline = PORT.replace("GATE", "").replace("[[tree]]", &ready);
    let types = types_with(&outline, SIZE);
    let judged = |actions: usize| {
        let made = set(&box_beside(&types, PlanTotals { actions, ..PlanTotals::default() }), ACME);
        let before = made.layers().book.totals().actions;
        let judged = made.with_ready_judged(&due(FixedBox { ..UP }, 2));
        (judged.layers().book.totals().actions - before, judged)
    };
    assert_eq!(judged(0).0, 1);
    let (queued, left) = judged(SERVICE_ACTIONS.figure - 2);
    assert_eq!(queued, 0);
    let full = settle(&left, &UP);
    assert_eq!(full.layers().book.totals().actions, SERVICE_ACTIONS.figure - 1);
}
