//! Secrets of users that count beside those of gNSI: what clients gave, and the keys that services ask for.

use smol_str::SmolStr;

use crate::configuration::Configuration;
use crate::instance::{InstancePath, Step};
use crate::layer::{Layers, Namespace};
use crate::secret_nodes::SecretNodes;
use crate::secrets::{SecretLeaf, SecretRef, Secrets};
use crate::user_keys::{LAYER, UserKey, are_service_users_same, key_at, user_keys};
use crate::value::Value;

impl Configuration {
    /// Passwords and keys of users that count beside those of gNSI: none while that is on, else those that clients gave,
    /// and the keys that services ask for.
    pub fn user_secrets(&self) -> Secrets {
        let layers = self.layers();
        if layers.is_on(Namespace::Gnsi) {
            return Secrets::default();
        }
        let mut secrets = layers.secrets.clone();
        for UserKey { user, key, .. } in user_keys(&self.models().openconfig, layers.tree(LAYER)) {
            // Both are equal, except in layers that were restored without a check: the client's value wins.
            if secrets.get(&user, SecretLeaf::SshKey).is_none() {
                secrets.restore(&user, SecretLeaf::SshKey, SecretRef::new(key.as_bytes()));
            }
        }
        secrets
    }

    /// The user at a native path, if a client or a service gives it a key that counts.
    pub fn user_with_key<'p>(&self, native: &'p InstancePath) -> Option<&'p SmolStr> {
        let schema = &self.models().native;
        let layers = self.layers();
        let [system, user] = &native.0[..] else { return None };
        let is_named = |step: &Step, name| schema.node(step.node).name == name;
        let Some(Value::Str(name)) = user.keys.as_ref()?.first() else { return None };
        if !is_named(system, "system") || !is_named(user, "user") || layers.is_on(Namespace::Gnsi) {
            return None;
        }
        let path = SecretNodes::find(&self.models().openconfig)?.leaf(name, SecretLeaf::SshKey)?;
        let has_key = layers.secrets.get(name, SecretLeaf::SshKey).is_some()
            || key_at(layers.tree(LAYER), &path).is_some();
        has_key.then_some(name)
    }

    /// True when [`Configuration::user_secrets`] of another version are known to be equal, by their memory.
    pub fn has_same_user_secrets(&self, other: &Self) -> bool {
        let one = self.layers();
        let other = other.layers();
        let is_on = |layers: &Layers| layers.is_on(Namespace::Gnsi);
        is_on(one) == is_on(other)
            && one.secrets.is_same(&other.secrets)
            && are_service_users_same(self.models(), one, other)
    }
}
