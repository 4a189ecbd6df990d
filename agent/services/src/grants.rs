//! Rights of a package to read and write: schema nodes, with all below them.
//!
//! A path is one of the native model, unless it begins with `openconfig:`. Of services, a package reads nothing but the state of
//! its own instances that handlers and other clients of state publish: each instance that of itself.

use holdfast_config::schema::{NodeKind, Origin};
use holdfast_config::services::{LeafRead as Read, Plane};
use holdfast_config::{InstancePath, KeyPattern, Models, NodeId, Path, PathPattern, Schema};

use crate::error::PackageError;
use crate::outline::{LocatedText, OUTLINE, Outline};
use crate::yang::SERVICES_MODULE;

/// Container of the grouping of all instances, in which the agent shows how far one is.
const AGENT_STATE: &str = "state";

/// The nodes that a package may read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    write: Vec<(Origin, NodeId)>,
    read: Vec<(Origin, NodeId)>,
}

/// Standing of a path before the grants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Granted,
    /// Above something that is granted: it may be passed, and is not written.
    OnTheWay,
    Refused,
}

impl Grants {
    /// Looks the grants of an outline up in the models.
    pub(crate) fn new(models: &Models, outline: &Outline) -> Result<Self, Vec<PackageError>> {
        let mut errors = Vec::new();
        let service = &outline.name.text;
        let mut nodes = |paths: &[LocatedText], writable: bool| {
            let mut found = Vec::new();
            for path in paths {
                match node(models, service, &path.text, writable) {
                    Ok(node) => found.push(node),
                    Err(reason) => {
                        errors.push(PackageError::in_line(OUTLINE, path.position, reason));
                    }
                }
            }
            found
        };
        let grants = Self { write: nodes(&outline.write, true), read: nodes(&outline.read, false) };
        if errors.is_empty() { Ok(grants) } else { Err(errors) }
    }

    pub(crate) fn admission(&self, schema: &Schema, path: &InstancePath) -> Admission {
        let origin = schema.origin();
        let granted = |step: NodeId| self.write.contains(&(origin, step));
        if path.0.iter().any(|step| granted(step.node)) {
            return Admission::Granted;
        }
        let Some(last) = path.last() else { return Admission::OnTheWay };
        let mut above = self.write.iter().filter(|(of, _)| *of == origin);
        match above.any(|(_, node)| ancestors(schema, *node).any(|it| it == last.node)) {
            true => Admission::OnTheWay,
            false => Admission::Refused,
        }
    }
}

fn ancestors(schema: &Schema, node: NodeId) -> impl Iterator<Item = NodeId> {
    std::iter::successors(schema.node(node).parent, |id| schema.node(*id).parent)
}

/// The origin of a path, and the path without it.
pub(crate) fn split_origin(path: &str) -> Result<(Origin, &str), String> {
    let (origin, rest) = match path.split_once(":/") {
        Some((name, rest)) if !name.contains('/') => {
            let origin = Origin::parse(name).filter(|_| !name.is_empty());
            let origin = origin.ok_or_else(|| format!("`{path}`: there is no origin `{name}`"))?;
            (origin, &path[path.len() - rest.len() - 1..])
        }
        _ => (Origin::Native, path),
    };
    match rest.starts_with('/') {
        true => Ok((origin, rest)),
        false => Err(format!("`{path}`: a path begins with `/`")),
    }
}

/// The node of a grant of this type.
fn node(
    models: &Models,
    service: &str,
    path: &str,
    writable: bool,
) -> Result<(Origin, NodeId), String> {
    let (origin, rest) = split_origin(path)?;
    let schema = models.schema(origin);
    let found = schema.find(rest).filter(|node| *node != schema.root());
    let node = found.ok_or_else(|| format!("the {origin} model has no `{rest}`"))?;
    if is_of_services(schema, node) && (writable || !is_published(schema, service, node)) {
        return Err(format!(
            "`{path}`: services neither read nor write services, except state that handlers publish of their type"
        ));
    }
    if writable && !schema.node(node).config {
        return Err(format!("`{path}` is state, which cannot be written"));
    }
    Ok((origin, node))
}

/// True for `/services` and what is below.
pub(crate) fn is_of_services(schema: &Schema, node: NodeId) -> bool {
    let module = |id: NodeId| schema.module(schema.node(id).module).name.as_str();
    std::iter::once(node).chain(ancestors(schema, node)).any(|id| module(id) == SERVICES_MODULE)
}

/// True for state of instances of this type that handlers publish. The container `state` of each instance is the agent's.
fn is_published(schema: &Schema, service: &str, node: NodeId) -> bool {
    let steps = schema.steps(node);
    let [_, list, member, ..] = &steps[..] else { return false };
    let is_of_type = schema.node(list.node).name == service;
    is_of_type && schema.node(member.node).name != AGENT_STATE && !schema.node(node).config
}

/// True when something that is read is of services.
pub(crate) fn reads_services(models: &Models, read: &Read) -> bool {
    let schema = models.schema(read.origin);
    read.patterns.iter().filter_map(PathPattern::last).any(|node| is_of_services(schema, node))
}

/// Checks that what is read of services is of the instance with this key: grants are those of its type already.
pub(crate) fn check_instance(models: &Models, read: &Read, key: &str) -> Result<(), String> {
    if !reads_services(models, read) {
        return Ok(());
    }
    let is_own = |pattern: &PathPattern| {
        let entry = pattern.0.iter().find_map(|step| step.keys.as_ref());
        let keys = entry.and_then(KeyPattern::concrete);
        keys.and_then(|keys| keys.first().map(ToString::to_string)).is_some_and(|it| it == key)
    };
    match read.patterns.iter().all(is_own) {
        true => Ok(()),
        false => Err(format!(
            "`{}` is of another instance: services do not see services; the key of this one is `service.key`",
            read.to_text(models)
        )),
    }
}

/// The leaves that a path of an expression names.
pub(crate) fn readable(
    models: &Models,
    grants: &Grants,
    plane: Plane,
    path: &str,
) -> Result<Read, String> {
    let (origin, rest) = split_origin(path)?;
    let schema = models.schema(origin);
    let parsed: Path = rest.parse().map_err(|error| format!("{error}"))?;
    let patterns = schema.resolve_read(&parsed).map_err(|error| error.to_string())?;
    for pattern in &patterns {
        check_readable(schema, grants, plane, pattern).map_err(|why| format!("`{path}` {why}"))?;
    }
    Ok(Read { plane, origin, patterns })
}

fn check_readable(
    schema: &Schema,
    grants: &Grants,
    plane: Plane,
    pattern: &PathPattern,
) -> Result<(), &'static str> {
    let Some(last) = pattern.last() else { return Err("is the root, and no leaf") };
    let node = schema.node(last);
    let origin = schema.origin();
    let is_granted = pattern.0.iter().any(|step| grants.read.contains(&(origin, step.node)));
    if is_of_services(schema, last) && !is_granted {
        return Err(
            "is of a service: services do not see services, except state of their own instance in the grants to read",
        );
    }
    if !matches!(node.kind, NodeKind::Leaf | NodeKind::LeafList) {
        return Err("is not a leaf");
    }
    if !is_granted {
        return Err("is not in the grants to read");
    }
    match plane {
        Plane::Ground if !node.config => Err("is state: ask `state` for it"),
        Plane::State if node.config => Err("is configuration: ask `config` for it"),
        Plane::State if node.polled => Err("is polled: nothing tells of its changes"),
        Plane::Ground | Plane::State => Ok(()),
    }
}
