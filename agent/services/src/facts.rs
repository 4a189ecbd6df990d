//! Questions of expressions about the box and service plans, and the functions that ask them.
//!
//! A caller answers through [`Facts`], and may record what it was asked: that is what an evaluation depends on. Paths are
//! looked up, and held against the grants of the package, before the caller is asked.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_config::path::ANY;
use holdfast_config::{Limit, Models, Value};
use minijinja::value::Rest;
use minijinja::{Error, ErrorKind, Value as TemplateValue};
use smol_str::SmolStr;

use crate::convert;
use crate::grants::{self, Grants};
use crate::limits::{READ_MATCHES, READS};

pub use holdfast_config::services::{LeafRead as Read, Plane};

/// Answers to what expressions ask. All of it is empty and false unless an implementation says otherwise.
pub trait Facts: Debug + Send + Sync {
    /// Values of the leaves that exist, in the order of their paths.
    fn read(&self, _read: &Read) -> Vec<Value> {
        Vec::new()
    }

    /// True when the leaves were there since the state was first waited for, and are not any more.
    fn gone(&self, _read: &Read) -> bool {
        false
    }

    /// True when this state of a component of the instance is reached.
    fn reached(&self, _component_type: &str, _name: &str, _state: &str) -> bool {
        false
    }

    /// Status of the action of this state; `None` when it has none.
    fn action(&self, _component_type: &str, _name: &str, _state: &str) -> Option<SmolStr> {
        None
    }

    /// True when every component of the type that does not back-track is ready, and there is one.
    fn ready(&self, _component_type: &str) -> bool {
        false
    }

    /// True when this other instance is ready.
    fn service_ready(&self, _tag: &str) -> bool {
        false
    }
}

/// The questions that can be answered, where not all of the box is known.
pub trait KnownAnswers: Debug + Send + Sync {
    /// Checks that the leaves at a path are known, or are known not to be there.
    ///
    /// # Errors
    /// With the path, when nothing is known of it. A question for it fails.
    fn check_leaves(&self, read: &Read) -> Result<(), String>;

    /// Checks that the readiness of another instance is known.
    ///
    /// # Errors
    /// With its name, when it is not.
    fn check_service(&self, tag: &str) -> Result<(), String>;
}

/// The package and the instance that ask.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) models: Arc<Models>,
    pub(crate) grants: Arc<Grants>,
    /// `None` where all is known.
    pub(crate) known: Option<Arc<dyn KnownAnswers>>,
    /// Key of the instance.
    pub(crate) key: SmolStr,
}

/// An unknown box, where nothing is reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFacts;

impl Facts for NoFacts {}

/// The functions of one evaluation.
#[derive(Debug)]
struct Questions {
    facts: Arc<dyn Facts>,
    asker: Asker,
    reads: AtomicUsize,
    matches: AtomicUsize,
}

/// Names of the functions that [`functions`] makes.
pub(crate) const FUNCTIONS: [&str; 7] =
    ["config", "state", "gone", "reached", "action", "ready", "service_ready"];

/// The functions of one evaluation by their names.
pub(crate) fn functions(facts: &Arc<dyn Facts>, asker: Asker) -> Vec<(SmolStr, TemplateValue)> {
    let questions = Arc::new(Questions {
        facts: facts.clone(),
        asker,
        reads: AtomicUsize::new(0),
        matches: AtomicUsize::new(0),
    });
    type Arguments = Rest<TemplateValue>;
    let it = || questions.clone();
    let config = it();
    let state = it();
    let gone = it();
    let reached = it();
    let action = it();
    let ready = it();
    let service_ready = it();
    vec![
        (
            "config".into(),
            TemplateValue::from_function(move |path: String, arguments: Arguments| {
                config.read(Plane::Ground, &path, &arguments)
            }),
        ),
        (
            "state".into(),
            TemplateValue::from_function(move |path: String, arguments: Arguments| {
                state.read(Plane::State, &path, &arguments)
            }),
        ),
        (
            "gone".into(),
            TemplateValue::from_function(move |path: String, arguments: Arguments| {
                gone.gone(&path, &arguments)
            }),
        ),
        (
            "reached".into(),
            TemplateValue::from_function(move |kind: String, name: String, state: String| {
                reached.facts.reached(&kind, &name, &state)
            }),
        ),
        (
            "action".into(),
            TemplateValue::from_function(move |kind: String, name: String, state: String| {
                action.facts.action(&kind, &name, &state).map(|status| status.to_string())
            }),
        ),
        (
            "ready".into(),
            TemplateValue::from_function(move |kind: String| ready.facts.ready(&kind)),
        ),
        (
            "service_ready".into(),
            TemplateValue::from_function(move |tag: String| service_ready.service_ready(&tag)),
        ),
    ]
}

