//! Trees of live instances: what their nodes observe, the names that they give to work, and work on a ground without the
//! services' own output.

use std::collections::BTreeSet;

use holdfast_config::Configuration;
use holdfast_config::schema::Origin;
use holdfast_config::services::{Answers, CallPhase, ServedCall, Surroundings};

use super::plans::{
    ACME, ATTACHED, PORT, SIZE, SIZED, UP, acme, box_with, due, has, plan, see, settle,
};
use super::types::{edit, made, refused, set};
use super::*;

/// The outline of a port whose tree is this.
fn with_tree(tree: &str, size: &str) -> Configuration {
    let (head, _) = PORT.split_once("[[tree]]").unwrap();
    see(&box_with(&format!("{}{tree}", head.replace("GATE", "")), size), UP)
}

const OBSERVING: &str = r#"[[tree]]
observe = ["state('/interfaces/interface[name={}]/state/oper-status', params.port)"]
create = { type = "port", name = "params.port" }
"#;

// proves sv.B35
#[test]
fn an_observed_value_is_read_and_gates_nothing() {
    let without =
        with_tree("[[tree]]\ncreate = { type = \"port\", name = \"params.port\" }\n", SIZE);
    let ready = settle(&set(&without, ACME), &UP);
    assert!(ready.trial(&due(UP, 2)).reads.get(&acme()).is_none_or(|reads| reads.is_empty()));

    let observing = with_tree(OBSERVING, SIZE);
    let down = super::plans::FixedBox { status: "DOWN", unapplied: None };
    let ready = settle(&set(&see(&observing, down.clone()), ACME), &down);
    assert_eq!(made(&ready), SIZED, "the link is down, and nothing waits for it");
    let reads = ready.trial(&due(down, 2)).reads.remove(&acme()).unwrap_or_default();
    let text = format!("{reads:?}");
    assert!(text.contains("plane: State") && text.contains("eth1"), "{text}");
}

const BRANCHES: &str = r#"[[tree]]
vars = { size = "1400" }
[[tree.node]]
if = "params.gateway is defined"
vars = { size = "1300" }
create = { type = "port", name = "params.port" }
[[tree.node]]
if = "params.gateway is not defined"
create = { type = "port", name = "params.port" }
[[tree]]
create = { type = "port", name = "'eth7'" }
"#;

