//! The document of answers: what an author says of a box that is not there.
//!
//! ```json
//! {
//!   "state":    { "/interfaces/interface[name=eth1]/state/oper-status": "UP" },
//!   "gone":     [ "/interfaces/interface[name=eth2]/state/oper-status" ],
//!   "config":   { "/interfaces/interface[name=eth1]/mtu": 1500 },
//!   "services": { "access[name='core']": true },
//!   "actions":  { "uplink eth1 probed": { "sent": 5, "received": 5 } },
//!   "handlers": { "port eth1 attached": { "vlan": 7 } }
//! }
//! ```
//!
//! A value of null says that nothing is there; its path may have `*` for keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_config::json::{self, DocumentContent, Flavour};
use holdfast_config::limits::excerpt;
use holdfast_config::schema::{NodeKind, Origin};
use holdfast_config::services::{Applied, BoxState, Plane};
use holdfast_config::{ClaimKey, LeafMark, Models, Path, PathPattern, Value};
use serde::Deserialize;
use serde_json::value::RawValue;
use smol_str::SmolStr;

use crate::facts::{KnownAnswers, Read};
use crate::grants::split_origin;

/// Answers of an author about a box, as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    /// Values of leaves of state by path.
    #[serde(default)]
    state: BTreeMap<String, Box<RawValue>>,
    /// Paths of leaves that were there, and are not any more.
    #[serde(default)]
    gone: BTreeSet<String>,
    /// Values of leaves of configuration by path, beside the instance.
    #[serde(default)]
    pub(super) config: BTreeMap<String, Box<RawValue>>,
    /// Readiness of other instances by name.
    #[serde(default)]
    pub(super) services: BTreeMap<String, bool>,
    /// Results of actions by component type, component and state.
    #[serde(default)]
    pub(super) actions: BTreeMap<String, Box<RawValue>>,
    /// Opaque values that handlers give by component type, component and state, or by the name of a modification call.
    #[serde(default)]
    pub(super) handlers: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}

/// The box that answers speak of.
#[derive(Debug)]
pub(super) struct KnownBox {
    models: Arc<Models>,
    leaves: Vec<KnownLeaf>,
    services: BTreeSet<String>,
    /// Questions that were asked and have no answer, as members of the document.
    unanswered: Mutex<BTreeSet<Unanswered>>,
}

/// Answer to a question for leaves.
#[derive(Debug)]
struct KnownLeaf {
    plane: Plane,
    origin: Origin,
    pattern: PathPattern,
    value: Option<Value>,
}

/// Question without an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unanswered {
    /// Member of the document that answers of this kind are in.
    pub section: &'static str,
    /// The questions.
    pub name: SmolStr,
    /// Form of the answer.
    pub answer: &'static str,
}

impl Answers {
    /// Reads the document.
    ///
    /// # Errors
    /// With the place of what is not of this form.
    pub fn read(document: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(document).map_err(|error| error.to_string())
    }

    /// The box of these answers.
    pub(super) fn known_box(&self, models: &Arc<Models>) -> Result<KnownBox, String> {
        let mut leaves = Vec::new();
        for (path, value) in &self.state {
            leaves.push(known_leaf(models, Plane::State, path, Some(value))?);
        }
        for path in &self.gone {
            leaves.push(known_leaf(models, Plane::State, path, None)?);
        }
        for (path, value) in &self.config {
            leaves.push(known_leaf(models, Plane::Ground, path, Some(value))?);
        }
        let models = Arc::clone(models);
        let services = self.services.keys().cloned().collect();
        Ok(KnownBox { models, leaves, services, unanswered: Mutex::default() })
    }

    /// Paths of leaves that are gone, as service plans note them.
    pub(super) fn gone(&self, models: &Models) -> Result<Vec<Arc<str>>, String> {
        let text = |path: &String| {
            let KnownLeaf { plane, origin, pattern, .. } =
                known_leaf(models, Plane::State, path, None)?;
            let read = Read { plane, origin, patterns: vec![pattern] };
            Ok(Arc::from(read.to_text(models)))
        };
        self.gone.iter().map(text).collect()
    }
}

