//! Attribution of a problem to an operation of the request, and its wording.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::authorization::EditAuthorization;
use super::errors::{ConflictSide, MAX_CONFLICTS};
use super::{Conflict, EditCause, EditError, EditErrors, EditOperation};
use crate::claims::{Claims, Disagreement};
use crate::cli::{self, Statement, StatementAction};
use crate::instance::InstancePath;
use crate::layer::{LayerKey, Owner};
use crate::limits::excerpt;
use crate::models::Models;
use crate::reserved;
use crate::resolve::PathPattern;
use crate::schema::{NodeId, Origin, Schema};
use crate::services::WorkFailure;
use crate::union::Problem;
use crate::user_keys::key_excerpt;
use crate::value::Value;

/// Paths and texts of all operations.
#[derive(Debug)]
pub(crate) struct Attribution<'a> {
    models: &'a Models,
    scopes: Vec<OperationScope>,
    /// Permissions of the author, which limit what a message may reveal.
    pub(crate) authorization: EditAuthorization,
}

#[derive(Debug)]
enum OperationScope {
    Path { operation: EditOperation, origin: Origin, pattern: PathPattern },
    Text(CliText),
}

/// CLI text of a request.
#[derive(Debug)]
pub(super) struct CliText {
    pub(super) operation: EditOperation,
    pub(super) text: String,
    pub(super) statements: Vec<Statement>,
    /// Computed for the first error message.
    lines: OnceCell<LineIndex>,
}

/// A text by lines.
#[derive(Debug)]
struct LineIndex {
    texts: Vec<String>,
    /// Number of the last line about each path.
    about: HashMap<InstancePath, usize>,
}

/// A leaf, entry or container, with its paths in both models where they exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'p> {
    pub(super) native: Option<&'p InstancePath>,
    pub(super) openconfig: Option<&'p InstancePath>,
}

/// Operation behind a problem, and the path or line within it.
struct ErrorLocation {
    operation: EditOperation,
    place: String,
}

impl<'a> Attribution<'a> {
    pub(super) fn new(models: &'a Models) -> Self {
        Self { models, scopes: Vec::new(), authorization: EditAuthorization::default() }
    }

    /// Attribution for a change of whole trees, with one operation for each origin.
    pub(crate) fn of_trees(
        models: &'a Models,
        operation: impl Fn(Origin) -> EditOperation,
    ) -> Self {
        let mut attribution = Self::new(models);
        for origin in [Origin::Native, Origin::OpenConfig] {
            attribution.path(operation(origin), origin, PathPattern::default());
        }
        attribution
    }

    pub(super) fn path(&mut self, operation: EditOperation, origin: Origin, pattern: PathPattern) {
        self.scopes.push(OperationScope::Path { operation, origin, pattern });
    }

    pub(super) fn text(&mut self, text: CliText) {
        self.scopes.push(OperationScope::Text(text));
    }

    /// Errors for the problems of the union, at most [`MAX_CONFLICTS`], in the order of their operations. Where a service
    /// has a part in one, `claims` names it.
    pub(crate) fn errors(&self, problems: Vec<Problem>, claims: &Claims) -> EditErrors {
        let problems = problems.into_iter().take(MAX_CONFLICTS);
        let mut errors: Vec<_> = problems.map(|it| self.problem(it, claims)).collect();
        errors.sort_by_key(|error| error.operation);
        errors.into()
    }

