//! Payloads as typed subtrees.

use std::sync::Arc;

use smol_str::SmolStr;

use super::{Cause, Payload};
use crate::instance::InstancePath;
use crate::layer::Mark;
use crate::schema::{NodeKind, Schema};
use crate::tree::Branch;
use crate::value::{Scalar, Value};

/// What a payload says of its target.
#[derive(Debug)]
pub(super) enum Supplied {
    Leaf(Value),
    Branch { branch: Arc<Branch<Mark>>, annotation: Option<SmolStr> },
}

/// A payload that does not fit: where below the target, and why.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) path: String,
    pub(super) cause: Cause,
}

/// Reads a payload under its target.
pub(super) fn read(
    schema: &Schema,
    target: &InstancePath,
    payload: &Payload,
) -> Result<Supplied, Misfit> {
    let here = |cause| Misfit { path: target.to_path(schema).to_string(), cause };
    match payload {
        Payload::Scalar(scalar) => scalar_value(schema, target, scalar).map_err(here),
        Payload::Json { .. } => Err(here(Cause::BadValue("JSON is not read yet".to_owned()))),
    }
}

fn scalar_value(
    schema: &Schema,
    target: &InstancePath,
    scalar: &Scalar,
) -> Result<Supplied, Cause> {
    let node = schema.node(target.last().map_or(schema.root(), |step| step.node));
    if !matches!(node.kind, NodeKind::Leaf | NodeKind::LeafList) {
        return Err(Cause::BadValue("a single value cannot be that of a container".to_owned()));
    }
    let Scalar::Str(text) = scalar else {
        return Err(Cause::BadValue("only text is read yet".to_owned()));
    };
    let value = schema.leaf(node.id).ty.parse_text(text);
    value.map(Supplied::Leaf).map_err(|error| Cause::BadValue(error.to_string()))
}
