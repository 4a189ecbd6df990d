//! What a box boots with: both parts of a boot configuration, and the pair of layers they come to.

use std::sync::Arc;

use crate::configuration::Configuration;
use crate::document;
use crate::edit::{Attribution, Cause, Edit, EditError, EditErrors, Operation, Payload, Target};
use crate::layer::{LayerKey, Layers};
use crate::path::Path;
use crate::progress::Cancel;
use crate::schema::Origin;

/// A boot configuration as its owner set it. All of it replaces all of what was set before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// The native part: a JSON document, or text of the command line in which `no X` says that X is
    /// to be absent. Nothing when empty.
    pub vendor: Vec<u8>,
    /// The OpenConfig part: a JSON document. Nothing when empty.
    pub openconfig: Vec<u8>,
    /// What is kept for whoever asks what was set.
    pub record: Vec<u8>,
}

/// What a box is given once, when it is bootstrapped: clients may change it afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds {
    /// The native part, as [`Boot::vendor`].
    pub vendor: Vec<u8>,
    /// The OpenConfig part: a JSON document. Nothing when empty.
    pub openconfig: Vec<u8>,
}

/// How a boot configuration changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootChange {
    /// For good; without one, nothing is reserved for boot any more.
    Set(Option<Arc<Boot>>),
    /// For good, together with what clients find in their layers.
    Bootstrap(Arc<Boot>, Arc<Seeds>),
    /// Until it is confirmed: a restart, or [`BootChange::GoBack`], brings back what was before.
    Try(Arc<Boot>),
    /// What is tried stays.
    Confirm,
    /// What is tried goes, and what was there before comes back.
    GoBack,
}

impl Configuration {
    /// What this would be when the box boots with `boot`. The client's layers stay as they are.
    ///
    /// # Errors
    /// When a part cannot be read, or the parts contradict each other.
    pub fn booted(&self, boot: Option<&Arc<Boot>>) -> Result<Self, EditErrors> {
        let mut layers = self.layers().clone();
        let none = Boot::default();
        let parts = boot.map_or(&none, |boot| boot);
        let models = self.shared_models();
        let pair = document::layers(models, &parts.vendor, &parts.openconfig, Operation::Boot)?;
        for (layer, from) in [
            (LayerKey::BOOT_NATIVE, LayerKey::CLIENT_NATIVE),
            (LayerKey::BOOT_OPENCONFIG, LayerKey::CLIENT_OPENCONFIG),
        ] {
            *layers.tree_mut(layer) = pair.tree(from).clone();
        }
        layers.boot = boot.cloned();
        self.with_layers(
            layers,
            &Attribution::of_trees(self.models(), Operation::Boot),
            &Cancel::default(),
        )
    }

    /// The same for a change that may be tried first.
    ///
    /// # Errors
    /// As [`Configuration::booted`]; and while another one is tried, nothing but its end is taken.
    pub fn boot_changed(&self, change: &BootChange) -> Result<Self, EditErrors> {
        let tried = &self.layers().boot_before;
        match (change, tried) {
            (BootChange::Set(_) | BootChange::Bootstrap(..) | BootChange::Try(_), Some(_)) => {
                Err(EditErrors(vec![EditError {
                    operation: Operation::Boot(Origin::Native),
                    path: "/".to_owned(),
                    cause: Cause::Unconfirmed,
                }]))
            }
            (BootChange::Set(boot), None) => self.booted(boot.as_ref()),
            (BootChange::Bootstrap(boot, seeds), None) => self.booted(Some(boot))?.seeded(seeds),
            (BootChange::Try(boot), None) => {
                let mut tried = self.booted(Some(boot))?;
                tried.layers_mut().boot_before = Some(self.layers().boot.clone());
                Ok(tried)
            }
            (BootChange::Confirm, _) => Ok(self.without_way_back()),
            (BootChange::GoBack, Some(before)) => {
                Ok(self.booted(before.as_ref())?.without_way_back())
            }
            (BootChange::GoBack, None) => Ok(self.clone()),
        }
    }

    /// What this would be after a client had sent the seeds: they are merged into what the client's layers hold, and
    /// what boot holds is refused in them by name.
    fn seeded(&self, seeds: &Seeds) -> Result<Self, EditErrors> {
        let mut edit = Edit::default();
        let mut origins = Vec::new();
        let parts = [(Origin::Native, &seeds.vendor), (Origin::OpenConfig, &seeds.openconfig)];
        for (origin, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let target = Target { origin, path: Path::root() };
            edit.updates.push((target, payload(origin, text)?));
            origins.push(origin);
        }
        let blamed = |error: EditError| match error.operation {
            Operation::Update(at) => EditError { operation: Operation::Seed(origins[at]), ..error },
            _ => error,
        };
        if origins.is_empty() {
            return Ok(self.clone());
        }
        self.edit(&edit).map_err(|errors| EditErrors(errors.0.into_iter().map(blamed).collect()))
    }

    fn without_way_back(&self) -> Self {
        let mut same = self.clone();
        same.layers_mut().boot_before = None;
        same
    }

    /// What this is after a restart: what was only tried goes.
    #[must_use]
    pub fn restarted(self) -> Self {
        let back = self.boot_changed(&BootChange::GoBack);
        back.unwrap_or(self) // it was in force once; another version of the models may not take it
    }

    /// Whether nobody has configured this box since it left the factory: no client, and no owner by what it boots with.
    pub fn is_factory_new(&self) -> bool {
        let layers = self.layers();
        let untouched = layers.boot.is_none() && layers.annotation.is_none();
        untouched
            && layers.tree(LayerKey::CLIENT_OPENCONFIG).is_empty()
            && layers.tree(LayerKey::CLIENT_NATIVE) == self.factory()
    }

    /// What this would be on a box that has just left the factory. What the box was delivered with
    /// stays known.
    #[must_use]
    pub fn factory_reset(&self) -> Self {
        let mut layers = Layers::new();
        layers.factory_text.clone_from(&self.layers().factory_text);
        *layers.tree_mut(LayerKey::CLIENT_NATIVE) = self.factory().clone();
        Self::new(self.shared_models().clone(), layers).with_factory(self.factory().clone())
    }
}

/// A document, or for the native part text of the command line.
fn payload(origin: Origin, text: &[u8]) -> Result<Payload, EditErrors> {
    if origin == Origin::OpenConfig || document::is_document(text) {
        return Ok(Payload::Json { text: text.to_vec().into(), ietf: true });
    }
    let text = String::from_utf8(text.to_vec()).map_err(|error| {
        let cause = Cause::Malformed(error.to_string());
        let operation = Operation::Seed(origin);
        EditErrors(vec![EditError { operation, path: "/".to_owned(), cause }])
    })?;
    Ok(Payload::Cli { text })
}
