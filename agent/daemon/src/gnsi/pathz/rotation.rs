//! Rotation of the pathz policy.

use std::sync::Arc;

use holdfast_core::Datastore;
use holdfast_security::pathz::{DraftPolicy, PolicyError};
use holdfast_security::rotation::RotationRules;

use super::{CompiledPolicy, InstalledPolicy, PolicyForms, RulePathError, State};

/// The datastore whose newest models uploads are validated with.
#[derive(Debug)]
pub(crate) struct PathzRules<D>(pub(crate) D);

/// An uploaded policy, parsed and not validated yet.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) version: String,
    /// Seconds since 1970.
    pub(crate) created_on: u64,
    pub(crate) content: Vec<u8>,
    pub(crate) draft: DraftPolicy,
}

/// Reason for refusing a policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    RulePath(#[from] RulePathError),
}

impl<D: Datastore> RotationRules for PathzRules<D> {
    type State = State;
    type Upload = Upload;
    type Reply = ();
    type Refusal = UploadError;

    fn version_in_use(&self, state: &State, upload: &Upload) -> Option<String> {
        let version = state.as_ref().map(|installed| &installed.version)?;
        (*version == upload.version).then(|| version.clone())
    }

    fn apply(&self, _state: &State, upload: Upload) -> Result<(State, ()), UploadError> {
        let Upload { version, created_on, content, draft } = upload;
        let compiled = CompiledPolicy::new(self.0.models(), draft.check()?)?;
        let judge = Arc::new(PolicyForms::new(Arc::new(compiled)));
        Ok((Some(Arc::new(InstalledPolicy { version, created_on, content, judge })), ()))
    }
}
