//! Paths on the wire, and the paths they mean.
//!
//! The path of an operation is that of the request's prefix followed by its own. The prefix alone
//! may name a target, and either of the two an origin, not both.

use std::collections::BTreeMap;

use holdfast_config::limits::excerpt;
use holdfast_config::path::check_limits;
use holdfast_config::schema::{NodeKind, Origin, Schema};
use holdfast_config::{Elem, Models, NodeId, Path, Step, cli};
use holdfast_proto::gnmi;

use super::status::Refusal;
use crate::gnsi::pathz::Scope;

/// Purpose of a path, which decides the status code for one that is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// The prefix of one request.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    wire: Option<gnmi::Path>,
    path: Path,
    access: Access,
}

/// A path of a request, joined with its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinedPath {
    pub(super) origin: Origin,
    pub(super) path: Path,
    /// True for the CLI origin, which is the native origin in another encoding. A write there is CLI text and has no
    /// path; the elements of a read are the words of a command.
    pub(super) cli: bool,
}

/// A path of a request, joined with its prefix, in the origin that it names: one of this agent, or another.
#[derive(Clone, Debug)]
pub(super) struct NamedPath<'p> {
    pub(super) origin: &'p str,
    pub(super) path: Path,
}

impl NamedPath<'_> {
    /// The path in an origin of this agent; itself, when it names another one.
    pub(super) fn in_known_origin(self, models: &Models) -> Result<JoinedPath, Self> {
        let cli = cli::ORIGINS.contains(&self.origin);
        match if cli { Some(Origin::Native) } else { models.origin(self.origin) } {
            Some(origin) => Ok(JoinedPath { origin, path: self.path, cli }),
            None => Err(self),
        }
    }

    /// Says that this agent does not have the origin, and which ones it has.
    pub(super) fn unknown_origin(&self) -> String {
        format!(
            "origin `{}` is unknown: this agent has `{}` (also empty), `{}` and `{}`, and takes the name of a module of \
             its own for the origin that serves it",
            self.origin,
            Origin::OpenConfig,
            Origin::Native,
            cli::ORIGINS[0]
        )
    }
}

impl JoinedPath {
    /// The name of its origin in answers.
    pub(super) fn origin_name(&self) -> &'static str {
        if self.cli { cli::ORIGINS[0] } else { self.origin.as_str() }
    }

    /// Scope of the rules of the pathz policy that apply to the path.
    pub(super) fn scope(&self) -> Scope {
        if self.cli { Scope::Text } else { self.origin.into() }
    }

    /// The schema node of the elements before the first wildcard; `None` if the schema has no such node.
    pub(super) fn node(&self, schema: &Schema) -> Option<NodeId> {
        let mut literal = self.path.clone();
        literal.elems.truncate(literal.literal_len());
        let pattern = schema.resolve_read(&literal).ok()?.pop()?;
        Some(pattern.last().unwrap_or(schema.root()))
    }
}

impl Prefix {
    pub(super) fn read(wire: Option<gnmi::Path>, access: Access) -> Result<Self, Refusal> {
        let path = wire.as_ref().map(elements).transpose()?.unwrap_or_default();
        Ok(Self { wire, path, access })
    }

    /// Joins the prefix with a path of the same request, and finds the origin.
    pub(super) fn join(
        &self,
        models: &Models,
        path: Option<&gnmi::Path>,
    ) -> Result<JoinedPath, Refusal> {
        self.named(path)?.in_known_origin(models).map_err(|unknown| {
            let reason = unknown.unknown_origin();
            match self.access {
                Access::Read => Refusal::unimplemented(reason),
                Access::Write => Refusal::invalid(reason),
            }
        })
    }

