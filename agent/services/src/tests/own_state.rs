//! Gates on state of the instance itself, which handlers publish.

use std::collections::BTreeSet;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Applied, BoxState, Plane, Read, Services, Surroundings, TypeVersion,
};
use holdfast_config::tree::Leaf;
use holdfast_config::{ClaimKey, Configuration, PathPattern, ServiceTag, Tree, Value};

use super::plans::{acme, box_of, has};
use super::types::{made, set};
use super::*;
use crate::{TouchedReads, Watches};

/// The first example of another system: a state that waits until a handler says that its machine runs.
const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/services/access/vm-up-and-running"]
[handler]
user = "root"
[[component]]
type = "vrouter"
  [[component.state]]
  name = "vm-configured"
  when = "state('/services/access[name={}]/vm-up-and-running', KEY) == true"
  work = "main.cli"
[[tree]]
create = { type = "vrouter", name = "service.key" }
"#;

const YANG: &str = r#"module access { yang-version 1.1; namespace "urn:access"; prefix a;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-24 { description "First."; }
  augment "/svc:services" { list access { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    leaf vm-up-and-running { type boolean; config false; } } } }"#;

const MADE: &str = "interface eth1\n  mtu 1400\n";

/// State that handlers have published.
#[derive(Clone, Debug, Default)]
struct PublishedState(Tree<()>);

impl PublishedState {
    fn with(mut self, types: &ServiceTypes, instance: &str) -> Self {
        let path = format!("/services/access[name={instance}]/vm-up-and-running");
        let schema = &types.models().native;
        let path = schema.resolve_write(&path.parse().unwrap()).unwrap();
        self.0.set_leaf(schema, &path, Leaf::new(Value::Bool(true), ()));
        self
    }
}

impl BoxState for PublishedState {
    fn leaves(&self, _: Origin, pattern: &PathPattern) -> Vec<Value> {
        self.0.leaf_values(pattern)
    }

    fn applied(&self, _: &ClaimKey) -> Applied {
        Applied::Done
    }
}

fn types(key: &str) -> Arc<ServiceTypes> {
    let templates = [("templates/main.cli", "interface {{ params.port }}\n  mtu 1400\n")];
    Arc::new(access_types(&OUTLINE.replace("KEY", key), YANG, &templates))
}

fn due(state: &PublishedState) -> Surroundings {
    Surroundings {
        state: Some(Arc::new(state.clone())),
        now_ns: 2,
        is_lenient: true,
        due: BTreeSet::from([acme()]),
        ..Surroundings::default()
    }
}

/// The instance, walked with this state.
fn walked(types: &Arc<ServiceTypes>, state: &PublishedState) -> Configuration {
    let before = box_of(Arc::clone(types)).with_surroundings(due(state));
    set(&before, r#"update acme {"port":"eth1"}"#)
}

// proves sv.B17
#[test]
fn a_gate_on_a_leaf_of_the_instance_itself_opens_when_a_handler_publishes_it() {
    let types = types("service.key");
    let before = PublishedState::default().with(&types, "bolt");
    let waiting = walked(&types, &before);
    assert_eq!(made(&waiting), "", "the leaf of another instance opens nothing");
    has(&waiting, &["vm-configured not-reached (gate `state('/services/access"]);

    // The leaf wakes the instance.
    let mut watches = Watches::default();
    let reads = waiting.trial(&due(&before)).reads.remove(&acme()).unwrap();
    let ground = waiting.ground();
    let answer = |state: &PublishedState, read: &Read| match read {
        Read::Leaves(read) => read.values(&ground, Some(state)),
        Read::Service(_) => Vec::new(),
    };
    watches.replace(&acme(), reads, |read| answer(&before, read));
    let after = before.clone().with(&types, "acme");
    let woken = |watches: &mut Watches, old: &PublishedState, new: &PublishedState| {
        let mut touched = TouchedReads::default();
        watches.compare(Plane::State, Origin::Native, (&old.0, &new.0), &mut touched);
        let changes = watches.wake(&touched, |read| answer(new, read));
        changes.into_iter().flat_map(|it| it.woken.into_keys()).collect::<Vec<ServiceTag>>()
    };
    let other = before.clone().with(&types, "cord");
    assert_eq!(woken(&mut watches, &before, &other), []);
    assert_eq!(woken(&mut watches, &before, &after), [acme()]);

    let walked = waiting.with_surroundings(due(&after)).walked().unwrap();
    assert_eq!(made(&walked), MADE);
    let closed = walked.with_surroundings(due(&before)).walked().unwrap();
    assert_eq!(made(&closed), "", "the gate closes when the leaf is withdrawn");
}

#[test]
fn state_of_another_instance_of_the_type_is_not_read() {
    for key in ["'bolt'", "'*'"] {
        let types = types(key);
        let state = PublishedState::default().with(&types, "bolt").with(&types, "acme");
        has(&walked(&types, &state), &["vm-configured failed (access 1.0.0: service.toml line 13"]);
    }
    // A path of the grants with a wildcard is one of other instances, too.
    let all = types("service.key");
    let outline = OUTLINE.replace("[name={}]", "[name=*]").replace(", KEY", "");
    let text = [("templates/main.cli", "interface {{ params.port }}\n  mtu 1400\n")];
    let wild = Arc::new(access_types(&outline, YANG, &text));
    let state = PublishedState::default().with(&wild, "acme");
    has(&walked(&wild, &state), &["is of another instance: services do not see services"]);
    let path = "/services/access[name=acme]/vm-up-and-running";
    let refused = all.readable(TypeVersion::newest("access"), Plane::State, path).unwrap_err();
    assert!(refused.text.contains("handlers do not see services"), "{}", refused.text);
}

#[test]
fn a_package_is_granted_state_of_its_own_module_alone() {
    let refused = |grant: &str| {
        let outline = OUTLINE
            .replace("KEY", "service.key")
            .replace("/services/access/vm-up-and-running\"]", &format!("{grant}\"]"));
        let texts = [
            ("service.toml", outline.as_str()),
            ("access@2026-11-24.yang", YANG),
            ("templates/main.cli", "interface eth1\n"),
        ];
        let package = Package::read(models(), &files(texts));
        package.err().map(messages).unwrap_or_default()
    };
    assert_eq!(refused("/services/access/vm-up-and-running"), [""; 0]);
    for grant in
        ["/services/access", "/services/access/port", "/services/access/state", "/services"]
    {
        let errors = refused(grant);
        assert!(errors[0].contains("except state that handlers publish"), "{grant}: {errors:?}");
    }
}
