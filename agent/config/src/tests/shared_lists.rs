//! OpenConfig lists that several native lists share, keys through codecs, and alternatives of a leaf: UNION.md 2.2.
//!
//! VLANs of a port are those of the product. A shelf of cards, whose list in OpenConfig is three native lists and a leaf, has what
//! no list of the product has.

mod naive;
mod requests;
mod rows;

use super::stack::marked;
use super::*;
use crate::map;
use crate::schema::YangModule;

const NATIVE: &str = r#"module test-lists { yang-version 1.1; namespace "urn:test-lists"; prefix tl;
    organization "us"; revision 2026-11-27 { description "First."; }
    container shelf {
      leaf main-label { type string; }
      list fast-card { key "slot"; leaf slot { type uint8 { range "1..9"; } } leaf label { type string; } }
      list spare-card { key "speed slot"; leaf speed { type uint32; } leaf slot { type uint8; } }
      list card {
        key "speed slot";
        leaf speed { type uint32; } leaf slot { type uint8 { range "1..9"; } } leaf label { type string; }
        list port { key "name"; leaf name { type string; } leaf label { type string; } }
      }
    }
}"#;

const OPENCONFIG: &str = r#"module test-lists { yang-version 1.1; namespace "urn:test-lists"; prefix tl;
    import openconfig-if-ethernet { prefix oc-eth; }
    organization "us"; revision 2026-11-27 { description "First."; }
    grouping card {
      leaf speed { type identityref { base oc-eth:ETHERNET_SPEED; } } leaf slot { type uint8; }
      leaf label { type string; }
    }
    container shelf { list card {
      key "speed slot";
      leaf speed { type leafref { path "../config/speed"; } } leaf slot { type leafref { path "../config/slot"; } }
      container config { uses card; }
      container ports { list port {
        key "name";
        leaf name { type leafref { path "../config/name"; } }
        container config { leaf name { type string; } leaf label { type string; } }
      } }
    } }
}"#;

/// Rows of these models.
const ROWS: &str = "
at / /
implied shelf/card[speed=SPEED_100GB][slot=1]/config/speed
implied shelf/card[speed=SPEED_100GB][slot=1]/config/slot
config shelf/card[speed=SPEED_100GB][slot=1]/config/label shelf/main-label same

at /shelf/card[speed=SPEED_10GB][slot=*] /shelf/fast-card[slot=*]
implied config/speed
implied config/slot
config config/label label same

at /shelf/card[speed=*:ethernet-speed][slot=*] /shelf/card[speed=*][slot=*]
implied config/speed
implied config/slot
config config/label label same

at /shelf/card[speed=*:ethernet-speed][slot=*]/ports/port[name=*] /shelf/card[speed=*][slot=*]/port[name=*]
implied config/name
config config/label label same
";

const ETH0: &str = "/interfaces/interface[name=eth0]";
const SUBS: &str = "/interfaces/interface[name=eth0]/subinterfaces";

fn map_text(rows: &str) -> String {
    format!("{}\n{rows}", map::TEXT)
}

fn schemas() -> Models {
    let module = |text: &str| [YangModule { name: "test-lists".into(), text: text.into() }];
    let native = models().with_modules(Origin::Native, &module(NATIVE)).unwrap();
    native.with_modules(Origin::OpenConfig, &module(OPENCONFIG)).unwrap()
}

fn list_models() -> &'static Arc<Models> {
    static MODELS: OnceLock<Arc<Models>> = OnceLock::new();
    MODELS.get_or_init(|| Arc::new(schemas().with_map(&map_text(ROWS)).unwrap()))
}

fn bare() -> Configuration {
    Configuration::new(list_models().clone(), Layers::new())
}

/// A box with a factory configuration, which a native request sets.
fn factory_box(request: &str) -> Configuration {
    let mut layers = then(&bare(), request).layers().clone();
    let tree = layers.tree_mut(LayerKey::CLIENT_NATIVE);
    *tree = Tree::from_root(Arc::new(marked(tree.root(), LeafMark::Factory)));
    let factory = tree.clone();
    Configuration::new(list_models().clone(), layers).with_factory(factory)
}

#[track_caller]
fn run(start: Configuration, requests: &[&str]) -> Configuration {
    requests.iter().fold(start, |start, request| then(&start, request))
}

#[track_caller]
fn check_view(configuration: &Configuration, prefix: &str, want: &[&str]) {
    assert_eq!(below(&lines_view(configuration, Origin::OpenConfig), prefix), want);
}

#[track_caller]
fn check_in_effect(configuration: &Configuration, prefix: &str, want: &[&str]) {
    assert_eq!(below(&lines_effective(configuration), prefix), want);
}

#[track_caller]
fn refusals(start: &Configuration, request: &str) -> Vec<String> {
    match start.edit(&edit(request)) {
        Ok(_) => panic!("{request}: it was done"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}
