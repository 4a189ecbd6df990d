//! A change on its way from its plan into force.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_common::parallel;
use holdfast_config::{Configuration, ServiceTag};
use holdfast_scheduler::Key;
use smol_str::SmolStr;

use crate::examination::{CredentialValues, EntryChange, located_differences};
use crate::request::CommitStamp;
use crate::service_history::HistoryChange;

/// Entries that take as long to show as the plan and the owners of one instance of a service: a millisecond, at most.
const INSTANCE_ENTRIES: usize = 50;

/// A change that the engine has taken over: everything that its commit puts in force.
#[derive(Debug)]
pub(crate) struct PlannedChange {
    pub(crate) configuration: Configuration,
    pub(crate) changes: Arc<Vec<EntryChange>>,
    pub(crate) credentials: CredentialValues,
    /// Instances of services that may be ready once the change is carried out.
    pub(crate) unready: BTreeSet<ServiceTag>,
    /// Number of instances whose plans or claims differ.
    pub(crate) instances: usize,
}

impl PlannedChange {
    /// True for a change that is answered before a revision shows it.
    pub(crate) fn is_large(&self) -> bool {
        let entries = self.configuration.work().entries.max(self.changes.len());
        entries + self.instances * INSTANCE_ENTRIES > parallel::FEW
    }

    /// The path of the changed entry that asks for an object.
    pub(crate) fn path_of(&self, key: &Key) -> Option<String> {
        let mut differences = located_differences(&self.changes);
        let (path, ..) = differences.find(|(_, changed, _)| *changed == key)?;
        Some(path.to_path(&self.configuration.models().native).to_string())
    }
}

/// A change that is in force, and that no revision shows yet.
#[derive(Debug)]
pub(crate) struct AppliedChange {
    /// The configuration before the commit.
    pub(crate) old: Configuration,
    pub(crate) changes: Arc<Vec<EntryChange>>,
    /// Id of the commit that must be confirmed, if this commit is the one, belongs to it or takes it back.
    pub(crate) confirm_id: Option<SmolStr>,
    /// Its service transaction.
    pub(crate) history: HistoryChange,
    pub(crate) stamp: CommitStamp,
}
