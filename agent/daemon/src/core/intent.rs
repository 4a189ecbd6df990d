//! What one transaction is to change: a Set, or what others than clients have to say.

use std::sync::Arc;

use holdfast_config::edit::Edit;
use holdfast_config::layer::Service;
use holdfast_config::schema::Origin;
use holdfast_config::{BootChange, Cancel, Configuration, EditErrors, Layers, LeasedPort};
use holdfast_scheduler::{Key, SharedValue};
use holdfast_security::credentialz::Credentials;
use holdfast_store::{ArtefactChange, Change};

use crate::gnsi;

/// Values that differ; `None`: it is not to be any more.
pub type Values = Vec<(Key, Option<SharedValue>)>;

/// A change of the credentials of credentialz.
#[derive(Clone, Debug)]
pub struct Logins {
    pub from: Arc<Credentials>,
    pub to: Arc<Credentials>,
    /// They were in force before: they come back as far as they can, like at a start.
    pub taken_back: bool,
}

/// One change of the layers. All of them take the same way: examined, recorded, planned, executed, made final.
#[derive(Clone, Debug)]
pub enum Intent {
    /// A Set, which writes the client's layers.
    Edit(Edit),
    /// What the box boots with, and what gNSI keeps of what came with it: written down together, or not at all.
    Boot { change: BootChange, artefacts: Vec<ArtefactChange> },
    /// A service takes its items back, or leaves them to the clients.
    Switch { service: Service, on: bool },
    /// The client's layers as they were before a commit that nobody confirmed.
    Rollback(Layers),
    /// Credentials of credentialz: they come to values of no layer, which hold names and digests only. What keeps them
    /// over restarts is the service's.
    Logins(Logins),
    /// What DHCP servers gave: this, and nothing of what they gave before.
    Lease(Vec<LeasedPort>),
    /// All layers go, but for what the box was delivered with. The rest goes at the next start.
    FactoryReset { retain_certificates: bool },
}

impl Intent {
    /// A boot configuration alone.
    pub fn boot(change: BootChange) -> Self {
        Self::Boot { change, artefacts: Vec::new() }
    }

    /// Called when nobody waits for it any more: until it is recorded, it ends then. What is no Set is carried out all
    /// the same.
    pub(super) fn cancel(&self) -> Cancel {
        match self {
            Self::Edit(edit) => edit.cancel.clone(),
            Self::Boot { .. } | Self::Switch { .. } | Self::Rollback(_) => Cancel::default(),
            Self::Logins(_) | Self::Lease(_) | Self::FactoryReset { .. } => Cancel::default(),
        }
    }

    /// What the log calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Edit(_) => "set",
            Self::Boot { .. } => "boot",
            Self::Switch { .. } => "switch",
            Self::Rollback(_) => "rollback",
            Self::Logins(_) => "credentials",
            Self::Lease(_) => "lease",
            Self::FactoryReset { .. } => "factory reset",
        }
    }

    /// The model in which it speaks: OpenConfig, unless it is a Set of the native model alone.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Edit(edit) if edit.origins().eq([Origin::Native]) => Origin::Native,
            _ => Origin::OpenConfig,
        }
    }

    /// What the configuration would be after it.
    ///
    /// # Errors
    /// When it cannot be done, or what it brings contradicts itself.
    pub fn apply(&self, old: &Configuration) -> Result<Configuration, EditErrors> {
        match self {
            Self::Edit(edit) => old.edit(edit),
            Self::Boot { change, .. } => old.boot_changed(change),
            Self::Switch { service, on } => Ok(old.switched(*service, *on)),
            Self::Rollback(before) => Ok(old.with_client_of(before)),
            Self::Logins(_) => Ok(old.clone()),
            Self::Lease(ports) => old.leased(ports),
            Self::FactoryReset { .. } => Ok(old.factory_reset()),
        }
    }

    /// Credentials that differ after it, as values: `given` are those of credentialz before.
    pub(super) fn login_values(
        &self,
        source: &gnsi::Logins,
        given: &Arc<Credentials>,
        old: &Configuration,
        new: &Configuration,
    ) -> Values {
        let (old, new) = (old.layers(), new.layers());
        match self {
            Self::FactoryReset { .. } => Values::new(), // all that there are go
            Self::Logins(logins) => source.difference((&logins.from, old), (&logins.to, new)),
            _ => source.difference((given, old), (given, new)),
        }
    }

    /// Rows besides those of the layers.
    pub(super) fn rows(&self) -> Vec<Change> {
        match self {
            Self::FactoryReset { retain_certificates } => {
                vec![Change::factory_reset(*retain_certificates)]
            }
            Self::Edit(_) | Self::Boot { .. } | Self::Switch { .. } => Vec::new(),
            Self::Rollback(_) | Self::Logins(_) | Self::Lease(_) => Vec::new(),
        }
    }

    /// The client's layers are what they were before: no commit waits to be confirmed after it.
    pub(super) fn is_rollback(&self) -> bool {
        matches!(self, Self::Rollback(_) | Self::FactoryReset { .. })
    }

    /// What was accepted before is not judged again: it comes back as far as it can, like at a start.
    pub(super) fn is_admitted(&self) -> bool {
        matches!(
            self,
            Self::Rollback(_)
                | Self::FactoryReset { .. }
                | Self::Boot { change: BootChange::GoBack, .. }
        )
    }
}
