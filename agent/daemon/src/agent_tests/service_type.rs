//! The type of services of tests on the simulated kernel, with the components and states that a test wants.

use std::sync::Arc;

use holdfast_config::Models;
use holdfast_services::{PackageFiles, ServiceTypes};
use nix::unistd::{User, geteuid};

const MODULE: &str = r#"module access { yang-version 1.1; namespace "urn:access"; prefix a;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-25 { description "First."; }
  augment "/svc:services" { list access { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    leaf bridge { type hf:interface-name; } leaf shelf { type string; }
    container seen { config false; leaf peer { type string; } } } } }"#;

/// Gate of a state that waits for the port of its instance to be up.
pub(crate) const LINK_UP: &str =
    r#"when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'""#;

/// The type `access`, whose components are named by the port of an instance.
#[derive(Clone, Debug)]
pub(crate) struct TestType {
    /// Lines of the section `service`.
    service: String,
    /// Section `handler`, if there is one.
    handler: String,
    /// Sections of components with their states, and nodes of the tree.
    components: String,
    tree: String,
    templates: Vec<(String, String)>,
}

impl TestType {
    /// A type without components.
    pub(crate) fn new() -> Self {
        let [service, handler, components, tree] = Default::default();
        Self { service, handler, components, tree, templates: Vec::new() }
    }

    /// Adds lines to the section `service`.
    pub(crate) fn service(mut self, lines: &str) -> Self {
        self.service += &format!("{lines}\n");
        self
    }

    /// Lets handlers of the user of the tests serve it. The lines are added to their section.
    pub(crate) fn handler(mut self, lines: &str) -> Self {
        let user = User::from_uid(geteuid()).unwrap().unwrap().name;
        self.handler = format!("[handler]\nuser = \"{user}\"\n{lines}\n");
        self
    }

    /// Adds a component.
    pub(crate) fn component(mut self, name: &str) -> Self {
        self.components += &format!("[[component]]\ntype = \"{name}\"\n");
        self.tree +=
            &format!("[[tree]]\ncreate = {{ type = \"{name}\", name = \"params.port\" }}\n");
        self
    }

    /// Sets the condition of the last component in the tree.
    pub(crate) fn condition(mut self, expression: &str) -> Self {
        self.tree += &format!("if = \"{expression}\"\n");
        self
    }

    /// Adds a state to the last component.
    pub(crate) fn state(mut self, name: &str, lines: &str) -> Self {
        self.components += &format!("[[component.state]]\nname = \"{name}\"\n{lines}\n");
        self
    }

    /// Adds a template.
    pub(crate) fn template(mut self, name: &str, text: &str) -> Self {
        self.templates.push((format!("templates/{name}"), text.to_owned()));
        self
    }

    /// The files of its package.
    fn files(&self) -> PackageFiles {
        let Self { service, handler, components, tree, templates } = self;
        let outline = format!(
            "[service]\nname = \"access\"\nversion = \"1.0.0\"\n{service}
[grants]\nwrite = [\"/interfaces/interface\"]\nread = [\"/interfaces/interface\"]
{handler}{components}{tree}"
        );
        let named = [("service.toml", &*outline), ("access@2026-11-25.yang", MODULE)];
        let templates = templates.iter().map(|(path, text)| (&**path, &**text));
        package_files(named.into_iter().chain(templates))
    }

    /// The types of a box that has this one.
    pub(crate) fn types(&self) -> ServiceTypes {
        types_of(&self.files())
    }
}

/// A package of these files, each with its path and its text.
pub(crate) fn package_files<'a>(
    texts: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> PackageFiles {
    let file = |(path, text): (&str, &str)| (path.into(), text.as_bytes().into());
    PackageFiles::new(texts.into_iter().map(file)).unwrap()
}

/// The types of a box that has one package.
pub(crate) fn types_of(files: &PackageFiles) -> ServiceTypes {
    let mut types = ServiceTypes::new(Arc::new(Models::load().unwrap()));
    types.add(files).unwrap();
    types
}
