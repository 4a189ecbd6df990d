//! `when` conditions, as far as our models have them: a path compared with constants.

use super::types::Base;
use super::{Node, NodeId, NodeKind, Schema};
use crate::value::{Value, bare_identity};

/// A condition under which a node exists.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    pub xpath: String,
    /// Understood form; none means that the condition is not one we can read, and is taken as true.
    pub test: Option<Test>,
}

/// True when the leaf `up` levels above the node and then down `down` has one of `values`.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Levels to climb from the node that has the condition.
    pub up: usize,
    /// The way down from there; the last one is the leaf compared.
    pub down: Vec<NodeId>,
    pub values: Vec<Value>,
}

impl When {
    /// Reads the expression, for a condition that stands on `node` or on the augment that brought it.
    pub(super) fn compile(mut self, schema: &Schema, node: &Node) -> Self {
        // An augment's condition is evaluated at its target, the parent of the node.
        self.test = parse(schema, node.id, 0, &self.xpath)
            .or_else(|| node.parent.and_then(|parent| parse(schema, parent, 1, &self.xpath)));
        self
    }
}

/// `path = 'value' or path = 'value' ...`, all of the same path.
fn parse(schema: &Schema, context: NodeId, above: usize, xpath: &str) -> Option<Test> {
    let mut test: Option<Test> = None;
    for term in xpath.split(" or ") {
        let (path, literal) = term.split_once('=')?;
        let (mut up, mut at, mut down) = (above, context, Vec::new());
        for step in path.trim().split('/') {
            match step.trim() {
                ".." => {
                    up += 1;
                    at = schema.node(at).parent?;
                }
                "." => {}
                name => {
                    at = schema.child(at, None, name.rsplit(':').next()?)?;
                    down.push(at);
                }
            }
        }
        if schema.node(at).kind != NodeKind::Leaf {
            return None;
        }
        let literal = literal.trim().trim_matches(['\'', '"']);
        let value = constant(schema, at, literal)?;
        let one = test.get_or_insert_with(|| Test { up, down: down.clone(), values: Vec::new() });
        if one.up != up || one.down != down {
            return None;
        }
        one.values.push(value);
    }
    test
}

/// Prefixes of identities in conditions are those of the writing module; names suffice to tell them apart.
fn constant(schema: &Schema, leaf: NodeId, literal: &str) -> Option<Value> {
    let ty = &schema.leaf(leaf).ty;
    match &ty.base {
        Base::Identity(_) => ty.parse_text(bare_identity(literal)).ok(),
        _ => ty.parse_text(literal).ok(),
    }
}