impl Questions {
    /// The value of one leaf, or none; of a path with a wildcard, the list of what is there.
    fn read(
        &self,
        plane: Plane,
        path: &str,
        arguments: &[TemplateValue],
    ) -> Result<TemplateValue, Error> {
        let read = self.resolve(plane, path, arguments)?;
        let many = read.patterns.iter().any(|pattern| pattern.concrete().is_none());
        let values = self.facts.read(&read);
        Self::count(&self.matches, values.len(), &READ_MATCHES)?;
        let mut values = values.iter().map(convert::value);
        Ok(match many {
            true => values.collect(),
            false => values.next().unwrap_or(TemplateValue::from(())),
        })
    }

    fn gone(&self, path: &str, arguments: &[TemplateValue]) -> Result<bool, Error> {
        Ok(self.facts.gone(&self.resolve(Plane::State, path, arguments)?))
    }

    fn service_ready(&self, tag: &str) -> Result<bool, Error> {
        let known = self.asker.known.as_ref().map_or(Ok(()), |known| known.check_service(tag));
        known.map_err(refused)?;
        Ok(self.facts.service_ready(tag))
    }

    fn resolve(
        &self,
        plane: Plane,
        path: &str,
        arguments: &[TemplateValue],
    ) -> Result<Read, Error> {
        Self::count(&self.reads, 1, &READS)?;
        let filled = fill(path, arguments)?;
        let Asker { models, grants, known, key } = &self.asker;
        let read = grants::readable(models, grants, plane, &filled).map_err(refused)?;
        grants::check_instance(models, &read, key).map_err(refused)?;
        let known = known.as_ref().map_or(Ok(()), |known| known.check_leaves(&read));
        known.map_err(refused)?;
        Ok(read)
    }

    fn count(counter: &AtomicUsize, more: usize, limit: &'static Limit) -> Result<(), Error> {
        let count = counter.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        let fits = limit.check(count);
        fits.map_err(|error| Error::new(ErrorKind::OutOfFuel, error.to_string()))
    }
}

fn refused(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// A path with any value of a key for each `{}`, and the number of these.
pub(crate) fn with_any_keys(path: &str) -> Result<(String, usize), String> {
    let parts: Vec<&str> = path.split("{}").collect();
    let fits = parts.windows(2).all(|it| it[0].ends_with('=') && it[1].starts_with(']'));
    match fits {
        true => Ok((parts.join(ANY), parts.len() - 1)),
        false => Err(no_key_place(path)),
    }
}

fn no_key_place(path: &str) -> String {
    format!("`{{}}` stands for a value of a key in `{path}`: [KEY={{}}]")
}

/// Puts an argument for each `{}` of a path, so that none of it is more than a value of a key.
fn fill(path: &str, arguments: &[TemplateValue]) -> Result<String, Error> {
    let mut parts = path.split("{}");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    let mut arguments = arguments.iter();
    for part in parts {
        if !filled.ends_with('=') || !part.starts_with(']') {
            return Err(refused(no_key_place(path)));
        }
        let argument = arguments
            .next()
            .ok_or_else(|| refused(format!("`{path}` has more `{{}}` than arguments follow it")))?;
        let text = convert::scalar_text(argument).filter(|text| text != ANY).ok_or_else(|| {
            let printed = match argument.as_str() {
                Some(text) => format!("`{text}`"),
                None => argument.kind().to_string(),
            };
            refused(format!("{printed} is not a value of a key in `{path}`"))
        })?;
        for c in text.chars() {
            match c {
                '\n' => filled.push_str("\\n"),
                '\\' | ']' => filled.extend(['\\', c]),
                c => filled.push(c),
            }
        }
        filled.push_str(part);
    }
    match arguments.next() {
        None => Ok(filled),
        Some(_) => Err(refused(format!("`{path}` has fewer `{{}}` than arguments follow it"))),
    }
}
