//! Checks of the parts of a package that can never work, whatever the parameters and the box: names that nothing has, reads
//! without a grant, lines that the command line does not know.
//!
//! Start at [`Package::lint`]. A package with such parts can be loaded all the same, since other parts of it may
//! work; so an author is told of them, and an agent is not. Expressions are checked here by their syntax trees, what
//! templates put out in [`skeleton`]. Errors that depend on values are left to an evaluation.

mod skeleton;

use std::collections::BTreeMap;

use holdfast_config::cli::Grammar;
use holdfast_config::limits::excerpt;
use holdfast_config::schema::NodeKind;
use holdfast_config::{NodeId, Schema};
use minijinja::machinery::ast::{Call, CallArg, CallType, Expr, Stmt};
use minijinja::machinery::{Span, parse, parse_expr};
use smol_str::SmolStr;

use crate::engine::{TemplateKind, file_of};
use crate::error::{PackageError, Position};
use crate::facts::{self, FUNCTIONS, Plane};
use crate::outline::{
    Action, ActionTarget, INIT, LocatedText, NodeContent, OUTLINE, PING_PARAMETERS, READY, SELF,
    TreeNode,
};
use crate::package::Package;
use crate::scope::RESERVED_NAMES;

/// Tests and filters for which a value need not be there.
const LENIENT: [&str; 4] = ["defined", "undefined", "default", "d"];

impl Package {
    /// Everything of the package that can never work, by file and place.
    pub fn lint(&self) -> Vec<PackageError> {
        let mut errors = Vec::new();
        let names = outline(self, &mut errors);
        let grammar = Grammar::new(&self.list.models.native);
        for (path, kind, source) in self.engine.sources() {
            // Text that cannot be parsed is refused before.
            let Ok(Stmt::Template(template)) = parse(&source, &path, Default::default()) else {
                continue;
            };
            let file = file_of(&path);
            let place = Place::In(&source);
            let mut check = TreeCheck {
                package: self,
                file: file.clone(),
                place,
                names: names.clone(),
                errors: &mut errors,
            };
            check.statements(&template.children);
            if kind == Some(TemplateKind::Cli) {
                let lines = skeleton::check(self, &grammar, &source, &template.children);
                let located =
                    lines.map(|(position, reason)| PackageError::in_line(&file, position, reason));
                errors.extend(located);
            }
        }
        errors.sort_by(|one, other| (&one.file, one.position).cmp(&(&other.file, other.position)));
        errors.dedup();
        errors
    }
}

/// Meaning of a name, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// The map of a container, or of one entry of a list.
    Entry(NodeId),
    /// The entries of a list.
    Entries(NodeId),
    Unknown,
}

/// Names that an expression sees.
#[derive(Clone, Debug, Default)]
struct Names(BTreeMap<SmolStr, Bound>);

impl Names {
    /// Binds a name. A name that stands for different things in different places is not known.
    fn bind(&mut self, name: &str, bound: Bound) {
        self.0.insert(name.into(), bound);
    }

    fn join(&mut self, name: &str, bound: Bound) {
        let known = self.0.entry(name.into()).or_insert(bound);
        if *known != bound {
            *known = Bound::Unknown;
        }
    }
}

/// Checks the expressions of the outline. Returns the names that states and templates see.
fn outline(package: &Package, errors: &mut Vec<PackageError>) -> Names {
    let outline = &package.outline;
    let mut names = Names::default();
    RESERVED_NAMES.iter().for_each(|name| names.bind(name, Bound::Unknown));
    names.0.retain(|name, _| !FUNCTIONS.contains(&name.as_str()));
    names.bind("params", Bound::Entry(package.list.list));
    let saved = outline.actions().flat_map(|action| action.save.keys());
    saved.for_each(|name| names.bind(name, Bound::Unknown));
    let mut all = names.clone();
    nodes(package, &outline.tree, &names, &mut all, errors);
    for state in outline.components.iter().flat_map(|component| &component.states) {
        let mut check = |text: &LocatedText| {
            expression(package, text, &all, errors);
        };
        state.when.iter().chain(&state.delete.when).for_each(&mut check);
        for action in state.action.iter().chain(&state.delete.action) {
            action.params.values().chain(action.save.values()).for_each(&mut check);
            action.result.iter().chain(&action.serial).for_each(&mut check);
        }
        let actions = state.action.iter().chain(&state.delete.action);
        errors.extend(actions.flat_map(|action| parameters(action, state.position)));
    }
    all
}

