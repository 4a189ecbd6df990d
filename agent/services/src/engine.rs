//! The template engine, with everything in it that a template of a package must not have taken out.
//!
//! A template has fuel, which pays for time and memory alike; it sees templates of its package alone, no clock, file or
//! environment. An inserted value becomes one word of the command line or one JSON value, whatever it holds: neither a
//! filter nor a block can mark text as finished, because the formatters here know no such mark.

mod filters;
mod nesting;

use std::collections::BTreeMap;
use std::fmt;

use holdfast_config::cli;
use holdfast_config::limits::excerpt;
use minijinja::value::ValueKind;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, OutputSpan, OutputSpanKind, UndefinedBehavior, Value,
};
use smol_str::SmolStr;

use crate::convert;
use crate::error::{PackageError, Position};
use crate::limits::{EXPRESSION_FUEL, RECURSION_DEPTH, TEMPLATE_FUEL, TEMPLATE_SIZE};
use crate::outline::{LocatedText, OUTLINE, TEMPLATES};
use crate::work::{WorkError, WorkErrorKind};

/// Form of what a template puts out, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TemplateKind {
    /// `*.cli`: text of the command line.
    Cli,
    /// `*.native.json`: a document of RFC 7951 in the native model.
    NativeJson,
    /// `*.oc.json`: a document of RFC 7951 in OpenConfig.
    OpenConfigJson,
}

impl TemplateKind {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let ends = [
            (".cli", Self::Cli),
            (".native.json", Self::NativeJson),
            (".oc.json", Self::OpenConfigJson),
        ];
        ends.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, kind)| kind)
    }
}

/// The compiled templates of a package, and what evaluates its expressions.
pub(crate) struct Engine {
    /// For text: its formatter writes words.
    text: Environment<'static>,
    /// For documents: its formatter writes JSON.
    json: Environment<'static>,
    expressions: Environment<'static>,
}

/// Text that a template wrote, and where each part of it comes from.
#[derive(Debug)]
pub(crate) struct RenderedTemplate {
    pub(crate) text: String,
    kind: TemplateKind,
    spans: Vec<OutputSpan>,
}

impl Engine {
    /// Compiles templates, by their paths below the folder of templates.
    pub(crate) fn new<'a>(
        templates: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Vec<PackageError>> {
        let mut engine = Self {
            text: environment(TEMPLATE_FUEL),
            json: environment(TEMPLATE_FUEL),
            expressions: environment(EXPRESSION_FUEL),
        };
        engine.text.set_formatter(|out, _, value| {
            let word = word(value)?;
            Ok(out.write_str(&word)?)
        });
        engine.json.set_formatter(|out, _, value| {
            let json = json(value)?;
            Ok(out.write_str(&json)?)
        });
        let mut errors = Vec::new();
        for (path, source) in templates {
            let file = file_of(path);
            if let Err(error) = TEMPLATE_SIZE.check(source.len()) {
                errors.push(PackageError::of_file(&file, error));
                continue;
            }
            if let Err(error) = nesting::check(source, false) {
                errors.push(PackageError::at(&file, source, &error.at, error.limit));
                continue;
            }
            let environment = match TemplateKind::of(path) {
                Some(TemplateKind::Cli) | None => &mut engine.text,
                Some(TemplateKind::NativeJson | TemplateKind::OpenConfigJson) => &mut engine.json,
            };
            let added = environment.add_template_owned(path.to_owned(), source.to_owned());
            if let Err(error) = added {
                let octet = error.range().map_or(0, |range| range.start);
                errors.push(PackageError::in_line(
                    &file,
                    Position::of(source, octet),
                    reason(&error),
                ));
            }
        }
        if errors.is_empty() { Ok(engine) } else { Err(errors) }
    }

    /// Checks the form of an expression.
    pub(crate) fn check_expression(&self, expression: &LocatedText) -> Result<(), PackageError> {
        nesting::check(&expression.text, true)
            .map_err(|error| PackageError::in_line(OUTLINE, expression.position, error.limit))?;
        let compiled = self.expressions.compile_expression_owned(expression.text.to_string());
        let refused = |error| PackageError::in_line(OUTLINE, expression.position, reason(&error));
        compiled.map(|_| ()).map_err(refused)
    }

    pub(crate) fn evaluate(
        &self,
        expression: &LocatedText,
        names: &BTreeMap<SmolStr, Value>,
    ) -> Result<Value, WorkError> {
        let compiled = self.expressions.compile_expression_owned(expression.text.to_string());
        compiled.and_then(|compiled| compiled.eval(context(names))).map_err(|error| WorkError {
            kind: kind_of(&error),
            file: OUTLINE.into(),
            position: Some(expression.position),
            reason: out_of_fuel(&error, EXPRESSION_FUEL, "an expression")
                .unwrap_or_else(|| format!("`{}`: {}", excerpt(&expression.text), reason(&error))),
        })
    }

