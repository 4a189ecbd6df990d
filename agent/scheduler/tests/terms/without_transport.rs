//! Kinds without a transport: the engine completes their operations.

use std::sync::Arc;

use crate::common::{Lab, Thing, changes, error, key, registry};
use crate::{answer, begin};
use holdfast_scheduler::{
    Delta, Dependency, Descriptor, Effect, Engine, Key, KindId, Part, SharedValue,
    TransactionOutcome, TransportId,
};

const SILENT: KindId = KindId(78);

/// A kind that needs the value of its own name, and has a part in the system.
#[derive(Debug)]
struct Silent;

impl Descriptor for Silent {
    type Value = String;

    fn kind(&self) -> KindId {
        SILENT
    }

    fn name(&self) -> &'static str {
        "silent"
    }

    fn key(&self, value: &String) -> Key {
        Key::of(SILENT).str(value)
    }

    fn label(&self, value: &String) -> String {
        value.clone()
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId::NONE)
    }

    fn observable(&self) -> bool {
        false
    }

    fn dependencies(&self, value: &String) -> Vec<Dependency> {
        vec![Dependency::exact(value.clone(), key(value))]
    }

    fn parts(&self, value: &String) -> Vec<Part> {
        let part = Thing::parse(&format!("{value}-part"));
        vec![(part.key(), Arc::new(part) as SharedValue)]
    }
}

fn silent(name: &str) -> (Key, Option<SharedValue>) {
    (Silent.key(&name.to_owned()), Some(Arc::new(name.to_owned()) as SharedValue))
}

fn lab() -> Lab {
    let mut registry = registry();
    registry.register(Silent).unwrap();
    Lab { engine: Engine::new(registry), ..Lab::default() }
}

fn both() -> Delta {
    let mut changes = changes("a");
    changes.push(silent("a"));
    Delta::new(changes)
}

#[test]
fn operations_without_a_transport_complete_in_order() {
    let mut lab = lab();
    let (_, first) = begin(&mut lab, both());
    let handed: Vec<&Key> = first.iter().map(|op| &op.key).collect();
    assert!(handed.contains(&&key("a")) && !handed.contains(&&silent("a").0), "{handed:?}");
    assert_ne!(lab.engine.state(&silent("a").0).to_string(), "CONFIGURED");
    answer(&mut lab, &first);
    assert_eq!(lab.engine.state(&silent("a").0).to_string(), "CONFIGURED");
    assert_eq!(lab.system_text(), "a; a-part");
    lab.commit("-a").unwrap();
    assert_eq!(lab.engine.state(&silent("a").0).to_string(), "PENDING");
    assert_eq!(lab.system_text(), "");
}

#[test]
fn operations_without_a_transport_are_undone() {
    for refused in ["create a", "create a-part"] {
        let mut lab = lab();
        lab.failing.insert(refused.into(), error(22, "refused", false));
        let outcome = lab.commit_delta(both()).unwrap();
        assert!(
            matches!(outcome, TransactionOutcome::Failed { undone: true, .. }),
            "{refused}: {outcome:?}"
        );
        assert_eq!(lab.system_text(), "", "{refused}");
        assert_eq!(lab.engine.state(&silent("a").0).to_string(), "NONEXISTENT", "{refused}");
    }
}