    /// The whole path of `path`, and the origin that it or the prefix names.
    pub(super) fn named<'p>(
        &'p self,
        path: Option<&'p gnmi::Path>,
    ) -> Result<NamedPath<'p>, Refusal> {
        let above = self.origin();
        let here = path.map_or("", |path| path.origin.as_str());
        let origin = if here.is_empty() { above } else { here };
        // CLI text names its own paths, so the path of a write is ignored.
        let joined = match (cli::ORIGINS.contains(&origin), self.access) {
            (true, Access::Write) => Path::root(),
            _ => self.path.join(&path.map(elements).transpose()?.unwrap_or_default()),
        };
        joined.check_limits()?;
        if path.is_some_and(|path| !path.target.is_empty()) {
            let reason = "a target belongs in the prefix of a request";
            return Err(Refusal::malformed(excerpt(&joined), reason));
        }
        if !above.is_empty() && !here.is_empty() {
            let reason = format!(
                "origin `{here}` in the path and origin `{above}` in the prefix: only one may be given"
            );
            return Err(Refusal::malformed(excerpt(&joined), reason));
        }
        Ok(NamedPath { origin, path: joined })
    }

    /// Refuses elements in a prefix that paths of several origins share.
    pub(super) fn check_shared<'n>(
        &self,
        origins: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), Refusal> {
        let mut origins = origins.into_iter();
        let first = origins.next();
        let several = origins.any(|origin| Some(origin) != first);
        if several && !self.path.elems.is_empty() {
            let reason = "a prefix with elements cannot apply to paths of several origins";
            return Err(Refusal::malformed(excerpt(&self.path), reason));
        }
        Ok(())
    }

    /// Bytes that the prefix takes in each joined path.
    pub(super) fn size(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len();
        let key = |(name, value): &(String, String)| text(name) + text(value);
        let elem = |it: &Elem| text(&it.name) + it.keys.iter().map(key).sum::<usize>();
        self.path.elems.iter().map(elem).sum()
    }

    /// Number of elements of a joined path that belong to the prefix.
    pub(super) fn len(&self) -> usize {
        self.path.elems.len()
    }

    /// Prefix of an answer: elements and target of the request's prefix, and the origin.
    pub(super) fn answer(&self, origin: Origin) -> gnmi::Path {
        self.answer_of(origin.as_str())
    }

    /// Prefix of an answer whose paths start at the root: target and origin, without elements.
    pub(super) fn root(&self, origin: Origin) -> gnmi::Path {
        self.root_of(origin.as_str())
    }

    /// The prefix of a Set's answer: that of the request, with the origin if there is one for all.
    pub(super) fn echo(&self, origin: Option<&str>) -> Option<gnmi::Path> {
        match (origin, &self.wire) {
            (Some(origin), _) => Some(self.answer_of(origin)),
            (None, wire) => wire.clone().map(in_current_form),
        }
    }

    fn answer_of(&self, origin: &str) -> gnmi::Path {
        gnmi::Path { elem: elems_to_wire(&self.path).elem, ..self.root_of(origin) }
    }

    fn root_of(&self, origin: &str) -> gnmi::Path {
        let target = self.wire.as_ref().map(|wire| wire.target.clone()).unwrap_or_default();
        gnmi::Path { origin: origin.to_owned(), target, ..gnmi::Path::default() }
    }

    fn origin(&self) -> &str {
        self.wire.as_ref().map_or("", |wire| wire.origin.as_str())
    }
}

/// Reads the elements of a wire path, in the current or the deprecated form. Every path of a client is read here, and
/// checked against the limits before it is copied. OpenConfig's own client library fills both forms: `elem` counts, and
/// `element` is not looked at then.
pub(crate) fn elements(wire: &gnmi::Path) -> Result<Path, Refusal> {
    check_limits(wire.elem.iter().map(|elem| (elem.name.as_str(), elem.key.len())))?;
    #[expect(deprecated, reason = "old clients send `element`; it is read, never written")]
    let old = &wire.element;
    let path = if wire.elem.is_empty() {
        check_limits(old.iter().map(|text| (text.as_str(), 0)))?;
        old_elements(old)?
    } else {
        Path { elems: wire.elem.iter().map(element).collect() }
    };
    if path.elems.iter().any(|elem| elem.name.is_empty()) {
        return Err(Refusal::malformed(excerpt(&path), "an element has no name"));
    }
    Ok(path)
}

/// A path of a request as an answer repeats it: with `elem` alone. A path that cannot be read is empty.
pub(super) fn in_current_form(wire: gnmi::Path) -> gnmi::Path {
    #[expect(deprecated, reason = "old clients send `element`; it is read, never written")]
    let is_current = wire.element.is_empty();
    if is_current {
        return wire;
    }
    let elem = elements(&wire).map(|path| elems_to_wire(&path).elem).unwrap_or_default();
    gnmi::Path { elem, origin: wire.origin, target: wire.target, ..gnmi::Path::default() }
}

fn element(wire: &gnmi::PathElem) -> Elem {
    let keys = wire.key.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Elem { name: wire.name.clone(), keys }
}

/// Elements as gNMI had them before 0.4: `interface[name=eth0]` in one string.
fn old_elements(old: &[String]) -> Result<Path, Refusal> {
    let mut elems = Vec::with_capacity(old.len());
    for text in old {
        let path: Path =
            text.parse().map_err(|error: holdfast_config::path::PathSyntaxError| {
                Refusal::malformed(old.join("/"), error.reason)
            })?;
        match <[Elem; 1]>::try_from(path.elems) {
            Ok([elem]) => elems.push(elem),
            Err(_) => {
                return Err(Refusal::malformed(old.join("/"), "an element has no name"));
            }
        }
    }
    let path = Path { elems };
    path.check_limits()?;
    Ok(path)
}

/// Translates a resolved or found path for an answer.
pub(super) fn to_wire(schema: &Schema, steps: &[Step]) -> gnmi::Path {
    gnmi::Path {
        elem: steps.iter().map(|step| to_elem(schema, step)).collect(),
        ..Default::default()
    }
}

pub(super) fn to_elem(schema: &Schema, step: &Step) -> gnmi::PathElem {
    let node = schema.node(step.node);
    let mut key = BTreeMap::new();
    if let (NodeKind::List { keys }, Some(values)) = (&node.kind, &step.keys) {
        for (leaf, value) in keys.iter().zip(values) {
            key.insert(schema.node(*leaf).name.to_string(), value.to_string());
        }
    }
    gnmi::PathElem { name: node.name.to_string(), key }
}

/// Translates a path for an answer, with names and keys as the client has sent them.
pub(super) fn elems_to_wire(path: &Path) -> gnmi::Path {
    let elem = |elem: &Elem| gnmi::PathElem {
        name: elem.name.clone(),
        key: elem.keys.iter().cloned().collect(),
    };
    gnmi::Path { elem: path.elems.iter().map(elem).collect(), ..Default::default() }
}
