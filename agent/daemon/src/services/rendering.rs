//! What the commands print of a package.

use std::fmt::Write;
use std::sync::Arc;

use holdfast_config::cli;
use holdfast_config::json::{self, Flavour};
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_services::outline::{ComponentType, LocatedText, StateOutline, Work};
use holdfast_services::{
    Component, Facts, NoFacts, Output, Package, PackageError, Parameters, Scope, WorkError,
};

use super::ServiceError;

/// Name, states and grants of a package, and what its author is warned of.
pub(super) fn summary(package: &Package, warnings: &[PackageError]) -> String {
    let outline = &package.outline;
    let mut text = format!("{} {}\n", outline.name.text, package.version());
    for component in &outline.components {
        let states: Vec<String> = component.states.iter().map(state).collect();
        push(&mut text, format_args!("component {}: {}", component.name, states.join(", ")));
    }
    if outline.handler.as_ref().is_some_and(|handler| handler.modification) {
        push(
            &mut text,
            format_args!("modification: what its handler puts out may outlast instances"),
        );
    }
    for (verb, paths) in [("writes", &outline.write), ("reads", &outline.read)] {
        for path in paths {
            push(&mut text, format_args!("{verb} {}", path.text));
        }
    }
    for warning in warnings {
        push(&mut text, format_args!("warning: {warning}"));
    }
    text
}

/// What the states of the components of an instance put out, as if each of them was reached; of this component type
/// and this state, where they are given.
pub(super) fn work(
    package: &Package,
    parameters: &Parameters,
    (component, state): (Option<&str>, Option<&str>),
) -> Result<String, ServiceError> {
    if let Some(wanted) = component {
        check_names(package, wanted, state)?;
    }
    let facts: Arc<dyn Facts> = Arc::new(NoFacts);
    let scope = Scope::of_instance(parameters, false);
    let failed = |error: WorkError| ServiceError::Work {
        of: format!("{} {}", package.outline.name.text, package.version()),
        error,
    };
    let mut text = String::new();
    for found in package.components(&scope, &facts).map_err(failed)? {
        let Some(outline) = package.outline.component(&found.component_type) else { continue };
        if component.is_some_and(|wanted| wanted != found.component_type) {
            continue;
        }
        push(&mut text, format_args!("# component {}", title(&found)));
        let scope = scope.of_component(&found);
        for it in outline.states.iter().filter(|it| state.is_none_or(|wanted| wanted == it.name)) {
            if let Some(output) =
                package.render(it.work.as_ref(), &scope, &facts).map_err(failed)?
            {
                push(&mut text, format_args!("# state {}{}", self::state(it), gate(&it.when)));
                text += &output_text(package, &output);
            }
        }
    }
    Ok(text)
}

/// Checks that the package has this component type, and the type this state.
fn check_names(
    package: &Package,
    component: &str,
    state: Option<&str>,
) -> Result<(), ServiceError> {
    let types = &package.outline.components;
    let known: Vec<&str> = types.iter().map(|it| it.name.as_str()).collect();
    let found: &ComponentType = package.outline.component(component).ok_or_else(|| {
        let known = known.join(", ");
        ServiceError::Unknown(format!("there is no component type `{component}`: there is {known}"))
    })?;
    let states: Vec<&str> = found.states.iter().map(|it| it.name.as_str()).collect();
    match state.filter(|state| found.state(state).is_none()) {
        None => Ok(()),
        Some(state) => Err(ServiceError::Unknown(format!(
            "`{component}` has no state `{state}`: there is {}",
            states.join(", ")
        ))),
    }
}

/// The configuration of the native model as command lines, that of OpenConfig as a document.
fn output_text(package: &Package, output: &Output) -> String {
    let models = &package.list.models;
    if output.origin == Origin::Native {
        return cli::print(&models.native, &output.tree);
    }
    let schema = &models.openconfig;
    let root = NodeRef::Branch(output.tree.root());
    let document = json::print(schema, schema.root(), root, Flavour::Ietf, &|_| true);
    let document = document.unwrap_or_else(|| b"{}".to_vec());
    format!("{}\n", String::from_utf8_lossy(&document))
}

fn title(component: &Component) -> String {
    let replaced =
        component.replaces.iter().map(|(kind, name)| format!(", replaces {kind} {name}"));
    let replaced: String = replaced.collect();
    format!("{} {}{replaced}", component.component_type, component.name)
}

fn state(state: &StateOutline) -> String {
    match &state.work {
        Some(Work::Template(path)) => format!("{} ({})", state.name, path.text),
        Some(Work::Handler) => format!("{} (handler)", state.name),
        None => state.name.to_string(),
    }
}

fn gate(when: &Option<LocatedText>) -> String {
    when.as_ref().map_or(String::new(), |when| format!(", when {}", when.text))
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(text, "{line}");
}