/// Checks the nodes of the tree, and joins the names that they bind to those that states see.
fn nodes(
    package: &Package,
    siblings: &[TreeNode],
    names: &Names,
    all: &mut Names,
    errors: &mut Vec<PackageError>,
) {
    for node in siblings {
        let mut inner = names.clone();
        let mut bind = |inner: &mut Names, name: &str, bound| {
            inner.bind(name, bound);
            all.join(name, bound);
        };
        if let Some((items, name)) = &node.foreach {
            let bound = match expression(package, items, &inner, errors) {
                Bound::Entries(list) => Bound::Entry(list),
                Bound::Entry(_) | Bound::Unknown => Bound::Unknown,
            };
            bind(&mut inner, name, bound);
            inner.bind("item", bound);
        }
        for text in node.condition.iter().chain(&node.observe) {
            expression(package, text, &inner, errors);
        }
        for (name, value) in &node.vars {
            let bound = expression(package, value, &inner, errors);
            bind(&mut inner, name, bound);
        }
        match &node.content {
            NodeContent::Nodes(below) => nodes(package, below, &inner, all, errors),
            NodeContent::Create { name, replaces, .. } => {
                for text in std::iter::once(name).chain(replaces.iter().map(|(_, name)| name)) {
                    expression(package, text, &inner, errors);
                }
            }
        }
    }
}

/// Checks an expression of the outline. Returns what its value is, where that is known.
fn expression(
    package: &Package,
    text: &LocatedText,
    names: &Names,
    errors: &mut Vec<PackageError>,
) -> Bound {
    let Ok(parsed) = parse_expr(&text.text) else { return Bound::Unknown };
    let file = OUTLINE.into();
    let place = Place::Fixed(text.position);
    TreeCheck { package, file, place, names: names.clone(), errors }.expression(&parsed)
}

/// Parameters that a builtin action does not have, and the one that it needs.
fn parameters(action: &Action, position: Position) -> Vec<PackageError> {
    let ActionTarget::Builtin(name) = &action.target else { return Vec::new() };
    let unknown = action.params.iter().filter(|(it, _)| !PING_PARAMETERS.contains(&it.as_str()));
    let unknown = unknown.map(|(it, text)| {
        let reason =
            format!("`{name}` has no parameter `{it}`: there are {}", PING_PARAMETERS.join(", "));
        PackageError::in_line(OUTLINE, text.position, reason)
    });
    let needed = PING_PARAMETERS[0];
    let missing = (!action.params.contains_key(needed)).then(|| {
        PackageError::in_line(OUTLINE, position, format!("`{name}` needs the parameter `{needed}`"))
    });
    unknown.chain(missing).collect()
}

/// The places of parts of a syntax tree.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// All of it is one value of the outline.
    Fixed(Position),
    /// A template, with a place for each part.
    In(&'a str),
}

/// Walk of a syntax tree.
struct TreeCheck<'a> {
    package: &'a Package,
    file: SmolStr,
    place: Place<'a>,
    names: Names,
    errors: &'a mut Vec<PackageError>,
}

