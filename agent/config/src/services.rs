//! The place of services in a configuration: what their instances are walked with, and what comes of it.
//!
//! The configuration makes the *ground*, the union of everything but services, then has the instances walked whose
//! parameters differ in it, joins their claims, and makes the effective tree of all layers.

use std::fmt::Debug;

use crate::claims::{ClaimChange, Claims};
use crate::instance::InstancePath;
use crate::layer::LeafMark;
use crate::schema::Origin;
use crate::tree::Tree;
use crate::union::{Images, Provenance};

/// The union of everything but services.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a>(pub(crate) &'a Images);

impl<'a> Ground<'a> {
    /// Effective native configuration without what services make.
    pub fn effective(self) -> &'a Tree<Provenance> {
        &self.0.effective
    }

    /// Configuration of clients with the defaults in use.
    pub fn config_view(self, origin: Origin) -> &'a Tree<LeafMark> {
        self.0.view(origin)
    }
}

/// A change of the ground, for which instances are walked.
#[derive(Debug)]
pub struct GroundChange<'a> {
    pub old: Ground<'a>,
    pub new: Ground<'a>,
    /// Claims before.
    pub claims: &'a Claims,
}

/// Outcome of the walks of one change.
#[derive(Debug, Default)]
pub struct WalkOutcome {
    pub claims: Vec<ClaimChange>,
    /// Instances whose claims stay as they are, because their work failed. A request is refused then.
    pub failures: Vec<WorkFailure>,
}

/// Failure of the work of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkFailure {
    /// Path of the instance in the native model.
    pub instance: InstancePath,
    pub kind: WorkFailureKind,
    /// Text with the package, and the place in it.
    pub text: String,
}

/// Class of a failure, by which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkFailureKind {
    /// The parameters of the instance are not what its type asks for.
    Parameters,
    /// The template fails, or what it puts out cannot be read.
    Work,
    /// More than a limit allows.
    Limit,
    /// Output outside of the grants, or a reserved item.
    Denied,
}

/// The types of services of a box.
pub trait Services: Debug + Send + Sync {
    /// Walks the instances that differ between two versions of the ground. A function of its arguments.
    fn walk(&self, change: &GroundChange<'_>) -> WalkOutcome;
}
