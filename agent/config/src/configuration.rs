//! One immutable version of the configuration: all layers, and their union.

use std::sync::Arc;

use crate::edit::{Attribution, Edit, EditCause, EditErrors, EditSession, check_roles};
use crate::footprint::EditScope;
use crate::layer::{LayerKey, Layers, LeafMark, Namespace};
use crate::limits::LIST_ENTRIES;
use crate::models::Models;
use crate::progress::CancelToken;
use crate::schema::Origin;
use crate::tree::Tree;
use crate::union::{Images, Problem, Provenance, WorkCount, unite};

/// The layers with their union. A clone shares all memory.
#[derive(Clone, Debug)]
pub struct Configuration {
    models: Arc<Models>,
    layers: Layers,
    images: Images,
    /// Factory configuration, the base of union_replace. All of it is marked [`LeafMark::Factory`].
    factory: Tree<LeafMark>,
    /// Some leaf of client native may stem from the factory. Once true it stays true.
    has_factory: bool,
    /// Number of list entries in all layers but the lease.
    entries: usize,
    work: WorkCount,
}

impl Configuration {
    /// Computes the union from scratch, as after a restart. Contradictions between layers, which no request can
    /// cause, are resolved by the order of [`LayerKey::ALL`].
    pub fn new(models: Arc<Models>, layers: Layers) -> Self {
        let nothing = (&Layers::new(), &Images::default());
        let (images, _, work) = unite(&models, nothing, &layers, &CancelToken::default());
        let entries = entries_after(0, nothing.0, &layers);
        let mut has_factory = false;
        layers.tree(LayerKey::CLIENT_NATIVE).walk(&mut |_, leaf| {
            has_factory |= leaf.meta == LeafMark::Factory;
        });
        Self { models, layers, images, factory: Tree::new(), has_factory, entries, work }
    }

    /// Sets the factory configuration. The layers stay as they are: the first start decides how much of it they
    /// contain.
    #[must_use]
    pub fn with_factory(self, factory: Tree<LeafMark>) -> Self {
        let has_factory = self.has_factory || !factory.is_empty();
        Self { factory, has_factory, ..self }
    }

    /// Computes the configuration after a Set. The cost is proportional to the changes.
    ///
    /// # Errors
    /// All operations that are invalid, and all conflicts between the origins; or a limit that is exceeded; or the
    /// cancellation of the request.
    pub fn edit(&self, edit: &Edit) -> Result<Self, EditErrors> {
        self.examined(edit).map(|(after, _)| after)
    }

    /// Computes the configuration after a Set, and the nodes that it named, for its
    /// [`Footprint`](crate::Footprint).
    ///
    /// # Errors
    /// As for [`Configuration::edit`].
    pub fn examined(&self, edit: &Edit) -> Result<(Self, EditScope), EditErrors> {
        let (layers, attribution, scope) = EditSession::new(self).run(edit)?;
        let after = self.with_layers(layers, &attribution, &edit.cancel)?;
        check_roles(self, &after, &attribution)?;
        Ok((after, scope))
    }

    /// Computes the configuration with a service's layers switched on or off. This cannot fail, because the pair
    /// of client layers and the pair of boot layers are consistent by themselves at any rank.
    #[must_use]
    pub fn switched(&self, service: Namespace, on: bool) -> Self {
        let mut layers = self.layers.clone();
        layers.switch(service, on);
        let (images, _, work) = self.compute_union(&layers, &CancelToken::default());
        Self { layers, images, work, ..self.clone() }
    }

    /// Computes the configuration with a later version of the models, in which its nodes have their numbers. Nodes that
    /// are new may bring defaults, so the union starts from scratch; what comes out the same shares memory.
    #[must_use]
    pub fn with_models(&self, models: Arc<Models>) -> Self {
        let nothing = (&Layers::new(), &Images::default());
        let (images, _, work) = unite(&models, nothing, &self.layers, &CancelToken::default());
        let images = images.sharing(&self.images);
        Self { models, images, work, ..self.clone() }
    }

    /// Computes the configuration with other layers; `attribution` names the operations behind the changes.
    pub(crate) fn with_layers(
        &self,
        layers: Layers,
        attribution: &Attribution<'_>,
        cancel: &CancelToken,
    ) -> Result<Self, EditErrors> {
        let refused = |cause: EditCause| EditErrors(vec![attribution.last_operation_error(cause)]);
        let entries = entries_after(self.entries, &self.layers, &layers);
        if entries > self.entries {
            LIST_ENTRIES.check(entries).map_err(|error| refused(error.into()))?;
        }
        let (images, problems, work) = self.compute_union(&layers, cancel);
        cancel.check().map_err(|stop| refused(stop.into()))?;
        if !problems.is_empty() {
            return Err(attribution.errors(problems));
        }
        Ok(Self { layers, images, entries, work, ..self.clone() })
    }