    pub(crate) fn render(
        &self,
        path: &str,
        kind: TemplateKind,
        names: &BTreeMap<SmolStr, Value>,
    ) -> Result<RenderedTemplate, WorkError> {
        let environment = self.environment(kind);
        let done =
            environment.get_template(path).and_then(|it| it.render_with_spans(context(names)));
        let (text, spans) = done.map_err(|error| failed(environment, path, &error))?;
        let rendered = RenderedTemplate { text, kind, spans };
        match rendered.value_in_quotes() {
            Some(span) => Err(self.in_quotes(span)),
            None => Ok(rendered),
        }
    }

    fn in_quotes(&self, span: &OutputSpan) -> WorkError {
        let template = self.json.get_template(span.name()).ok();
        let position =
            template.map(|template| Position::of(template.source(), span.source_range().start));
        let reason =
            "a value is inserted with its quotes, and stands alone between the marks of JSON";
        let kind = WorkErrorKind::Failed;
        WorkError { kind, file: file_of(span.name()), position, reason: reason.to_owned() }
    }

    /// The templates: paths below the folder of templates, kinds and texts.
    pub(crate) fn sources(&self) -> Vec<(String, Option<TemplateKind>, String)> {
        let all = self.text.templates().chain(self.json.templates());
        let source = |(path, template): (&str, minijinja::Template<'_, '_>)| {
            (path.to_owned(), TemplateKind::of(path), template.source().to_owned())
        };
        all.map(source).collect()
    }

    pub(crate) fn has_filter(&self, name: &str) -> bool {
        self.is_known(&format!("0 | {name}"), ErrorKind::UnknownFilter)
    }

    pub(crate) fn has_test(&self, name: &str) -> bool {
        self.is_known(&format!("0 is {name}"), ErrorKind::UnknownTest)
    }

    /// True for a function of the library.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.expressions.globals().any(|(global, _)| global == name)
    }

    /// True for an expression that fails in no way, or in another one: what has a meaning is known only when it is asked for.
    fn is_known(&self, expression: &str, unknown: ErrorKind) -> bool {
        let compiled = self.expressions.compile_expression(expression);
        let result = compiled.and_then(|compiled| compiled.eval(()));
        result.err().is_none_or(|error| error.kind() != unknown)
    }

    /// File and place in it that the first word of a line of the text comes from.
    pub(crate) fn origin(
        &self,
        rendered: &RenderedTemplate,
        line: usize,
    ) -> Option<(SmolStr, Position)> {
        let before = rendered.text.split_inclusive('\n').take(line.saturating_sub(1));
        let line_start: usize = before.map(str::len).sum();
        let rest = rendered.text.get(line_start..)?;
        let start = line_start + rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let found = rendered.spans.partition_point(|span| span.output_range().start <= start);
        let span = rendered.spans.get(found.checked_sub(1)?)?;
        let template = self.environment(rendered.kind).get_template(span.name()).ok()?;
        // Plain text is written as it stands in the template; a value comes from its whole expression.
        let into = match span.kind() {
            OutputSpanKind::Raw => start - span.output_range().start,
            _ => 0,
        };
        let position = Position::of(template.source(), span.source_range().start + into);
        Some((file_of(span.name()), position))
    }

    fn environment(&self, kind: TemplateKind) -> &Environment<'static> {
        match kind {
            TemplateKind::Cli => &self.text,
            TemplateKind::NativeJson | TemplateKind::OpenConfigJson => &self.json,
        }
    }
}

impl RenderedTemplate {
    /// The first inserted value of a document that is not a JSON value alone, because it stands in a text of the
    /// template or beside one.
    fn value_in_quotes(&self) -> Option<&OutputSpan> {
        let stands_alone = |span: &&OutputSpan| {
            let range = span.output_range();
            let before = self.text[..range.start].trim_end().chars().next_back();
            let after = self.text[range.end..].trim_start().chars().next();
            before.is_none_or(|c| "{[,:".contains(c)) && after.is_none_or(|c| "]},:".contains(c))
        };
        let inserted = self.spans.iter().filter(|it| it.kind() == OutputSpanKind::Expression);
        inserted.filter(|_| self.kind != TemplateKind::Cli).find(|span| !stands_alone(span))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.text.templates().chain(self.json.templates()).map(|(name, _)| name);
        f.debug_struct("Engine").field("templates", &names.collect::<Vec<_>>()).finish()
    }
}

pub(crate) fn environment(fuel: u64) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(RECURSION_DEPTH);
    environment.set_fuel(Some(fuel));
    environment.set_debug(false);
    for filter in ["safe", "escape", "e"] {
        environment.remove_filter(filter);
    }
    for test in ["safe", "escaped"] {
        environment.remove_test(test);
    }
    // `debug` prints everything; the others make values in values, which only `nesting` bounds.
    for function in ["debug", "namespace", "dict"] {
        environment.remove_global(function);
    }
    for filter in ["batch", "chain", "dictsort", "groupby", "items", "pprint", "slice", "zip"] {
        environment.remove_filter(filter);
    }
    filters::add(&mut environment);
    environment
}

