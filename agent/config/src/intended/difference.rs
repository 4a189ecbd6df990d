//! Differences of native trees: as wishes that make one out of another, and as lines of text.

use std::collections::BTreeSet;

use super::{IntendedLeaves, Wish, without_state};
use crate::cli::{LinePrinter, StatementAction};
use crate::configuration::Configuration;
use crate::images::Provenance;
use crate::instance::{InstancePath, Step};
use crate::schema::{NodeKind, Schema};
use crate::tree::{Branch, Change, Child, Leaf, LeafMeta, ListEntry as _, NodeRef, Tree};

/// Lists the wishes that turn one tree into another, in schema order. That an entry was supplied as such does not
/// count as a difference.
pub(super) fn wishes_between(schema: &Schema, old: &Tree<()>, new: &Tree<()>) -> Vec<Wish> {
    let mut wishes = Vec::new();
    Tree::diff(old, new, &mut |path, change| match change {
        Change::Added(node) => wishes.extend(statements(schema, path, node)),
        Change::Removed(_) => wishes.push(Wish { path: path.clone(), act: StatementAction::No }),
        Change::Leaf { old, new } if old.value != new.value => {
            let act = StatementAction::Set(new.value.clone());
            wishes.push(Wish { path: path.clone(), act });
        }
        Change::Leaf { .. } | Change::Given(_) => {}
    });
    let emptied: BTreeSet<InstancePath> =
        wishes.iter().filter_map(|wish| emptied_entry(schema, wish, new)).collect();
    wishes.extend(emptied.into_iter().map(|path| Wish { path, act: StatementAction::Create }));
    wishes
}

/// The entry or presence container that a removal empties, and that the second tree has nevertheless.
fn emptied_entry(schema: &Schema, wish: &Wish, new: &Tree<()>) -> Option<InstancePath> {
    if wish.act != StatementAction::No {
        return None;
    }
    let mut above = wish.path.clone();
    above.0.pop()?;
    while let Some(step) = above.last() {
        let is_plain = schema.node(step.node).kind == (NodeKind::Container { presence: false });
        if !is_plain {
            let branch = new.find_branch(&above.0)?;
            let writer = StatementWriter { schema, is_written: &|_, _| true };
            return writer.stands_alone(&mut above.clone(), &branch).then_some(above);
        }
        above.0.pop();
    }
    None
}

/// The statements that make a node, all of its leaves included.
pub(super) fn statements<M: LeafMeta>(
    schema: &Schema,
    path: &InstancePath,
    node: NodeRef<'_, M>,
) -> Vec<Wish> {
    StatementWriter { schema, is_written: &|_, _| true }.all(path, node)
}

/// Lists what a change did to the intended configuration: lines of CLI text, which begin with `+ ` or `- `. The cost is
/// proportional to the change.
pub fn lines_between(old: &Configuration, new: &Configuration) -> Vec<String> {
    let schema = &new.models().native;
    let printer = LinePrinter::new(schema);
    let [before, after] = [old, new].map(IntendedLeaves::of);
    let was_written = |path: &InstancePath, leaf: &Leaf<Provenance>| before.has(path, leaf);
    let is_written = |path: &InstancePath, leaf: &Leaf<Provenance>| after.has(path, leaf);
    let mut lines = Vec::new();
    let mut add = |sign: char, path: &InstancePath, act: &StatementAction| {
        lines.push(format!("{sign} {}", printer.line(path, act)));
    };
    let set = |leaf: &Leaf<Provenance>| StatementAction::Set(leaf.value.clone());
    Tree::diff(&without_state(old), &without_state(new), &mut |path, change| match change {
        Change::Added(node) => {
            let writer = StatementWriter { schema, is_written: &is_written };
            writer.all(path, node).iter().for_each(|it| add('+', &it.path, &it.act));
        }
        Change::Removed(node) => {
            let writer = StatementWriter { schema, is_written: &was_written };
            writer.all(path, node).iter().for_each(|it| add('-', &it.path, &it.act));
        }
        Change::Leaf { old, new } if !path.last().is_some_and(|it| schema.is_list_key(it.node)) => {
            let was_there = was_written(path, old);
            let is_there = is_written(path, new);
            if was_there && is_there && old.value == new.value {
                return;
            }
            if was_there {
                add('-', path, &set(old));
            }
            if is_there {
                add('+', path, &set(new));
            }
        }
        Change::Leaf { .. } | Change::Given(_) => {}
    });
    lines
}

/// Writer of the statements that make a node: one for each leaf, and one for each entry and presence container without any.
struct StatementWriter<'a, M: LeafMeta> {
    schema: &'a Schema,
    /// Leaves that get a statement. Keys get none.
    is_written: &'a dyn Fn(&InstancePath, &Leaf<M>) -> bool,
}

impl<M: LeafMeta> StatementWriter<'_, M> {
    fn all(&self, path: &InstancePath, node: NodeRef<'_, M>) -> Vec<Wish> {
        let mut made = Vec::new();
        self.collect(&mut path.clone(), node, &mut made);
        made
    }

    fn collect(&self, path: &mut InstancePath, node: NodeRef<'_, M>, made: &mut Vec<Wish>) {
        match node {
            NodeRef::Leaf(leaf) => {
                if self.writes(path, leaf) {
                    let act = StatementAction::Set(leaf.value.clone());
                    made.push(Wish { path: path.clone(), act });
                }
            }
            NodeRef::Branch(branch) => {
                if self.stands_alone(path, branch) {
                    made.push(Wish { path: path.clone(), act: StatementAction::Create });
                }
                for (id, child) in branch.children() {
                    path.0.push(Step::node(*id));
                    self.collect(path, NodeRef::from(child), made);
                    path.0.pop();
                }
            }
            NodeRef::List(list) => {
                let Some(step) = path.0.pop() else { return };
                for (keys, entry) in list.iter() {
                    path.0.push(Step::entry(step.node, keys.clone()));
                    self.collect(path, NodeRef::Branch(&entry.branch()), made);
                    path.0.pop();
                }
                path.0.push(step);
            }
        }
    }

    fn writes(&self, path: &InstancePath, leaf: &Leaf<M>) -> bool {
        let is_key = path.last().is_some_and(|step| self.schema.is_list_key(step.node));
        !is_key && (self.is_written)(path, leaf)
    }

    /// True for an entry with nothing but its keys, and for a presence container.
    fn stands_alone(&self, path: &mut InstancePath, branch: &Branch<M>) -> bool {
        let Some(step) = path.last() else { return false };
        match self.schema.node(step.node).kind {
            NodeKind::List { .. } => !self.has_content(path, branch),
            NodeKind::Container { presence } => presence && branch.given,
            NodeKind::Root | NodeKind::Leaf | NodeKind::LeafList => false,
        }
    }

    fn has_content(&self, path: &mut InstancePath, branch: &Branch<M>) -> bool {
        branch.children().iter().any(|(id, child)| {
            path.0.push(Step::node(*id));
            let has_content = match child {
                Child::Leaf(leaf) => self.writes(path, leaf),
                Child::Container(inside) => inside.given || self.has_content(path, inside),
                Child::List(list) => !list.is_empty(),
            };
            path.0.pop();
            has_content
        })
    }
}
