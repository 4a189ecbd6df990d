//! The difference of two trees of the native model, as wishes and as lines of text.

use std::collections::BTreeSet;
use std::fmt;

use super::Wish;
use crate::cli::{LinePrinter, StatementAction};
use crate::instance::{InstancePath, Step};
use crate::schema::{NodeKind, Schema};
use crate::tree::{Branch, Change, Child, LeafMeta, ListEntry as _, NodeRef, Tree};

/// What differs between two trees, in schema order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What has to be asked for so that the first tree becomes the second one.
    pub wishes: Vec<Wish>,
    pub lines: Vec<DifferenceLine>,
}

/// A line of CLI text that one of the two trees has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferenceLine {
    /// True for a line of the second tree.
    pub is_new: bool,
    pub text: String,
}

impl fmt::Display for DifferenceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_new { '+' } else { '-' }, self.text)
    }
}

/// Compares two trees of the native model. That an entry was supplied as such is no difference.
pub fn difference<M: LeafMeta>(schema: &Schema, old: &Tree<M>, new: &Tree<M>) -> Difference {
    let mut found = Difference::default();
    let printer = LinePrinter::new(schema);
    Tree::diff(old, new, &mut |path, change| found.add((schema, &printer), path, change));
    let emptied: BTreeSet<InstancePath> =
        found.wishes.iter().filter_map(|wish| emptied_entry(schema, wish, new)).collect();
    let created = emptied.into_iter().map(|path| Wish { path, act: StatementAction::Create });
    found.wishes.extend(created);
    found
}

/// The entry or presence container that a removal empties, and that the second tree has nevertheless.
fn emptied_entry<M: LeafMeta>(schema: &Schema, wish: &Wish, new: &Tree<M>) -> Option<InstancePath> {
    if wish.act != StatementAction::No {
        return None;
    }
    let mut above = wish.path.clone();
    above.0.pop()?;
    while let Some(step) = above.last() {
        let is_plain = schema.node(step.node).kind == (NodeKind::Container { presence: false });
        if !is_plain {
            let branch = new.find_branch(&above.0)?;
            return stands_alone(schema, &above, &branch).then_some(above);
        }
        above.0.pop();
    }
    None
}

impl Difference {
    fn add<M: LeafMeta>(
        &mut self,
        (schema, printer): (&Schema, &LinePrinter<'_>),
        path: &InstancePath,
        change: Change<'_, M>,
    ) {
        match change {
            Change::Added(node) => {
                for (path, act) in statements(schema, path, node) {
                    self.add_line(printer, true, &path, &act);
                    self.wishes.push(Wish { path, act });
                }
            }
            Change::Removed(node) => {
                for (path, act) in statements(schema, path, node) {
                    self.add_line(printer, false, &path, &act);
                }
                self.wishes.push(Wish { path: path.clone(), act: StatementAction::No });
            }
            Change::Leaf { old, new } if old.value != new.value => {
                let [old, new] = [old, new].map(|leaf| StatementAction::Set(leaf.value.clone()));
                self.add_line(printer, false, path, &old);
                self.add_line(printer, true, path, &new);
                self.wishes.push(Wish { path: path.clone(), act: new });
            }
            Change::Leaf { .. } | Change::Given(_) => {}
        }
    }

    fn add_line(
        &mut self,
        printer: &LinePrinter<'_>,
        is_new: bool,
        path: &InstancePath,
        act: &StatementAction,
    ) {
        self.lines.push(DifferenceLine { is_new, text: printer.line(path, act) });
    }
}

/// The statements that make a node: one for each leaf, and one for each entry and presence container without any.
fn statements<M: LeafMeta>(
    schema: &Schema,
    path: &InstancePath,
    node: NodeRef<'_, M>,
) -> Vec<(InstancePath, StatementAction)> {
    let mut made = Vec::new();
    collect(schema, &mut path.clone(), node, &mut made);
    made
}

fn collect<M: LeafMeta>(
    schema: &Schema,
    path: &mut InstancePath,
    node: NodeRef<'_, M>,
    made: &mut Vec<(InstancePath, StatementAction)>,
) {
    match node {
        NodeRef::Leaf(leaf) => {
            if !path.last().is_some_and(|step| schema.is_list_key(step.node)) {
                made.push((path.clone(), StatementAction::Set(leaf.value.clone())));
            }
        }
        NodeRef::Branch(branch) => {
            if stands_alone(schema, path, branch) {
                made.push((path.clone(), StatementAction::Create));
            }
            for (id, child) in branch.children() {
                path.0.push(Step::node(*id));
                collect(schema, path, NodeRef::from(child), made);
                path.0.pop();
            }
        }
        NodeRef::List(list) => {
            let Some(step) = path.0.pop() else { return };
            for (keys, entry) in list.iter() {
                path.0.push(Step::entry(step.node, keys.clone()));
                collect(schema, path, NodeRef::Branch(&entry.branch()), made);
                path.0.pop();
            }
            path.0.push(step);
        }
    }
}

/// True for an entry with nothing but its keys, and for a presence container.
fn stands_alone<M: LeafMeta>(schema: &Schema, path: &InstancePath, branch: &Branch<M>) -> bool {
    let Some(step) = path.last() else { return false };
    match schema.node(step.node).kind {
        NodeKind::List { .. } => {
            let is_content = |(id, child): &&(_, Child<M>)| {
                !matches!(child, Child::Leaf(_)) || !schema.is_list_key(*id)
            };
            branch.children().iter().find(is_content).is_none()
        }
        NodeKind::Container { presence } => presence && branch.given,
        NodeKind::Root | NodeKind::Leaf | NodeKind::LeafList => false,
    }
}
