//! What one transaction is to change: a Set, or what others than clients have to say.

use holdfast_config::edit::Edit;
use holdfast_config::layer::Service;
use holdfast_config::{Boot, Configuration, EditErrors, Layers};

/// One change of the layers. All of them take the same way: examined, recorded, planned, executed, made final.
#[derive(Clone, Debug)]
pub enum Intent {
    /// A Set, which writes the client's layers.
    Edit(Edit),
    /// The boot configuration, as a whole; nothing when the box is to boot with none.
    Boot(Option<Boot>),
    /// A service takes its items back, or leaves them to the clients.
    Switch { service: Service, on: bool },
    /// The client's layers as they were before a commit that nobody confirmed.
    Rollback(Layers),
}

impl Intent {
    /// What the log calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Edit(_) => "set",
            Self::Boot(_) => "boot",
            Self::Switch { .. } => "switch",
            Self::Rollback(_) => "rollback",
        }
    }

    /// What the configuration would be after it.
    pub(super) fn apply(&self, old: &Configuration) -> Result<Configuration, EditErrors> {
        match self {
            Self::Edit(edit) => old.edit(edit),
            Self::Boot(boot) => old.booted(boot.as_ref()),
            Self::Switch { service, on } => Ok(old.switched(*service, *on)),
            Self::Rollback(before) => Ok(old.with_client_of(before)),
        }
    }

    /// What was accepted before is not judged again: it comes back as far as it can, like at a start.
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self, Self::Rollback(_))
    }
}