    fn problem(&self, problem: Problem, claims: &Claims) -> EditError {
        match problem {
            Problem::Unsupported { openconfig, reason, .. } => {
                let subject = Subject { native: None, openconfig: Some(&openconfig) };
                self.error(subject, EditCause::Unsupported(reason))
            }
            Problem::Reserved { service, layer, path, why } => {
                let subject = match layer.origin {
                    Origin::OpenConfig => Subject { native: None, openconfig: Some(&path) },
                    Origin::Native => Subject { native: Some(&path), openconfig: None },
                };
                let claims = claims_of(claims, layer, subject);
                self.error(subject, EditCause::Reserved { owner: service, why, claims })
            }
            Problem::MissingMandatory { native } => {
                let openconfig = self.models.map.first_up(&native);
                let subject = Subject { native: Some(&native), openconfig: openconfig.as_ref() };
                self.error(subject, EditCause::MissingMandatory)
            }
            Problem::MissingOneOf { native, one_of } => {
                let name = |leaf: &NodeId| self.models.native.node(*leaf).name.to_string();
                let names = one_of.iter().map(name).collect::<Vec<_>>().join("` or `");
                let openconfig = self.models.map.first_up(&native);
                let subject = Subject { native: Some(&native), openconfig: openconfig.as_ref() };
                self.error(subject, EditCause::MissingOneOf(names))
            }
            Problem::Conflict { native, sides } => {
                let native = Some(&native);
                let subjects = sides.each_ref().map(|it| it.openconfig.as_ref());
                let subjects = subjects.map(|openconfig| Subject { native, openconfig });
                let sides = [0, 1].map(|at| {
                    let layer = sides[at].layer;
                    let side = self.side(layer, subjects[at], Some(&sides[at].value));
                    ConflictSide { claims: claims_of(claims, layer, subjects[at]), ..side }
                });
                let cause = EditCause::Conflict(Box::new(Conflict { sides }));
                self.error_of(&subjects, cause)
            }
            Problem::KeyConflict { native, openconfig, key } => {
                let subject = Subject { native: Some(&native), openconfig: Some(&openconfig) };
                let client = self.side_with_text(
                    LayerKey::CLIENT_OPENCONFIG,
                    subject,
                    "another key".to_owned(),
                );
                let layer = LayerKey::SERVICE_OPENCONFIG;
                let side = self.side(layer, subject, Some(&Value::Str(key)));
                let side = ConflictSide { claims: claims_of(claims, layer, subject), ..side };
                let sides = [client, side];
                self.error(subject, EditCause::Conflict(Box::new(Conflict { sides })))
            }
            Problem::Disagreement(disagreement) => {
                let Disagreement { origin, path, sides } = *disagreement;
                let subject = match origin {
                    Origin::OpenConfig => Subject { native: None, openconfig: Some(&path) },
                    Origin::Native => Subject { native: Some(&path), openconfig: None },
                };
                let layer = LayerKey::service(origin);
                let sides = sides.map(|(claim, value)| {
                    let side = self.side(layer, subject, Some(&value));
                    ConflictSide { claims: vec![claim.to_string()], ..side }
                });
                self.error(subject, EditCause::Conflict(Box::new(Conflict { sides })))
            }
            Problem::Work(WorkFailure { instance, kind, text }) => {
                let subject = Subject { native: Some(&instance), openconfig: None };
                self.error(subject, EditCause::Work { kind, text })
            }
            Problem::Unanswered(needed) => self.last_operation_error(EditCause::Unanswered(needed)),
            Problem::Limit(error) => self.last_operation_error(error.into()),
        }
    }

    /// Error of the last operation that concerns `subject`.
    pub(super) fn error(&self, subject: Subject<'_>, cause: EditCause) -> EditError {
        self.error_of(&[subject], cause)
    }

