//! Return of the clients' layers to those of an earlier revision, as a change like any other.
//!
//! Unlike a roll-back of a commit that was not confirmed ([`Configuration::with_client_of`]), what comes back is checked like a
//! Set: services walk what differs, conflicts refuse it, and its author needs the permission for every leaf that differs.
//! Items that are reserved for boot or gNSI refuse nothing: theirs outrank, and what clients had comes back beneath them.

use crate::configuration::Configuration;
use crate::edit::{Attribution, EditAuthorization, EditErrors, EditOperation, RequestForms};
use crate::layer::{LayerKey, Layers, Owner};
use crate::progress::CancelToken;
use crate::schema::Origin;
use crate::union::Problem;

impl Configuration {
    /// Computes the configuration with the clients' layers, the annotation of the root and the secrets of users from
    /// `earlier`.
    ///
    /// # Errors
    /// When the author may not write what differs, or when the result contradicts itself, boot or services, or is not
    /// complete.
    pub fn restored(
        &self,
        earlier: &Layers,
        authorization: &EditAuthorization,
        cancel: &CancelToken,
    ) -> Result<Self, EditErrors> {
        let authorization = authorization.for_models(self.shared_models());
        let mut attribution = Attribution::of_trees(self.models(), |_| EditOperation::Restore);
        attribution.authorization = authorization.clone();
        let mut layers = self.layers().clone();
        for origin in [Origin::OpenConfig, Origin::Native] {
            let client = LayerKey::client(origin);
            // Trees that were read from rows share no memory, and all that follows costs what differs in memory.
            let shared = earlier.tree(client).clone().sharing(layers.tree(client));
            *layers.tree_mut(client) = shared;
        }
        layers.annotation.clone_from(&earlier.annotation);
        if layers.secrets != earlier.secrets {
            layers.secrets = earlier.secrets.clone();
        }
        let forms = RequestForms { native: true, text: false };
        authorization.check_changes(self, &layers, forms, &attribution)?;
        authorization.check_secrets(self, &layers, &attribution)?;
        self.with_layers_despite(&is_outranked, layers, &attribution, cancel)
    }
}

/// True for a problem with an item of clients that another layer outranks.
fn is_outranked(problem: &Problem) -> bool {
    matches!(problem, Problem::Reserved { layer, .. } if layer.owner == Owner::Client)
}