/// Reason for which an expression alone is refused, or fails.
#[derive(Debug)]
pub(crate) struct EngineError {
    /// Byte of the expression, where it is known.
    at: Option<usize>,
    reason: String,
}

impl EngineError {
    pub(crate) fn of(error: &Error) -> Self {
        let fuel = out_of_fuel(error, EXPRESSION_FUEL, "an expression");
        let reason = fuel.unwrap_or_else(|| reason(error));
        Self { at: error.range().map(|range| range.start), reason }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "column {}: {}", at + 1, self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Compiles an expression that stands alone.
pub(crate) fn compile<'e>(
    environment: &'e Environment<'static>,
    expression: &str,
) -> Result<minijinja::Expression<'e, 'static>, EngineError> {
    nesting::check(expression, true).map_err(|error| EngineError {
        at: Some(error.at.start),
        reason: error.limit.to_string(),
    })?;
    let compiled = environment.compile_expression_owned(expression.to_owned());
    compiled.map_err(|error| EngineError::of(&error))
}

fn context(names: &BTreeMap<SmolStr, Value>) -> Value {
    Value::from_pairs(names.iter().map(|(name, value)| (name.as_str(), value.clone())))
}

pub(crate) fn file_of(path: &str) -> SmolStr {
    smol_str::format_smolstr!("{TEMPLATES}/{path}")
}

/// One word of the command line.
fn word(value: &Value) -> Result<String, Error> {
    let text = convert::scalar_text(value).ok_or_else(|| no_scalar(value))?;
    let mut word = String::with_capacity(text.len());
    cli::write_word(&mut word, &text);
    Ok(word)
}

/// One JSON value: a scalar, or the list of them that a leaf-list is.
fn json(value: &Value) -> Result<String, Error> {
    let is_scalar =
        |it: &Value| matches!(it.kind(), ValueKind::String | ValueKind::Number | ValueKind::Bool);
    let is_list = value.kind() == ValueKind::Seq
        && value.try_iter().is_ok_and(|mut items| items.all(|item| is_scalar(&item)));
    if !is_scalar(value) && !is_list {
        return Err(no_scalar(value));
    }
    serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn no_scalar(value: &Value) -> Error {
    let reason = match value.kind() {
        ValueKind::Undefined => return Error::from(ErrorKind::UndefinedError),
        ValueKind::None => "none cannot be inserted: ask `is none` before".to_owned(),
        kind => format!("a {kind} cannot be inserted: insert its parts one by one"),
    };
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Text of an error without its place.
fn reason(error: &Error) -> String {
    let mut reason = error.kind().to_string();
    if let Some(detail) = error.detail() {
        reason = match error.kind() {
            ErrorKind::InvalidOperation => detail.to_owned(),
            _ => format!("{reason}: {detail}"),
        };
    }
    excerpt(&reason)
}

fn kind_of(error: &Error) -> WorkErrorKind {
    match error.kind() {
        ErrorKind::OutOfFuel => WorkErrorKind::Limit,
        _ => WorkErrorKind::Failed,
    }
}

/// Text about fuel that ran out; `None` for other errors, and for limits that have their own words.
fn out_of_fuel(error: &Error, fuel: u64, of: &str) -> Option<String> {
    let ran_out = error.kind() == ErrorKind::OutOfFuel && error.detail().is_none();
    ran_out.then(|| format!("more than {fuel} units of work in {of} (limit `fuel`)"))
}

/// Error of a template, at the innermost place that is known.
fn failed(environment: &Environment<'_>, path: &str, error: &Error) -> WorkError {
    let mut innermost = error;
    while let Some(source) =
        std::error::Error::source(innermost).and_then(|source| source.downcast_ref::<Error>())
    {
        innermost = source;
    }
    let name = innermost.name().unwrap_or(path);
    let template = environment.get_template(name).ok();
    let source = template.as_ref().map_or("", |template| template.source());
    let position = match (innermost.range(), innermost.line()) {
        (Some(range), _) => Some(Position::of(source, range.start)),
        (None, Some(line)) => Some(Position { line, column: 1 }),
        (None, None) => None,
    };
    // Of an undefined value nothing but its place is known.
    let undefined = innermost.kind() == ErrorKind::UndefinedError && innermost.detail().is_none();
    let named = innermost.range().filter(|_| undefined).and_then(|range| source.get(range));
    WorkError {
        kind: kind_of(innermost),
        file: file_of(name),
        position,
        reason: out_of_fuel(innermost, TEMPLATE_FUEL, "a template").unwrap_or_else(
            || match named {
                Some(name) => format!("{}: {}", innermost.kind(), excerpt(name)),
                None => reason(innermost),
            },
        ),
    }
}
