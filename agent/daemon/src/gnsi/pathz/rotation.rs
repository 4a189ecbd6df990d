//! Rotation of the pathz policy.

use std::sync::Arc;

use holdfast_config::Models;
use holdfast_security::pathz::{Draft, PolicyError};
use holdfast_security::rotation::Rotating;

use super::{Installed, Judge, Misfit, State};

/// Models for the validation of uploads.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) models: Arc<Models>,
}

/// An uploaded policy, parsed and not validated yet.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) version: String,
    /// Seconds since 1970.
    pub(crate) created_on: u64,
    pub(crate) content: Vec<u8>,
    pub(crate) draft: Draft,
}

/// Reason for refusing a policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

impl Rotating for Rules {
    type State = State;
    type Upload = Upload;
    type Reply = ();
    type Refusal = Refused;

    fn version_in_use(&self, state: &State, upload: &Upload) -> Option<String> {
        let held = state.as_ref().map(|installed| &installed.version)?;
        (*held == upload.version).then(|| held.clone())
    }

    fn apply(&self, _state: &State, upload: Upload) -> Result<(State, ()), Refused> {
        let Upload { version, created_on, content, draft } = upload;
        let judge = Arc::new(Judge::new(Arc::clone(&self.models), draft.check()?)?);
        Ok((Some(Arc::new(Installed { version, created_on, content, judge })), ()))
    }
}
