//! The switch of a type: what an instance comes to while it is off, and when it is on again.

use holdfast_config::services::{ActionEvent, ActionUpdate, InstanceStatus, Surroundings};
use holdfast_config::{ClaimKey, Configuration};

use super::plans::{
    ACME, ALL_READY, LINK_UP, PORT, SIZE, SIZED, UP, acme, box_with, due, has, plan, see, settle,
};
use super::types::{made, refused, set};

const OFF: &str = r#"update /service-settings/type[name=access] {"enabled":false}"#;
const ON: &str = "delete /service-settings/type[name=access]/enabled";
const WAITS: &str = "its type to be switched on";

fn gated(lines: &str) -> Configuration {
    see(&box_with(&PORT.replace("GATE", lines), SIZE), UP)
}

// proves sv.A38
#[test]
fn edits_are_stored_while_the_type_is_off_and_done_when_it_is_on() {
    let ready = settle(&set(&gated(""), ACME), &UP);
    assert_eq!(plan(&ready), ALL_READY);
    let off = set(&see(&ready, UP), OFF);
    assert_eq!(made(&off), SIZED, "what was made stays");
    has(&off, &[&format!("ready reached ({WAITS})")]);
    let status = |configuration: &Configuration| {
        let plan = configuration.layers().book.get(&acme()).cloned().unwrap();
        (plan.status(), plan.is_ready())
    };
    assert_eq!(status(&ready), (InstanceStatus::Ready, true));
    assert_eq!(status(&off), (InstanceStatus::NotReached, true), "gates of others go on");

    let edited = set(&see(&off, UP), r#"update acme {"port":"eth2"}"#);
    assert_eq!(made(&edited), SIZED);
    let walked = settle(&edited, &UP);
    assert_eq!(made(&walked), SIZED, "it is not walked when it is due either");
    refused(&see(&off, UP), r#"update acme {"port":"no such name of a port"}"#, &["port"]);

    let new = set(&see(&off, UP), r#"update bolt {"port":"eth3","bridge":"br0"}"#);
    assert_eq!(made(&new), SIZED, "nothing is made of a new one");

    let on = settle(&set(&see(&edited, UP), ON), &UP);
    assert_eq!(made(&on), SIZED.replace("eth1", "eth2"));
    assert_eq!(plan(&on), ALL_READY.replace("eth1", "eth2"));
    let on = set(&see(&new, UP), ON);
    assert!(made(&on).contains("interface eth3"), "{}", made(&on));
}

// proves sv.A38
#[test]
fn deletes_wait_until_the_type_is_on() {
    for lines in ["", &format!("delete = {{ {LINK_UP} }}")] {
        let off = set(&see(&settle(&set(&gated(lines), ACME), &UP), UP), OFF);
        let zombie = set(&see(&off, UP), "delete acme");
        assert_eq!(made(&zombie), SIZED);
        has(&zombie, &[WAITS]);
        assert_eq!(made(&settle(&zombie, &UP)), SIZED);
        let reason = format!("zombie of access[name='acme']: self self, ready waits for {WAITS}");
        refused(&see(&zombie, UP), ACME, &[&reason]);
        let gone = settle(&set(&see(&zombie, UP), ON), &UP);
        assert_eq!((made(&gone).as_str(), plan(&gone).as_str()), ("", "none"), "{lines}");
    }
    let off = set(&gated(""), OFF);
    let stored = set(&see(&off, UP), ACME);
    has(&stored, &[WAITS]);
    let gone = set(&see(&stored, UP), "delete acme");
    assert_eq!(plan(&gone), "none", "nothing was made of it");
}

#[test]
fn an_instance_that_is_not_deployed_waits_as_a_deleted_one_does() {
    let off = set(&see(&settle(&set(&gated(""), ACME), &UP), UP), OFF);
    let undeployed = set(&see(&off, UP), r#"update acme {"deploy":false}"#);
    assert_eq!(made(&undeployed), SIZED);
    has(&undeployed, &[WAITS]);
    let gone = settle(&set(&see(&undeployed, UP), ON), &UP);
    assert_eq!((made(&gone).as_str(), plan(&gone).as_str()), ("", "none"));
}

#[test]
fn the_result_of_an_action_is_noted_while_the_type_is_off() {
    let ping = r#"action = { builtin = "ping", sync = true, params = { destination = "'10.0.0.1'" }, result = "result.received > 0" }"#;
    let outline = PORT.replace("GATE", "");
    let outline = outline.replace("name = \"attached\"", &format!("name = \"attached\"\n  {ping}"));
    let queued = set(&see(&box_with(&outline, SIZE), UP), ACME);
    let before = made(&queued);
    let off = set(&see(&queued, UP), OFF);

    let component = ["port".into(), "eth1".into()];
    let state = ClaimKey { tag: acme(), component, state: "attached".into() };
    let action = |configuration: &Configuration| {
        let plan = configuration.layers().book.get(&acme()).cloned().unwrap();
        plan.component("port", "eth1").and_then(|it| it.state("attached")?.action.clone()).unwrap()
    };
    let event = ActionEvent::Ended(r#"{"sent":5,"received":5}"#.into());
    let update = ActionUpdate { state, id: action(&off).id, event };
    let surroundings = Surroundings { actions: vec![update], ..due(UP, 3) };
    let ended = off.clone().with_surroundings(surroundings).walked().unwrap();
    assert_eq!(action(&ended).status(), "create-reached");
    assert_eq!(made(&ended), before, "the next state is not entered");
    let on = settle(&set(&see(&ended, UP), ON), &UP);
    assert_eq!((made(&on).as_str(), plan(&on).as_str()), (SIZED, ALL_READY));
}

#[test]
fn services_do_not_put_out_the_switch() {
    let outline = PORT.replace("GATE", "").replace(
        r#"write = ["/interfaces/interface"]"#,
        r#"write = ["/interfaces/interface", "/service-settings/type"]"#,
    );
    let files = super::files([
        ("service.toml", outline.as_str()),
        ("access@2026-11-24.yang", super::types::YANG),
        ("templates/main.cli", super::types::TEMPLATE),
        ("templates/size.cli", SIZE),
    ]);
    let errors = crate::Package::read(super::models(), &files).unwrap_err();
    let messages = super::messages(errors).join("\n");
    assert!(messages.contains("/service-settings/type"), "{messages}");
}
