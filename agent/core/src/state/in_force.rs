//! The configuration in force, and what goes with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::Configuration;
use holdfast_platform::objects::Relations;
use holdfast_scheduler::{Key, SharedValue};
use holdfast_security::credentialz::Credentials;
use tokio::sync::watch;

use crate::examination::{CredentialValues, EntryChange};
use crate::request::Values;

/// The configuration in force, and the credentials, which no layer holds.
#[derive(Debug)]
pub(crate) struct InForce {
    configuration: Configuration,
    configuration_tx: watch::Sender<Configuration>,
    /// Relations among the objects of the configuration that is final.
    relations: Arc<Relations>,
    /// Values of the credentials in force, which no layer holds.
    credential_values: BTreeMap<Key, SharedValue>,
    /// Artefacts of credentialz among them.
    credentials: Arc<Credentials>,
}

impl InForce {
    pub(crate) fn new(
        configuration: Configuration,
        relations: Relations,
        credential_values: BTreeMap<Key, SharedValue>,
        credentials: Arc<Credentials>,
    ) -> Self {
        let (configuration_tx, _) = watch::channel(configuration.clone());
        let relations = Arc::new(relations);
        Self { configuration, configuration_tx, relations, credential_values, credentials }
    }

    pub(crate) fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// A receiver of each configuration that comes into force.
    pub(crate) fn watch(&self) -> watch::Receiver<Configuration> {
        self.configuration_tx.subscribe()
    }

    pub(crate) fn relations(&self) -> &Arc<Relations> {
        &self.relations
    }

    pub(crate) fn credentials(&self) -> &Arc<Credentials> {
        &self.credentials
    }

    /// Value of a credential.
    pub(crate) fn credential(&self, key: &Key) -> Option<SharedValue> {
        self.credential_values.get(key).cloned()
    }

    /// The removal of all credentials.
    pub(crate) fn removal_of_credentials(&self) -> Values {
        self.credential_values.keys().map(|key| (key.clone(), None)).collect()
    }

    pub(crate) fn set_credentials(
        &mut self,
        CredentialValues { values, credentials, .. }: CredentialValues,
    ) {
        for (key, value) in values {
            match value {
                Some(value) => self.credential_values.insert(key, value),
                None => self.credential_values.remove(&key),
            };
        }
        if let Some(credentials) = credentials {
            self.credentials = credentials;
        }
    }

    /// Puts a configuration in force. Returns the one before; nobody is told yet.
    pub(crate) fn replace(&mut self, configuration: Configuration) -> Configuration {
        std::mem::replace(&mut self.configuration, configuration)
    }

    /// Tells of the configuration in force.
    pub(crate) fn announce(&self) {
        self.configuration_tx.send_replace(self.configuration.clone());
    }

    /// Takes changed entries into the relations.
    pub(crate) fn update_relations(&mut self, changes: &[EntryChange]) {
        let relations = Arc::make_mut(&mut self.relations);
        relations.update(changes.iter().flat_map(EntryChange::differences));
    }
}
