//! Walks that were examined on one configuration and committed one after the other: those with disjoint footprints can be
//! rebased in any order, with the result of one examination after the other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use holdfast_config::schema::Origin;
use holdfast_config::services::{Applied, Surroundings};
use holdfast_config::{
    Configuration, EditScope, Footprint, InstancePath, LayerKey, Layers, ServiceTag,
    changed_objects, layer_rows_diff,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::incremental::check_owners;
use super::plans::{FixedBox, UP, box_of, due, see};
use super::types::edit;
use super::*;
use crate::ServiceTypes;

/// A type whose second state waits for a leaf of the configuration, and its third one for another instance.
const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface"]
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "main.cli"
  [[component.state]]
  name = "sized"
  when = "config('/interfaces/interface[name={}]/description', params.port) == 'go'"
  work = "size.cli"
  [[component.state]]
  name = "last"
  when = "params.peer is undefined or service_ready(\"access[name='\" ~ params.peer ~ \"']\")"
[[tree]]
if = "params.port is defined"
create = { type = "port", name = "params.port" }
"#;

/// Instances that may ask about one another, and about what is gone.
pub(super) const YANG: &str = r#"module access { yang-version 1.1; namespace "urn:access"; prefix a;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-24 { description "First."; }
  augment "/svc:services" { list access { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; } leaf peer { type string; }
    leaf seen { type string; } leaf bridge { type hf:interface-name; } leaf gateway { type string; } } } }"#;

const MAIN: &str = "interface {{ params.port }}
  enabled true
{% if params.bridge is defined %}  master {{ params.bridge }}
interface {{ params.bridge }}
  type bridge
{% if params.gateway is defined %}  ipv4
    address {{ params.gateway | ip }}
      prefix-length {{ params.gateway | prefixlen }}
{% endif %}{% endif %}";

const SIZE: &str = "interface {{ component.name }}\n  mtu 1400\n";

static TYPES: LazyLock<Arc<ServiceTypes>> = LazyLock::new(|| {
    let templates = [("templates/main.cli", MAIN), ("templates/size.cli", SIZE)];
    Arc::new(access_types(OUTLINE, YANG, &templates))
});
/// A box without instances.
static EMPTY: LazyLock<Configuration> = LazyLock::new(|| box_of(Arc::clone(&TYPES)));

const NAMES: [&str; 4] = ["acme", "bolt", "cord", "dart"];
const PORTS: [&str; 4] = ["eth1", "eth2", "eth3", "eth4"];

