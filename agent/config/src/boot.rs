//! Boot configuration: its two parts, and the pair of layers that they become.

use std::sync::Arc;

use crate::configuration::Configuration;
use crate::document;
use crate::edit::{
    Attribution, Edit, EditCause, EditError, EditErrors, EditOperation, EditTarget, Payload,
};
use crate::layer::{BootConfiguration, LayerKey, Layers, LeafMark};
use crate::models::Models;
use crate::path::Path;
use crate::progress::CancelToken;
use crate::schema::Origin;
use crate::services::Services;
use crate::tree::Tree;

/// Initial client configuration, given once by bootz: clients may change it afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialConfiguration {
    /// The native part, in the form of [`Boot::vendor`].
    pub vendor: Vec<u8>,
    /// The OpenConfig part: a JSON document. Empty for none.
    pub openconfig: Vec<u8>,
}

/// A change of the boot configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootChange {
    /// Set it permanently; `None` removes it.
    Set(Option<Arc<BootConfiguration>>),
    /// Set it permanently, together with an initial client configuration.
    Bootstrap(Arc<BootConfiguration>, Arc<InitialConfiguration>),
    /// Set it until it is confirmed. A restart, or [`BootChange::GoBack`], restores the previous one.
    Try(Arc<BootConfiguration>),
    /// Make the tried one permanent.
    Confirm,
    /// Restore the one before the trial.
    GoBack,
}

impl Configuration {
    /// Computes the configuration with `boot` as boot configuration. The client's layers stay as they are.
    ///
    /// # Errors
    /// When a part cannot be parsed, or the parts contradict each other.
    pub fn booted(&self, boot: Option<&Arc<BootConfiguration>>) -> Result<Self, EditErrors> {
        let mut layers = self.layers().clone();
        let none = BootConfiguration::default();
        let parts = boot.map_or(&none, |boot| boot);
        let models = self.shared_models();
        let pair = document::layers(models, &parts.vendor, &parts.openconfig, EditOperation::Boot)?;
        for (layer, from) in [
            (LayerKey::BOOT_NATIVE, LayerKey::CLIENT_NATIVE),
            (LayerKey::BOOT_OPENCONFIG, LayerKey::CLIENT_OPENCONFIG),
        ] {
            *layers.tree_mut(layer) = pair.tree(from).clone();
        }
        layers.boot = boot.cloned();
        self.with_layers(
            layers,
            &Attribution::of_trees(self.models(), EditOperation::Boot),
            &CancelToken::default(),
        )
    }

    /// Computes the configuration after a change of the boot configuration.
    ///
    /// # Errors
    /// The errors of [`Configuration::booted`]. During a trial, only its end is accepted.
    pub fn boot_changed(&self, change: &BootChange) -> Result<Self, EditErrors> {
        let tried = &self.layers().boot_before;
        match (change, tried) {
            (BootChange::Set(_) | BootChange::Bootstrap(..) | BootChange::Try(_), Some(_)) => {
                Err(EditErrors::from(EditError {
                    operation: EditOperation::Boot(Origin::Native),
                    path: "/".to_owned(),
                    cause: EditCause::Unconfirmed,
                }))
            }
            (BootChange::Set(boot), None) => self.booted(boot.as_ref()),
            (BootChange::Bootstrap(boot, seeds), None) => {
                self.booted(Some(boot))?.with_initial(seeds)
            }
            (BootChange::Try(boot), None) => {
                let mut tried = self.booted(Some(boot))?;
                tried.layers_mut().boot_before = Some(self.layers().boot.clone());
                Ok(tried)
            }
            (BootChange::Confirm, _) => Ok(self.without_trial()),
            (BootChange::GoBack, Some(before)) => Ok(self.booted(before.as_ref())?.without_trial()),
            (BootChange::GoBack, None) => Ok(self.clone()),
        }
    }

    /// Merges the initial configuration into the client's layers, as if a client had sent it. Items that the boot
    /// configuration holds are refused by name.
    fn with_initial(&self, seeds: &InitialConfiguration) -> Result<Self, EditErrors> {
        let mut edit = Edit::default();
        let mut origins = Vec::new();
        let parts = [(Origin::Native, &seeds.vendor), (Origin::OpenConfig, &seeds.openconfig)];
        for (origin, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let target = EditTarget { origin, path: Path::root() };
            edit.updates.push((target, payload(origin, text)?));
            origins.push(origin);
        }
        let blamed = |error: EditError| match error.operation {
            EditOperation::Update(at) => {
                EditError { operation: EditOperation::InitialConfiguration(origins[at]), ..error }
            }
            _ => error,
        };
        if origins.is_empty() {
            return Ok(self.clone());
        }
        self.edit(&edit).map_err(|errors| errors.map(blamed))
    }

    fn without_trial(&self) -> Self {
        let mut same = self.clone();
        same.layers_mut().boot_before = None;
        same
    }

    /// The configuration after a restart, which ends a trial.
    #[must_use]
    pub fn restarted(self) -> Self {
        let back = self.boot_changed(&BootChange::GoBack);
        back.unwrap_or(self) // it was in force once; a newer version of the models may refuse it
    }

    /// True when neither a client nor a boot configuration has changed the box since it left the factory.
    pub fn is_factory_new(&self) -> bool {
        let layers = self.layers();
        let untouched = layers.boot.is_none() && layers.annotation.is_none();
        untouched
            && layers.tree(LayerKey::CLIENT_OPENCONFIG).is_empty()
            && layers.tree(LayerKey::CLIENT_NATIVE) == self.factory()
    }

    /// Computes the configuration of a box in factory state. The factory configuration itself stays known.
    #[must_use]
    pub fn factory_reset(&self) -> Self {
        let text = self.layers().factory_text.clone();
        let services = self.services().cloned();
        Self::of_factory(self.shared_models(), services, self.factory().clone(), text)
    }

    /// The configuration of a box that leaves the factory with this configuration, which stems from this text.
    pub fn of_factory(
        models: &Arc<Models>,
        services: Option<Arc<dyn Services>>,
        factory: Tree<LeafMark>,
        text: Option<Arc<[u8]>>,
    ) -> Self {
        let mut bare = Layers::new();
        bare.factory_text = text;
        let mut layers = bare.clone();
        *layers.tree_mut(LayerKey::CLIENT_NATIVE) = factory.clone();
        let bare = Self::new(models.clone(), bare).with_services(services).with_factory(factory);
        bare.unchecked(layers)
    }
}

/// Payload from the text of a part: a document, or for the native part CLI text.
fn payload(origin: Origin, text: &[u8]) -> Result<Payload, EditErrors> {
    if origin == Origin::OpenConfig || document::is_document(text) {
        return Ok(Payload::Json { text: text.to_vec().into(), ietf: true });
    }
    let text = String::from_utf8(text.to_vec()).map_err(|error| {
        let cause = EditCause::Malformed(error.to_string());
        let operation = EditOperation::InitialConfiguration(origin);
        EditErrors::from(EditError { operation, path: "/".to_owned(), cause })
    })?;
    Ok(Payload::Cli { text })
}
