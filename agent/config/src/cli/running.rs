//! The client's native layer as text; a plain replace with this text restores the layer.
//!
//! A replace starts from the factory's tree. So factory leaves need no line, and deleted ones need a `no`.

use super::StatementAction;
use super::grammar::Grammar;
use super::print::{PrintedLine, write};
use crate::instance::{InstancePath, Step};
use crate::layer::LeafMark;
use crate::schema::{NodeId, NodeKind, Schema};
use crate::tree::{Branch, Child, Tree};
use crate::value::Value;

/// Prints the explicit leaves of `layer`, and `no X` for every X of `factory` that `layer` lacks. `elsewhere`
/// tells that another origin holds that leaf, entry or container explicitly, in which case there is no `no`.
pub fn running(
    schema: &Schema,
    layer: &Tree<LeafMark>,
    factory: &Tree<LeafMark>,
    elsewhere: &dyn Fn(&InstancePath) -> bool,
) -> String {
    let mut lines = Vec::new();
    let mut visitor = RunningLines { schema, elsewhere, lines: &mut lines };
    visitor.branch(&mut InstancePath::root(), layer.root(), factory.root());
    write(&Grammar::new(schema), &lines)
}

struct RunningLines<'a> {
    schema: &'a Schema,
    elsewhere: &'a dyn Fn(&InstancePath) -> bool,
    lines: &'a mut Vec<PrintedLine>,
}

impl RunningLines<'_> {
    fn add_statement(&mut self, path: &InstancePath, act: StatementAction) {
        self.lines.push(PrintedLine { path: path.clone(), act, note: None });
    }

    fn branch(
        &mut self,
        path: &mut InstancePath,
        layer: &Branch<LeafMark>,
        factory: &Branch<LeafMark>,
    ) {
        let ids = layer.children().iter().chain(factory.children()).map(|(id, _)| *id);
        let mut ids: Vec<NodeId> = ids.filter(|id| !self.schema.is_list_key(*id)).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            path.0.push(Step::node(id));
            match self.schema.node(id).kind {
                NodeKind::Leaf | NodeKind::LeafList => self.leaf(
                    path,
                    layer.leaf(id).map(|it| (&it.value, it.meta)),
                    factory.child(id),
                ),
                NodeKind::List { .. } => self.list(path, layer, factory),
                NodeKind::Root | NodeKind::Container { .. } => {
                    let inside = |branch: &Branch<LeafMark>| branch.container(id).cloned();
                    self.inside(path, inside(layer).as_deref(), inside(factory).as_deref());
                }
            }
            path.0.pop();
        }
    }

    fn leaf(
        &mut self,
        path: &InstancePath,
        current: Option<(&Value, LeafMark)>,
        factory: Option<&Child<LeafMark>>,
    ) {
        match current {
            Some((value, LeafMark::Explicit)) => {
                self.add_statement(path, StatementAction::Set(value.clone()))
            }
            Some(_) => {}
            None if factory.is_some() && !(self.elsewhere)(path) => {
                self.add_statement(path, StatementAction::No)
            }
            None => {}
        }
    }

    fn list(
        &mut self,
        path: &mut InstancePath,
        layer: &Branch<LeafMark>,
        factory: &Branch<LeafMark>,
    ) {
        let Some(step) = path.0.pop() else { return };
        let keys = |branch: &Branch<LeafMark>| -> Vec<_> {
            branch
                .list(step.node)
                .into_iter()
                .flat_map(|list| list.iter().map(|it| it.0.clone()))
                .collect()
        };
        let mut all = [keys(layer), keys(factory)].concat();
        all.sort_unstable();
        all.dedup();
        for keys in all {
            let entry = |branch: &Branch<LeafMark>| branch.list(step.node)?.get(&keys).cloned();
            let current = entry(layer);
            let factory = entry(factory);
            path.0.push(Step::entry(step.node, keys));
            self.inside(path, current.as_deref(), factory.as_deref());
            path.0.pop();
        }
        path.0.push(step);
    }

    /// Visits an entry or container of the layer, of the factory or of both.
    fn inside(
        &mut self,
        path: &mut InstancePath,
        layer: Option<&Branch<LeafMark>>,
        factory: Option<&Branch<LeafMark>>,
    ) {
        let nothing = Branch::default();
        let was_given = factory.is_some_and(|it| it.given);
        let Some(layer) = layer else {
            // Nodes that another origin holds get no `no` of their own: their leaves are decided one by one.
            let removed = (was_given || is_entry(path)) && !(self.elsewhere)(path);
            return if removed {
                self.add_statement(path, StatementAction::No)
            } else {
                self.branch(path, &nothing, factory.unwrap_or(&nothing))
            };
        };
        let again = was_given && !layer.given && !(self.elsewhere)(path) && !holds_factory(layer);
        if again {
            self.add_statement(path, StatementAction::No);
        }
        let factory = factory.filter(|_| !again).unwrap_or(&nothing);
        let at = self.lines.len();
        let new = layer.given && !factory.given;
        self.branch(path, layer, factory);
        if new || layer.given && self.lines.len() > at {
            self.lines.insert(
                at,
                PrintedLine { path: path.clone(), act: StatementAction::Create, note: None },
            );
        }
    }
}

fn is_entry(path: &InstancePath) -> bool {
    path.last().is_some_and(|step| step.keys.is_some())
}

fn holds_factory(branch: &Branch<LeafMark>) -> bool {
    branch.children().iter().any(|(_, child)| match child {
        Child::Leaf(leaf) => leaf.meta == LeafMark::Factory,
        Child::Container(inside) => holds_factory(inside),
        Child::List(list) => list.iter().any(|(_, entry)| holds_factory(entry)),
    })
}
