//! Walks without a box: the answers that they take, and those that they lack.

use holdfast_config::cli;
use holdfast_config::edit::SecretKeeperHandle;

use super::*;
use crate::offline::{
    Answers, ChangeKind, OfflineEnd, OfflineError, OfflineInstance, OfflinePackage, OfflineWalks,
};

/// A port that a handler finds, with an action that saves an address, and a gate of each sort.
const OUTLINE: &str = r#"[service]
name = "s"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface", "/services/s/facts"]
[handler]
user = "root"
[[component]]
type = "port"
  [[component.state]]
  name = "found"
  work = "handler"
  action = { handler = "allocate", params = { port = "params.port" }, sync = true, result = "result.ok", save = { ip = "result.ip" } }
  [[component.state]]
  name = "sized"
  when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'"
  work = "size.cli"
  [[component.state]]
  name = "seen"
  when = "config('/interfaces/interface[name={}]/description', params.port) == 'go' and state('/services/s[name={}]/facts/seen', service.key) == 'yes'"
  [[component.state]]
  name = "moved"
  when = "gone('/interfaces/interface[name={}]/state/mtu', params.port) and service_ready(\"s[name='core']\")"
[[component]]
type = "other"
  [[component.state]]
  name = "made"
  commit-after = true
  work = "other.cli"
[[tree]]
create = { type = "port", name = "params.port" }
[[tree]]
create = { type = "other", name = "'o'" }
"#;

const SIZE: &str =
    "interface {{ params.port }}\n  mtu {{ mtu }}\n  ipv4 address {{ ip }}\n    prefix-length 24\n";
const OTHER: &str = "interface eth9\n  enabled true\n";
const PARAMETERS: &[u8] = br#"{"name":"a","port":"eth1"}"#;

/// All that the type asks.
const ALL: &str = r#"{
  "state": { "/interfaces/interface[name=eth1]/state/oper-status": "UP", "/services/s[name=a]/facts/seen": "yes" },
  "gone": [ "/interfaces/interface[name=eth1]/state/mtu" ],
  "config": { "/interfaces/interface[name=eth1]/description": "go" },
  "services": { "s[name='core']": true },
  "actions": { "port eth1 found": { "ok": true, "ip": "10.0.0.1" } },
  "handlers": { "port eth1 found": { "mtu": 1400 } }
}"#;

fn instance(answers: &str, assumes_actions: bool) -> Result<OfflineInstance, OfflineError> {
    let texts = [
        ("service.toml", OUTLINE),
        ("s@2026-11-23.yang", MODULE),
        ("templates/size.cli", SIZE),
        ("templates/other.cli", OTHER),
    ];
    let files = files(texts);
    let models = Arc::new(Models::load().unwrap());
    let (package, _) = Package::read(&models, &files).unwrap();
    let parameters = package.parameters(PARAMETERS).unwrap();
    let keeper = SecretKeeperHandle::default();
    let of = OfflinePackage { models, package: &package, files: &files, keeper };
    let answers = Answers::read(answers.as_bytes()).map_err(OfflineError::Answers)?;
    OfflineInstance::new(of, &parameters, PARAMETERS, answers, assumes_actions)
}

fn walks(answers: &str, assumes_actions: bool) -> OfflineWalks {
    instance(answers, assumes_actions).unwrap().walk().unwrap()
}

/// States with work that the walks have reached, walk by walk.
fn reached(walks: &OfflineWalks) -> Vec<Vec<String>> {
    let of_walk = |changes: &Vec<crate::offline::StateChange>| {
        let reached = changes.iter().filter(|it| it.kind == ChangeKind::Reached);
        let named = reached.filter(|it| !["init", "ready"].contains(&it.state.as_str()));
        named.map(|it| format!("{} {}", it.component[0], it.state)).collect::<Vec<_>>()
    };
    walks.walks.iter().map(of_walk).filter(|it| !it.is_empty()).collect()
}

/// Names of the answers that are missing, by their sections.
fn missing(end: &OfflineEnd) -> Vec<String> {
    end.unanswered.iter().map(|it| format!("{} {}", it.section, it.name)).collect()
}