// proves sv.B30, sv.B36
#[test]
fn variables_reach_the_work_of_their_subtree_alone() {
    let size = "interface {{ component.name }}\n  mtu {{ size }}\n";
    refused(&with_tree(BRANCHES, size), ACME, &["templates/size.cli line 2: undefined value"]);
    let (branches, _) = BRANCHES.rsplit_once("[[tree]]").unwrap();
    let outer = set(&with_tree(branches, size), ACME);
    assert_eq!(made(&outer), SIZED, "the node without a gateway has the size of the node above it");
    let inner = set(&see(&outer, UP), r#"update acme {"gateway":"192.0.2.1/24"}"#);
    assert!(made(&inner).contains("mtu 1300"), "its own size comes first: {}", made(&inner));
}

// proves sv.B36, sv.B40
#[test]
fn calls_of_handlers_have_the_variables_of_their_component() {
    let tree = "[[tree]]\nvars = { low = \"params.port ~ '-low'\" }\ncreate = { type = \"port\", name = \"params.port\" }\n";
    let (head, _) = PORT.split_once("[[tree]]").unwrap();
    let head = head.replace("work = \"main.cli\"", "work = \"handler\"").replace("GATE", "");
    let outline = format!(
        "{}{tree}",
        head.replace("[[component]]", "[handler]\nuser = \"root\"\n[[component]]")
    );
    let call = |phase| ServedCall { service: "access".into(), component: None, state: None, phase };
    let served = BTreeSet::from([CallPhase::Create, CallPhase::Delete].map(call));
    let answers = Answers::default().with_served(served);
    let surroundings = Surroundings {
        state: Some(Arc::new(UP)),
        answers,
        may_ask: true,
        ..Surroundings::default()
    };
    let before = box_with(&outline, SIZE).with_surroundings(surroundings);
    let errors = before.edit(&edit(ACME)).unwrap_err();
    let calls = &errors.needed_calls().unwrap().calls;
    assert_eq!(&*calls[0].vars, r#"{"low":"eth1-low"}"#);
    assert_eq!(before.edit(&edit(ACME)).unwrap_err().needed_calls().unwrap().calls, *calls);
    assert_eq!(made(&before), "", "to ask leaves the configuration as it was");
}

// proves sv.B46
#[test]
fn work_names_its_service_component_and_state() {
    let size = "interface {{ component.name }}\n  description {{ service.type ~ ' ' ~ service.key ~ ' ' ~ component.type }}\n";
    let named = set(
        &with_tree("[[tree]]\ncreate = { type = \"port\", name = \"params.port\" }\n", size),
        ACME,
    );
    assert!(made(&named).contains("description \"access acme port\""), "{}", made(&named));
}

// proves sv.B39
#[test]
fn work_reads_the_ground_as_if_the_service_were_new() {
    let head = PORT.replace(
        "\"/interfaces/interface/state/oper-status\"",
        "\"/interfaces/interface/state/oper-status\", \"/interfaces/interface\"",
    );
    let gate = "when = \"config('/interfaces/interface[name={}]/mtu', params.port) is none\"";
    let none = see(&box_with(&head.replace("GATE", gate), SIZE), UP);
    let ready = settle(&set(&none, ACME), &UP);
    assert_eq!(made(&ready), SIZED);
    assert!(ready.trial(&due(UP, 9)).is_empty(), "its own mtu closes no gate");
    let client = set(&see(&ready, UP), "update /interfaces/interface[name=eth1]/mtu 1400");
    let closed = settle(&client, &UP);
    assert_eq!(made(&closed), ATTACHED, "what a client asks for does");
    has(&closed, &["sized not-reached (gate `config("]);
    let again = set(&see(&closed, UP), "delete /interfaces/interface[name=eth1]/mtu");
    let again = settle(&again, &UP);
    assert_eq!(
        (made(&again), plan(&again)),
        (SIZED.to_owned(), super::plans::ALL_READY.to_owned())
    );
}

// proves sv.A29, sv.A31
#[test]
fn an_object_that_two_states_make_has_its_instance_as_owner_once() {
    let tree = "[[tree]]\ncreate = { type = \"port\", name = \"params.port\" }\n";
    let both = set(&with_tree(tree, SIZE), ACME);
    let models = both.models();
    let path = "/interfaces/interface[name=eth1]".parse().unwrap();
    let object = models.native.resolve_write(&path).unwrap();
    let claims = both.layers().claims();
    assert_eq!(claims.owners(models, &object), BTreeSet::from([acme().to_string().into()]));
    let holders = claims.holders(Origin::Native, &object);
    let states: Vec<_> = holders.iter().map(|key| key.state.as_str()).collect();
    assert_eq!(states, ["attached", "sized"]);
}

// proves sv.A27
#[test]
fn a_change_and_its_refusal_name_the_instances_that_were_walked() {
    let tree = "[[tree]]\ncreate = { type = \"port\", name = \"params.port\" }\n";
    let failing = with_tree(tree, "interface {{ component.name }}\n  mtu {{ none }}\n");
    let named = BTreeSet::from([acme()]);
    assert_eq!(refused(&failing, ACME, &["templates/size.cli"]).walked, named);
    let port = "update /interfaces/interface[name=eth1]";
    assert!(refused(&failing, &format!("{port}/mtu 1"), &["mtu"]).walked.is_empty());

    let before = with_tree(tree, SIZE);
    let made = set(&before, ACME);
    assert_eq!(made.touched_instances(&before), named);
    let conflict = refused(&made, &format!("{port}/mtu 1300"), &["1400"]);
    assert!(conflict.walked.is_empty(), "its instance reads nothing of it");
    let contradiction = format!("{port}/mtu 1300\n{ACME}");
    assert_eq!(refused(&before, &contradiction, &["1400"]).walked, named);
    let other = set(&made, "update /interfaces/interface[name=eth7]/mtu 1300");
    assert!(other.touched_instances(&made).is_empty());
    assert_eq!(set(&other, "delete acme").touched_instances(&other), named);
}
