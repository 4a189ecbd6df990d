//! What a client asks for, and why it may be refused.

mod admission;
mod apply;
mod blame;
mod errors;
mod image;
mod kept;
mod merge;
mod payload;
mod ports;
mod reconcile;
mod text;
mod union;

pub use admission::{Admission, Forms, Gate};
pub use errors::{Cause, Conflict, EditError, EditErrors, Operation, Side};

pub use payload::ANNOTATION;

pub(crate) use apply::Session;
pub(crate) use blame::Attribution;
pub(crate) use reconcile::check_supported;

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::path::Path;
use crate::progress::Cancel;
use crate::schema::Origin;
use crate::value::Scalar;

/// One Set: all of it happens, or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Done first, in order; then the replaces, then the updates.
    pub deletes: Vec<Target>,
    pub replaces: Vec<(Target, Payload)>,
    pub updates: Vec<(Target, Payload)>,
    /// In a request of its own: the configuration becomes the union of these, in whatever order.
    pub union_replace: Vec<(Target, Payload)>,
    /// What its author may write.
    pub gate: Gate,
    /// Called when its author waits no more.
    pub cancel: Cancel,
}

/// What an operation names. Wildcards are for deletes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub origin: Origin,
    pub path: Path,
}

/// What an operation brings, before the schema has been asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// A JSON document; `ietf` is RFC 7951, else the plain form.
    Json { text: Bytes, ietf: bool },
    /// The value of one leaf.
    Scalar(Scalar),
    /// Text of the command line. Its target is the root of [`Origin::Native`].
    Cli { text: String },
}

impl Edit {
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty()
            && self.replaces.is_empty()
            && self.updates.is_empty()
            && self.union_replace.is_empty()
    }

    /// In which forms it says something of the native model.
    pub fn forms(&self) -> Forms {
        let written = self.replaces.iter().chain(&self.updates).chain(&self.union_replace);
        let mut forms = Forms::default();
        for (target, payload) in written {
            let text = matches!(payload, Payload::Cli { .. });
            forms.text |= text;
            forms.native |= !text && target.origin == Origin::Native;
        }
        forms.native |= self.deletes.iter().any(|target| target.origin == Origin::Native);
        forms
    }

    /// The origins that this writes, each once.
    pub fn origins(&self) -> impl Iterator<Item = Origin> {
        let written = self.replaces.iter().chain(&self.updates).chain(&self.union_replace);
        let written = written.map(|(target, _)| target);
        let found: BTreeSet<Origin> =
            self.deletes.iter().chain(written).map(|target| target.origin).collect();
        found.into_iter()
    }
}
