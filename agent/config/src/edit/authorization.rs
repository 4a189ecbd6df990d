//! Authorization of a Set.
//!
//! The rules themselves are behind [`EditAuthorizer`]. They are asked about the paths that operations name, about the
//! content of payloads, and finally about the difference in the client's layers, so that deletions by omission in
//! a replace are covered too. Without rules, nothing is asked and no tree is walked.

use std::fmt;
use std::sync::Arc;

use super::attribution::Subject;
use super::payload::ParsedPayload;
use super::session::EditSession;
use super::{EditCause, EditErrors, EditOperation, EditTarget};
use crate::cli::Statement;
use crate::configuration::Configuration;
use crate::instance::InstancePath;
use crate::layer::{Layers, LeafMark};
use crate::models::Models;
use crate::resolve::{PathPattern, PatternStep};
use crate::schema::Origin;
use crate::tree::{Leaf, NodeRef};

/// Permissions of the author of a Set.
pub trait EditAuthorizer: fmt::Debug + Send + Sync {
    /// These permissions by the models of the configuration that is edited; `None` when they are by these models already.
    fn for_models(&self, models: &Arc<Models>) -> Option<Arc<dyn EditAuthorizer>>;

    /// Permission to clear everything at and below these steps, for a delete, a replace or a union_replace.
    fn may_clear(&self, origin: Origin, named: &[PatternStep]) -> bool;

    /// Permission to send CLI text at all.
    fn may_send_cli_text(&self) -> bool;

    /// Permission for one line of CLI text.
    fn may_apply_statement(&self, before: &Configuration, statement: &Statement) -> bool;

    /// Permission for the content of a payload.
    ///
    /// # Errors
    /// With the first path that may not be written.
    fn may_write_payload(
        &self,
        before: &Configuration,
        origin: Origin,
        path: &InstancePath,
        supplied: NodeRef<'_, LeafMark>,
    ) -> Result<(), InstancePath>;

    /// Permission for the resulting change of the client's layers. `written` are the forms that the request uses.
    ///
    /// # Errors
    /// With the first difference that is not permitted.
    fn may_change(
        &self,
        before: &Configuration,
        after: &Layers,
        written: RequestForms,
    ) -> Result<(), (Origin, InstancePath)>;

    /// Permission to see the path in messages.
    fn may_read(&self, origin: Origin, path: &InstancePath) -> bool;
}

/// Forms in which a request addresses configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestForms {
    /// Native paths.
    pub native: bool,
    /// CLI text.
    pub text: bool,
}

/// Permissions for one Set; `None` permits everything.
#[derive(Clone, Debug, Default)]
pub struct EditAuthorization(Option<Arc<dyn EditAuthorizer>>);

/// Authorizations are equal when they share their rules, or have none.
impl PartialEq for EditAuthorization {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl EditAuthorization {
    pub fn new(admission: Arc<dyn EditAuthorizer>) -> Self {
        Self(Some(admission))
    }

    /// The authorization for an edit of a configuration with these models.
    pub(super) fn for_models(&self, models: &Arc<Models>) -> Self {
        let other = self.0.as_ref().and_then(|admission| admission.for_models(models));
        Self(other.or_else(|| self.0.clone()))
    }

    fn refuses(&self, is_permitted: impl FnOnce(&dyn EditAuthorizer) -> bool) -> bool {
        self.0.as_deref().is_some_and(|admission| !is_permitted(admission))
    }

    /// True when messages may include the path.
    pub(super) fn may_read(&self, origin: Origin, path: &InstancePath) -> bool {
        !self.refuses(|admission| admission.may_read(origin, path))
    }
}

impl EditSession<'_> {
    /// Checks the permission to clear what an operation names; records an error when it is missing. A wildcard in
    /// place of a name requires the permission for its parent.
    pub(super) fn may_clear(
        &mut self,
        operation: EditOperation,
        target: &EditTarget,
        pattern: &PathPattern,
    ) -> bool {
        let literal = target.path.literal_len().min(pattern.0.len());
        let named = &pattern.0[..literal];
        let refused = self.authorization.refuses(|it| it.may_clear(target.origin, named));
        if refused {
            self.fail(operation, target, EditCause::Denied);
        }
        !refused
    }

    /// Checks the permission to send CLI text; records an error when it is missing.
    pub(super) fn may_send_cli_text(
        &mut self,
        operation: EditOperation,
        target: &EditTarget,
    ) -> bool {
        let refused = self.authorization.refuses(|it| it.may_send_cli_text());
        if refused {
            self.fail(operation, target, EditCause::Denied);
        }
        !refused
    }

    pub(super) fn may_apply_statement(&self, statement: &Statement) -> bool {
        !self.authorization.refuses(|it| it.may_apply_statement(self.before, statement))
    }

    /// Checks the permission for the content of a payload; records an error when it is missing.
    pub(super) fn may_write_payload(
        &mut self,
        operation: EditOperation,
        origin: Origin,
        path: &InstancePath,
        supplied: &ParsedPayload,
    ) -> bool {
        let Some(admission) = self.authorization.0.clone() else { return true };
        let admitted = match supplied {
            ParsedPayload::Leaf(value) => {
                let leaf = Leaf::new(value.clone(), LeafMark::Explicit);
                admission.may_write_payload(self.before, origin, path, NodeRef::Leaf(&leaf))
            }
            ParsedPayload::Branch { branch, .. } => {
                admission.may_write_payload(self.before, origin, path, NodeRef::Branch(branch))
            }
        };
        if let Err(denied) = &admitted {
            let place = denied.to_path(self.models().schema(origin)).to_string();
            self.refuse(operation, place, EditCause::Denied);
        }
        admitted.is_ok()
    }

    /// Checks the permission for the resulting change of the client's layers.
    ///
    /// # Errors
    /// With a difference that is not permitted. Its path is included only if the author may read it.
    pub(super) fn check_changes_permitted(&self) -> Result<(), EditErrors> {
        let Some(admission) = &self.authorization.0 else { return Ok(()) };
        let changed = admission.may_change(self.before, &self.layers, self.forms);
        changed.map_err(|(origin, path)| {
            let is_readable = admission.may_read(origin, &path);
            let subject = match origin {
                Origin::OpenConfig => Subject { native: None, openconfig: Some(&path) },
                Origin::Native => Subject { native: Some(&path), openconfig: None },
            };
            let error = if is_readable {
                self.attribution.error(subject, EditCause::Denied)
            } else {
                self.attribution.last_operation_error(EditCause::Denied)
            };
            error.into()
        })
    }
}
