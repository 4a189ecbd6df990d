//! Instances of plain types in a configuration: what they make, share, and are refused for.

use holdfast_config::schema::Origin;
use holdfast_config::services::Services;
use holdfast_config::{
    BootConfiguration, Configuration, Edit, EditCause, EditErrors, EditTarget, Layers, Payload,
    cli, layer_rows_diff, show,
};

use super::*;
use crate::ServiceTypes;

const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
work = "main.cli"
[grants]
write = ["/interfaces/interface"]
"#;

pub(super) const YANG: &str = r#"module access { yang-version 1.1; namespace "urn:access"; prefix a;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-24 { description "First."; }
  augment "/svc:services" { list access { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; }
    leaf bridge { type hf:interface-name; mandatory true; must ". != 'lo'"; }
    leaf gateway { type string; } } } }"#;

pub(super) const TEMPLATE: &str = "interface {{ params.bridge }}
  type bridge
{% if params.gateway is defined %}  ipv4
    address {{ params.gateway | ip }}
      prefix-length {{ params.gateway | prefixlen }}
{% endif %}{% if params.port is defined %}interface {{ params.port }}
  master {{ params.bridge }}
{% endif %}";

const ACME: &str = r#"{"port":"eth1","bridge":"br0","gateway":"10.0.0.1/24"}"#;
const BOLT: &str = r#"{"port":"eth2","bridge":"br0","gateway":"10.0.0.1/24"}"#;
const BR0: &str =
    "interface br0\n  type bridge\n  ipv4\n    address 10.0.0.1\n      prefix-length 24\n";

/// Types of one package with this template.
fn types(template: &str) -> ServiceTypes {
    access_types(OUTLINE, YANG, &[("templates/main.cli", template)])
}

fn fresh(template: &str) -> Configuration {
    let types = types(template);
    Configuration::new(Arc::clone(types.models()), Layers::new())
        .with_services(Some(Arc::new(types)))
}

/// A Set of operations, one for each line: `update PATH JSON`, `delete PATH`, `cli LINE|LINE`. A path that begins
/// with `oc:` is OpenConfig, a bare word the name of an instance.
pub(super) fn edit(operations: &str) -> Edit {
    let mut edit = Edit::default();
    for operation in operations.lines().map(str::trim).filter(|it| !it.is_empty()) {
        let (kind, rest) = operation.split_once(' ').unwrap();
        if kind == "cli" {
            let text = rest.replace('|', "\n");
            edit.updates.push((target("/"), Payload::Cli { text }));
            continue;
        }
        let (path, json) = rest.split_once(' ').unwrap_or((rest, ""));
        match kind {
            "delete" => edit.deletes.push(target(path)),
            _ => {
                let text = json.as_bytes().to_vec().into();
                edit.updates.push((target(path), Payload::Json { text, ietf: false }));
            }
        }
    }
    edit
}

fn target(path: &str) -> EditTarget {
    let (origin, path) = match path.strip_prefix("oc:") {
        Some(path) => (Origin::OpenConfig, path.to_owned()),
        None if path.starts_with('/') => (Origin::Native, path.to_owned()),
        None => (Origin::Native, format!("/services/access[name={path}]")),
    };
    EditTarget { origin, path: path.parse().unwrap() }
}

#[track_caller]
pub(super) fn set(before: &Configuration, operations: &str) -> Configuration {
    before.edit(&edit(operations)).unwrap_or_else(|errors| panic!("{operations}: {errors}"))
}

#[track_caller]
pub(super) fn refused(before: &Configuration, operations: &str, parts: &[&str]) -> EditErrors {
    let errors = before.edit(&edit(operations)).unwrap_err();
    for part in parts {
        assert!(errors.to_string().contains(part), "{part}: {errors}");
    }
    errors
}

/// Prints the native layer of services as command lines.
pub(super) fn made(configuration: &Configuration) -> String {
    cli::print(
        &configuration.models().native,
        configuration.layers().claims().layer(Origin::Native),
    )
}

