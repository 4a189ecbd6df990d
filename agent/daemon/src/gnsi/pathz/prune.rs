//! A part of a tree as its reader may see it.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Branch, Child, Found};
use holdfast_config::{InstancePath, Keys, Step};
use holdfast_security::pathz::nodes::{NodeView, position, step};
use holdfast_security::pathz::{Action, Position};

/// Prunes to the end, as [`visible_while`] does.
#[cfg(test)]
pub fn visible<M: Clone + Eq>(
    schema: &Schema,
    view: &NodeView,
    path: &InstancePath,
    found: Found<'_, M>,
) -> Option<Child<M>> {
    let pruned = visible_while(schema, view, path, found, &|| ControlFlow::Continue(()));
    pruned.continue_value().flatten()
}

/// `found`, which stands at `path`, without what may not be read; none when nothing is left of it. What is settled is
/// shared, so this costs what lies near the rules, and no more than reading all of it. The keys of an entry stay as long
/// as anything else in it: they are a part of its path. `go_on` is asked for each node that has to be judged.
pub fn visible_while<M: Clone + Eq>(
    schema: &Schema,
    view: &NodeView,
    path: &InstancePath,
    found: Found<'_, M>,
    go_on: &dyn Fn() -> ControlFlow<()>,
) -> ControlFlow<(), Option<Child<M>>> {
    let at = position(view, &path.0);
    ControlFlow::Continue(match found {
        Found::Leaf(leaf) => (at.action() == Action::Permit).then(|| Child::Leaf(leaf.clone())),
        Found::Branch(branch) => {
            let pruned = Pruning { schema, view, go_on }.branch(&at, branch)?;
            pruned.map(Child::Container)
        }
        // What a pattern names is one entry or many, never the list.
        Found::List(_) => None,
    })
}

struct Pruning<'a> {
    schema: &'a Schema,
    view: &'a NodeView,
    go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// The rest of something; a break when pruning was broken off.
type Pruned<T> = ControlFlow<(), Option<T>>;

impl Pruning<'_> {
    fn branch<M: Clone + Eq>(
        &self,
        at: &Position,
        branch: &Arc<Branch<M>>,
    ) -> Pruned<Arc<Branch<M>>> {
        (self.go_on)()?;
        let whole = at.action() == Action::Permit;
        if at.is_settled() {
            return ControlFlow::Continue(whole.then(|| branch.clone()));
        }
        let mut kept = Branch::default();
        kept.given = branch.given && whole;
        let mut keys = Vec::new();
        for (node, child) in branch.children() {
            match (self.child(at, Step::node(*node), child)?, child) {
                (Some(child), _) => drop(kept.put(*node, child)),
                (None, Child::Leaf(leaf)) if self.schema.is_list_key(*node) => {
                    keys.push((*node, Child::Leaf(leaf.clone())));
                }
                (None, _) => {}
            }
        }
        if kept.children().is_empty() && !kept.given {
            return ControlFlow::Continue(None);
        }
        keys.into_iter().for_each(|(node, key)| drop(kept.put(node, key)));
        ControlFlow::Continue(Some(Arc::new(kept)))
    }

    fn child<M: Clone + Eq>(&self, at: &Position, to: Step, child: &Child<M>) -> Pruned<Child<M>> {
        if let Child::List(list) = child {
            let mut kept: Vec<(Keys, Arc<Branch<M>>)> = Vec::new();
            for (keys, entry) in list.iter() {
                let at = step(self.view, at, &Step::entry(to.node, keys.clone()));
                kept.extend(self.branch(&at, entry)?.map(|entry| (keys.clone(), entry)));
            }
            let list = (!kept.is_empty()).then(|| Child::List(kept.into_iter().collect()));
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
