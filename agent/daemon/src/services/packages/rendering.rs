//! Output of the commands about a package.

use std::fmt::Write;
use std::sync::Arc;

use holdfast_config::json::{self, Flavour};
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_config::{LeafMark, Tree, cli};
use holdfast_services::limits::OFFLINE_WALKS;
use holdfast_services::offline::{ChangeKind, OfflineEnd, OfflineWalks, StateChange, Unanswered};
use holdfast_services::outline::{
    Action, ActionTarget, ComponentType, LocatedText, StateOutline, Work,
};
use holdfast_services::{
    Component, Facts, NoFacts, Package, PackageError, Parameters, Scope, WorkError,
};
use smol_str::SmolStr;

use crate::services::{ServiceError, located};

/// Name, states and grants of a package, and what its author is warned of.
pub(in crate::services) fn summary(package: &Package, warnings: &[PackageError]) -> String {
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

/// Component type and state to print alone, where they are given.
#[derive(Debug, Default)]
pub(in crate::services) struct Selection<'a> {
    pub(in crate::services) component: Option<&'a str>,
    pub(in crate::services) state: Option<&'a str>,
}

impl Selection<'_> {
    /// Checks that the package has this component type, and the type this state.
    pub(in crate::services) fn check(&self, package: &Package) -> Result<(), ServiceError> {
        let Some(component) = self.component else { return Ok(()) };
        let types = &package.outline.components;
        let known: Vec<&str> = types.iter().map(|it| it.name.as_str()).collect();
        let found: &ComponentType = package.outline.component(component).ok_or_else(|| {
            let known = known.join(", ");
            let text = format!("there is no component type `{component}`: there is {known}");
            ServiceError::Unknown(text)
        })?;
        let states: Vec<&str> = found.states.iter().map(|it| it.name.as_str()).collect();
        match self.state.filter(|state| found.state(state).is_none()) {
            None => Ok(()),
            Some(state) => Err(ServiceError::Unknown(format!(
                "`{component}` has no state `{state}`: there is {}",
                states.join(", ")
            ))),
        }
    }

    fn has_component(&self, component: &str) -> bool {
        self.component.is_none_or(|wanted| wanted == component)
    }

    fn has_state(&self, state: &str) -> bool {
        self.state.is_none_or(|wanted| wanted == state)
    }
}

/// Output and actions of the selected states of an instance, as if each of them was reached.
pub(in crate::services) fn work(
    package: &Package,
    parameters: &Parameters,
    selection: &Selection<'_>,
) -> Result<String, ServiceError> {
    let facts: Arc<dyn Facts> = Arc::new(NoFacts);
    let scope = Scope::of_instance(parameters, false);
    let failed = |error: WorkError| ServiceError::Work {
        of: format!("{} {}", package.outline.name.text, package.version()),
        error,
    };
    let mut text = String::new();
    for found in package.components(&scope, &facts).map_err(failed)? {
        let Some(outline) = package.outline.component(&found.component_type) else { continue };
        if !selection.has_component(&found.component_type) {
            continue;
        }
        push(&mut text, format_args!("# component {}", title(&found)));
        let scope = scope.of_component(&found);
        for it in outline.states.iter().filter(|it| selection.has_state(&it.name)) {
            let has_action = it.action.is_some() || it.delete.action.is_some();
            if it.work.is_none() && !it.delete.handler && !has_action {
                continue;
            }
            push(&mut text, format_args!("# state {}{}", state(it), gate(&it.when)));
            if let Some(output) =
                package.render(it.work.as_ref(), &scope, &facts).map_err(failed)?
            {
                text += &tree_text(package, output.origin, &output.tree);
            }
            let mut action = |action: &Action, on_the_way: &str| {
                let call = package.action_call(action, &scope, &facts);
                let params = match &call {
                    Ok(call) => call.params.to_string(),
                    // Values that an earlier action saves, or a handler gives, are not known.
                    Err(error) => format!("not known: {}", located(error)),
                };
                push(&mut text, format_args!("# {on_the_way}{}: {params}", action_title(action)));
            };
            it.action.iter().for_each(|it| action(it, ""));
            it.delete.action.iter().for_each(|it| action(it, "when it is left, "));
            if it.delete.handler {
                push(&mut text, format_args!("# when it is left, the handler is called"));
            }
        }
    }
    Ok(text)
}

