//! Native objects that a change of configuration affects.

use std::sync::Arc;

use crate::configuration::Configuration;
use crate::images::Provenance;
use crate::instance::{InstancePath, Step};
use crate::layer::Layers;
use crate::schema::{NodeId, Schema};
use crate::tree::{Branch, Child, List, OptionalBranch, beside};

/// A native object whose own leaves differ. Leaves of objects below it do not count as its own.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// The schema node with the `object` statement.
    pub object: NodeId,
    pub path: InstancePath,
    pub old: Option<Arc<Branch<Provenance>>>,
    pub new: Option<Arc<Branch<Provenance>>>,
}

/// All objects of a configuration, outer ones before inner ones, each as a change from nothing.
pub fn all_objects(configuration: &Configuration) -> Vec<ObjectChange> {
    let models = Arc::clone(configuration.shared_models());
    changed_objects(&Configuration::new(models, Layers::new()), configuration)
}

/// Finds the objects in which `new` differs from `old`, outer ones before inner ones. Values matter, and not their
/// owners, except that a value held by a lease alone differs from a configured one. The cost is proportional to
/// the difference.
pub fn changed_objects(old: &Configuration, new: &Configuration) -> Vec<ObjectChange> {
    let schema = &new.models().native;
    let mut finder = ObjectDiff { schema, path: InstancePath::root(), found: Vec::new() };
    finder.below(Some(old.effective().root()), Some(new.effective().root()));
    finder.found
}

struct ObjectDiff<'a> {
    schema: &'a Schema,
    path: InstancePath,
    found: Vec<ObjectChange>,
}

impl ObjectDiff<'_> {
    /// Visits the containers and entries of a branch that differs.
    fn below(&mut self, old: OptionalBranch<'_, Provenance>, new: OptionalBranch<'_, Provenance>) {
        for (node, old, new) in beside(old.map(|it| &**it), new.map(|it| &**it)) {
            match old.or(new) {
                Some(Child::Container(_)) => {
                    self.branch(
                        Step::node(node),
                        old.and_then(Child::container),
                        new.and_then(Child::container),
                    );
                }
                Some(Child::List(_)) => self.list(node, old, new),
                Some(Child::Leaf(_)) | None => {}
            }
        }
    }

    fn list(
        &mut self,
        node: NodeId,
        old: Option<&Child<Provenance>>,
        new: Option<&Child<Provenance>>,
    ) {
        let empty = List::default();
        let old = old.and_then(Child::list).unwrap_or(&empty);
        let new = new.and_then(Child::list).unwrap_or(&empty);
        self.found.reserve(List::differ_by(old, new));
        for it in List::differences(old, new) {
            self.branch(Step::entry(node, it.keys.clone()), it.old, it.new);
        }
    }

    fn branch(
        &mut self,
        step: Step,
        old: OptionalBranch<'_, Provenance>,
        new: OptionalBranch<'_, Provenance>,
    ) {
        if let (Some(old), Some(new)) = (old, new)
            && Arc::ptr_eq(old, new)
        {
            return;
        }
        let object = step.node;
        self.path.0.push(step);
        if self.schema.node(object).object.is_some() && !self.same(old, new) {
            let old = old.cloned();
            let new = new.cloned();
            self.found.push(ObjectChange { object, path: self.path.clone(), old, new });
        }
        self.below(old, new);
        self.path.0.pop();
    }

    /// True when the own leaves of an object are equal; those of objects within it do not count. A container of nothing but
    /// other objects is as one that is absent.
    fn same(
        &self,
        old: OptionalBranch<'_, Provenance>,
        new: OptionalBranch<'_, Provenance>,
    ) -> bool {
        matches!((old, new), (Some(old), Some(new)) if Arc::ptr_eq(old, new))
            || beside(old.map(|it| &**it), new.map(|it| &**it))
                .filter(|(node, ..)| self.schema.node(*node).object.is_none())
                .all(|(_, old, new)| self.own_children_equal(old, new))
    }

    fn own_children_equal(
        &self,
        old: Option<&Child<Provenance>>,
        new: Option<&Child<Provenance>>,
    ) -> bool {
        match (old, new) {
            (Some(Child::Leaf(old)), Some(Child::Leaf(new))) => {
                old.value == new.value && old.meta.is_leased() == new.meta.is_leased()
            }
            (Some(Child::List(old)), Some(Child::List(new))) => {
                List::differences(old, new).all(|it| self.same(it.old, it.new))
            }
            (Some(Child::Container(_)), _) | (_, Some(Child::Container(_))) => {
                self.same(old.and_then(Child::container), new.and_then(Child::container))
            }
            _ => false,
        }
    }
}
