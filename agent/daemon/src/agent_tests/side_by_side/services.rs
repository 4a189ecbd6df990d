//! Instances of services beside other changes.

use holdfast_config::services::Services;
use holdfast_config::{Configuration, LayerKey, Layers};
use holdfast_services::ServiceTypes;

use super::*;
use crate::agent_tests::{package_files, types_of};

const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
work = "main.cli"
[grants]
write = ["/interfaces/interface", "/system/hostname"]
"#;

const MODULE: &str = r#"module access { yang-version 1.1; namespace "urn:access"; prefix a;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-25 { description "First."; }
  augment "/svc:services" { list access { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; } leaf host { type string; } } } }"#;

const MAIN: &str = "{% if params.port is defined %}interface {{ params.port }}
  mtu 1300
{% endif %}{% if params.host is defined %}system
  hostname {{ params.host }}
{% endif %}";

/// Types with `access`, whose instances set the MTU of a port, the host name, or both.
fn types() -> ServiceTypes {
    types_of(&package_files([
        ("service.toml", OUTLINE),
        ("access@2026-11-25.yang", MODULE),
        ("templates/main.cli", MAIN),
    ]))
}

/// A Set of an instance.
fn instance(name: &str, leaves: &str) -> Edit {
    native(&format!("/services/access[name={name}]"), &format!("{{{leaves}}}"))
}

fn delete_instance(name: &str) -> Edit {
    delete(Origin::Native, &format!("/services/access[name={name}]"))
}

#[tokio::test]
async fn an_instance_that_hangs_holds_up_neither_others_nor_plain_sets() {
    let ports = ["eth0", "eth1", "eth2"];
    let kernel = SimulatedKernel::new(&ports);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start_with(&kernel, folder.path(), types()).await;
    kernel.hang_at(kinds::HOSTNAME);
    let options = CommitOptions::default;
    let hung = begin(&agent.handle, instance("acme", r#""host":"acme""#), options());
    while kernel.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    let same = begin(&agent.handle, instance("acme", r#""port":"eth0""#), options());
    let shares = begin(&agent.handle, instance("bolt", r#""host":"acme""#), options());
    for edit in [
        instance("cord", r#""port":"eth1""#),
        lines("interface eth2\n  description text"),
        delete_instance("cord"),
        instance("cord", r#""port":"eth1""#),
    ] {
        agent.handle.commit(&caller(), edit, options()).await.unwrap();
    }
    let contents = kernel.contents();
    let is_set = |it: &String| it.contains("eth1") && it.contains("1300");
    assert!(contents.iter().any(is_set), "{contents:#?}");
    turns().await;
    let finished = [&hung, &same, &shares].map(JoinHandle::is_finished);
    assert_eq!(finished, [false; 3]);
    kernel.resume();
    for waiting in [hung, same, shares] {
        waiting.await.unwrap().unwrap();
    }
    let claims = agent.handle.configuration().layers().claims().clone();
    let holders: Vec<_> = claims.iter().map(|(key, _)| key.tag.key.to_string()).collect();
    assert_eq!(holders, ["acme", "bolt", "cord"]);
    agent.stop().await;
}

/// Sets of instances and of what they share with clients, and the changes of the other schedules.
fn change_with_instances(number: usize) -> Intent {
    let name = ["acme", "bolt"][number % 2];
    let port = ["eth0", "eth1"][number % 2];
    Intent::Edit(match number / 2 {
        0 => instance(name, &format!(r#""port":"{port}""#)),
        1 => instance(name, r#""port":"eth0""#),
        2 => instance(name, r#""host":"both""#),
        3 => instance(name, &format!(r#""host":"{name}","port":"{port}""#)),
        4 => instance(name, r#""deploy":false"#),
        5 => delete_instance(name),
        6 => lines(&format!("services access {name}\n  port {port}")),
        _ => return change(number - 14),
    })
}

fn schedule_with_instances() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..14usize).prop_map(Event::Begin),
        2 => (14..14 + CHANGES).prop_map(Event::Begin),
        1 => Just(Event::Hang),
        1 => Just(Event::Resume),
        2 => Just(Event::Turns),
    ];
    prop::collection::vec(event, 1..20)
}

/// Checks that two versions have the same layers and claims. Plans have times, and other walks go on with them.
fn check_layers(one: &Layers, other: &Layers) {
    for layer in LayerKey::ALL {
        assert_eq!(one.tree(layer), other.tree(layer), "{layer}");
    }
    assert_eq!(one.claims(), other.claims());
    let tags = |layers: &Layers| layers.book.iter().map(|(tag, _)| tag.clone()).collect::<Vec<_>>();
    assert_eq!(tags(one), tags(other));
}

/// Runs a schedule, and compares answers, layers and kernel with those of the accepted edits one after the other, in the
/// order of their revisions.
async fn run_with_instances(schedule: &[Event]) {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let types = types();
    let agent = Agent::start_with(&kernel, folder.path(), types.clone()).await;
    let begun = play(schedule, &agent, &kernel, change_with_instances).await;
    let start = Configuration::new(Arc::clone(types.models()), Layers::new());
    let services: Arc<dyn Services> = Arc::new(types.clone());
    let serial = serial_of(begun, start.with_services(Some(services)), change_with_instances).await;
    agent.handle.wait_until_idle().await.unwrap();
    check_layers(agent.handle.configuration().layers(), serial.layers());
    let contents = kernel.contents();
    agent.stop().await;
    let agent = Agent::start_with(&kernel, folder.path(), types).await;
    check_layers(agent.handle.configuration().layers(), serial.layers());
    assert_eq!(kernel.contents(), contents, "in sync");
    agent.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn instances_side_by_side_are_a_serial_order(schedule in schedule_with_instances()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run_with_instances(&schedule));
    }
}
