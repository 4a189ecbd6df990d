//! Actions of states: when they are asked for, and what waits for them.

use std::sync::Arc;

use holdfast_config::services::{
    ActionEvent, ActionPhase, ActionPlan, ActionUpdate, StatePlan, Surroundings,
};
use holdfast_config::{ClaimKey, Configuration, Layers, layer_rows_diff};

use super::plans::{
    ACME, ALL_READY, ATTACHED, PORT, SIZE, SIZED, UP, acme, box_with, due, has, plan, see, settle,
};
use super::types::{made, refused, set};

const PING: &str = r#"{ builtin = "ping", params = { destination = "params.bridge" }, result = "result.received > 0", SYNC }"#;

/// A box whose state `attached` has this line with an action.
fn acting(line: &str) -> Configuration {
    let outline = PORT.replace("GATE", "");
    let line = format!("name = \"attached\"\n  {line}");
    let outline = outline.replace("name = \"attached\"", &line);
    see(&box_with(&outline, SIZE), UP)
}

fn create_action(sync: bool) -> Configuration {
    acting(&format!("action = {}", PING.replace("SYNC", &format!("sync = {sync}"))))
}

fn key() -> ClaimKey {
    let component = ["port".into(), "eth1".into()];
    ClaimKey { tag: acme(), component, state: "attached".into() }
}

fn attached(configuration: &Configuration) -> StatePlan {
    let plan = configuration.layers().book.get(&acme()).cloned().unwrap();
    plan.component("port", "eth1").and_then(|it| it.state("attached")).cloned().unwrap()
}

fn action(configuration: &Configuration) -> ActionPlan {
    attached(configuration).action.unwrap()
}

/// The configuration after news of the action, at this time.
fn after(before: &Configuration, event: ActionEvent, now_ns: u64) -> Configuration {
    let update = ActionUpdate { state: key(), id: action(before).id, event };
    let surroundings = Surroundings { actions: vec![update], ..due(UP, now_ns) };
    before.clone().with_surroundings(surroundings).walked().unwrap()
}

