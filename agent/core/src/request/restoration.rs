//! The way back to an earlier configuration.

use holdfast_config::edit::EditAuthorization;
use holdfast_config::{CancelToken, Layers};
use holdfast_store::RevisionTarget;

/// A return to an earlier configuration of clients.
#[derive(Clone, Debug)]
pub struct Restoration {
    /// Layers whose client parts come back, with the annotation of the root and the secrets of users.
    pub layers: Layers,
    /// The revision or checkpoint that they are from.
    pub target: RevisionTarget,
    /// Permissions of the author.
    pub authorization: EditAuthorization,
    /// Cancelled when the client no longer waits.
    pub cancel: CancelToken,
}

/// A request to go back, with the permissions of its author.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    pub target: RevisionTarget,
    pub authorization: EditAuthorization,
}
