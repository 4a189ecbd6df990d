//! Authorization of a Set.
//!
//! The rules themselves are behind [`EditAuthorizer`]. They are asked about the paths that operations name, about the
//! content of payloads, and finally about the difference in the client's layers, so that deletions by omission in
//! a replace are covered too. Without rules, nothing is asked and no tree is walked.

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

use super::attribution::{Attribution, Subject};
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
use crate::secret_nodes::SecretNodes;
use crate::secrets::Secrets;
use crate::tree::{Leaf, NodeRef};
use crate::value::Value;

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
    pub(crate) fn for_models(&self, models: &Arc<Models>) -> Self {
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
        self.authorization.check_changes(self.before, &self.layers, self.forms, &self.attribution)
    }
}

/// A leaf in place of a secret, whose path alone is judged.
fn unshown_secret() -> Leaf<LeafMark> {
    Leaf::new(Value::Str(SmolStr::default()), LeafMark::Explicit)
}

impl EditAuthorization {
    /// Checks the permission for a change of the client's layers, with the layers before and after it.
    ///
    /// # Errors
    /// With a difference that is not permitted. Its path is included only if the author may read it.
    pub(crate) fn check_changes(
        &self,
        before: &Configuration,
        after: &Layers,
        forms: RequestForms,
        attribution: &Attribution<'_>,
    ) -> Result<(), EditErrors> {
        let Some(admission) = &self.0 else { return Ok(()) };
        let changed = admission.may_change(before, after, forms);
        changed.map_err(|(origin, path)| self.denied(origin, &path, attribution))
    }

    /// Checks the permission for each secret of a user that differs between two versions of the layers.
    ///
    /// # Errors
    /// With a leaf that is not permitted. Its path is included only if the author may read it.
    pub(crate) fn check_secrets(
        &self,
        before: &Configuration,
        after: &Layers,
        attribution: &Attribution<'_>,
    ) -> Result<(), EditErrors> {
        let Some(admission) = &self.0 else { return Ok(()) };
        let differing = Secrets::differences(&before.layers().secrets, &after.secrets);
        let Some(nodes) = SecretNodes::find(&before.models().openconfig) else { return Ok(()) };
        let origin = Origin::OpenConfig;
        let leaf = unshown_secret();
        for (user, secret, _) in differing {
            let Some(path) = nodes.leaf(user, secret) else { continue };
            let written = NodeRef::Leaf(&leaf);
            let permitted = admission.may_write_payload(before, origin, &path, written);
            permitted.map_err(|path| self.denied(origin, &path, attribution))?;
        }
        Ok(())
    }

    fn denied(
        &self,
        origin: Origin,
        path: &InstancePath,
        attribution: &Attribution<'_>,
    ) -> EditErrors {
        let subject = match origin {
            Origin::OpenConfig => Subject { native: None, openconfig: Some(path) },
            Origin::Native => Subject { native: Some(path), openconfig: None },
        };
        let error = if self.may_read(origin, path) {
            attribution.error(subject, EditCause::Denied)
        } else {
            attribution.last_operation_error(EditCause::Denied)
        };
        error.into()
    }
}
