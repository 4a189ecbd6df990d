//! Presence containers of parameters, by clients and by a boot configuration.

use holdfast_config::{BootConfiguration, Configuration, Layers};

use super::types::{edit, made, set};
use super::*;
use crate::ServiceTypes;

const OUTLINE: &str = r#"[service]
name = "tuned"
version = "1.0.0"
work = "main.cli"
[grants]
write = ["/interfaces/interface"]
"#;

const YANG: &str = r#"module tuned { yang-version 1.1; namespace "urn:tuned"; prefix t;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-25 { description "First."; }
  augment "/svc:services" { list tuned { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    container jumbo { presence "large frames"; leaf mtu { type uint16; default 9000; }
      container named { presence "a note"; leaf note { type string; mandatory true; } } } } } }"#;

const TEMPLATE: &str = "interface {{ params.port }}
  type bridge
{% if params.jumbo is defined %}  mtu {{ params.jumbo.mtu }}
{% endif %}";

const BARE: &str = "interface eth1\n  type bridge\n";
const JUMBO: &str = "interface eth1\n  type bridge\n  mtu 9000\n";
const PORT: &str = r#"update /services/tuned[name=a] {"port":"eth1"}"#;

fn fresh() -> Configuration {
    let files = files([
        ("service.toml", OUTLINE),
        ("tuned@2026-11-25.yang", YANG),
        ("templates/main.cli", TEMPLATE),
    ]);
    let mut types = ServiceTypes::new(Arc::new(Models::load().unwrap()));
    types.add(&files).unwrap();
    Configuration::new(Arc::clone(types.models()), Layers::new())
        .with_services(Some(Arc::new(types)))
}

/// The configuration after a Set; a computation from scratch gives the same.
#[track_caller]
fn then(before: &Configuration, operations: &str) -> Configuration {
    let after = set(before, operations);
    check_scratch(&after);
    after
}

#[track_caller]
fn check_scratch(after: &Configuration) {
    let scratch = Configuration::new(Arc::clone(after.shared_models()), after.layers().clone());
    assert_eq!(after.effective(), scratch.effective());
}

fn has(configuration: &Configuration, below: &str) -> bool {
    let path = format!("/services/tuned[name=a]/{below}").parse().unwrap();
    let path = configuration.models().native.resolve_write(&path).unwrap();
    configuration.effective().contains(&path)
}

#[test]
fn a_presence_container_alone_has_the_instance_walked() {
    let other = then(&fresh(), r#"update /services/tuned[name=b] {"port":"eth2"}"#);
    let bare = then(&other, PORT);
    let jumbo = then(&bare, "update /services/tuned[name=a]/jumbo {}");
    assert_eq!(made(&jumbo), JUMBO.to_owned() + "interface eth2\n  type bridge\n");
    let work = jumbo.layers().claims().work();
    assert_eq!(work, 1, "the MTU of one port");
    let same = then(&jumbo, "update /services/tuned[name=a]/jumbo {}");
    assert!(same.layers().claims().is_same(jumbo.layers().claims()));
    let without = then(&jumbo, "delete /services/tuned[name=a]/jumbo");
    assert_eq!(made(&without), made(&bare));
}

#[test]
fn what_is_in_a_presence_container_counts_where_it_is() {
    let bare = then(&fresh(), PORT);
    assert!(!has(&bare, "jumbo"), "no defaults of what is not there");
    let jumbo = then(&bare, "update /services/tuned[name=a]/jumbo {}");
    assert!(has(&jumbo, "jumbo/mtu") && !has(&jumbo, "jumbo/named"), "nor leaves that it needs");
    let by_leaf = then(&bare, "update /services/tuned[name=a]/jumbo/mtu 8000");
    assert_eq!(made(&by_leaf), JUMBO.replace("9000", "8000"));
    let refused = jumbo.edit(&edit("update /services/tuned[name=a]/jumbo/named {}"));
    assert!(
        refused.unwrap_err().to_string().contains("jumbo/named/note`: a mandatory leaf is not set")
    );
}

#[test]
fn a_boot_configuration_has_presence_containers() {
    let boot = |inside: &str| {
        let text = format!(
            r#"{{"holdfast-services:services":{{"tuned:tuned":[{{"name":"a","port":"eth1"{inside}}}]}}}}"#
        );
        Arc::new(BootConfiguration { vendor: text.into_bytes(), ..BootConfiguration::default() })
    };
    let booted = fresh().booted(Some(&boot(r#","jumbo":{}"#))).unwrap();
    check_scratch(&booted);
    assert_eq!(made(&booted), JUMBO);
    let other = booted.booted(Some(&boot(""))).unwrap();
    check_scratch(&other);
    assert_eq!(made(&other), BARE);
    let back = other.booted(Some(&boot(r#","jumbo":{}"#))).unwrap();
    assert_eq!(made(&back), JUMBO);
    assert_eq!(made(&back.booted(None).unwrap()), "");
}