/// A change of the configuration.
#[derive(Clone, Debug)]
enum Change {
    /// A Set that is about an instance.
    Instance(String),
    /// Another Set.
    Plain(String),
    /// One walk of instances. The objects of the first state are there, or wait.
    Walk { names: BTreeSet<&'static str>, are_there: bool },
}

fn change() -> impl Strategy<Value = Change> {
    let name = || prop::sample::select(NAMES.to_vec());
    let port = || prop::sample::select(PORTS.to_vec());
    let params = (
        prop::option::weighted(0.9, port()),
        prop::option::weighted(0.6, prop::sample::select(vec!["br0", "br0", "br1"])),
        prop::option::weighted(0.3, prop::sample::select(vec!["10.0.0.1/24", "10.0.0.2/24"])),
        prop::option::weighted(0.3, name()),
        prop::bool::weighted(0.9),
    );
    let params = params.prop_map(|(port, bridge, gateway, peer, deploy)| {
        let leaves = [("port", port), ("bridge", bridge), ("gateway", gateway), ("peer", peer)];
        let leaf = |(leaf, value): (&str, Option<&str>)| Some(format!(r#","{leaf}":"{}""#, value?));
        let leaves: String = leaves.into_iter().filter_map(leaf).collect();
        format!(r#"{{"deploy":{deploy}{leaves}}}"#)
    });
    let plain = prop_oneof![
        3 => (port(), prop::sample::select(vec!["go", "stop"])).prop_map(|(port, text)| {
            format!("update /interfaces/interface[name={port}]/description \"{text}\"")
        }),
        1 => port().prop_map(|port| format!("cli interface {port}|  description go")),
        1 => port().prop_map(|port| format!("cli interface {port}|  no description")),
        1 => port().prop_map(|port| format!("update oc:/interfaces/interface[name={port}]/config/description \"go\"")),
        1 => port().prop_map(|port| format!("delete /interfaces/interface[name={port}]")),
        1 => Just("update /interfaces/interface[name=br0]/description \"text\"".to_owned()),
        1 => Just("delete /interfaces/interface[name=br0]".to_owned()),
        1 => prop::bool::weighted(0.6).prop_map(|is_on| {
            format!(r#"update /service-settings/type[name=access] {{"enabled":{is_on}}}"#)
        }),
        1 => Just("update /system/hostname \"box\"".to_owned()),
    ];
    prop_oneof![
        4 => (name(), params).prop_map(|(name, params)| {
            Change::Instance(format!("delete {name}\nupdate {name} {params}"))
        }),
        1 => name().prop_map(|name| Change::Instance(format!("delete {name}"))),
        4 => plain.prop_map(Change::Plain),
        5 => (prop::collection::btree_set(name(), 1..4), any::<bool>()).prop_map(|(names, are_there)| Change::Walk { names, are_there }),
    ]
}

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

impl Change {
    fn kind(&self) -> &'static str {
        match self {
            Self::Instance(_) => "instance",
            Self::Plain(_) => "plain",
            Self::Walk { .. } => "walk",
        }
    }

    /// The configuration after it, with the footprint, unless it is refused.
    fn examine(&self, base: &Configuration) -> Option<(Configuration, Footprint)> {
        match self {
            Self::Instance(text) | Self::Plain(text) => {
                let base = see(base, UP);
                let (candidate, scope) = base.examined(&edit(text)).ok()?;
                let footprint = Footprint::of(&base, &candidate, &scope);
                Some((candidate, footprint))
            }
            Self::Walk { names, are_there } => {
                let waits = ("attached", Applied::Pending("link".into()));
                let state = FixedBox { unapplied: (!are_there).then_some(waits), ..UP };
                let names = names.iter().map(|name| tag(name)).collect();
                let surroundings = Surroundings { due: names, ..due(state, 2) };
                let base = base.clone().with_surroundings(surroundings);
                let candidate = base.walked().ok()?;
                let footprint = Footprint::of(&base, &candidate, &EditScope::default());
                Some((candidate, footprint))
            }
        }
    }
}

/// A change with its candidate on a common base.
type Examined = (Change, Configuration, Footprint);

fn check_equal(one: &Configuration, other: &Configuration, why: &str) {
    for layer in LayerKey::ALL {
        assert_eq!(one.layers().tree(layer), other.layers().tree(layer), "{layer}: {why}");
    }
    let [book, other_book] = [one, other].map(|it| &it.layers().book);
    assert_eq!(book, other_book, "{why}");
    assert_eq!(one.layers(), other.layers(), "{why}");
    assert_eq!(one.effective(), other.effective(), "{why}");
    assert_eq!(one.ground().effective(), other.ground().effective(), "{why}");
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert_eq!(one.config_view(origin), other.config_view(origin), "{origin}: {why}");
    }
    assert_eq!(one.entries(), other.entries(), "{why}");
}

/// Checks that the claims and their ledgers are those of a start, and that nothing is left of instances that go.
fn check_claims(it: &Configuration, why: &str) {
    check_owners(it);
    let rows = layer_rows_diff(it.models(), &Layers::new(), it.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, unknown) = Layers::from_rows(it.models(), rows).unwrap();
    assert_eq!((unknown, &layers), (0, it.layers()), "{why}");
    let scratch = Configuration::new(Arc::clone(TYPES.models()), layers);
    assert_eq!(it.effective(), scratch.effective(), "{why}");
    assert_eq!(it.ground().effective(), scratch.ground().effective(), "{why}");
    let deletes = NAMES.map(|name| format!("delete {name}\n")).concat();
    let deletes = format!("delete /service-settings\n{deletes}");
    let gone = see(it, UP).edit(&edit(&deletes)).unwrap();
    assert!(gone.layers().claims().is_empty(), "{why}");
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert!(gone.layers().tree(LayerKey::service(origin)).is_empty(), "{why}");
    }
}

/// The objects that differ, with whether they are there before and after: what a plan is made for.
fn object_changes(old: &Configuration, new: &Configuration) -> Vec<(InstancePath, [bool; 2])> {
    let changes = changed_objects(old, new).into_iter();
    changes.map(|it| (it.path, [it.old.is_some(), it.new.is_some()])).collect()
}

/// Commits changes one after the other, each rebased, and compares each step with an examination of its own.
fn check_rebased(base: &Configuration, changes: &[&Examined]) {
    let mut current = base.clone();
    for (change, candidate, _) in changes {
        let all: Vec<_> = changes.iter().map(|(change, ..)| change).collect();
        let why = format!("{change:?} of {all:#?}");
        let rebased = candidate.rebased(base, &current);
        let Some((serial, _)) = change.examine(&current) else { panic!("refused: {why}") };
        check_equal(&rebased, &serial, &why);
        check_claims(&rebased, &why);
        assert_eq!(
            object_changes(base, candidate),
            object_changes(&current, &rebased),
            "another plan: {why}"
        );
        current = rebased;
    }
}

fn some_box() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 0..12)
}