#[test]
fn with_all_answers_the_instance_comes_to_ready() {
    let walks = walks(ALL, false);
    assert!(walks.end.is_ready, "{:#?}", walks.end);
    assert!(walks.end.waits.is_empty() && walks.end.unanswered.is_empty(), "{:#?}", walks.end);
    let want = [vec!["port found", "other made"], vec!["port sized", "port seen", "port moved"]];
    assert_eq!(reached(&walks), want);
    let changes = walks.walks.iter().flatten();
    let sized = changes.into_iter().find(|it| it.state == "sized").unwrap();
    let text = cli::print(&models().native, &sized.claim.as_ref().unwrap().native);
    assert!(text.contains("mtu 1400") && text.contains("10.0.0.1"), "{text}");
    let found = walks.walks[0].iter().find(|it| it.state == "found").unwrap();
    assert_eq!(&*found.action.as_ref().unwrap().call.params, r#"{"port":"eth1"}"#);
}

#[test]
fn what_is_not_answered_is_named_and_others_go_on() {
    let without = |section: &str, other: &str| {
        let mut document: serde_json::Value = serde_json::from_str(ALL).unwrap();
        document[section] = serde_json::from_str(other).unwrap();
        walks(&document.to_string(), false).end
    };
    for (section, other, want) in [
        ("actions", "{}", "actions port eth1 found"),
        ("state", "{}", "state /interfaces/interface[name=eth1]/state/oper-status"),
        (
            "state",
            r#"{"/interfaces/interface[name=eth1]/state/oper-status":"UP"}"#,
            "state /services/s[name=a]/facts/seen",
        ),
        ("config", "{}", "config /interfaces/interface[name=eth1]/description"),
        ("gone", "[]", "state /interfaces/interface[name=eth1]/state/mtu"),
        ("services", "{}", "services s[name='core']"),
    ] {
        let end = without(section, other);
        assert!(!end.is_ready);
        assert_eq!(missing(&end), [want], "{end:#?}");
    }
    let end = without("state", "{}");
    assert_eq!(end.waits[0].state, "sized");
    assert!(end.waits[0].has_failed && end.waits[0].text.contains("line 17"), "{end:#?}");
    // An answer that nothing is there closes the gate, and asks for nothing.
    let none = r#"{"/interfaces/interface[name=*]/state/oper-status":null}"#;
    let end = without("state", none);
    assert!(missing(&end).is_empty() && !end.waits[0].has_failed, "{end:#?}");
    // The value that a handler gives is not known without an answer.
    let end = without("handlers", "{}");
    assert!(end.waits[0].text.contains("undefined value: mtu"), "{end:#?}");
    // A result that is not a success fails the action.
    let end = without("actions", r#"{"port eth1 found":{"ok":false}}"#);
    assert!(end.waits[0].text.contains("`result.ok` is false"), "{end:#?}");
}

#[test]
fn actions_can_be_assumed_to_be_done_and_save_nothing_then() {
    let walks = walks(&ALL.replace("\"port eth1 found\": { \"ok\"", "\"x\": { \"ok\""), true);
    assert!(missing(&walks.end).is_empty(), "{:#?}", walks.end);
    assert!(walks.end.waits[0].text.contains("undefined value: ip"), "{:#?}", walks.end);
}

#[test]
fn answers_that_mean_nothing_are_refused() {
    for (answers, want) in [
        ("{", "EOF"),
        (r#"{"stat":{}}"#, "unknown field `stat`"),
        (r#"{"state":{"/interfaces/interface[name=eth1]/state/colour":1}}"#, "the model has no"),
        (r#"{"state":{"/interfaces/interface[name=eth1]/mtu":1400}}"#, "it is configuration"),
        (r#"{"config":{"/interfaces/interface[name=eth1]/state/mtu":1400}}"#, "it is state"),
        (r#"{"state":{"/interfaces/interface[name=eth1]/state":{}}}"#, "the path is not a leaf"),
        (r#"{"state":{"/interfaces/interface[name=*]/state/mtu":1400}}"#, "a value for each key"),
        (r#"{"state":{"/interfaces/interface[name=eth1]/state/mtu":"x"}}"#, "state/mtu"),
    ] {
        let error = instance(answers, false).unwrap_err().to_string();
        assert!(error.contains(want), "{answers}: {error}");
    }
}
