//! Checks of an outline, which find all of its errors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use smol_str::SmolStr;
use toml::Spanned;

use super::raw::{self, Text};
use super::{
    Action, ActionTarget, ComponentType, DeleteOutline, Handler, INIT, LocatedText, NodeContent,
    OUTLINE, Outline, PING, READY, SELF, StateOutline, TEMPLATES, TreeNode, Version, Work,
};
use crate::error::{PackageError, PackageErrors, Position};
use crate::limits::{COMPONENT_STATES, EXPRESSION_SIZE, TREE_DEPTH, WARNED_TREE_DEPTH};
use crate::reserved_names::RESERVED_NAMES;

/// Time of an action that does not say its own.
const ACTION_TIME: Duration = Duration::from_secs(300);
/// Bounds of the time of an action, in seconds: work that takes longer than a day is not an action, but a state.
const ACTION_SECONDS: std::ops::RangeInclusive<i64> = 1..=24 * 60 * 60;
/// Bounds of the time before a state, in seconds: a year.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<i64> = 1..=365 * 24 * 60 * 60;
/// Longest name of a component type, state or action, in bytes. They are keys of state paths, or parts of messages.
const NAME_LENGTH: usize = 64;

pub(super) fn outline(
    text: &str,
    document: raw::Document,
) -> Result<(Outline, Vec<PackageError>), PackageErrors> {
    let mut check = OutlineCheck {
        text,
        has_handler: document.handler.is_some(),
        types: BTreeSet::new(),
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let outline = check.document(document);
    match check.errors.is_empty() {
        true => Ok((outline, check.warnings)),
        false => Err(PackageErrors(check.errors)),
    }
}

struct OutlineCheck<'a> {
    text: &'a str,
    has_handler: bool,
    /// The component types so far.
    types: BTreeSet<SmolStr>,
    errors: Vec<PackageError>,
    warnings: Vec<PackageError>,
}

