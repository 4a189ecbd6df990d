//! Subtrees and leaves as JSON.

use std::fmt::Write as _;

use base64::Engine as _;
use holdfast_config::schema::types::Base;
use holdfast_config::schema::{Leaf, Node, Schema};
use holdfast_config::tree::{Branch, Child, Found};
use holdfast_config::value::bare_identity;
use holdfast_config::{NodeId, Value};

/// A leaf as a bare JSON value.
pub(super) fn leaf(leaf: &Leaf, value: &Value, ietf: bool) -> String {
    let mut out = String::new();
    write_value(&mut out, leaf, value, ietf);
    out
}

fn write_value(out: &mut String, leaf: &Leaf, value: &Value, ietf: bool) {
    let wide = match &leaf.ty.base {
        Base::Int { bits, .. } | Base::Uint { bits, .. } => *bits == 64,
        _ => true,
    };
    match value {
        Value::Bool(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Int(_) | Value::Uint(_) | Value::Decimal { .. } if !(ietf && wide) => {
            let _ = write!(out, "{value}");
        }
        Value::Int(_) | Value::Uint(_) | Value::Decimal { .. } => {
            let _ = write!(out, "\"{value}\"");
        }
        Value::Identity(name) if !ietf => quote(out, bare_identity(name)),
        Value::Str(text) | Value::Enum(text) | Value::Identity(text) => quote(out, text),
        Value::Binary(octets) => {
            quote(out, &base64::engine::general_purpose::STANDARD.encode(octets));
        }
        Value::Bits(_) => quote(out, &value.to_string()),
        Value::Empty => out.push_str("[null]"),
        Value::List(values) => {
            out.push('[');
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(out, leaf, value, ietf);
            }
            out.push(']');
        }
    }
}

fn quote(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// A container, entry or list with what `takes` lets through; none when that is nothing.
pub(super) fn subtree<M>(
    schema: &Schema,
    at: NodeId,
    found: Found<'_, M>,
    ietf: bool,
    takes: &dyn Fn(&Node) -> bool,
) -> Option<Vec<u8>> {
    let printer = Printer { schema, ietf, takes };
    let mut out = String::new();
    match found {
        Found::Branch(branch) => printer.branch(&mut out, at, branch).then(|| out.into_bytes()),
        Found::Leaf(_) | Found::List(_) => None,
    }
}

struct Printer<'a> {
    schema: &'a Schema,
    ietf: bool,
    takes: &'a dyn Fn(&Node) -> bool,
}

impl Printer<'_> {
    /// False, and nothing written, when nothing in it is wanted. Keys alone do not count.
    fn branch<M>(&self, out: &mut String, at: NodeId, branch: &Branch<M>) -> bool {
        let start = out.len();
        let (mut first, mut wanted) = (true, false);
        out.push('{');
        for (id, child) in branch.children() {
            let node = self.schema.node(*id);
            let before = out.len();
            if !std::mem::take(&mut first) {
                out.push(',');
            }
            self.name(out, at, node);
            let written = match child {
                Child::Leaf(leaf) => {
                    let key = self.is_key(at, *id);
                    wanted |= (self.takes)(node);
                    if key || (self.takes)(node) {
                        write_value(out, self.schema.leaf(*id), &leaf.value, self.ietf);
                        true
                    } else {
                        false
                    }
                }
                Child::Container(inner) => {
                    let some = self.branch(out, *id, inner);
                    wanted |= some;
                    some
                }
                Child::List(list) => {
                    let mut some = false;
                    out.push('[');
                    for (_, entry) in list.iter() {
                        let before = out.len();
                        if some {
                            out.push(',');
                        }
                        if self.branch(out, *id, entry) {
                            some = true;
                        } else {
                            out.truncate(before);
                        }
                    }
                    out.push(']');
                    wanted |= some;
                    some
                }
            };
            if !written {
                out.truncate(before);
                first = before == start + 1;
            }
        }
        out.push('}');
        if !wanted {
            out.truncate(start);
        }
        wanted
    }

    fn is_key(&self, at: NodeId, leaf: NodeId) -> bool {
        use holdfast_config::schema::NodeKind;
        matches!(&self.schema.node(at).kind, NodeKind::List { keys } if keys.contains(&leaf))
    }

    /// RFC 7951: a name is qualified where the module changes.
    fn name(&self, out: &mut String, parent: NodeId, node: &Node) {
        let above = self.schema.node(parent);
        let same = parent != self.schema.root() && above.module == node.module;
        if self.ietf && !same {
            let _ = write!(out, "\"{}:{}\":", self.schema.module(node.module).name, node.name);
        } else {
            let _ = write!(out, "\"{}\":", node.name);
        }
    }
}