/// The answer for a path; without a value nothing is there.
fn known_leaf(
    models: &Models,
    plane: Plane,
    text: &str,
    value: Option<&RawValue>,
) -> Result<KnownLeaf, String> {
    let wrong = |reason: String| format!("`{text}`: {reason}");
    let (origin, rest) = split_origin(text)?;
    let schema = models.schema(origin);
    let path: Path = rest.parse().map_err(|error| wrong(format!("{error}")))?;
    let patterns = schema.resolve_read(&path).map_err(|error| error.to_string())?;
    let [pattern] = &patterns[..] else {
        return Err(wrong("the path names more than one leaf".to_owned()));
    };
    let node = schema.node(pattern.last().unwrap_or(schema.root()));
    if !matches!(node.kind, NodeKind::Leaf | NodeKind::LeafList) {
        return Err(wrong("the path is not a leaf".to_owned()));
    }
    if node.config != (plane == Plane::Ground) {
        let other = if node.config { "configuration: `config`" } else { "state: `state`" };
        return Err(wrong(format!("it is {other} answers for it")));
    }
    let pattern = pattern.clone();
    let given = value.filter(|value| value.get() != "null");
    let Some(given) = given else { return Ok(KnownLeaf { plane, origin, pattern, value: None }) };
    let Some(path) = pattern.concrete() else {
        return Err(wrong("give a value for each key, or null where nothing is there".to_owned()));
    };
    let document = given.get().as_bytes();
    let read = json::parse(schema, &path, document, Flavour::Ietf, false, LeafMark::Explicit);
    match read.map_err(|error| wrong(error.to_string()))?.content {
        DocumentContent::Leaf(value) => {
            Ok(KnownLeaf { plane, origin, pattern, value: Some(value) })
        }
        DocumentContent::Branch(_) | DocumentContent::List(_) => {
            Err(wrong(format!("`{}` is not a value of a leaf", excerpt(&given))))
        }
    }
}

impl KnownLeaf {
    /// True for an answer to a question for the leaves of a pattern, or for some of them.
    fn is_of(&self, plane: Plane, origin: Origin, pattern: &PathPattern) -> bool {
        if (self.plane, self.origin) != (plane, origin) {
            return false;
        }
        let covers = |one: &PathPattern, other: &PathPattern| {
            other.concrete().is_some_and(|path| one.0.len() == path.0.len() && one.covers(&path))
        };
        self.pattern == *pattern || covers(pattern, &self.pattern) || covers(&self.pattern, pattern)
    }
}

impl KnownBox {
    /// Questions without an answer since this was asked last.
    pub(super) fn take_unanswered(&self) -> BTreeSet<Unanswered> {
        std::mem::take(&mut *self.unanswered())
    }

    /// Notes a question without an answer.
    fn note(&self, section: &'static str, name: &str, answer: &'static str) -> String {
        self.unanswered().insert(Unanswered { section, name: name.into(), answer });
        format!("`{name}` is not in `{section}` of the answers")
    }

    fn unanswered(&self) -> MutexGuard<'_, BTreeSet<Unanswered>> {
        // Each change of the set is whole.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownAnswers for KnownBox {
    fn check_leaves(&self, read: &Read) -> Result<(), String> {
        let is_known =
            |pattern| self.leaves.iter().any(|leaf| leaf.is_of(read.plane, read.origin, pattern));
        if read.patterns.iter().any(is_known) {
            return Ok(());
        }
        Err(self.note(read.plane.name(), &read.to_text(&self.models), "VALUE, or null for none"))
    }

    fn check_service(&self, tag: &str) -> Result<(), String> {
        match self.services.contains(tag) {
            true => Ok(()),
            false => Err(self.note("services", tag, "true or false")),
        }
    }
}

impl BoxState for KnownBox {
    fn leaves(&self, origin: Origin, pattern: &PathPattern) -> Vec<Value> {
        let known = self.leaves.iter().filter(|leaf| leaf.is_of(Plane::State, origin, pattern));
        known.filter_map(|leaf| leaf.value.clone()).collect()
    }

    fn applied(&self, _: &ClaimKey) -> Applied {
        Applied::Done
    }
}