/// The configuration after these changes, as far as they are accepted.
fn box_after(changes: &[Change]) -> Configuration {
    changes.iter().fold(EMPTY.clone(), |configuration, change| {
        change.examine(&configuration).map_or(configuration, |(after, _)| after)
    })
}

const CASES: u32 = 400;

/// Changes with instances that keep clear of one another commute, and can be rebased.
#[test]
fn walks_with_disjoint_footprints_commute() {
    let tally = RefCell::new(BTreeMap::<[&str; 2], [u32; 2]>::new());
    let mut runner = TestRunner::new(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let changes = prop::collection::vec(change(), 2..7);
    runner
        .run(&(some_box(), changes), |(start, changes)| {
            let base = box_after(&start);
            let mut taken: Vec<Examined> = Vec::new();
            for change in changes {
                let Some((candidate, footprint)) = change.examine(&base) else { continue };
                for (other, _, others) in &taken {
                    let keeps = footprint.keeps_clear_of(others);
                    prop_assert_eq!(keeps, others.keeps_clear_of(&footprint), "symmetry");
                    let mut kinds = [change.kind(), other.kind()];
                    kinds.sort_unstable();
                    tally.borrow_mut().entry(kinds).or_default()[usize::from(keeps)] += 1;
                }
                if taken.iter().all(|(_, _, others)| footprint.keeps_clear_of(others)) {
                    taken.push((change, candidate, footprint));
                }
            }
            check_rebased(&base, &taken.iter().collect::<Vec<_>>());
            check_rebased(&base, &taken.iter().rev().collect::<Vec<_>>());
            Ok(())
        })
        .unwrap();
    let tally = tally.into_inner();
    for kinds in [
        ["instance", "instance"],
        ["instance", "plain"],
        ["instance", "walk"],
        ["plain", "walk"],
        ["walk", "walk"],
    ] {
        let [met, clear] = tally.get(&kinds).copied().unwrap_or_default();
        let least = CASES / 30;
        let least_met = CASES / 100;
        assert!(clear >= least && met >= least_met, "{kinds:?}: {clear} keep clear, {met} meet");
    }
}

/// Instances that share an entry or ask about one another, and others beside them.
#[test]
fn footprints_of_walks_meet_or_are_disjoint() {
    let plain = |text: &str| Change::Plain(text.to_owned());
    let instance =
        |name: &str, leaves: &str| Change::Instance(format!("update {name} {{{leaves}}}"));
    let delete = |name: &str| Change::Instance(format!("delete {name}"));
    let walk = |name: &'static str| Change::Walk { names: [name].into(), are_there: false };
    let base = box_after(&[
        plain("update /interfaces/interface[name=eth3]/description \"go\""),
        instance("acme", r#""port":"eth1","bridge":"br0""#),
        instance("bolt", r#""port":"eth2""#),
    ]);
    let check = |one: &Change, other: &Change, clear: bool| {
        let [first, second] = [one, other].map(|it| it.examine(&base).unwrap().1);
        assert_eq!(first.keeps_clear_of(&second), clear, "{one:?}, {other:?}");
        assert_eq!(second.keeps_clear_of(&first), clear, "{other:?}, {one:?}");
    };
    let cord = instance("cord", r#""port":"eth3""#);
    let dart = instance("dart", r#""port":"eth4""#);
    check(&cord, &dart, true);
    check(&cord, &instance("dart", r#""port":"eth3""#), false);
    check(&cord, &cord, false);
    check(&cord, &plain("update /system/hostname \"box\""), true);
    check(&cord, &plain("cli interface eth4|  description text"), true);
    // Values that `config` reads, in either model.
    check(&cord, &plain("update /interfaces/interface[name=eth3]/description \"stop\""), false);
    check(
        &dart,
        &plain("update oc:/interfaces/interface[name=eth4]/config/description \"go\""),
        false,
    );
    // The bridge stays as it is while one that makes it comes or goes, and with the last one it would go.
    let on_br0 = instance("dart", r#""port":"eth4","bridge":"br0""#);
    check(&delete("acme"), &on_br0, false);
    check(&delete("acme"), &dart, true);
    check(&delete("bolt"), &on_br0, true);
    check(
        &delete("acme"),
        &plain("update /interfaces/interface[name=br0]/description \"text\""),
        false,
    );
    // `service_ready`, which is asked once the port has its description.
    let peer = r#""port":"eth3","peer":"bolt""#;
    check(&instance("cord", peer), &delete("bolt"), false);
    check(&instance("cord", peer), &walk("bolt"), false);
    check(&instance("cord", peer), &walk("acme"), true);
    check(&walk("bolt"), &walk("acme"), true);
    check(&walk("bolt"), &delete("bolt"), false);
}
