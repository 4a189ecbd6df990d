//! Whether the author of a Set may write what it writes.
//!
//! The rules are not known here: whoever knows them answers [`Admission`]. It is asked for what operations name, for what
//! they bring, and in the end for what differs in the client's layers, so that what a replace leaves out counts as well.
//! Without rules nothing is asked and nothing is walked.

use std::fmt;
use std::sync::Arc;

use super::apply::Session;
use super::blame::Subject;
use super::payload::Supplied;
use super::{Cause, EditErrors, Operation, Target};
use crate::cli::Statement;
use crate::configuration::Configuration;
use crate::instance::InstancePath;
use crate::layer::{Layers, Mark};
use crate::resolve::{Pattern, PatternStep};
use crate::schema::Origin;
use crate::tree::{Found, Leaf};

/// What the author of a Set may write, and read.
pub trait Admission: fmt::Debug + Send + Sync {
    /// All that stands at these steps and below, as something that a delete, a replace or a union_replace clears.
    fn may_clear(&self, origin: Origin, named: &[PatternStep]) -> bool;

    /// Text of the command line, whatever it says.
    fn may_send_text(&self) -> bool;

    /// One line of it.
    fn may_state(&self, before: &Configuration, statement: &Statement) -> bool;

    /// What a payload brings.
    ///
    /// # Errors
    /// With the first thing that may not be written.
    fn may_supply(
        &self,
        before: &Configuration,
        origin: Origin,
        path: &InstancePath,
        supplied: Found<'_, Mark>,
    ) -> Result<(), InstancePath>;

    /// What a request makes of the client's layers. `written` are the forms it has.
    ///
    /// # Errors
    /// With the first difference that may not be made.
    fn may_change(
        &self,
        before: &Configuration,
        after: &Layers,
        written: Forms,
    ) -> Result<(), (Origin, InstancePath)>;

    /// Whether messages may tell what stands there.
    fn may_read(&self, origin: Origin, path: &InstancePath) -> bool;
}

/// In which forms a request says what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// Paths of the native model.
    pub native: bool,
    /// Text of the command line.
    pub text: bool,
}

/// The rules for one Set, if there are any.
#[derive(Clone, Debug, Default)]
pub struct Gate(Option<Arc<dyn Admission>>);

/// The same rules, or none in both.
impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Gate {
    pub fn new(admission: Arc<dyn Admission>) -> Self {
        Self(Some(admission))
    }

    fn refuses(&self, asked: impl FnOnce(&dyn Admission) -> bool) -> bool {
        self.0.as_deref().is_some_and(|admission| !asked(admission))
    }

    /// Whether messages may tell what stands there.
    pub(super) fn may_read(&self, origin: Origin, path: &InstancePath) -> bool {
        !self.refuses(|admission| admission.may_read(origin, path))
    }
}

impl Session<'_> {
    /// False, and noted, when the author may not clear what an operation names. A wildcard in place of a name is covered
    /// by what may be done above it.
    pub(super) fn may_clear(
        &mut self,
        operation: Operation,
        target: &Target,
        pattern: &Pattern,
    ) -> bool {
        let literal = target.path.literal_len().min(pattern.0.len());
        let named = &pattern.0[..literal];
        let refused = self.gate.refuses(|it| it.may_clear(target.origin, named));
        if refused {
            self.fail(operation, target, Cause::Denied);
        }
        !refused
    }

    /// The same for a text.
    pub(super) fn may_send_text(&mut self, operation: Operation, target: &Target) -> bool {
        let refused = self.gate.refuses(|it| it.may_send_text());
        if refused {
            self.fail(operation, target, Cause::Denied);
        }
        !refused
    }

    pub(super) fn may_state(&self, statement: &Statement) -> bool {
        !self.gate.refuses(|it| it.may_state(self.before, statement))
    }

    /// The same for what a payload brings.
    pub(super) fn may_supply(
        &mut self,
        operation: Operation,
        origin: Origin,
        path: &InstancePath,
        supplied: &Supplied,
    ) -> bool {
        let Some(admission) = self.gate.0.clone() else { return true };
        let admitted = match supplied {
            Supplied::Leaf(value) => {
                let leaf = Leaf::new(value.clone(), Mark::Explicit);
                admission.may_supply(self.before, origin, path, Found::Leaf(&leaf))
            }
            Supplied::Branch { branch, .. } => {
                admission.may_supply(self.before, origin, path, Found::Branch(branch))
            }
        };
        if let Err(denied) = &admitted {
            let place = denied.to_path(self.models().schema(origin)).to_string();
            self.refuse(operation, place, Cause::Denied);
        }
        admitted.is_ok()
    }

    /// Judges what the whole request makes of the client's layers.
    ///
    /// # Errors
    /// With a difference that may not be made. It is named only to those who may read it.
    pub(super) fn admit_changes(&self) -> Result<(), EditErrors> {
        let Some(admission) = &self.gate.0 else { return Ok(()) };
        let changed = admission.may_change(self.before, &self.layers, self.forms);
        changed.map_err(|(origin, path)| {
            let known = admission.may_read(origin, &path);
            let subject = match origin {
                Origin::OpenConfig => Subject { native: None, openconfig: Some(&path) },
                Origin::Native => Subject { native: Some(&path), openconfig: None },
            };
            let error = match known {
                true => self.attribution.error(subject, Cause::Denied),
                false => self.attribution.implied(Cause::Denied),
            };
            EditErrors(vec![error])
        })
    }
}
