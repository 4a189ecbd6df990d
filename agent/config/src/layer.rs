//! Layers: one sparse configuration tree for each owner and schema.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::claims::Claims;
use crate::fenced_leaves::{FenceRule, FencedLeaf, Fences};
use crate::instance::InstancePath;
pub use crate::layer_key::{LayerKey, LayerSet, Namespace, Owner};
use crate::models::Models;
use crate::schema::Origin;
use crate::secrets::Secrets;
use crate::service_plan::Book;
pub use crate::tree::LeafMark;
use crate::tree::{Child, Tree};

/// A boot configuration as its owner set it. Setting one replaces the previous one as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootConfiguration {
    /// The native part: a JSON document, or CLI text in which `no X` says that X is to be absent. Empty for none.
    pub vendor: Vec<u8>,
    /// The OpenConfig part: a JSON document. Empty for none.
    pub openconfig: Vec<u8>,
    /// The request as it was set, returned when a client reads the boot configuration.
    pub record: Vec<u8>,
}

/// All configuration of this box. A clone shares the trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    trees: [Tree<LeafMark>; LayerKey::ALL.len()],
    /// Annotation `openconfig-metadata:protobuf-metadata` at the root, as unchanged base64. Clients keep it with
    /// the OpenConfig layer.
    pub annotation: Option<SmolStr>,
    /// References to the secrets that clients gave users, with the OpenConfig layer.
    pub secrets: Secrets,
    /// Boot configuration in force.
    pub boot: Option<Arc<BootConfiguration>>,
    /// Boot configuration before the trial of the present one; `None` outside of a trial.
    pub boot_before: Option<Option<Arc<BootConfiguration>>>,
    /// Text of the factory configuration at the first start of this box.
    pub factory_text: Option<Arc<[u8]>>,
    /// Owners that are switched off. Their layers are kept, and rank below the clients'.
    pub off: LayerSet,
    /// Claims of services; their two trees are the join.
    claims: Claims,
    /// Items of the fence layer with their owners; its tree follows from them.
    fences: Fences,
    /// Service plans, which say how far the instances are.
    pub book: Book,
}

impl Layers {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn tree(&self, layer: LayerKey) -> &Tree<LeafMark> {
        &self.trees[Self::at(layer)]
    }

    pub fn tree_mut(&mut self, layer: LayerKey) -> &mut Tree<LeafMark> {
        &mut self.trees[Self::at(layer)]
    }

    /// These layers with what clients have set alone, as earlier revisions are kept.
    #[must_use]
    pub fn of_clients(&self) -> Self {
        let mut layers = Self::new();
        for origin in [Origin::OpenConfig, Origin::Native] {
            let client = LayerKey::client(origin);
            *layers.tree_mut(client) = self.tree(client).clone();
        }
        layers.annotation = self.annotation.clone();
        layers.secrets = self.secrets.clone();
        layers
    }

    /// True when the namespace is switched on, so that its layers have their own rank.
    pub fn is_on(&self, namespace: Namespace) -> bool {
        self.off.without(namespace.layers()) == self.off
    }

    pub fn switch(&mut self, namespace: Namespace, on: bool) {
        self.off = if on {
            self.off.without(namespace.layers())
        } else {
            self.off.and(namespace.layers())
        };
    }

    /// Claims of services.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Replaces the claims of services, and with them the layers that they are joined into.
    pub fn set_claims(&mut self, claims: Claims) {
        for layer in [LayerKey::SERVICE_NATIVE, LayerKey::SERVICE_OPENCONFIG] {
            *self.tree_mut(layer) = claims.layer(layer.origin).clone();
        }
        self.claims = claims;
    }

    /// These layers without those of services, whose union is the ground.
    pub(crate) fn without_claims(&self) -> Self {
        let mut layers = self.clone();
        layers.set_claims(Claims::default());
        layers
    }