impl TreeCheck<'_> {
    fn fail(&mut self, span: Span, reason: impl std::fmt::Display) {
        let position = match self.place {
            Place::Fixed(position) => position,
            Place::In(source) => Position::of(source, span.start_offset as usize),
        };
        self.errors.push(PackageError::in_line(&self.file, position, excerpt(&reason)));
    }

    fn schema(&self) -> &Schema {
        &self.package.list.models.native
    }

    fn statements(&mut self, statements: &[Stmt<'_>]) {
        statements.iter().for_each(|it| self.statement(it));
    }

    /// Statements of a block, whose names end with it.
    fn block(&mut self, statements: &[Stmt<'_>]) {
        let names = self.names.clone();
        self.statements(statements);
        self.names = names;
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(it) => self.statements(&it.children),
            Stmt::EmitExpr(it) => self.visit(&it.expr),
            Stmt::EmitRaw(_) => {}
            Stmt::ForLoop(it) => {
                let names = self.names.clone();
                let bound = match self.expression(&it.iter) {
                    Bound::Entries(list) => Bound::Entry(list),
                    Bound::Entry(_) | Bound::Unknown => Bound::Unknown,
                };
                self.target(&it.target, bound);
                it.filter_expr.iter().for_each(|it| self.visit(it));
                self.statements(&it.body);
                self.names = names;
                self.block(&it.else_body);
            }
            Stmt::IfCond(it) => {
                self.expression(&it.expr);
                self.statements(&it.true_body);
                self.statements(&it.false_body);
            }
            Stmt::WithBlock(it) => {
                let names = self.names.clone();
                for (target, value) in &it.assignments {
                    let bound = self.expression(value);
                    self.target(target, bound);
                }
                self.statements(&it.body);
                self.names = names;
            }
            Stmt::Set(it) => {
                let bound = self.expression(&it.expr);
                self.target(&it.target, bound);
            }
            Stmt::SetBlock(it) => {
                it.filter.iter().for_each(|it| self.visit(it));
                self.block(&it.body);
                self.target(&it.target, Bound::Unknown);
            }
            Stmt::AutoEscape(it) => self.block(&it.body),
            Stmt::FilterBlock(it) => {
                self.expression(&it.filter);
                self.block(&it.body);
            }
            Stmt::Block(it) => self.block(&it.body),
            Stmt::Extends(it) => self.template(&it.name),
            Stmt::Include(it) if it.ignore_missing => {}
            Stmt::Include(it) => self.template(&it.name),
            Stmt::Import(it) => {
                self.template(&it.expr);
                self.target(&it.name, Bound::Unknown);
            }
            Stmt::FromImport(it) => {
                self.template(&it.expr);
                for (name, alias) in &it.names {
                    self.target(alias.as_ref().unwrap_or(name), Bound::Unknown);
                }
            }
            Stmt::Macro(it) => {
                self.names.bind(it.name, Bound::Unknown);
                let names = self.names.clone();
                self.names.bind("caller", Bound::Unknown);
                it.args.iter().for_each(|arg| self.target(arg, Bound::Unknown));
                it.defaults.iter().for_each(|it| self.visit(it));
                self.statements(&it.body);
                self.names = names;
            }
            Stmt::CallBlock(it) => {
                self.call(&it.call, it.call_expr_span);
                let names = self.names.clone();
                it.macro_decl.args.iter().for_each(|arg| self.target(arg, Bound::Unknown));
                self.statements(&it.macro_decl.body);
                self.names = names;
            }
            Stmt::Do(it) => self.call(&it.call, it.call.span()),
        }
    }

    /// Binds what is assigned to.
    fn target(&mut self, target: &Expr<'_>, bound: Bound) {
        match target {
            Expr::Var(it) => self.names.bind(it.id, bound),
            Expr::List(it) => it.items.iter().for_each(|it| self.target(it, Bound::Unknown)),
            Expr::Tuple(it) => it.items.iter().for_each(|it| self.target(it, Bound::Unknown)),
            _ => {}
        }
    }

    /// Checks the name of another template.
    fn template(&mut self, name: &Expr<'_>) {
        let constant = name.as_const().and_then(|it| it.as_str().map(ToOwned::to_owned));
        let Some(path) = constant else { return self.visit(name) };
        if self.package.engine.sources().iter().all(|(other, ..)| *other != path) {
            self.fail(name.span(), format!("there is no template `{path}`"));
        }
    }

    /// Checks an expression whose value does not matter.
    fn visit(&mut self, expression: &Expr<'_>) {
        let _bound = self.expression(expression);
    }

    /// Checks an expression. Returns what its value is, where that is known.
    fn expression(&mut self, expression: &Expr<'_>) -> Bound {
        match expression {
            Expr::Const(_) => {}
            Expr::Var(it) => return self.variable(it.id, it.span()),
            Expr::GetAttr(it) => {
                let of = self.expression(&it.expr);
                return self.part(of, it.name, it.span());
            }
            Expr::GetItem(it) => {
                let of = self.expression(&it.expr);
                let name = it.subscript_expr.as_const();
                match name.as_ref().and_then(|name| name.as_str()) {
                    Some(name) => return self.part(of, name, it.span()),
                    None => self.visit(&it.subscript_expr),
                }
                // An item by its number.
                if let (Bound::Entries(list), true) = (of, name.is_some()) {
                    return Bound::Entry(list);
                }
            }
            Expr::Slice(it) => {
                let of = self.expression(&it.expr);
                let bounds = [&it.start, &it.stop, &it.step];
                bounds.into_iter().flatten().for_each(|it| self.visit(it));
                return of;
            }
            Expr::UnaryOp(it) => self.visit(&it.expr),
            Expr::BinOp(it) => {
                self.expression(&it.left);
                self.expression(&it.right);
            }
            Expr::Compare(it) => {
                self.expression(&it.expr);
                it.ops.iter().for_each(|it| self.visit(&it.expr));
            }
            Expr::IfExpr(it) => {
                let parts = [Some(&it.test_expr), Some(&it.true_expr), it.false_expr.as_ref()];
                parts.into_iter().flatten().for_each(|it| self.visit(it));
            }
            Expr::Filter(it) => {
                if !self.package.engine.has_filter(it.name) {
                    self.fail(it.span(), format!("there is no filter `{}`", it.name));
                }
                if let Some(of) = &it.expr {
                    self.operand(of, it.name);
                }
                self.arguments(&it.args);
            }
            Expr::Test(it) => {
                if !self.package.engine.has_test(it.name) {
                    self.fail(it.span(), format!("there is no test `{}`", it.name));
                }
                self.operand(&it.expr, it.name);
                self.arguments(&it.args);
            }
            Expr::Call(it) => self.call(it, it.span()),
            Expr::List(it) => it.items.iter().for_each(|it| self.visit(it)),
            Expr::Tuple(it) => it.items.iter().for_each(|it| self.visit(it)),
            Expr::Map(it) => {
                it.keys.iter().chain(&it.values).for_each(|it| self.visit(it));
            }
        }
        Bound::Unknown
    }

    /// The value that a filter or a test is applied to. For some of them it need not be there.
    fn operand(&mut self, of: &Expr<'_>, by: &str) {
        let is_lenient = LENIENT.contains(&by) && matches!(of, Expr::Var(_));
        if !is_lenient {
            self.expression(of);
        }
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(it)
                | CallArg::Kwarg(_, it)
                | CallArg::PosSplat(it)
                | CallArg::KwargSplat(it) => self.visit(it),
            }
        }
    }

    fn variable(&mut self, name: &str, span: Span) -> Bound {
        let found = self.names.0.get(name).copied();
        let is_function = FUNCTIONS.contains(&name) || self.package.engine.has_function(name);
        // A handler keeps values of any name.
        let may_be_opaque = self.package.outline.handler.is_some();
        if found.is_none() && !is_function && !may_be_opaque {
            self.fail(span, format!("there is no value `{name}`"));
        }
        found.unwrap_or(Bound::Unknown)
    }

    /// A part of a map, by the name that it has in expressions.
    fn part(&mut self, of: Bound, name: &str, span: Span) -> Bound {
        let Bound::Entry(node) = of else { return Bound::Unknown };
        let schema = self.schema();
        let children = || schema.node(node).children.iter().map(|id| schema.node(*id));
        let mut readable = children().filter(|child| child.config);
        let child = readable.find(|child| child.name.replace('-', "_") == *name);
        let Some(child) = child else {
            let owner = match node == self.package.list.list {
                true => "the parameters".to_owned(),
                false => format!("`{}`", schema.node(node).name),
            };
            let names: Vec<String> = children()
                .filter(|child| child.config)
                .map(|child| child.name.replace('-', "_"))
                .collect();
            let is_dashed = children().any(|child| child.config && child.name == name);
            let hint = if is_dashed { "; in expressions `-` is `_`" } else { "" };
            let reason = format!("{owner} have no `{name}`{hint}: there are {}", names.join(", "));
            let reason =
                if owner.starts_with('`') { reason.replacen("have", "has", 1) } else { reason };
            self.fail(span, reason);
            return Bound::Unknown;
        };
        match child.kind {
            NodeKind::Container { .. } => Bound::Entry(child.id),
            NodeKind::List { .. } => Bound::Entries(child.id),
            NodeKind::Root | NodeKind::Leaf | NodeKind::LeafList => Bound::Unknown,
        }
    }

    fn call(&mut self, call: &Call<'_>, span: Span) {
        match call.identify_call() {
            CallType::Function(name) if FUNCTIONS.contains(&name) => self.fact(name, call, span),
            CallType::Function(name) => {
                let is_known =
                    self.names.0.contains_key(name) || self.package.engine.has_function(name);
                let may_be_opaque = self.package.outline.handler.is_some();
                if !is_known && !may_be_opaque {
                    let all = FUNCTIONS.join(", ");
                    self.fail(span, format!("there is no function `{name}`: there are {all}"));
                }
            }
            CallType::Method(of, _) | CallType::Object(of) => self.visit(of),
            CallType::Block(_) => {}
        }
        self.arguments(&call.args);
    }

    /// Checks a question about the box or the service plan, as far as its arguments are constant.
    fn fact(&mut self, function: &str, call: &Call<'_>, span: Span) {
        let constant = |argument: &CallArg<'_>| match argument {
            CallArg::Pos(it) => Some(it.as_const().and_then(|it| it.as_str().map(SmolStr::from))),
            CallArg::Kwarg(..) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
        };
        let arguments: Option<Vec<_>> = call.args.iter().map(constant).collect();
        let Some(arguments) = arguments else { return };
        let wanted = match function {
            "reached" | "action" => "3 arguments: component type, name and state",
            "ready" => "1 argument: the component type",
            "service_ready" => "1 argument: the name of an instance",
            _ => "a path, and an argument for each `{}` of it",
        };
        let fits = match function {
            "reached" | "action" => arguments.len() == 3,
            "ready" | "service_ready" => arguments.len() == 1,
            _ => !arguments.is_empty(),
        };
        if !fits {
            return self.fail(span, format!("`{function}` has {wanted}"));
        }
        match (function, &arguments[..]) {
            ("reached" | "action", [Some(kind), _, state]) => {
                self.state(kind, state.as_deref(), function == "action", span);
            }
            ("ready", [Some(kind)]) => self.state(kind, None, false, span),
            ("config" | "state" | "gone", [Some(path), values @ ..]) => {
                let plane = if function == "config" { Plane::Ground } else { Plane::State };
                self.read(plane, path, values.len(), span);
            }
            _ => {}
        }
    }

    /// Checks that there is a component type with this state.
    fn state(&mut self, kind: &str, state: Option<&str>, of_action: bool, span: Span) {
        let Some(component) = self.package.outline.component(kind) else {
            let is_own = |state: &str| state == INIT || state == READY;
            return match kind == SELF && !of_action && state.is_none_or(is_own) {
                true => {}
                false => self.fail(span, format!("there is no component type `{kind}`")),
            };
        };
        let Some(name) = state else { return };
        let reason = match component.state(name) {
            None => format!("the component type `{kind}` has no state `{name}`"),
            Some(state) if of_action && state.action.is_none() && state.delete.action.is_none() => {
                format!("the state `{name}` of `{kind}` has no action")
            }
            Some(_) => return,
        };
        self.fail(span, reason);
    }

    /// Checks that a path may be read.
    fn read(&mut self, plane: Plane, path: &str, values: usize, span: Span) {
        let checked =
            facts::with_any_keys(path).and_then(|(any, places)| match places.cmp(&values) {
                std::cmp::Ordering::Greater => {
                    Err(format!("`{path}` has more `{{}}` than arguments follow it"))
                }
                std::cmp::Ordering::Less => {
                    Err(format!("`{path}` has fewer `{{}}` than arguments follow it"))
                }
                std::cmp::Ordering::Equal => self.package.readable(plane, &any).map(drop),
            });
        if let Err(reason) = checked {
            self.fail(span, reason);
        }
    }
}
