//! Packages made for a row each, and what comes of them.

mod actions;
mod components;
mod conditions;
mod gone;
mod handlers;
mod hostile;
mod incremental;
mod limits;
mod lint;
mod modification;
mod offline;
mod outputs;
mod own_state;
mod packages;
mod parameters;
mod plans;
mod presence;
mod ready;
mod side_by_side;
mod switch;
mod trees;
mod types;
mod upgrade;
mod users;
mod watch;
mod woken;

use std::sync::{Arc, OnceLock};

use holdfast_config::Models;

use crate::facts::{Facts, NoFacts};
use crate::outline::LocatedText;
use crate::{
    Output, Package, PackageError, PackageErrors, PackageFiles, Position, Scope, ServiceTypes,
    WorkError,
};

/// A module with parameters of most shapes.
const MODULE: &str = r#"module s { yang-version 1.1; namespace "urn:s"; prefix s;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-23 { description "First."; }
  augment "/svc:services" { list s { key name; uses svc:service-instance;
    leaf name { type string { length "1..64"; } }
    leaf port { type hf:interface-name; }
    leaf text { type string; }
    leaf count { type uint32; default 3; }
    leaf big { type uint64; }
    leaf share { type decimal64 { fraction-digits 2; } }
    leaf test-passed { type boolean; default false; }
    leaf-list tag { type string; }
    leaf needed { when "../port"; type string; }
    container options { leaf mtu { type uint16; } leaf flag { type empty; } }
    container extra { presence "there is more"; leaf level { type uint8; default 1; } }
    list end { key id; max-elements 3; unique address;
      leaf id { type uint8; } leaf address { type hf:ip-address; must "not(../id = 9)"; } }
    container facts { config false; leaf seen { type string; } } } } }"#;

const GRANTS: &str = r#"[grants]
write = ["/interfaces/interface", "/network-instances/network-instance/static", "openconfig:/interfaces/interface",
  "openconfig:/system/aaa", "/system/hostname"]
read = ["/interfaces/interface", "openconfig:/interfaces/interface"]
"#;

fn models() -> &'static Models {
    static MODELS: OnceLock<Models> = OnceLock::new();
    MODELS.get_or_init(|| Models::load().unwrap())
}

fn files<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> PackageFiles {
    let file = |(path, text): (&str, &str)| (path.into(), text.as_bytes().into());
    PackageFiles::new(texts.into_iter().map(file)).unwrap()
}

/// Types with the package `access` of this outline and module, and these templates.
fn access_types(outline: &str, yang: &str, templates: &[(&str, &str)]) -> ServiceTypes {
    let texts = [("service.toml", outline), ("access@2026-11-24.yang", yang)];
    let mut types = ServiceTypes::new(Arc::new(Models::load().unwrap()));
    types.add(&files(texts.into_iter().chain(templates.iter().copied()))).unwrap();
    types
}

/// A package of this outline, which begins after the header and the grants, with these templates.
fn staged(outline: &str, templates: &[(&str, &str)]) -> Result<Package, PackageErrors> {
    let outline =
        format!("[service]\nname = \"s\"\nversion = \"1.0.0\"\n{GRANTS}[handler]\n{outline}");
    let mut texts = vec![("service.toml", outline.as_str()), ("s@2026-11-23.yang", MODULE)];
    texts.extend(templates);
    Package::read(models(), &files(texts)).map(|(package, _)| package)
}

/// A plain package with one template of this name.
fn plain(template: &str, text: &str) -> Result<Package, PackageErrors> {
    let outline =
        format!("[service]\nname = \"s\"\nversion = \"1.0.0\"\nwork = \"{template}\"\n{GRANTS}");
    let path = format!("templates/{template}");
    let texts =
        [("service.toml", outline.as_str()), ("s@2026-11-23.yang", MODULE), (path.as_str(), text)];
    Package::read(models(), &files(texts)).map(|(package, _)| package)
}

fn no_facts() -> Arc<dyn Facts> {
    Arc::new(NoFacts)
}

fn scope(package: &Package, document: &str) -> Scope {
    Scope::of_instance(&package.parameters(document.as_bytes()).unwrap(), false)
}

/// Output of a plain package for an instance.
fn put_out(template: &str, text: &str, document: &str) -> Result<Output, WorkError> {
    let package = plain(template, text).unwrap();
    let scope = scope(&package, document);
    let init = package.outline.components[0].states[0].work.as_ref();
    package.render(init, &scope, &no_facts()).map(Option::unwrap)
}

fn located(text: &str) -> LocatedText {
    LocatedText { text: text.into(), position: Position { line: 7, column: 8 } }
}

fn messages(errors: PackageErrors) -> Vec<String> {
    errors.0.iter().map(PackageError::to_string).collect()
}