impl OutlineCheck<'_> {
    fn fail(&mut self, span: &Range<usize>, reason: impl std::fmt::Display) {
        self.errors.push(PackageError::at(OUTLINE, self.text, span, reason));
    }

    fn position(&self, span: &Range<usize>) -> Position {
        Position::of(self.text, span.start)
    }

    fn located(&self, text: &Text) -> LocatedText {
        LocatedText { text: text.get_ref().into(), position: self.position(&text.span()) }
    }

    fn document(&mut self, document: raw::Document) -> Outline {
        let raw::Document { service, grants, handler, component, tree } = document;
        let version = service.version.get_ref().parse().unwrap_or_else(|reason| {
            self.fail(&service.version.span(), reason);
            Version([0; 3])
        });
        self.yang_name(&service.name);
        let plain = component.is_empty() && tree.is_empty();
        match &service.work {
            Some(work) if !plain => {
                self.fail(&work.span(), "a type with components has its work in their states");
            }
            None if plain => {
                let reason = "there is nothing to do: neither `work` nor components with a tree";
                self.fail(&service.name.span(), reason);
            }
            _ => {}
        }
        match (component.first(), tree.first()) {
            (Some(component), None) => {
                self.fail(&component.span(), "components without a tree: nothing creates them");
            }
            (None, Some(node)) => self.fail(&node.span(), "a tree without components"),
            _ => {}
        }
        let mut components: Vec<ComponentType> =
            component.into_iter().map(|it| self.component(it)).collect();
        if plain {
            components.push(self.plain(&service));
        }
        let mut outline = Outline {
            name: self.located(&service.name),
            version,
            converge: service.converge,
            missing_handler: service.missing_handler,
            write: grants.write.iter().map(|it| self.located(it)).collect(),
            read: grants.read.iter().map(|it| self.located(it)).collect(),
            handler: handler.map(|it| self.handler(it)),
            components,
            tree: Vec::new(),
        };
        outline.tree = self.nodes(tree, 1);
        outline
    }

    fn handler(&mut self, handler: raw::Handler) -> Handler {
        let texts = |texts: Vec<Text>| texts.iter().map(|it| it.get_ref().into()).collect();
        Handler {
            user: handler.user.map(|it| it.into_inner().into()),
            identities: texts(handler.identities),
            modification: handler.modification,
        }
    }

    /// The component of a plain type.
    fn plain(&mut self, service: &raw::Service) -> ComponentType {
        let position = self.position(&service.name.span());
        let mut init = StateOutline::unnamed(INIT, position);
        init.work = service.work.as_ref().and_then(|work| self.work(work));
        let states = vec![init, StateOutline::unnamed(READY, position)];
        ComponentType { name: SELF.into(), states }
    }

    fn component(&mut self, component: Spanned<raw::Component>) -> ComponentType {
        let span = component.span();
        let raw::Component { component_type, state } = component.into_inner();
        self.name(&component_type, "a component type");
        let name: SmolStr = component_type.get_ref().into();
        if name == SELF {
            self.fail(
                &component_type.span(),
                "`self` is in every instance, and has no states of a package",
            );
        }
        if !self.types.insert(name.clone()) {
            self.fail(
                &component_type.span(),
                format!("the component type `{name}` is there twice"),
            );
        }
        let mut states: Vec<StateOutline> = Vec::new();
        for state in state {
            let at = state.span();
            let state = self.state(state.into_inner());
            if states.iter().any(|it| it.name == state.name) {
                self.fail(&at, format!("the state `{}` is there twice", state.name));
            }
            if state.name == INIT && !states.is_empty() {
                self.fail(&at, "`init` is the first state");
            }
            if states.last().is_some_and(|it| it.name == READY) {
                self.fail(&at, "`ready` is the last state");
            }
            states.push(state);
        }
        let position = self.position(&span);
        if states.first().is_none_or(|it| it.name != INIT) {
            states.insert(0, StateOutline::unnamed(INIT, position));
        }
        if states.last().is_none_or(|it| it.name != READY) {
            states.push(StateOutline::unnamed(READY, position));
        }
        if let Err(error) = COMPONENT_STATES.check(states.len()) {
            self.fail(&span, error);
        }
        ComponentType { name, states }
    }

    fn state(&mut self, state: raw::State) -> StateOutline {
        self.name(&state.name, "a state");
        if let Some(work) = state.work.as_ref().filter(|_| state.name.get_ref() == READY) {
            self.fail(&work.span(), "work never stands on `ready`: put it on a state before");
        }
        StateOutline {
            name: state.name.get_ref().into(),
            position: self.position(&state.name.span()),
            when: state.when.map(|it| self.expression(&it)),
            sticky: state.sticky,
            timeout: state.timeout.and_then(|it| self.seconds(&it, &TIMEOUT_SECONDS)),
            work: state.work.and_then(|it| self.work(&it)),
            commit_after: state.commit_after,
            action: state.action.and_then(|it| self.action(it)),
            delete: state.delete.map(|it| self.delete(it)).unwrap_or_default(),
        }
    }

    fn delete(&mut self, delete: raw::Delete) -> DeleteOutline {
        let work = delete.work.and_then(|work| {
            if work.get_ref() != "handler" {
                self.fail(
                    &work.span(),
                    "a template has no delete part: what is not put out again goes",
                );
                return None;
            }
            self.work(&work)
        });
        DeleteOutline {
            when: delete.when.map(|it| self.expression(&it)),
            commit_after: delete.commit_after,
            handler: work.is_some(),
            action: delete.action.and_then(|it| self.action(it)),
        }
    }

    fn work(&mut self, work: &Text) -> Option<Work> {
        if work.get_ref() == "handler" {
            if !self.has_handler {
                self.fail(&work.span(), "there is no [handler] to do this work");
            }
            return Some(Work::Handler);
        }
        let LocatedText { text, position } = self.located(work);
        let text = smol_str::format_smolstr!("{TEMPLATES}/{text}");
        Some(Work::Template(LocatedText { text, position }))
    }

    fn action(&mut self, action: Spanned<raw::Action>) -> Option<Action> {
        let span = action.span();
        let action = action.into_inner();
        let target = match (action.handler, action.builtin) {
            (Some(handler), None) => {
                if !self.has_handler {
                    self.fail(&handler.span(), "there is no [handler] to do this action");
                }
                self.name(&handler, "an action");
                ActionTarget::Handler(handler.into_inner().into())
            }
            (None, Some(builtin)) if builtin.get_ref() == PING => {
                ActionTarget::Builtin(PING.into())
            }
            (None, Some(builtin)) => {
                let reason = format!(
                    "there is no builtin action `{}`: there is `{PING}`",
                    builtin.get_ref()
                );
                self.fail(&builtin.span(), reason);
                return None;
            }
            (Some(_), Some(_)) | (None, None) => {
                self.fail(&span, "an action has either `handler` or `builtin`");
                return None;
            }
        };
        let params = action.params.iter();
        let params = params.map(|(name, it)| (name.into(), self.expression(it))).collect();
        let timeout = action.timeout.and_then(|it| self.seconds(&it, &ACTION_SECONDS));
        Some(Action {
            target,
            params,
            sync: action.sync,
            result: action.result.map(|it| self.expression(&it)),
            serial: action.serial.map(|it| self.expression(&it)),
            save: self.bindings(&action.save).into_iter().collect(),
            timeout: timeout.unwrap_or(ACTION_TIME),
        })
    }

    fn nodes(&mut self, nodes: Vec<Spanned<raw::Node>>, depth: usize) -> Vec<TreeNode> {
        let Some(first) = nodes.first() else { return Vec::new() };
        let span = first.span();
        if let Err(error) = TREE_DEPTH.check(depth) {
            self.fail(&span, error);
            return Vec::new();
        }
        if depth == WARNED_TREE_DEPTH + 1 {
            let reason = format!("a tree deeper than {WARNED_TREE_DEPTH} levels is hard to follow");
            self.warnings.push(PackageError::at(OUTLINE, self.text, &span, reason));
        }
        nodes.into_iter().filter_map(|node| self.node(node, depth)).collect()
    }

    fn node(&mut self, node: Spanned<raw::Node>, depth: usize) -> Option<TreeNode> {
        let span = node.span();
        let node = node.into_inner();
        let foreach = match (&node.foreach, &node.binding) {
            (Some(items), Some(name)) => {
                self.variable(name);
                Some((self.expression(items), name.get_ref().into()))
            }
            (None, None) => None,
            (Some(items), None) => {
                self.fail(&items.span(), "`foreach` needs `as`: the name of an item");
                None
            }
            (None, Some(name)) => {
                self.fail(&name.span(), "`as` needs `foreach`: the items");
                None
            }
        };
        let content = match (node.create, node.node.is_empty()) {
            (Some(create), true) => self.create(create.into_inner()),
            (None, false) => NodeContent::Nodes(self.nodes(node.node, depth + 1)),
            (Some(create), false) => {
                self.fail(&create.span(), "a node has either `create` or nodes below it");
                return None;
            }
            (None, true) => {
                self.fail(&span, "a node without children: neither `create` nor nodes below it");
                return None;
            }
        };
        Some(TreeNode {
            position: self.position(&span),
            condition: node.condition.map(|it| self.expression(&it)),
            observe: node.observe.iter().map(|it| self.expression(it)).collect(),
            foreach,
            vars: self.bindings(&node.vars),
            content,
        })
    }

    fn create(&mut self, create: raw::Create) -> NodeContent {
        let name: SmolStr = create.component_type.get_ref().into();
        if !self.types.contains(&name) {
            let reason = format!("there is no component type `{name}`");
            self.fail(&create.component_type.span(), reason);
        }
        let replaced = |it: &raw::ReplacedComponent| {
            (it.component_type.get_ref().into(), self.expression(&it.name))
        };
        let replaces = create.replaces.iter().map(replaced).collect();
        NodeContent::Create { component_type: name, name: self.expression(&create.name), replaces }
    }

    /// Expressions by the names that their values get.
    fn bindings(&mut self, bindings: &BTreeMap<Text, Text>) -> Vec<(SmolStr, LocatedText)> {
        let mut found = Vec::new();
        for (name, value) in bindings {
            self.variable(name);
            found.push((name.get_ref().into(), self.expression(value)));
        }
        found
    }

    fn expression(&mut self, text: &Text) -> LocatedText {
        if let Err(error) = EXPRESSION_SIZE.check(text.get_ref().len()) {
            self.fail(&text.span(), error);
        }
        self.located(text)
    }

    fn seconds(
        &mut self,
        given: &Spanned<i64>,
        bounds: &std::ops::RangeInclusive<i64>,
    ) -> Option<Duration> {
        if !bounds.contains(given.get_ref()) {
            let reason = format!("seconds are within {}..{}", bounds.start(), bounds.end());
            self.fail(&given.span(), reason);
        }
        u64::try_from(*given.get_ref()).ok().map(Duration::from_secs)
    }

    /// Checks the name of a component type, a state or an action.
    fn name(&mut self, name: &Text, of: &str) {
        let text = name.get_ref();
        let fits = text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && text.len() <= NAME_LENGTH;
        if !fits {
            let reason = format!(
                "the name of {of} is up to {NAME_LENGTH} of a-z, 0-9 and `-`, and begins with a letter"
            );
            self.fail(&name.span(), reason);
        }
    }

    /// Checks the name of the type, which is that of a YANG module and of a list.
    fn yang_name(&mut self, name: &Text) {
        let text = name.get_ref();
        let fits = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
            && text.len() <= NAME_LENGTH;
        if !fits {
            self.fail(
                &name.span(),
                "the name of a type is that of its YANG list: letters, digits, `-`, `_` and `.`",
            );
        }
    }

    /// Checks the name that expressions give to a value.
    fn variable(&mut self, name: &Text) {
        let text = name.get_ref();
        let fits = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !fits {
            self.fail(
                &name.span(),
                "the name of a value is of a-z, 0-9 and `_`, and begins with no digit",
            );
        }
        if RESERVED_NAMES.contains(&text.as_str()) {
            self.fail(
                &name.span(),
                format!("`{text}` has a meaning of its own in every expression"),
            );
        }
    }
}

impl StateOutline {
    /// A state that the outline does not describe.
    pub(crate) fn unnamed(name: &str, position: Position) -> Self {
        Self {
            name: name.into(),
            position,
            when: None,
            sticky: false,
            timeout: None,
            work: None,
            commit_after: false,
            action: None,
            delete: DeleteOutline::default(),
        }
    }
}