    fn compute_union(
        &self,
        layers: &Layers,
        cancel: &CancelToken,
    ) -> (Images, Vec<Problem>, WorkCount) {
        unite(&self.models, (&self.layers, &self.images), layers, cancel)
    }

    /// Computes the configuration with the changes that lead from `base` to this version, a candidate, made to
    /// `current`, which also stems from `base`. The result is the one that the candidate's request would have had in
    /// `current`, provided that the two changes keep clear of one another ([`Footprint`](crate::Footprint)). The cost
    /// is in proportion to the smaller change, and nothing is checked again.
    #[must_use]
    pub fn rebased(&self, base: &Self, current: &Self) -> Self {
        if current.is_same(base) {
            return self.clone();
        }
        if self.is_same(base) {
            return current.clone();
        }
        let (layers, collisions) = self.layers.merged(&base.layers, &current.layers);
        debug_assert_eq!(collisions, 0, "the changes do not keep clear of one another");
        let has_new_models = |it: &Self| !Arc::ptr_eq(&it.models, &base.models);
        let from = match (has_new_models(self), has_new_models(current)) {
            (true, _) => self,
            (false, true) => current,
            (false, false) if base.layers.is_nearer(&self.layers, &current.layers) => current,
            (false, false) => self,
        };
        let (images, _, work) = from.compute_union(&layers, &CancelToken::default());
        let entries = entries_after(from.entries, &from.layers, &layers);
        let changed = if self.factory.is_same(&base.factory) { current } else { self };
        Self {
            models: from.models.clone(),
            layers,
            images,
            factory: changed.factory.clone(),
            has_factory: self.has_factory || current.has_factory,
            entries,
            work,
        }
    }

    /// True when both are known to be equal, by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.layers.is_same(&other.layers)
            && self.factory.is_same(&other.factory)
            && Arc::ptr_eq(&self.models, &other.models)
    }

    pub(crate) fn layers_mut(&mut self) -> &mut Layers {
        &mut self.layers
    }

    /// The models, for whoever keeps them.
    pub fn shared_models(&self) -> &Arc<Models> {
        &self.models
    }

    /// Computes the configuration with the client's layers, and the annotation of the root, from another version.
    /// There are no checks: a configuration that was accepted once must be restorable, whatever has changed in
    /// other layers.
    #[must_use]
    pub fn with_client_of(&self, other: &Layers) -> Self {
        let mut layers = self.layers.clone();
        for origin in [Origin::OpenConfig, Origin::Native] {
            let client = LayerKey::client(origin);
            *layers.tree_mut(client) = other.tree(client).clone();
        }
        layers.annotation = other.annotation.clone();
        layers.secrets = other.secrets.clone();
        let (images, _, work) = self.compute_union(&layers, &CancelToken::default());
        let entries = entries_after(self.entries, &self.layers, &layers);
        Self { layers, images, entries, work, ..self.clone() }
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Factory configuration.
    pub fn factory(&self) -> &Tree<LeafMark> {
        &self.factory
    }

    /// Effective native configuration.
    pub fn effective(&self) -> &Tree<Provenance> {
        &self.images.effective
    }

    /// Tree for Get CONFIG of an origin: the client's layer, factory values, and the defaults in use.
    pub fn config_view(&self, origin: Origin) -> &Tree<LeafMark> {
        match origin {
            Origin::OpenConfig => &self.images.openconfig,
            Origin::Native => &self.images.native,
        }
    }

    /// Work done to compute this version from the previous one.
    pub fn work(&self) -> WorkCount {
        self.work
    }

    /// Number of list entries in all layers but the lease.
    pub fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) fn has_factory(&self) -> bool {
        self.has_factory
    }
}

/// Number of list entries in `new`, given that of `old`. Leases do not count, because no request causes them.
fn entries_after(entries: usize, old: &Layers, new: &Layers) -> usize {
    let counted = LayerKey::ALL.into_iter().filter(|layer| *layer != LayerKey::LEASE);
    counted.fold(entries, |entries, layer| {
        let (gained, lost) = Tree::entries_changed(old.tree(layer), new.tree(layer));
        entries + gained - lost
    })
}