    /// Error of the last operation that concerns one of the `subjects`. There is at least one subject.
    fn error_of(&self, subjects: &[Subject<'_>], cause: EditCause) -> EditError {
        let about = |scope| subjects.iter().rev().find_map(|it| self.locate(scope, *it));
        let culprit = self.scopes.iter().rev().find_map(about);
        let nothing = Subject { native: None, openconfig: None };
        let culprit =
            culprit.unwrap_or_else(|| self.last(subjects.last().copied().unwrap_or(nothing)));
        EditError::new(culprit.operation, culprit.place, cause)
    }

    fn locate(&self, scope: &OperationScope, subject: Subject<'_>) -> Option<ErrorLocation> {
        let (operation, place) = match scope {
            OperationScope::Path { operation, origin: Origin::OpenConfig, pattern } => {
                let path = subject.openconfig.filter(|path| pattern.overlaps(path))?;
                (*operation, path_text(&self.models.openconfig, path))
            }
            OperationScope::Path { operation, origin: Origin::Native, pattern } => {
                let path = subject.native.filter(|path| pattern.overlaps(path))?;
                (*operation, path_text(&self.models.native, path))
            }
            OperationScope::Text(text) => {
                (text.operation, text.quoted(text.line_of(subject.native?)?))
            }
        };
        Some(ErrorLocation { operation, place })
    }

    /// Fallback when no operation named the subject: the last operation, which must have implied it.
    fn last(&self, subject: Subject<'_>) -> ErrorLocation {
        let operation = self.scopes.last().map(|scope| match scope {
            OperationScope::Path { operation, .. } => *operation,
            OperationScope::Text(text) => text.operation,
        });
        let native = subject.native.map(|path| path_text(&self.models.native, path));
        let openconfig = subject.openconfig.map(|path| path_text(&self.models.openconfig, path));
        ErrorLocation {
            operation: operation.unwrap_or(EditOperation::Update(0)),
            place: openconfig.or(native).unwrap_or_default(),
        }
    }

    /// Error of the last operation, without naming a subject.
    pub(crate) fn last_operation_error(&self, cause: EditCause) -> EditError {
        let (operation, place) = match self.scopes.last() {
            Some(OperationScope::Path { operation, origin, pattern }) => {
                let path = pattern.concrete().unwrap_or_default();
                (*operation, path_text(self.models.schema(*origin), &path))
            }
            Some(OperationScope::Text(text)) => (text.operation, "/".to_owned()),
            None => (EditOperation::Update(0), "/".to_owned()),
        };
        EditError::new(operation, place, cause)
    }

    /// One side of a conflict: the value of `subject` in one layer, in the model of that layer. `None` stands for
    /// a leaf that is to be absent.
    pub(super) fn side(
        &self,
        layer: LayerKey,
        subject: Subject<'_>,
        value: Option<&Value>,
    ) -> ConflictSide {
        let quoted = |value: &Value| match value {
            Value::Str(key) if self.is_key(subject) => key_excerpt(key),
            value => excerpt(value),
        };
        let text =
            value.map_or_else(|| "to be absent".to_owned(), |it| format!("`{}`", quoted(it)));
        let side = self.side_with_text(layer, subject, text);
        let native = subject.native.filter(|_| layer == LayerKey::CLIENT_NATIVE);
        let line = native.filter(|path| self.authorization.may_read(Origin::Native, path));
        ConflictSide {
            line: line.and_then(|path| self.line(path, value)).map(|line| excerpt(&line)),
            ..side
        }
    }

    /// True for the leaf of a user's public key.
    fn is_key(&self, subject: Subject<'_>) -> bool {
        let leaf = subject.openconfig.and_then(InstancePath::last);
        let row = leaf.and_then(|step| reserved::row(&self.models.openconfig, step.node));
        row.is_some_and(|row| row.is_for_services)
    }

    /// One side of a conflict, with the value given as text. Values that the author may not read are hidden.
    pub(super) fn side_with_text(
        &self,
        layer: LayerKey,
        subject: Subject<'_>,
        text: String,
    ) -> ConflictSide {
        let path = match (layer.origin, subject.openconfig, subject.native) {
            (Origin::OpenConfig, Some(path), _) => Some((Origin::OpenConfig, path)),
            (_, _, Some(path)) => Some((Origin::Native, path)),
            _ => None,
        };
        let hidden = path.is_some_and(|(origin, path)| !self.authorization.may_read(origin, path));
        let value = if hidden { "set otherwise".to_owned() } else { text };
        let path = path.map(|(origin, path)| path_text(self.models.schema(origin), path));
        ConflictSide {
            layer,
            path: path.unwrap_or_default(),
            value,
            line: None,
            claims: Vec::new(),
        }
    }

    /// The CLI line about a native leaf: that of the request with its number, or for a stored value the line that
    /// would create it.
    fn line(&self, native: &InstancePath, value: Option<&Value>) -> Option<String> {
        for named in self.scopes.iter().rev() {
            match named {
                OperationScope::Text(text) => {
                    if let Some(line) = text.line_of(native) {
                        return Some(text.quoted(line));
                    }
                }
                OperationScope::Path { origin: Origin::Native, pattern, .. }
                    if pattern.overlaps(native) =>
                {
                    return None;
                }
                OperationScope::Path { .. } => {}
            }
        }
        let act = value.map_or(StatementAction::No, |value| StatementAction::Set(value.clone()));
        Some(cli::line(&self.models.native, native, &act))
    }
}

impl CliText {
    pub(super) fn new(operation: EditOperation, text: &str, statements: Vec<Statement>) -> Self {
        Self { operation, text: text.to_owned(), statements, lines: OnceCell::new() }
    }

    /// Number of the last line about a path or an ancestor of it.
    fn line_of(&self, path: &InstancePath) -> Option<usize> {
        let mut path = path.clone();
        while !path.is_root() {
            if let Some(line) = self.lines().about.get(&path) {
                return Some(*line);
            }
            path.0.pop();
        }
        None
    }

    /// Quotes a line with its number.
    pub(super) fn quoted(&self, line: usize) -> String {
        let text = line.checked_sub(1).and_then(|at| self.lines().texts.get(at));
        excerpt(&format_args!("line {line}: {}", text.map_or("", String::as_str)))
    }

    fn lines(&self) -> &LineIndex {
        self.lines.get_or_init(|| LineIndex {
            texts: self.text.lines().map(|line| line.trim().to_owned()).collect(),
            about: self.statements.iter().map(|it| (it.path.clone(), it.line)).collect(),
        })
    }
}

/// Names of the claims that hold a leaf in a layer of services.
fn claims_of(claims: &Claims, layer: LayerKey, subject: Subject<'_>) -> Vec<String> {
    let path = match layer.origin {
        _ if layer.owner != Owner::Service => None,
        Origin::OpenConfig => subject.openconfig,
        Origin::Native => subject.native,
    };
    let holders = path.map(|path| claims.holders(layer.origin, path)).unwrap_or_default();
    holders.into_iter().map(ToString::to_string).collect()
}

fn path_text(schema: &Schema, path: &InstancePath) -> String {
    excerpt(&path.to_path(schema))
}
