//! What was asked, and what it comes to: one immutable version of the configuration.

use std::sync::Arc;

use crate::edit::{Attribution, Cause, Edit, EditErrors, Session};
use crate::layer::{LayerKey, Layers, Mark, Service};
use crate::limits::LIST_ENTRIES;
use crate::models::Models;
use crate::progress::Cancel;
use crate::schema::Origin;
use crate::tree::Tree;
use crate::union::{Images, Problem, Prov, Work, unite};

/// The layers with their union. A clone shares everything.
#[derive(Clone, Debug)]
pub struct Configuration {
    models: Arc<Models>,
    layers: Layers,
    images: Images,
    /// What the box leaves the factory with; the base of union_replace. All of it is marked
    /// [`Mark::Factory`].
    factory: Tree<Mark>,
    /// Some leaf of client native may have come with the box. Once true it stays true.
    has_factory: bool,
    /// List entries of all layers but what is leased.
    entries: usize,
    work: Work,
}

impl Configuration {
    /// From scratch, as after a restart. Layers that contradict each other, which no request can
    /// bring about, count in the order of [`LayerKey::ALL`].
    pub fn new(models: Arc<Models>, layers: Layers) -> Self {
        let nothing = (&Layers::new(), &Images::default());
        let (images, _, work) = unite(&models, nothing, &layers, &Cancel::default());
        let entries = entries_after(0, nothing.0, &layers);
        let mut has_factory = false;
        layers.tree(LayerKey::CLIENT_NATIVE).walk(&mut |_, leaf| {
            has_factory |= leaf.meta == Mark::Factory;
        });
        Self { models, layers, images, factory: Tree::new(), has_factory, entries, work }
    }

    /// The same on a box that left the factory with this native configuration. The layers are as
    /// they were: what the box holds of it is for the first start to say.
    #[must_use]
    pub fn with_factory(self, factory: Tree<Mark>) -> Self {
        let has_factory = self.has_factory || !factory.is_empty();
        Self { factory, has_factory, ..self }
    }

    /// What this would be after a Set. Costs in proportion to what the Set changes.
    ///
    /// # Errors
    /// All operations that cannot be done, and all conflicts between the origins; or that it is more than a
    /// configuration may have, or that nobody waits for it any more.
    pub fn edit(&self, edit: &Edit) -> Result<Self, EditErrors> {
        let (layers, attribution) = Session::new(self).run(edit)?;
        self.with_layers(layers, &attribution, &edit.cancel)
    }

    /// What this would be with a service's layers switched on or off. Client and boot pairs agree
    /// each with itself, whatever their ranks, so nothing can be wrong with it.
    #[must_use]
    pub fn switched(&self, service: Service, on: bool) -> Self {
        let mut layers = self.layers.clone();
        layers.switch(service, on);
        let (images, _, work) = self.united(&layers, &Cancel::default());
        Self { layers, images, work, ..self.clone() }
    }

    /// What this would be with other layers, of which what changed is the doing of `attribution`.
    pub(crate) fn with_layers(
        &self,
        layers: Layers,
        attribution: &Attribution<'_>,
        cancel: &Cancel,
    ) -> Result<Self, EditErrors> {
        let refused = |cause: Cause| EditErrors(vec![attribution.implied(cause)]);
        let entries = entries_after(self.entries, &self.layers, &layers);
        if entries > self.entries {
            LIST_ENTRIES.check(entries).map_err(|error| refused(error.into()))?;
        }
        let (images, problems, work) = self.united(&layers, cancel);
        cancel.check().map_err(|stop| refused(stop.into()))?;
        if !problems.is_empty() {
            return Err(attribution.errors(problems));
        }
        Ok(Self { layers, images, entries, work, ..self.clone() })
    }

    fn united(&self, layers: &Layers, cancel: &Cancel) -> (Images, Vec<Problem>, Work) {
        unite(&self.models, (&self.layers, &self.images), layers, cancel)
    }

    pub(crate) fn layers_mut(&mut self) -> &mut Layers {
        &mut self.layers
    }

    pub(crate) fn shared_models(&self) -> &Arc<Models> {
        &self.models
    }

    /// What this would be with the client's layers, and the note on the root, of another version.
    /// Nothing is checked: what was accepted once comes back, whatever has changed around it.
    #[must_use]
    pub fn with_client_of(&self, other: &Layers) -> Self {
        let mut layers = self.layers.clone();
        for origin in [Origin::OpenConfig, Origin::Native] {
            let client = LayerKey::client(origin);
            *layers.tree_mut(client) = other.tree(client).clone();
        }
        layers.annotation = other.annotation.clone();
        let (images, _, work) = self.united(&layers, &Cancel::default());
        let entries = entries_after(self.entries, &self.layers, &layers);
        Self { layers, images, entries, work, ..self.clone() }
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// What the box leaves the factory with.
    pub fn factory(&self) -> &Tree<Mark> {
        &self.factory
    }

    /// The native configuration as it is to be.
    pub fn effective(&self) -> &Tree<Prov> {
        &self.images.effective
    }

    /// What Get CONFIG of an origin shows: the client's layer, what the factory set, and the
    /// defaults in use.
    pub fn config_view(&self, origin: Origin) -> &Tree<Mark> {
        match origin {
            Origin::OpenConfig => &self.images.openconfig,
            Origin::Native => &self.images.native,
        }
    }

    /// How much it took to make this version from the one before.
    pub fn work(&self) -> Work {
        self.work
    }

    /// List entries of all layers but what is leased.
    pub fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) fn has_factory(&self) -> bool {
        self.has_factory
    }
}

/// The list entries of `new`, when `old` has so many. What is leased is not the doing of who is refused.
fn entries_after(entries: usize, old: &Layers, new: &Layers) -> usize {
    let counted = LayerKey::ALL.into_iter().filter(|layer| *layer != LayerKey::LEASE);
    counted.fold(entries, |entries, layer| {
        let (gained, lost) = Tree::entries_changed(old.tree(layer), new.tree(layer));
        entries + gained - lost
    })
}
