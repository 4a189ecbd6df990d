//! A part of a tree as its reader may see it.

use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Branch, Child, Found, List};
use holdfast_config::{InstancePath, Step};
use holdfast_security::pathz::{Action, Position};

use super::rights::{NodeView, position, step};

/// `found`, which stands at `path`, without what may not be read; none when nothing is left of it. What is settled is
/// shared, so this costs what lies near the rules, and no more than reading all of it. The keys of an entry stay as long
/// as anything else in it: they are a part of its path.
pub fn visible<M: Clone + Eq>(
    schema: &Schema,
    view: &NodeView,
    path: &InstancePath,
    found: Found<'_, M>,
) -> Option<Child<M>> {
    let at = position(view, &path.0);
    match found {
        Found::Leaf(leaf) => (at.action() == Action::Permit).then(|| Child::Leaf(leaf.clone())),
        Found::Branch(branch) => Pruning { schema, view }.branch(&at, branch).map(Child::Container),
        // What a pattern names is one entry or many, never the list.
        Found::List(_) => None,
    }
}

struct Pruning<'a> {
    schema: &'a Schema,
    view: &'a NodeView,
}

impl Pruning<'_> {
    fn branch<M: Clone + Eq>(
        &self,
        at: &Position,
        branch: &Arc<Branch<M>>,
    ) -> Option<Arc<Branch<M>>> {
        let whole = at.action() == Action::Permit;
        if at.is_settled() {
            return whole.then(|| branch.clone());
        }
        let mut kept = Branch::default();
        kept.given = branch.given && whole;
        let mut keys = Vec::new();
        for (node, child) in branch.children() {
            match (self.child(at, Step::node(*node), child), child) {
                (Some(child), _) => drop(kept.put(*node, child)),
                (None, Child::Leaf(leaf)) if self.schema.is_list_key(*node) => {
                    keys.push((*node, Child::Leaf(leaf.clone())));
                }
                (None, _) => {}
            }
        }
        if kept.children().is_empty() && !kept.given {
            return None;
        }
        keys.into_iter().for_each(|(node, key)| drop(kept.put(node, key)));
        Some(Arc::new(kept))
    }

    fn child<M: Clone + Eq>(&self, at: &Position, to: Step, child: &Child<M>) -> Option<Child<M>> {
        if let Child::List(list) = child {
            let entry = |keys: &holdfast_config::Keys, entry| {
                let at = step(self.view, at, &Step::entry(to.node, keys.clone()));
                Some((keys.clone(), self.branch(&at, entry)?))
            };
            let kept: List<M> = list.iter().filter_map(|(keys, it)| entry(keys, it)).collect();
            return (!kept.is_empty()).then_some(Child::List(kept));
        }
        let at = step(self.view, at, &to);
        match child {
            Child::Leaf(_) => (at.action() == Action::Permit).then(|| child.clone()),
            Child::Container(branch) => self.branch(&at, branch).map(Child::Container),
            Child::List(_) => None,
        }
    }
}