fn ended(before: &Configuration, received: u8) -> Configuration {
    let result = format!(r#"{{"sent":5,"received":{received}}}"#);
    after(before, ActionEvent::Ended(result.into()), 3)
}

fn redeployed(before: &Configuration) -> Configuration {
    let surroundings = Surroundings { retries_actions: true, ..due(UP, 4) };
    before.clone().with_surroundings(surroundings).walked().unwrap()
}

// proves sv.B63, sv.B65, sv.B66, sv.B68, sv.B69, sv.B70, sv.B73
#[test]
fn a_sync_action_stops_its_component_until_it_succeeds() {
    let asked = set(&create_action(true), ACME);
    assert_eq!(made(&asked), ATTACHED);
    assert_eq!(action(&asked).call.params, Arc::from(r#"{"destination":"br0"}"#));
    assert_eq!(action(&asked).status(), "create-init");
    let waiting = settle(&asked, &UP);
    has(&waiting, &["attached reached, sized not-reached (the action of attached)"]);
    assert_eq!(action(&waiting).id, action(&asked).id, "a walk asks for it once");

    let begun = after(&waiting, ActionEvent::Dispatched, 3);
    assert_eq!(action(&begun).status(), "create-init");
    let gone = set(&see(&begun, UP), "delete acme");
    assert_eq!(plan(&gone), "none", "backing out does not wait for it");
    let failed = ended(&begun, 0);
    assert_eq!(action(&failed).status(), "failed");
    has(&failed, &["sized not-reached (the action of attached)"]);
    has(
        &failed,
        &[
            "self self: init reached, ready failed (port eth1, attached: action: `result.received > 0` is false",
        ],
    );
    let still = settle(&failed, &UP);
    assert_eq!(action(&still).status(), "failed", "it is not repeated by itself");

    let again = redeployed(&still);
    assert_eq!(action(&again).status(), "create-init");
    assert_ne!(action(&again).id, action(&still).id);
    let update = ActionUpdate {
        state: key(),
        id: action(&still).id,
        event: ActionEvent::Failed("of the first call".into()),
    };
    let late = Surroundings { actions: vec![update], ..due(UP, 5) };
    let late = again.clone().with_surroundings(late).walked().unwrap();
    assert_eq!(action(&late).status(), "create-init", "news of an earlier call are too late");
    let done = ended(&again, 1);
    assert_eq!((action(&done).status(), made(&done)), ("create-reached", SIZED.to_owned()));
    assert_eq!(plan(&settle(&done, &UP)), ALL_READY);
}

// proves sv.B6, sv.B64
#[test]
fn an_action_that_is_not_sync_keeps_the_instance_alone_from_being_ready() {
    let asked = settle(&set(&create_action(false), ACME), &UP);
    assert_eq!(made(&asked), SIZED);
    has(&asked, &["ready not-reached (the action of attached of port eth1)"]);
    has(&asked, &["sized reached, ready reached"]);
    let done = after(&asked, ActionEvent::Failed("no route".into()), 3);
    has(&done, &["ready failed (port eth1, attached: action: no route)"]);
    assert_eq!(plan(&settle(&ended(&redeployed(&done), 5), &UP)), ALL_READY);
}

// proves sv.B23
#[test]
fn gates_see_the_status_of_actions() {
    let gate = "when = \"action('port', component.name, 'attached') == 'create-reached'\"";
    let line = format!("action = {}", PING.replace("SYNC", "sync = false"));
    let outline = PORT.replace("GATE", gate);
    let outline = outline.replace("name = \"attached\"", &format!("name = \"attached\"\n  {line}"));
    let asked = settle(&set(&see(&box_with(&outline, SIZE), UP), ACME), &UP);
    assert_eq!(made(&asked), ATTACHED);
    assert_eq!(made(&ended(&asked, 1)), SIZED);
}

// proves sv.B7, sv.B80
#[test]
fn a_zombie_waits_for_its_delete_actions() {
    let line = format!("delete = {{ action = {} }}", PING.replace("SYNC", "sync = true"));
    let ready = settle(&set(&acting(&line), ACME), &UP);
    assert_eq!(plan(&ready), ALL_READY);
    let zombie = set(&see(&ready, UP), "delete acme");
    assert_eq!(made(&zombie), "", "what the state made goes before its action");
    assert_eq!(
        (action(&zombie).phase, action(&zombie).status()),
        (ActionPhase::Delete, "delete-init")
    );
    has(&settle(&zombie, &UP), &["init reached (the action of attached), attached not-reached"]);
    let failed = ended(&zombie, 0);
    assert_eq!(action(&failed).status(), "failed");
    refused(&see(&failed, UP), ACME, &["zombie of access[name='acme']"]);
    let gone = ended(&redeployed(&failed), 1);
    assert_eq!(plan(&settle(&gone, &UP)), "none");
}

#[test]
fn an_action_whose_parameters_are_missing_refuses_the_request() {
    let line = format!("action = {}", PING.replace("params.bridge", "params.gateway"));
    let parts = ["failed in access 1.0.0: service.toml line", "params.gateway", "undefined"];
    refused(&acting(&line.replace("SYNC", "sync = true")), ACME, &parts);
}

#[test]
fn actions_are_stored() {
    let begun = after(&set(&create_action(true), ACME), ActionEvent::Dispatched, 3);
    for configuration in [ended(&begun, 0), ended(&begun, 1), begun] {
        let rows = layer_rows_diff(configuration.models(), &Layers::new(), configuration.layers());
        let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
        let (layers, unknown) = Layers::from_rows(configuration.models(), rows).unwrap();
        assert_eq!((&layers.book, unknown), (&configuration.layers().book, 0));
    }
}
