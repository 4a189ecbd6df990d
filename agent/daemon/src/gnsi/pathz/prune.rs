//! Pruning of trees to the parts that a reader may see.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Branch, Child, LeafMeta, ListEntry as _, NodeRef};
use holdfast_config::{InstancePath, Keys, Step};
use holdfast_security::pathz::nodes::{NodeView, position, step};
use holdfast_security::pathz::{Action, Position};

/// Runs [`visible_while`] to the end.
#[cfg(test)]
pub fn visible<M: LeafMeta>(
    schema: &Schema,
    view: &NodeView,
    path: &InstancePath,
    found: NodeRef<'_, M>,
) -> Option<Child<M>> {
    let pruned = visible_while(schema, view, path, found, &|| ControlFlow::Continue(()));
    pruned.continue_value().flatten()
}

/// Prunes `found`, the node at `path`, to the parts that may be read; `None` when nothing is left. Settled
/// subtrees are shared, so the cost is that of the nodes near rules, and at most that of reading all. The keys of
/// an entry stay as long as any of its other content, because they are part of its path. `go_on` is called for
/// each node that has to be checked.
pub fn visible_while<M: LeafMeta>(
    schema: &Schema,
    view: &NodeView,
    path: &InstancePath,
    found: NodeRef<'_, M>,
    go_on: &dyn Fn() -> ControlFlow<()>,
) -> ControlFlow<(), Option<Child<M>>> {
    let at = position(view, &path.0);
    ControlFlow::Continue(match found {
        NodeRef::Leaf(leaf) => (at.action() == Action::Permit).then(|| Child::Leaf(leaf.clone())),
        NodeRef::Branch(branch) => {
            let pruned = Pruner { schema, view, go_on }.branch(&at, branch)?;
            pruned.map(Child::Container)
        }
        // A pattern names entries, never the list itself.
        NodeRef::List(_) => None,
    })
}

struct Pruner<'a> {
    schema: &'a Schema,
    view: &'a NodeView,
    go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// The remaining part; `Break` when pruning was stopped.
type PruneResult<T> = ControlFlow<(), Option<T>>;

impl Pruner<'_> {
    fn branch<M: LeafMeta>(
        &self,
        at: &Position,
        branch: &Arc<Branch<M>>,
    ) -> PruneResult<Arc<Branch<M>>> {
        (self.go_on)()?;
        let whole = at.action() == Action::Permit;
        if at.has_no_rule_below() {
            return ControlFlow::Continue(whole.then(|| branch.clone()));
        }
        let mut visible = Branch::default();
        visible.given = branch.given && whole;
        let mut keys = Vec::new();
        for (node, child) in branch.children() {
            match (self.child(at, Step::node(*node), child)?, child) {
                (Some(child), _) => drop(visible.put(*node, child)),
                (None, Child::Leaf(leaf)) if self.schema.is_list_key(*node) => {
                    keys.push((*node, Child::Leaf(leaf.clone())));
                }
                (None, _) => {}
            }
        }
        if visible.children().is_empty() && !visible.given {
            return ControlFlow::Continue(None);
        }
        keys.into_iter().for_each(|(node, key)| drop(visible.put(node, key)));
        ControlFlow::Continue(Some(Arc::new(visible)))
    }

    fn child<M: LeafMeta>(
        &self,
        at: &Position,
        to: Step,
        child: &Child<M>,
    ) -> PruneResult<Child<M>> {
        if let Child::List(list) = child {
            let mut entries: Vec<(Keys, Arc<Branch<M>>)> = Vec::new();
            for (keys, entry) in list.iter() {
                let at = step(self.view, at, &Step::entry(to.node, keys.clone()));
                entries
                    .extend(self.branch(&at, &entry.branch())?.map(|entry| (keys.clone(), entry)));
            }
            let list = (!entries.is_empty()).then(|| Child::List(entries.into_iter().collect()));
            return ControlFlow::Continue(list);
        }
        let at = step(self.view, at, &to);
        ControlFlow::Continue(match child {
            Child::Leaf(_) => (at.action() == Action::Permit).then(|| child.clone()),
            Child::Container(branch) => self.branch(&at, branch)?.map(Child::Container),
            Child::List(_) => None,
        })
    }
}
