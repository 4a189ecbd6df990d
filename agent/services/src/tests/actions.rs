//! Actions of states: when they are asked for, and what waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::services::{
    ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionTarget, ActionUpdate, Applied,
    Book, CallRef, ChangeAuthor, ChangeOrigin, Services, StatePlan, Surroundings, WalkCause,
};
use holdfast_config::{ClaimKey, Configuration, Layers, layer_rows_diff};

use super::plans::{
    ACME, ALL_READY, ATTACHED, FixedBox, PORT, SIZE, SIZED, UP, acme, box_of, box_with, due, has,
    plan, see, settle, types_with,
};
use super::types::{edit, made, refused, set};

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

/// Service plans as they are read from the rows of a configuration.
fn stored(configuration: &Configuration) -> Book {
    let rows = layer_rows_diff(configuration.models(), &Layers::new(), configuration.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, unknown) = Layers::from_rows(configuration.models(), rows).unwrap();
    assert_eq!(unknown, 0);
    layers.book
}

fn redeployed(before: &Configuration) -> Configuration {
    let surroundings = Surroundings { retries_actions: true, ..due(UP, 4) };
    before.clone().with_surroundings(surroundings).walked().unwrap()
}

// proves sv.B63, sv.B65, sv.B66, sv.B68, sv.B69, sv.B70, sv.B73
#[test]
fn a_sync_action_stops_its_component_until_it_succeeds() {
    let queued = set(&create_action(true), ACME);
    assert_eq!(made(&queued), ATTACHED);
    assert_eq!(action(&queued).call.params, Arc::from(r#"{"destination":"br0"}"#));
    assert_eq!(action(&queued).status(), "create-init");
    let waiting = settle(&queued, &UP);
    has(&waiting, &["attached reached, sized not-reached (the action of attached)"]);
    assert_eq!(action(&waiting).id, action(&queued).id, "a walk asks for it once");

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
    assert_eq!(action(&still).status(), "failed", "it is not repeated without a request");

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
    let queued = settle(&set(&create_action(false), ACME), &UP);
    assert_eq!(made(&queued), SIZED);
    has(&queued, &["ready not-reached (the action of attached of port eth1)"]);
    has(&queued, &["sized reached, ready reached"]);
    let done = after(&queued, ActionEvent::Failed("no route".into()), 3);
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
    let queued = settle(&set(&see(&box_with(&outline, SIZE), UP), ACME), &UP);
    assert_eq!(made(&queued), ATTACHED);
    assert_eq!(made(&ended(&queued, 1)), SIZED);
}

// proves sv.B7, sv.B80
#[test]
fn a_zombie_waits_for_its_delete_actions() {
    let line = format!("delete = {{ action = {} }}", PING.replace("SYNC", "sync = true"));
    let ready = settle(&set(&acting(&line), ACME), &UP);
    assert_eq!(plan(&ready), ALL_READY);
    let zombie = set(&see(&ready, UP), "delete acme");
    assert_eq!(made(&zombie), "", "the output of the state goes ahead of its action");
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
        assert_eq!(&stored(&configuration), &configuration.layers().book);
    }
}

// proves sv.B114
#[test]
fn an_action_keeps_the_change_and_the_walk_that_asked_for_it() {
    let author = ChangeAuthor { user: "service".into(), trace: "t".into() };
    let cause = WalkCause::object("link eth1", "CONFIGURED");
    let causes = BTreeMap::from([(acme(), cause.clone())]);
    let origin = ChangeOrigin { kind: "walk".into(), author, causes, is_requested: false };
    let queued = acting_when_walked(origin);
    let asked = action(&queued).cause.unwrap();
    assert_eq!(asked.to_string(), "walk by service (t): link eth1 is CONFIGURED");
    let begun = after(&queued, ActionEvent::Dispatched, 3);
    assert_eq!(action(&begun).cause, Some(Arc::clone(&asked)), "news does not change it");
    assert_eq!(&stored(&begun), &begun.layers().book);
}

/// A box whose action is asked for in a walk of this origin.
fn acting_when_walked(origin: ChangeOrigin) -> Configuration {
    let surroundings = Surroundings { origin, ..due(UP, 2) };
    set(&create_action(true).with_surroundings(surroundings), ACME)
}

/// A box whose state `attached` saves what its probe received, and whose state `sized` puts it out. The tree has a variable of
/// the same name, which is second.
fn saving() -> Configuration {
    let ping = PING.replace("SYNC", "sync = true, save = { share = \"result.received\" }");
    let outline =
        PORT.replace("GATE", "").replace("create =", "vars = { share = \"9\" }\ncreate =");
    let line = format!("name = \"attached\"\n  action = {ping}");
    let outline = outline.replace("name = \"attached\"", &line);
    let size = "interface {{ component.name }}\n  mtu {{ 1000 + share * 100 }}\n";
    see(&box_with(&outline, size), UP)
}

fn saved(configuration: &Configuration) -> String {
    format!("{:?}", configuration.layers().book.get(&acme()).unwrap().saved)
}

// proves sv.B46, sv.B48
#[test]
fn values_that_an_action_saves_are_names_in_later_states() {
    let done = ended(&set(&saving(), ACME), 4);
    assert_eq!((made(&done), saved(&done)), (SIZED.to_owned(), r#"{"share": "4"}"#.to_owned()));
    assert_eq!(&stored(&done), &done.layers().book);
    let still = redeployed(&done);
    assert_eq!((made(&still), saved(&still)), (SIZED.to_owned(), saved(&done)));

    let missing = after(&set(&saving(), ACME), ActionEvent::Ended("{}".into()), 3);
    assert!(action(&missing).failure().is_some(), "{:?}", action(&missing));
    let large = format!(r#"{{"received": {:?}}}"#, "9".repeat(70_000));
    let size = PING.replace("result.received > 0", "true");
    let outline = PORT.replace("GATE", "");
    let save = size.replace("SYNC", "sync = true, save = { share = \"result.received\" }");
    let line = format!("name = \"attached\"\n  action = {save}");
    let queued = see(&box_with(&outline.replace("name = \"attached\"", &line), SIZE), UP);
    let refused = after(&set(&queued, ACME), ActionEvent::Ended(large.into()), 3);
    let reason = action(&refused).failure().cloned().unwrap();
    assert!(reason.contains("more than 65536 bytes in the saved values"), "{reason}");
    assert_eq!(saved(&refused), "{}");
}

/// A box with two components: `port`, whose first state saves the role that a probe has found and whose tree node has the
/// variable `side`, and `note`, whose node has none. Each has a gate.
fn with_roles([of_port, of_note]: [&str; 2], side: &str) -> Configuration {
    let ping = PING.replace("SYNC", "save = { role = \"result.role\" }");
    let outline = PORT
        .replace("GATE", &format!("when = \"{of_port}\""))
        .replace("name = \"attached\"", &format!("name = \"attached\"\n  action = {ping}"))
        .replace("create =", &format!("vars = {{ side = \"{side}\" }}\ncreate ="));
    let note = format!(
        "[[component]]\ntype = \"note\"\n[[component.state]]\nname = \"noted\"\nwhen = \"{of_note}\"\n"
    );
    let outline = outline.replace("[[tree]]", &format!("{note}[[tree]]"))
        + "[[tree]]\ncreate = { type = \"note\", name = \"'n'\" }\n";
    see(&box_with(&outline, SIZE), UP)
}

// proves sv.B49
#[test]
fn saved_values_are_those_of_the_instance_and_variables_those_of_the_tree() {
    const CORE: &str = "role is defined and role == 'core'";
    let gates = [&format!("{CORE} and side == 'left'"), &format!("{CORE} and side is undefined")];
    let queued = set(&with_roles(gates.map(String::as_str), "'left'"), ACME);
    has(&settle(&queued, &UP), &["sized not-reached (gate", "noted not-reached (gate"]);
    let result = ActionEvent::Ended(r#"{"received": 1, "role": "core"}"#.into());
    let done = settle(&after(&queued, result, 3), &UP);
    assert_eq!(saved(&done), r#"{"role": "\"core\""}"#);
    has(&done, &["sized reached", "noted reached", "self self: init reached, ready reached"]);

    let bolt = r#"update bolt {"port":"eth2","bridge":"br0"}"#;
    let both = set(&see(&done, UP), bolt);
    let tag = "access[name='bolt']".parse().unwrap();
    assert!(both.layers().book.get(&tag).unwrap().saved.is_empty(), "each instance has its own");
    let again = set(&see(&set(&see(&done, UP), "delete acme"), UP), ACME);
    assert_eq!(saved(&again), "{}", "they go with the instance");

    // A text is quoted, beside values of either kind and as a value.
    for (gates, side) in [
        (["side == left", "true"], "'left'"),
        (["role is undefined or role == core", "role is defined and role == core"], "'left'"),
        (["true", "true"], "left"),
    ] {
        let before = with_roles(gates, side);
        match before.edit(&edit(ACME)) {
            Err(errors) => assert!(errors.to_string().contains("undefined value"), "{errors}"),
            Ok(queued) => {
                let result = ActionEvent::Ended(r#"{"received": 1, "role": "core"}"#.into());
                let failed = settle(&after(&queued, result, 3), &UP);
                has(&failed, &["noted failed (access 1.0.0: service.toml", "undefined value"]);
            }
        }
    }
}

// proves sv.B67, sv.B69, sv.B70
#[test]
fn operators_decide_on_calls_that_do_not_go_on() {
    let queued = set(&create_action(true), ACME);
    let event = |before: &Configuration, event| after(before, event, 3);
    let cancelled = event(&queued, ActionEvent::Cancelled("cancelled by ops".into()));
    assert_eq!(action(&cancelled).status(), "failed");
    let still = event(&cancelled, ActionEvent::Dispatched);
    assert_eq!(action(&still), action(&cancelled), "it does not begin any more");
    let again = event(&cancelled, ActionEvent::Rescheduled);
    assert_ne!(action(&again).id, action(&cancelled).id);
    assert_eq!((action(&again).progress.name(), action(&again).attempts), ("queued", 0));

    let begun = event(&again, ActionEvent::Dispatched);
    assert_eq!((action(&begun).progress.name(), action(&begun).attempts), ("dispatched", 1));
    for late in [ActionEvent::Cancelled("late".into()), ActionEvent::Rescheduled] {
        assert_eq!(action(&event(&begun, late)), action(&begun), "it may have been done");
    }
    let lost = event(&begun, ActionEvent::Lost("the agent ended".into()));
    assert_eq!((action(&lost).progress.name(), action(&lost).status()), ("in-doubt", "failed"));
    assert_eq!(action(&settle(&lost, &UP)), action(&lost), "nothing repeats it");
    assert_eq!(action(&redeployed(&lost)), action(&lost), "nor does a redeployment");
    assert_eq!(made(&lost), ATTACHED);
    assert_eq!(made(&event(&lost, ActionEvent::Resolved(Ok(())))), SIZED);
    let failed = event(&lost, ActionEvent::Resolved(Err("failed, as ops says".into())));
    assert_eq!(action(&failed).progress, ActionProgress::Failed("failed, as ops says".into()));
    let again = event(&failed, ActionEvent::Rescheduled);
    assert_eq!(action(&event(&again, ActionEvent::Dispatched)).attempts, 2);
}

// proves sv.B101
#[test]
fn an_object_that_is_refused_cancels_the_calls_that_were_not_dispatched() {
    let queued = set(&create_action(true), ACME);
    let refusing = |applied| FixedBox { status: "UP", unapplied: Some(("attached", applied)) };
    let pending = settle(&queued, &refusing(Applied::Pending("link eth1".into())));
    assert_eq!(action(&pending).progress, ActionProgress::Queued);
    let refused = refusing(Applied::Failed("port eth1: EINVAL".into()));
    let cancelled = settle(&queued, &refused);
    assert_eq!(action(&cancelled).progress, ActionProgress::Cancelled("port eth1: EINVAL".into()));
    let begun = after(&queued, ActionEvent::Dispatched, 3);
    assert_eq!(action(&settle(&begun, &refused)).progress, ActionProgress::Dispatched);
    let again = redeployed(&settle(&cancelled, &UP));
    assert_eq!(action(&again).progress, ActionProgress::Queued);
}

#[test]
fn an_action_of_a_handler_is_asked_for_with_its_name_and_is_stored() {
    let line =
        r#"action = { handler = "prepare", params = { port = "params.port" }, sync = true }"#;
    let outline = PORT
        .replace("GATE", "")
        .replace("[[component]]", "[handler]\nuser = \"root\"\n[[component]]");
    let outline = outline.replace("name = \"attached\"", &format!("name = \"attached\"\n  {line}"));
    let types = types_with(&outline, SIZE);
    let handler = types.handler("access").unwrap();
    assert_eq!(handler.actions, BTreeSet::from(["prepare".into()]));
    let queued = set(&see(&box_of(types), UP), ACME);
    assert_eq!(made(&queued), ATTACHED, "the next state waits for it");
    let call = action(&queued).call;
    assert_eq!(call.target, ActionTarget::Handler("prepare".into()));
    assert_eq!(call.params, Arc::from(r#"{"port":"eth1"}"#));
    assert_eq!(&stored(&queued), &queued.layers().book);
}

#[test]
fn calls_of_one_change_have_identifiers_of_their_own() {
    let line = format!("action = {}", PING.replace("SYNC", "sync = false"));
    let both = see(&acting(&line), UP);
    let both = set(&both, ACME);
    let both = set(&see(&both, UP), r#"update bolt {"port":"eth2","bridge":"br0"}"#);
    let ids = |before: &Configuration| {
        let plans = before.layers().book.iter();
        plans
            .flat_map(|(_, plan)| plan.calls().map(|it| it.action.id).collect::<Vec<_>>())
            .collect::<BTreeSet<_>>()
    };
    let tags = both.layers().book.iter().map(|(tag, _)| tag.clone()).collect();
    let failed: Vec<_> = both
        .layers()
        .book
        .iter()
        .flat_map(|(tag, plan)| {
            let failed = |it: CallRef<'_>| ActionUpdate {
                state: it.key(tag),
                id: it.action.id,
                event: ActionEvent::Failed("no".into()),
            };
            plan.calls().map(failed).collect::<Vec<_>>()
        })
        .collect();
    let surroundings = Surroundings { actions: failed, due: tags, ..due(UP, 3) };
    let failed = both.clone().with_surroundings(surroundings.clone()).walked().unwrap();
    let retries =
        Surroundings { actions: Vec::new(), retries_actions: true, now_ns: 9, ..surroundings };
    let again = failed.with_surroundings(retries).walked().unwrap();
    assert_eq!(ids(&again), BTreeSet::from([9, 10]));
}

/// A box whose tree can be evaluated while a link is up, and whose state `attached` has an action of a handler that saves
/// something of its result.
fn acting_while_up() -> Configuration {
    let action = r#"{ handler = "make", result = "result.ok", save = { label = "result.name ~ params.bridge" } }"#;
    let tree = "if = \"state('/interfaces/interface[name={}]/state/oper-status', 'eth9') == 'UP' or nothing\"\n";
    let outline = PORT.replace("GATE", "").replace("if = \"params.port is defined\"\n", tree);
    let outline = outline
        .replace("name = \"attached\"", &format!("name = \"attached\"\n  action = {action}"))
        .replace("[[component]]", "[handler]\nuser = \"root\"\n[[component]]");
    see(&box_with(&outline, SIZE), UP)
}

/// The configuration after news of the action on a box in this state.
fn after_in(before: &Configuration, event: ActionEvent, state: FixedBox) -> Configuration {
    let update = ActionUpdate { state: key(), id: action(before).id, event };
    let surroundings = Surroundings { actions: vec![update], ..due(state, 3) };
    before.clone().with_surroundings(surroundings).walked().unwrap()
}

/// News of an action, with the status of its state and the part of its result that is saved.
fn news() -> [(ActionEvent, &'static str, Option<&'static str>); 6] {
    let ended = |result: &str| ActionEvent::Ended(result.into());
    [
        (ended(r#"{"ok":true,"name":"vm-"}"#), "create-reached", Some("vm-")),
        (ended(r#"{"ok":false,"name":"vm-"}"#), "failed", None),
        // An action that cannot be evaluated fails.
        (ended("{}"), "failed", None),
        (ended(r#"{"ok":true}"#), "failed", None),
        (ActionEvent::Failed("no power".into()), "failed", None),
        (ActionEvent::Lost("nobody can tell".into()), "failed", None),
    ]
}

/// Checks that news of an action stands in a walk that fails for this reason, and that the instance goes on afterwards.
fn check_news(
    begun: &Configuration,
    state: &FixedBox,
    reason: &str,
    bridge: &str,
    mend: impl Fn(&Configuration) -> Configuration,
) {
    for (event, status, saved) in news() {
        let noted = after_in(begun, event.clone(), state.clone());
        let plan = noted.layers().book.get(&acme()).cloned().unwrap();
        assert!(plan.failure.as_ref().unwrap().contains(reason), "{:?}", plan.failure);
        assert_eq!(action(&noted).status(), status, "{event:?}: {:?}", action(&noted));
        let saved = saved.map(|name| format!("\"{name}{bridge}\""));
        assert_eq!(plan.saved.get("label").map(ToString::to_string), saved, "{event:?}");
        assert_eq!(made(&noted), made(begun), "all else stays");
        // Late news changes nothing, and neither do walks.
        let late = after_in(&noted, ActionEvent::Failed("late".into()), state.clone());
        assert_eq!(action(&late), action(&noted));
        let mended = settle(&mend(&late), &UP);
        assert_eq!(action(&mended), action(&noted), "it is not asked for again");
        let plan = mended.layers().book.get(&acme()).cloned().unwrap();
        assert_eq!((&plan.failure, plan.is_ready()), (&None, status == "create-reached"));
    }
}

// proves sv.B67, sv.B70
#[test]
fn news_of_an_action_stands_in_a_walk_whose_tree_cannot_be_evaluated() {
    let down = FixedBox { status: "DOWN", unapplied: None };
    let queued = settle(&set(&acting_while_up(), ACME), &UP);
    // It begins in such a walk, too.
    let begun = after_in(&queued, ActionEvent::Dispatched, down.clone());
    assert_eq!(action(&begun).progress, ActionProgress::Dispatched);
    check_news(&begun, &down, "nothing", "br0", Clone::clone);
}

// proves sv.B67, sv.B70
#[test]
fn news_of_an_action_stands_where_the_parameters_do_not_fit() {
    let queued = settle(&set(&acting_while_up(), ACME), &UP);
    let begun = after_in(&queued, ActionEvent::Dispatched, UP);
    let changed = |operations: &str| {
        // A change that nothing may refuse, such as one of the boot configuration.
        let lenient = Surroundings { is_lenient: true, ..due(UP, 3) };
        set(&begun.clone().with_surroundings(lenient), operations)
    };
    let mend = |unfit: &Configuration| set(&see(unfit, UP), ACME);
    let unfit = changed(r#"update acme {"bridge":"lo"}"#);
    check_news(&unfit, &UP, "Must condition", "lo", mend);
}
