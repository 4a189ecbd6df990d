//! Conditions (`when`) in the form that our models use: a path compared with constants.

use super::types::BuiltinType;
use super::{Node, NodeId, NodeKind, Schema};
use crate::value::{Value, bare_identity};

/// A condition under which a node exists.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    pub xpath: String,
    /// Parsed form; `None` for an unsupported expression, which counts as true.
    pub test: Option<WhenTest>,
}

/// True when a leaf has one of `values`. The leaf is found by going `up` levels from the node, then along `down`.
#[derive(Clone, Debug, PartialEq)]
pub struct WhenTest {
    /// Levels to climb from the node that has the condition.
    pub up: usize,
    /// Path down from there; the last node is the leaf.
    pub down: Vec<NodeId>,
    pub values: Vec<Value>,
}

impl When {
    /// Parses the expression of a condition on `node` itself, or on the augment that defines it.
    pub(super) fn compile(mut self, schema: &Schema, node: &Node) -> Self {
        // The condition of an augment is evaluated at its target, the parent of the node.
        self.test = parse(schema, node.id, 0, &self.xpath)
            .or_else(|| node.parent.and_then(|parent| parse(schema, parent, 1, &self.xpath)));
        self
    }
}

/// Parses `path = 'value' or path = 'value' ...`, where all paths are equal.
fn parse(schema: &Schema, context: NodeId, above: usize, xpath: &str) -> Option<WhenTest> {
    let mut test: Option<WhenTest> = None;
    for term in xpath.split(" or ") {
        let (path, literal) = term.split_once('=')?;
        let mut up = above;
        let mut at = context;
        let mut down = Vec::new();
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
        let one =
            test.get_or_insert_with(|| WhenTest { up, down: down.clone(), values: Vec::new() });
        if one.up != up || one.down != down {
            return None;
        }
        one.values.push(value);
    }
    test
}

/// Parses a constant. Prefixes of identities in conditions belong to the module that has the condition; the names
/// alone are unambiguous.
fn constant(schema: &Schema, leaf: NodeId, literal: &str) -> Option<Value> {
    let ty = &schema.leaf(leaf).ty;
    match &ty.base {
        BuiltinType::Identity(_) => ty.parse_text(bare_identity(literal)).ok(),
        _ => ty.parse_text(literal).ok(),
    }
}
