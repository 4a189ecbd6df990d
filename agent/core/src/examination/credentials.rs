//! Credentials of users, as values of the engine.

use std::fmt::Debug;
use std::sync::Arc;

use holdfast_config::Configuration;
use holdfast_scheduler::{Key, SharedValue};
use holdfast_security::credentialz::Credentials;

use crate::request::Values;

/// The keeper of credentials, which computes values from them. The values hold names and digests, never secrets.
pub trait CredentialSource: Debug + Send + Sync {
    /// Final credentials of credentialz.
    fn last(&self) -> Arc<Credentials>;

    /// Initial values for the engine, with this configuration.
    fn values(&self, configuration: &Configuration) -> Vec<(Key, SharedValue)>;

    /// Has transports find the secrets of two states, each of credentialz and of the configuration, instead of those of
    /// before.
    fn hold(
        &self,
        from: (&Arc<Credentials>, &Configuration),
        to: (&Arc<Credentials>, &Configuration),
    );

    /// Values that differ between two states.
    fn difference(
        &self,
        from: (&Arc<Credentials>, &Configuration),
        to: (&Arc<Credentials>, &Configuration),
    ) -> Values;
}
