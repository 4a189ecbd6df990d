//! Printer from a tree, or a part of it, to JSON.

use std::ops::ControlFlow;

use super::Flavour;
use super::value::{write, write_text};
use crate::schema::{ModuleId, Node, NodeId, Schema};
use crate::tree::{Branch, Child, LeafMeta, List, ListEntry as _, NodeRef};
use crate::value::Value;

/// Filter for the printed leaves. Containers and lists appear when one of their leaves does.
pub type NodeFilter<'a> = &'a dyn Fn(&Node) -> bool;

/// Prints a node without its own name: the bare value of a leaf, an object, or an array of entries. `None` when
/// the filter hides all of it.
pub fn print<M: LeafMeta>(
    schema: &Schema,
    node: NodeId,
    found: NodeRef<'_, M>,
    flavour: Flavour,
    filter: NodeFilter<'_>,
) -> Option<Vec<u8>> {
    print_while(schema, node, found, flavour, filter, &|_| ControlFlow::Continue(()))
        .continue_value()
        .flatten()
}

/// Prints as long as `go_on` permits. `go_on` is called for each node, with the number of bytes so far.
pub fn print_while<M: LeafMeta>(
    schema: &Schema,
    node: NodeId,
    found: NodeRef<'_, M>,
    flavour: Flavour,
    filter: NodeFilter<'_>,
    go_on: &dyn Fn(usize) -> ControlFlow<()>,
) -> ControlFlow<(), Option<Vec<u8>>> {
    let mut printer = Printer { schema, flavour, filter, go_on, is_halted: false, out: Vec::new() };
    let node = schema.node(node);
    let printed = match found {
        NodeRef::Leaf(leaf) => printer.leaf(node, &leaf.value),
        // Names at the top of a document always carry their module, also in partial documents.
        NodeRef::Branch(branch) => printer.object(node, branch, None),
        NodeRef::List(list) => printer.array(node, list, None),
    };
    if printer.is_halted {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(printed.then_some(printer.out))
    }
}

/// Prints one value of the leaf `node`.
pub fn print_value(schema: &Schema, node: NodeId, value: &Value, flavour: Flavour) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, schema.node(node), value, flavour);
    out
}

/// Adds an annotation (RFC 7952) to a printed object, as its first member.
pub fn annotate(document: &[u8], name: &str, value: &str) -> Vec<u8> {
    let mut out = b"{\"@\":{".to_vec();
    write_text(&mut out, name);
    out.push(b':');
    write_text(&mut out, value);
    out.push(b'}');
    let rest = document.strip_prefix(b"{").unwrap_or(document);
    if rest != b"}" {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    out
}

struct Printer<'a> {
    schema: &'a Schema,
    flavour: Flavour,
    filter: NodeFilter<'a>,
    go_on: &'a dyn Fn(usize) -> ControlFlow<()>,
    /// Printing was stopped, so the output is incomplete.
    is_halted: bool,
    out: Vec<u8>,
}

impl Printer<'_> {
    /// Prints a leaf. Like the methods below, returns whether there is output to keep; if not, the output is
    /// unchanged.
    fn leaf(&mut self, node: &Node, value: &Value) -> bool {
        let is_shown = (self.filter)(node);
        if is_shown {
            write(&mut self.out, node, value, self.flavour);
        }
        is_shown
    }

    /// Prints an object. `outer` is the module of its own name, `None` at the top of the document.
    fn object<M: LeafMeta>(
        &mut self,
        node: &Node,
        branch: &Branch<M>,
        outer: Option<ModuleId>,
    ) -> bool {
        let start = self.out.len();
        let mut worth = branch.given && (self.filter)(node);
        let mut first = true;
        self.out.push(b'{');
        for (id, child) in branch.children() {
            if self.halts() {
                return false;
            }
            let before = self.out.len();
            if !first {
                self.out.push(b',');
            }
            let node = self.schema.node(*id);
            self.name(node, outer);
            let has_output = self.child(node, child);
            // Keys alone do not make an entry appear, because it may exist in state only.
            worth |= has_output && !self.schema.is_list_key(node.id);
            if has_output || self.key(node, child) {
                first = false;
            } else {
                self.out.truncate(before);
            }
        }
        self.out.push(b'}');
        if !worth {
            self.out.truncate(start);
        }
        worth
    }

    fn child<M: LeafMeta>(&mut self, node: &Node, child: &Child<M>) -> bool {
        match child {
            Child::Leaf(leaf) => self.leaf(node, &leaf.value),
            Child::Container(branch) => self.object(node, branch, Some(node.module)),
            Child::List(list) => self.array(node, list, Some(node.module)),
        }
    }

    /// Prints the keys of an entry even where the filter hides them: without them the entry could not be
    /// identified.
    fn key<M: LeafMeta>(&mut self, node: &Node, child: &Child<M>) -> bool {
        match child {
            Child::Leaf(leaf) if self.schema.is_list_key(node.id) => {
                write(&mut self.out, node, &leaf.value, self.flavour);
                true
            }
            _ => false,
        }
    }

    fn array<M: LeafMeta>(&mut self, node: &Node, list: &List<M>, outer: Option<ModuleId>) -> bool {
        let start = self.out.len();
        let mut first = true;
        self.out.push(b'[');
        for (_, entry) in list.iter() {
            if self.halts() {
                return false;
            }
            let before = self.out.len();
            if !first {
                self.out.push(b',');
            }
            if self.object(node, &entry.branch(), outer) {
                first = false;
            } else {
                self.out.truncate(before);
            }
        }
        self.out.push(b']');
        if first {
            self.out.truncate(start);
        }
        !first
    }

    fn halts(&mut self) -> bool {
        self.is_halted |= (self.go_on)(self.out.len()).is_break();
        self.is_halted
    }

    fn name(&mut self, node: &Node, outer: Option<ModuleId>) {
        if self.flavour == Flavour::Ietf && outer != Some(node.module) {
            let module = &self.schema.module(node.module).name;
            write_text(&mut self.out, &format!("{module}:{}", node.name));
        } else {
            write_text(&mut self.out, &node.name);
        }
        self.out.push(b':');
    }
}
