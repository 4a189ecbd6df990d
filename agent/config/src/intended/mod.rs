//! The intended configuration: what all origins and owners ask for, as one tree of the native model, and changes of it.
//!
//! [`tree`] makes the tree, which is what `holdfast config show` prints. A change of it becomes an ordinary [`Edit`]: each
//! leaf is changed in the client layer that holds it, so that a box that is configured by OpenConfig stays so
//! ([`placement`]). `UNION.md` 3.1 has the rules.
//!
//! [`Edit`]: crate::edit::Edit

mod difference;
mod document;
mod placement;

use std::sync::Arc;

pub use self::difference::lines_between;
pub use self::document::{Document, DocumentError, DocumentFormat};
pub use self::placement::{Kept, Placement, Wish, place};

use crate::configuration::Configuration;
use crate::images::{Provenance, ProvenanceKind};
use crate::instance::{InstancePath, Step};
use crate::layer::{LayerKey, LeafMark};
use crate::schema::{NodeId, Schema};
use crate::tree::{Branch, Child, Leaf, LeafMeta, List, ListEntry as _, Tree};

/// Makes the tree of the intended configuration: explicit leaves of all owners, factory leaves, and defaults of OpenConfig that
/// the native model does not have. Leases and fences are state, so the tree is what it would be without them.
pub fn tree(configuration: &Configuration) -> Tree<Provenance> {
    let effective = without_state(configuration);
    let mut path = InstancePath::root();
    let root = IntendedLeaves::of(configuration).branch(&mut path, effective.root());
    Tree::from_root(Arc::new(root))
}

/// The effective tree without what leases and fences add.
fn without_state(configuration: &Configuration) -> Tree<Provenance> {
    let states = [LayerKey::LEASE, LayerKey::FENCE];
    if states.iter().all(|layer| configuration.layers().tree(*layer).is_empty()) {
        return configuration.effective().clone();
    }
    let mut layers = configuration.layers().clone();
    for layer in states {
        *layers.tree_mut(layer) = Tree::new();
    }
    configuration.unchecked(layers).effective().clone()
}

/// Selects the leaves that somebody asks for.
struct IntendedLeaves<'a> {
    schema: &'a Schema,
    /// Client native, which holds the factory leaves.
    factory: &'a Tree<LeafMark>,
}

impl<'a> IntendedLeaves<'a> {
    fn of(configuration: &'a Configuration) -> Self {
        Self {
            schema: &configuration.models().native,
            factory: configuration.layers().tree(LayerKey::CLIENT_NATIVE),
        }
    }

    fn branch(&self, path: &mut InstancePath, from: &Branch<Provenance>) -> Branch<Provenance> {
        let mut selected = Branch::with_capacity(from.children().len());
        selected.given = from.given;
        for (node, child) in from.children() {
            path.0.push(Step::node(*node));
            if let Some(child) = self.child(path, *node, child) {
                selected.put(*node, child);
            }
            path.0.pop();
        }
        selected
    }

    fn child(
        &self,
        path: &mut InstancePath,
        node: NodeId,
        child: &Child<Provenance>,
    ) -> Option<Child<Provenance>> {
        match child {
            Child::Leaf(leaf) => {
                let is_intended = self.schema.is_list_key(node) || self.has(path, leaf);
                is_intended.then(|| Child::Leaf(leaf.clone()))
            }
            Child::Container(branch) => {
                let inside = self.branch(path, branch);
                let is_there = inside.given || !inside.is_empty();
                is_there.then(|| Child::Container(Arc::new(inside)))
            }
            Child::List(list) => {
                let step = path.0.pop()?;
                let mut selected = List::default();
                for (keys, entry) in list.iter() {
                    path.0.push(Step::entry(node, keys.clone()));
                    selected.put(keys.clone(), Arc::new(self.branch(path, &entry.branch())));
                    path.0.pop();
                }
                path.0.push(step);
                (!selected.is_empty()).then_some(Child::List(selected))
            }
        }
    }

    /// True for a leaf that somebody asks for.
    fn has(&self, path: &InstancePath, leaf: &Leaf<Provenance>) -> bool {
        match leaf.meta.kind {
            ProvenanceKind::Explicit | ProvenanceKind::Factory => true,
            ProvenanceKind::NativeDefault => false,
            ProvenanceKind::OpenConfigDefault => {
                let node = path.last().map_or(self.schema.root(), |step| step.node);
                let default =
                    self.schema.node(node).leaf.as_ref().and_then(|it| it.default.as_ref());
                let beneath = self.factory.leaf(path).map(|it| &it.value);
                beneath.or(default) != Some(&leaf.value)
            }
        }
    }
}

/// The same tree without metadata.
fn without_meta<M: LeafMeta>(tree: &Tree<M>) -> Tree<()> {
    Tree::from_root(Arc::new(bare(tree.root())))
}

fn bare<M: LeafMeta>(from: &Branch<M>) -> Branch<()> {
    let mut copy = Branch::with_capacity(from.children().len());
    copy.given = from.given;
    for (node, child) in from.children() {
        let child = match child {
            Child::Leaf(leaf) => Child::Leaf(Leaf::new(leaf.value.clone(), ())),
            Child::Container(inside) => Child::Container(Arc::new(bare(inside))),
            Child::List(list) => {
                let mut entries = List::default();
                for (keys, entry) in list.iter() {
                    entries.put(keys.clone(), Arc::new(bare(&entry.branch())));
                }
                Child::List(entries)
            }
        };
        copy.put(*node, child);
    }
    copy
}
