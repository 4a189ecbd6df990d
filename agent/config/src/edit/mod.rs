//! Requests of clients to change the configuration, and the reasons to refuse them.

mod apply;
mod attribution;
mod authorization;
mod counterpart;
mod errors;
mod key_copies;
mod merge;
mod payload;
mod ports;
mod reconcile;
mod reserved;
mod secrets;
mod session;
mod text;
mod unchanged_units;
mod union;

pub use authorization::{EditAuthorization, EditAuthorizer, RequestForms};
pub use errors::{Conflict, ConflictSide, EditCause, EditError, EditErrors, EditOperation};

pub use payload::{ANNOTATION, InvalidPayload};
pub use reconcile::check_supported;
pub use secrets::{SecretKeeper, SecretKeeperHandle};

pub(crate) use attribution::Attribution;
pub(crate) use ports::is_port_type;
pub(crate) use session::EditSession;

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::path::Path;
use crate::progress::CancelToken;
use crate::schema::Origin;
use crate::value::Scalar;

/// One Set, which applies as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Applied first, in order; then the replaces, then the updates.
    pub deletes: Vec<EditTarget>,
    pub replaces: Vec<(EditTarget, Payload)>,
    pub updates: Vec<(EditTarget, Payload)>,
    /// Excludes all other operations. The new configuration is the union of these entries, whose order has no
    /// meaning.
    pub union_replace: Vec<(EditTarget, Payload)>,
    /// Permissions of the author.
    pub authorization: EditAuthorization,
    /// The keeper of the secrets of users in it.
    pub keeper: SecretKeeperHandle,
    /// Cancelled when the client no longer waits.
    pub cancel: CancelToken,
}

/// Path of an operation. Only deletes may have wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditTarget {
    pub origin: Origin,
    pub path: Path,
}

/// Content of an operation, not yet checked against the schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A JSON document; `ietf` is RFC 7951, else the plain form.
    Json { text: Bytes, ietf: bool },
    /// The value of one leaf.
    Scalar(Scalar),
    /// CLI text. Its target is the root of [`Origin::Native`].
    Cli { text: String },
}

impl Edit {
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty()
            && self.replaces.is_empty()
            && self.updates.is_empty()
            && self.union_replace.is_empty()
    }

    /// Forms in which the request addresses native configuration.
    pub fn request_forms(&self) -> RequestForms {
        let written = self.replaces.iter().chain(&self.updates).chain(&self.union_replace);
        let mut forms = RequestForms::default();
        for (target, payload) in written {
            let text = matches!(payload, Payload::Cli { .. });
            forms.text |= text;
            forms.native |= !text && target.origin == Origin::Native;
        }
        forms.native |= self.deletes.iter().any(|target| target.origin == Origin::Native);
        forms
    }

    /// Origins that the request writes, without duplicates.
    pub fn origins(&self) -> impl Iterator<Item = Origin> {
        let written = self.replaces.iter().chain(&self.updates).chain(&self.union_replace);
        let written = written.map(|(target, _)| target);
        let found: BTreeSet<Origin> =
            self.deletes.iter().chain(written).map(|target| target.origin).collect();
        found.into_iter()
    }
}
