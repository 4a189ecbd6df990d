//! `gone`: a leaf was there since a state was first waited for, and is not any more.

use std::sync::{Arc, LazyLock};

use holdfast_config::Configuration;
use proptest::prelude::*;

use super::incremental::restarted;
use super::plans::{
    ACME, ALL_READY, FixedBox, PORT, SIZE, UP, acme, box_of, has, plan, see, settle, types_with,
};
use super::types::{edit, refused, set};
use crate::ServiceTypes;

/// A box without a link.
const ABSENT: FixedBox = FixedBox { status: "", unapplied: None };

const GONE: &str =
    r#"when = "gone('/interfaces/interface[name={}]/state/oper-status', params.port)""#;

/// Types whose second state waits until the link of its port is gone.
static TYPES: LazyLock<Arc<ServiceTypes>> =
    LazyLock::new(|| types_with(&PORT.replace("GATE", GONE), SIZE));

fn box_that(sees: FixedBox) -> Configuration {
    see(&box_of(Arc::clone(&TYPES)), sees)
}

/// Paths that were there since the second state was first waited for.
fn seen(configuration: &Configuration) -> Vec<String> {
    let plan = configuration.layers().book.get(&acme()).cloned().unwrap();
    let state = plan.component("port", "eth1").and_then(|it| it.state("sized")).unwrap();
    state.seen.iter().map(ToString::to_string).collect()
}

// proves sv.B20
#[test]
fn a_gate_opens_when_a_leaf_that_was_there_is_gone() {
    let never = settle(&set(&box_that(ABSENT), ACME), &ABSENT);
    has(&never, &["attached reached, sized not-reached (gate `gone("]);
    assert!(seen(&never).is_empty(), "what was never there is not gone");
    let there = settle(&never, &UP);
    has(&there, &["attached reached, sized not-reached (gate `gone("]);
    assert_eq!(seen(&there), ["/interfaces/interface[name=eth1]/state/oper-status"]);
    assert!(there.trial(&super::plans::due(UP, 3)).is_empty(), "it is noted once");
    assert_eq!(plan(&settle(&there, &ABSENT)), ALL_READY);
}

// proves sv.B20
#[test]
fn the_leaf_that_was_there_is_known_after_a_restart() {
    let there = settle(&set(&box_that(UP), ACME), &UP);
    let again = restarted(&there, &TYPES);
    assert_eq!(seen(&again), seen(&there));
    assert_eq!(plan(&settle(&again, &ABSENT)), ALL_READY);
    let ready = restarted(&settle(&again, &ABSENT), &TYPES);
    assert_eq!(plan(&settle(&ready, &ABSENT)), ALL_READY, "a reached state stays so");
}

#[test]
fn a_state_that_is_left_forgets_what_was_there() {
    let ready = settle(&settle(&set(&box_that(UP), ACME), &UP), &ABSENT);
    let back = ready.with_surroundings(super::plans::due(UP, 3)).walked().unwrap();
    has(&back, &["sized not-reached"]);
    assert!(seen(&back).is_empty(), "it is waited for anew");
    has(&settle(&back, &ABSENT), &["sized not-reached"]);
    assert_eq!(seen(&settle(&back, &UP)).len(), 1);
}

#[test]
fn the_tree_cannot_ask_since_when_a_state_is_waited_for() {
    let condition = "gone('/interfaces/interface[name={}]/state/oper-status', params.port)";
    let outline = PORT.replace("GATE", "").replace("params.port is defined", condition);
    let types = see(&box_of(types_with(&outline, SIZE)), UP);
    refused(&types, ACME, &["failed in access 1.0.0", "the tree calls `gone`"]);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Link(bool),
    Create,
    Delete,
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => any::<bool>().prop_map(Event::Link),
        2 => Just(Event::Create),
        1 => Just(Event::Delete),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The naive side judges the whole history of the link since the instance was made.
    #[test]
    fn gone_is_what_the_history_of_the_link_says(events in prop::collection::vec(event(), 1..20)) {
        let mut link = ABSENT;
        let mut configuration = box_that(link.clone());
        let mut history: Option<Vec<bool>> = None;
        for event in events {
            let before = see(&configuration, link.clone());
            configuration = match event {
                Event::Link(is_there) => {
                    link = if is_there { UP } else { ABSENT };
                    before
                }
                Event::Create => {
                    history.get_or_insert_default();
                    set(&before, ACME)
                }
                Event::Delete => {
                    history = None;
                    before.edit(&edit("delete acme")).unwrap()
                }
                Event::Restart => restarted(&before, &TYPES),
            };
            configuration = settle(&configuration, &link);
            let Some(history) = &mut history else {
                prop_assert_eq!(plan(&configuration), "none");
                continue;
            };
            history.push(!link.status.is_empty());
            let is_gone = history.contains(&true) && history.last() == Some(&false);
            prop_assert_eq!(plan(&configuration) == ALL_READY, is_gone, "{:?}", history);
        }
    }
}