/// The effective value of a native leaf, as text.
fn effective(configuration: &Configuration, leaf: &str) -> Option<String> {
    let path = configuration.models().native.resolve_write(&leaf.parse().unwrap()).unwrap();
    configuration.effective().find_leaf(&path).map(|leaf| leaf.value.to_string())
}

// proves sv.A32, sv.A34
#[test]
fn two_instances_share_a_bridge_until_the_last_one_goes() {
    let box_ = fresh(TEMPLATE);
    let both = set(&box_, &format!("update acme {ACME}\nupdate bolt {BOLT}"));
    let port = |name: &str| format!("interface {name}\n  master br0\n");
    assert_eq!(made(&both), format!("{BR0}{}{}", port("eth1"), port("eth2")));
    assert_eq!(effective(&both, "/interfaces/interface[name=eth1]/master").unwrap(), "br0");
    let bolt = set(&both, "delete acme");
    assert_eq!(made(&bolt), format!("{BR0}{}", port("eth2")));
    assert_eq!(effective(&bolt, "/interfaces/interface[name=eth1]/master"), None);
    let none = set(&bolt, "delete bolt");
    assert_eq!(made(&none), "");
    assert!(none.layers().claims().is_empty());
    assert!(none.effective().root().children().is_empty(), "{:?}", none.effective());
}