    /// True when both are known to be equal, trees and secrets by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.trees.iter().zip(&other.trees).all(|(one, other)| one.is_same(other))
            && self.secrets.is_same(&other.secrets)
            && self.annotation == other.annotation
            && self.claims.is_same(&other.claims)
            && self.fences.is_same(&other.fences)
            && self.book.is_same(&other.book)
            && self.boot == other.boot
            && self.boot_before == other.boot_before
            && self.factory_text == other.factory_text
            && self.off == other.off
    }

    /// These layers with all that differs between `base` and `theirs` laid under their own changes: the trees by
    /// [`Tree::merged`], each other part as a whole. `self` wins where both changed the same; the number of such
    /// leaves, entries and parts comes second. Claims are not merged: where both changed them, those of `self` stay.
    pub(crate) fn merged(&self, base: &Self, theirs: &Self) -> (Self, usize) {
        let mut collisions = 0;
        let mut trees = self.trees.clone();
        for (at, tree) in trees.iter_mut().enumerate() {
            let (merged, found) = Tree::merged(&base.trees[at], tree, &theirs.trees[at]);
            *tree = merged;
            collisions += found;
        }
        let found = &mut collisions;
        let merged = Self {
            trees,
            annotation: changed(&base.annotation, &self.annotation, &theirs.annotation, found),
            secrets: changed(&base.secrets, &self.secrets, &theirs.secrets, found),
            boot: changed(&base.boot, &self.boot, &theirs.boot, found),
            boot_before: changed(&base.boot_before, &self.boot_before, &theirs.boot_before, found),
            factory_text: changed(
                &base.factory_text,
                &self.factory_text,
                &theirs.factory_text,
                found,
            ),
            off: changed(&base.off, &self.off, &theirs.off, found),
            claims: if self.claims.is_same(&base.claims) {
                theirs.claims.clone()
            } else {
                self.claims.clone()
            },
            fences: self.fences.merged(&base.fences, &theirs.fences),
            book: self.book.merged(&base.book, &theirs.book),
        };
        (merged, collisions)
    }

    /// True when `near` differs from these layers in no more containers and entries than `far`; the cost is that of the
    /// smaller difference.
    pub(crate) fn is_nearer(&self, near: &Self, far: &Self) -> bool {
        let size = |other: &Self, limit: usize| {
            self.trees.iter().zip(&other.trees).fold(0, |count, (one, other)| {
                count + Tree::difference_size(one, other, limit - count)
            })
        };
        let mut limit = FIRST_LOOK;
        loop {
            let near = size(near, limit);
            let far = size(far, limit);
            if near < limit || far < limit {
                return near <= far;
            }
            limit *= 2;
        }
    }

    /// Items of the fence layer; its tree follows from them.
    pub fn fences(&self) -> &Fences {
        &self.fences
    }

    /// Sets the items of the fence layer. The cost is that of what differs.
    pub(crate) fn set_fences(&mut self, models: &Models, fences: Fences) {
        let old = std::mem::replace(&mut self.fences, fences);
        let new = self.fences.clone();
        let tree = self.tree_mut(LayerKey::FENCE);
        for (leaf, fenced) in Fences::differences(&old, &new) {
            put_leaf(models, tree, leaf, fenced);
        }
    }

    fn at(layer: LayerKey) -> usize {
        layer.index().expect("`LayerKey` is built from the pairs in `ALL` only")
    }
}

/// Number of containers and entries up to which two differences are first compared.
const FIRST_LOOK: usize = 64;

/// The one of two versions that differs from `base`; `ours` when both do, which counts as a collision.
fn changed<T: Clone + PartialEq>(base: &T, ours: &T, theirs: &T, collisions: &mut usize) -> T {
    if base == ours {
        return theirs.clone();
    }
    *collisions += usize::from(base != theirs && ours != theirs);
    ours.clone()
}

/// Puts a leaf of the fence layer into its tree, or takes it out.
fn put_leaf(
    models: &Models,
    tree: &mut Tree<LeafMark>,
    leaf: &InstancePath,
    fenced: Option<&FencedLeaf>,
) {
    let schema = &models.native;
    let Some((last, entry)) = leaf.0.split_last() else { return };
    let Some(rule) = models.fence.rule(last.node) else { return };
    let Some(fenced) = fenced else {
        if rule == FenceRule::Shut && tree.contains(leaf) {
            tree.branch_mut(schema, entry, &LeafMark::Explicit).given = false;
        }
        tree.remove(schema, leaf);
        return;
    };
    // The mark of the keys is that of an entry that exists, also where the leaf is to be absent.
    let branch = tree.branch_mut(schema, entry, &LeafMark::Explicit);
    branch.put(last.node, Child::Leaf(fenced.content(rule)));
    if rule == FenceRule::Shut {
        branch.given = fenced.keeps_entry;
    }
}
