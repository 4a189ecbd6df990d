//! The note of a request in the log of configuration revisions.

use holdfast_store::ChangeSource;

use super::intent::Intent;

/// Part of a configuration revision that its request tells.
#[derive(Debug, Default)]
pub(crate) struct LogNote {
    pub(crate) by: ChangeSource,
    /// The revision or checkpoint that the change goes back to.
    pub(crate) restored: Option<String>,
}

impl LogNote {
    /// The note of a change by a caller who has an address or is at the box itself.
    pub(crate) fn new(intent: &Intent, has_address: bool, is_local: bool) -> Self {
        let by = match intent {
            Intent::Edit(_) if is_local => ChangeSource::Local,
            Intent::Edit(_) => ChangeSource::Gnmi,
            Intent::Boot { .. } if has_address => ChangeSource::BootConfig,
            Intent::Boot { .. } => ChangeSource::Bootz,
            Intent::Walk(_) | Intent::Resurrect { .. } | Intent::Package(_) | Intent::Purge(_) => {
                ChangeSource::Service
            }
            Intent::Restore(_) => ChangeSource::Restore,
            Intent::Rollback(_) => ChangeSource::Rollback,
            Intent::FactoryReset { .. } => ChangeSource::FactoryReset,
            Intent::Switch { .. } | Intent::Credentials(_) => ChangeSource::Other,
            Intent::Lease(_) | Intent::Fence(_) => ChangeSource::Other,
        };
        let restored = match intent {
            Intent::Restore(restoration) => Some(restoration.target.to_string()),
            _ => None,
        };
        Self { by, restored }
    }
}