/// The walks of an instance without a box, and the answers that they lack.
pub(in crate::services) fn walks(
    package: &Package,
    walks: &OfflineWalks,
    selection: &Selection<'_>,
) -> String {
    let mut text = String::new();
    for (number, changes) in (1..).zip(&walks.walks) {
        let wanted = changes.iter().filter(|it| selection.has_component(&it.component[0]));
        let mut wanted = wanted.filter(|it| selection.has_state(&it.state)).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        push(&mut text, format_args!("# walk {number}"));
        for change in wanted {
            push(&mut text, format_args!("# {}", change_title(package, change)));
            if let Some(claim) = &change.claim {
                text += &tree_text(package, Origin::Native, &claim.native);
                text += &tree_text(package, Origin::OpenConfig, &claim.openconfig);
            }
            let outline = outline_of(package, &change.component[0], &change.state);
            if let (Some(call), Some(action)) =
                (&change.action, outline.and_then(|it| it.action.as_ref()))
            {
                let params = &call.call.params;
                push(&mut text, format_args!("# {}: {params}", action_title(action)));
            }
        }
    }
    text + &end_text(&walks.end)
}

/// The end of walks: `ready`, or what is in the way, and the lines that the answers lack.
fn end_text(end: &OfflineEnd) -> String {
    let mut text = String::new();
    match end.is_ready {
        true => push(&mut text, format_args!("# ready")),
        false => push(&mut text, format_args!("# not ready")),
    }
    if end.is_cut {
        push(&mut text, format_args!("# it goes on and on: {}", OFFLINE_WALKS.unit));
    }
    for wait in &end.waits {
        let [component_type, name] = &wait.component;
        let verb = if wait.has_failed { "failed:" } else { "waits for" };
        let place = format!("{component_type} {name}, {}", wait.state);
        push(&mut text, format_args!("# {place} {verb} {}", wait.text));
    }
    for Unanswered { section, name, answer } in &end.unanswered {
        let name = json_text(name);
        push(&mut text, format_args!("# add to the answers, in \"{section}\": {name}: {answer}"));
    }
    text
}

/// A name as a text of JSON.
fn json_text(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

fn outline_of<'p>(package: &'p Package, component: &str, state: &str) -> Option<&'p StateOutline> {
    package.outline.component(component)?.state(state)
}

fn change_title(package: &Package, change: &StateChange) -> String {
    let [component_type, name] = &change.component;
    let outline = outline_of(package, component_type, &change.state);
    let state = outline.map_or_else(|| change.state.to_string(), state);
    let verb = match change.kind {
        ChangeKind::Reached => "reached",
        ChangeKind::PutOut => "puts out something else",
        ChangeKind::Left => "left",
    };
    let gate = match change.kind {
        ChangeKind::Reached => outline.map(|it| gate(&it.when)).unwrap_or_default(),
        ChangeKind::PutOut | ChangeKind::Left => String::new(),
    };
    format!("{component_type} {name}, state {state}: {verb}{gate}")
}

/// An action as the outline has it, without its parameters.
fn action_title(action: &Action) -> String {
    let who = match &action.target {
        ActionTarget::Builtin(_) => "the agent",
        ActionTarget::Handler(_) => "the handler",
    };
    let mut title = format!("action {} of {who}", action.target.name());
    if action.sync {
        title += ", sync";
    }
    if let Some(result) = &action.result {
        title += &format!(", good when {}", result.text);
    }
    let saved: Vec<&str> = action.save.keys().map(SmolStr::as_str).collect();
    if !saved.is_empty() {
        title += &format!(", saves {}", saved.join(", "));
    }
    title
}

/// The configuration of the native model as command lines, that of OpenConfig as a document.
fn tree_text(package: &Package, origin: Origin, tree: &Tree<LeafMark>) -> String {
    let models = &package.list.models;
    if origin == Origin::Native {
        return cli::print(&models.native, tree);
    }
    if tree.is_empty() {
        return String::new();
    }
    let schema = &models.openconfig;
    let root = NodeRef::Branch(tree.root());
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