#[test]
fn instances_that_disagree_are_refused_by_name_and_move_together() {
    let both = set(&fresh(TEMPLATE), &format!("update acme {ACME}\nupdate bolt {BOLT}"));
    let parts = [
        "prefix-length",
        "`24` by access[name='acme'] (self, init)",
        "`25` by access[name='bolt']",
    ];
    refused(&both, r#"update bolt {"gateway":"10.0.0.1/25"}"#, &parts);
    let moved =
        "update acme {\"gateway\":\"10.0.0.1/25\"}\nupdate bolt {\"gateway\":\"10.0.0.1/25\"}";
    let moved = set(&both, moved);
    let leaf = "/interfaces/interface[name=br0]/ipv4/address[ip=10.0.0.1]/prefix-length";
    assert_eq!(effective(&moved, leaf).unwrap(), "25");
}

// proves sv.A33
#[test]
fn clients_and_services_ask_for_the_same_values_or_are_refused_by_name() {
    let acme = set(&fresh(TEMPLATE), &format!("update acme {ACME}"));
    let described = set(
        &acme,
        r#"update oc:/interfaces/interface[name=eth1]/config {"name":"eth1","description":"a"}"#,
    );
    let without = set(&described, "delete acme");
    assert_eq!(effective(&without, "/interfaces/interface[name=eth1]/description").unwrap(), "a");

    let same = "cli interface br0|  type bridge|  ipv4 address 10.0.0.1 prefix-length 24";
    let same = set(&acme, same);
    let leaf = "/interfaces/interface[name=br0]/ipv4/address[ip=10.0.0.1]/prefix-length";
    let path = "/interfaces/interface[name=br0]/ipv4/address[ip=10.0.0.1]";
    refused(
        &acme,
        &format!("update {path} {{\"prefix-length\":25}}"),
        &["`25` by client native", "`24` by access[name='acme'] (self, init)"],
    );
    let left = set(&same, "delete /interfaces/interface[name=br0]");
    assert_eq!(effective(&left, leaf).unwrap(), "24", "the service's value stays");
    let taken_over =
        format!("update acme {{\"deploy\":false}}\nupdate {path} {{\"prefix-length\":25}}");
    assert_eq!(effective(&set(&acme, &taken_over), leaf).unwrap(), "25");
}

// proves sv.J1
#[test]
fn services_cannot_begin_to_ask_for_what_boot_holds() {
    let boot = Arc::new(BootConfiguration {
        vendor: br#"{"holdfast:interfaces":{"interface":[{"name":"eth1","master":"br9"}]}}"#.into(),
        ..BootConfiguration::default()
    });
    let before = fresh(TEMPLATE);
    let errors = refused(
        &before.booted(Some(&boot)).unwrap(),
        &format!("update acme {ACME}"),
        &["eth1", "reserved for bootz", "and access[name='acme'] (self, init) asks for it"],
    );
    assert!(matches!(errors.first().cause, EditCause::Reserved { .. }));

    let master = "/interfaces/interface[name=eth1]/master";
    let acme = set(&before, &format!("update acme {ACME}"));
    let booted = acme.booted(Some(&boot)).unwrap();
    assert_eq!(effective(&booted, master).unwrap(), "br9", "boot wins where it comes later");
    let moved = set(&booted, r#"update acme {"gateway":"10.0.0.2/24"}"#);
    assert_eq!(effective(&moved.booted(None).unwrap(), master).unwrap(), "br0");
}

#[test]
fn an_instance_is_walked_when_its_parameters_differ() {
    let acme = set(&fresh(TEMPLATE), &format!("update acme {ACME}"));
    let same = set(&acme, &format!("update acme {ACME}"));
    assert!(same.layers().claims().is_same(acme.layers().claims()));
    let other = set(
        &acme,
        r#"update oc:/interfaces/interface[name=eth7]/config {"name":"eth7","mtu":1400}"#,
    );
    assert!(other.layers().claims().is_same(acme.layers().claims()));
    let undeployed = set(&acme, r#"update acme {"deploy":false}"#);
    assert_eq!(made(&undeployed), "");
    assert_eq!(made(&set(&undeployed, r#"update acme {"deploy":true}"#)), made(&acme));
}

#[test]
fn the_effective_configuration_names_the_claims_of_each_line() {
    let both = set(&fresh(TEMPLATE), &format!("update acme {ACME}\nupdate bolt {BOLT}"));
    let mtu = set(&both, r#"update /interfaces/interface[name=br0] {"mtu":1400}"#);
    let text = show::show(&mtu, "show effective").unwrap();
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap();
    let owners = "access[name='acme'] (self, init), access[name='bolt'] (self, init)";
    assert!(line("type bridge").ends_with(owners), "{text}");
    assert!(line("interface br0").ends_with(&format!("client native, {owners}")), "{text}");
    assert!(line("mtu 1400").ends_with("client native"), "{text}");
}

// proves sv.J5
#[test]
fn a_replace_by_text_deletes_the_instances_that_it_does_not_bring() {
    let both = set(&fresh(TEMPLATE), &format!("update acme {ACME}\nupdate bolt {BOLT}"));
    let union = |operations: &[(&str, &str)]| {
        let payload = |(path, text): &(&str, &str)| match *path {
            "cli" => (target("/"), Payload::Cli { text: (*text).to_owned() }),
            path => {
                (target(path), Payload::Json { text: text.as_bytes().to_vec().into(), ietf: false })
            }
        };
        let union_replace = operations.iter().map(payload).collect();
        both.edit(&Edit { union_replace, ..Edit::default() }).unwrap()
    };
    assert_eq!(made(&union(&[("cli", "system\n  hostname h\n")])), "");
    let kept = "services\n  access acme\n    bridge br0\n    gateway 10.0.0.1/24\n";
    assert_eq!(made(&union(&[("cli", kept)])), BR0);
    let native = union(&[("/system", r#"{"hostname":"h"}"#)]);
    assert_eq!(made(&native), made(&both), "paths that do not cover the instances leave them");
}

#[test]
fn a_box_without_instances_does_the_work_of_one_without_types() {
    let typed = fresh(TEMPLATE);
    let plain = Configuration::new(Arc::clone(typed.shared_models()), Layers::new());
    let mtu = r#"update oc:/interfaces/interface[name=eth7]/config {"name":"eth7","mtu":1400}"#;
    let [typed, plain] = [typed, plain].map(|before| set(&before, mtu));
    assert_eq!(typed.work(), plain.work());
    assert_eq!(typed.effective(), plain.effective());
}

// proves sv.A7
#[test]
fn a_wrong_instance_refuses_the_request() {
    let box_ = fresh(TEMPLATE);
    refused(&box_, r#"update acme {"port":"eth1"}"#, &["bridge"]);
    let must = refused(&box_, r#"update acme {"bridge":"lo"}"#, &["access[name='acme']", "Must"]);
    assert!(matches!(must.first().cause, EditCause::Work { .. }));
    let failing = fresh("interface {{ params.bridge }}\n  type bridge\n  mtu {{ params.via }}\n");
    let parts = ["failed in access 1.0.0: templates/main.cli line 3", "undefined"];
    refused(&failing, r#"update acme {"bridge":"br0"}"#, &parts);
    let denied = fresh("hostname {{ params.bridge }}\n");
    refused(&denied, r#"update acme {"bridge":"br0"}"#, &["failed in access 1.0.0"]);
}

#[test]
fn a_configuration_from_rows_has_the_claims_and_renders_nothing() {
    let both = set(&fresh(TEMPLATE), &format!("update acme {ACME}\nupdate bolt {BOLT}"));
    let rows = layer_rows_diff(both.models(), &Layers::new(), both.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, unknown) = Layers::from_rows(both.models(), rows).unwrap();
    assert_eq!((&layers, unknown), (both.layers(), 0));
    let again = Configuration::new(Arc::clone(both.shared_models()), layers);
    assert_eq!(again.effective(), both.effective());
    let types: Arc<dyn Services> = Arc::new(types(TEMPLATE));
    let none = set(&again.with_services(Some(types)), "delete acme\ndelete bolt");
    assert!(none.layers().claims().is_empty());
}

#[test]
fn a_rollback_brings_the_claims_back_and_a_rebase_keeps_both() {
    let none = fresh(TEMPLATE);
    let acme = set(&none, &format!("update acme {ACME}"));
    let changed = set(&acme, &format!("update acme {{\"port\":\"eth7\"}}\nupdate bolt {BOLT}"));
    let back = changed.with_client_of(acme.layers());
    assert_eq!((made(&back), back.effective()), (made(&acme), acme.effective()));
    assert_eq!(made(&changed.factory_reset()), "");

    let bolt = set(&none, &format!("update bolt {BOLT}"));
    let both = bolt.rebased(&none, &acme);
    let want = set(&acme, &format!("update bolt {BOLT}"));
    assert_eq!((made(&both), both.effective()), (made(&want), want.effective()));
    assert_eq!(both.layers().claims(), want.layers().claims());
    let without = set(&both, "delete acme\ndelete bolt");
    assert_eq!((made(&without), without.effective()), (String::new(), none.effective()));
}

#[test]
fn a_template_that_reads_without_state_of_the_box_is_refused() {
    let reading = "{{ config('/interfaces/interface[name={}]/mtu', params.bridge) }}";
    let reading = fresh(&format!("interface {{{{ params.bridge }}}}\n  mtu {reading}\n"));
    refused(&reading, r#"update acme {"bridge":"br0"}"#, &["failed in access 1.0.0"]);
}

#[test]
fn components_have_claims_of_their_own() {
    let outline = OUTLINE.replace("work = \"main.cli\"\n", "")
        + r#"
[[component]]
type = "bridge"
  [[component.state]]
  name = "made"
  work = "bridge.cli"
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "port.cli"
[[tree]]
create = { type = "bridge", name = "params.bridge" }
[[tree]]
if = "params.port is defined"
create = { type = "port", name = "params.port" }
"#;
    let port = "interface {{ component.name }}\n  master {{ params.bridge }}\n";
    let templates = [
        ("templates/bridge.cli", "interface {{ component.name }}\n  type bridge\n"),
        ("templates/port.cli", port),
    ];
    let types = access_types(&outline, YANG, &templates);
    let models = Arc::clone(types.models());
    let box_ = Configuration::new(models, Layers::new()).with_services(Some(Arc::new(types)));
    let keys = |configuration: &Configuration| -> Vec<String> {
        configuration.layers().claims().iter().map(|(key, _)| key.to_string()).collect()
    };
    let acme = set(&box_, r#"update acme {"bridge":"br0","port":"eth1"}"#);
    let [bridge, port] = ["(bridge br0, made)", "(port eth1, attached)"]
        .map(|claim| format!("access[name='acme'] {claim}"));
    assert_eq!(keys(&acme), [bridge.clone(), port]);
    let without = set(&acme, "delete /services/access[name=acme]/port");
    assert_eq!(keys(&without), [bridge]);
    assert_eq!(made(&without), "interface br0\n  type bridge\n");
}
