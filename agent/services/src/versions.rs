//! One version of the package of a type, as it is loaded.

use std::sync::Arc;

use holdfast_config::services::{Book, CallPhase, PackageArchive};
use smol_str::{SmolStr, format_smolstr};

use crate::outline::{DeleteOutline, SELF, Work};
use crate::package::Package;

/// A version of a package that is loaded.
#[derive(Debug)]
pub struct PackageVersion {
    pub package: Arc<Package>,
    /// The archive that it was read from; `None` in tests.
    pub source: Option<PackageSource>,
    /// Some state has a delete gate, a delete call or a delete action, or ends the transaction in which it is left.
    pub(crate) has_staged_deletes: bool,
}

/// The archive of a package.
#[derive(Clone, Debug)]
pub struct PackageSource {
    pub archive: Arc<PackageArchive>,
    /// An operator installed it: the database keeps it also while no instance uses it.
    pub is_installed: bool,
    /// The signature of a package that came over the network, kept beside it.
    pub signature: Option<Arc<PackageArchive>>,
    /// Reason for which the signer is refused now.
    pub refusal: Option<SmolStr>,
}

/// End of the name of a row with the signature of the package in the row without it.
const SIGNATURE_END: &str = "#signature";

/// Name of the row with the signature of the package in a row.
pub fn signature_row(package_row: &str) -> SmolStr {
    format_smolstr!("{package_row}{SIGNATURE_END}")
}

/// True for the name of a row with a signature.
pub fn is_signature_row(row: &str) -> bool {
    row.ends_with(SIGNATURE_END)
}

impl PackageVersion {
    pub(crate) fn new(package: Arc<Package>, source: Option<PackageSource>) -> Self {
        let is_staged = |it: &DeleteOutline| {
            it.when.is_some() || it.commit_after || it.handler || it.action.is_some()
        };
        let states = package.outline.components.iter().flat_map(|it| &it.states);
        let has_staged_deletes = states.into_iter().any(|state| is_staged(&state.delete));
        Self { package, source, has_staged_deletes }
    }

    /// This version with another verdict on its signer: the reason for a refusal, or none.
    fn with_refusal(&self, refusal: Option<SmolStr>) -> Self {
        let source = self.source.clone().map(|source| PackageSource { refusal, ..source });
        Self::new(Arc::clone(&self.package), source)
    }

    /// Judges the signer anew. Returns the version with the verdict if that is another one.
    pub(crate) fn judged(&self, judge: impl Fn(&PackageSource) -> Option<SmolStr>) -> Option<Self> {
        let source = self.source.as_ref()?;
        let refusal = judge(source);
        (refusal != source.refusal).then(|| self.with_refusal(refusal))
    }

    /// True when some instance was last walked with it.
    pub(crate) fn is_used(&self, book: &Book) -> bool {
        book.uses(&self.package.outline.name.text, &self.package.version().to_string())
    }

    /// Component type, state and phase of every call of a handler. Modification calls are those of `self`, with their phases
    /// in place of a state.
    pub fn handler_calls(&self) -> impl Iterator<Item = (SmolStr, SmolStr, CallPhase)> {
        let handler = self.package.outline.handler.as_ref();
        let is_modified = handler.is_some_and(|handler| handler.modification);
        let phases = [CallPhase::PreModification, CallPhase::PostModification];
        let phases = phases.into_iter().filter(move |_| is_modified);
        let modifications = phases
            .map(|phase| (SmolStr::new_static(SELF), SmolStr::new_static(phase.name()), phase));
        let components = &self.package.outline.components;
        let states = components.iter().flat_map(|it| it.states.iter().map(move |s| (it, s)));
        let of_states = states.flat_map(|(component, state)| {
            let works = state.work == Some(Work::Handler);
            let call = |phase| (component.name.clone(), state.name.clone(), phase);
            let create = works.then(|| call(CallPhase::Create));
            create.into_iter().chain(state.delete.handler.then(|| call(CallPhase::Delete)))
        });
        modifications.chain(of_states)
    }
}
