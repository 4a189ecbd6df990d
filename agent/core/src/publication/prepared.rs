//! Entries of a large commit, laid out while it is carried out.
//!
//! The kernel takes longer for a hundred thousand routes than it takes to put their entries into a copy of the lists of the
//! newest revision. After the answer, states are filled in and the lists are put in place. Where others have changed
//! a list meanwhile, its entries are added one by one.

use std::sync::Arc;

use holdfast_config::Configuration;
use holdfast_config::schema::Origin;
use holdfast_telemetry::{EntryVersion, PreparedTree, Revision};

use super::derived::{NewEntries, NewState};
use super::state::StateSource;
use crate::examination::EntryChange;

/// Derived entries that a commit adds.
#[derive(Debug)]
pub(crate) struct PreparedEntries {
    /// States of the entries, in the order of the changes, to be filled.
    pub(super) states: Vec<NewState>,
    /// Version of the entries, to be given.
    pub(super) version: EntryVersion,
    pub(super) openconfig: Option<PreparedTree>,
    pub(super) native: Option<PreparedTree>,
}

/// Input from which the entries of a commit are laid out.
#[derive(Debug)]
pub(crate) struct EntryPreparation {
    pub(super) source: StateSource,
    /// The newest revision.
    pub(super) base: Arc<Revision>,
    /// The configuration before the commit and after it.
    pub(super) old: Configuration,
    pub(super) new: Configuration,
    pub(super) changes: Arc<Vec<EntryChange>>,
}

impl EntryPreparation {
    /// Lays the entries out. Takes as long as there are entries.
    pub(crate) fn run(self) -> PreparedEntries {
        let version = EntryVersion::default();
        let models = self.new.shared_models();
        let new = NewEntries { registry: &self.source.registry, models };
        let states = new.states(&self.changes, &version);
        let tree = |origin| {
            let config = [&self.old, &self.new].map(|it| it.config_view(origin));
            let lists = NewState::by_list(origin, &states).collect();
            PreparedTree::new(origin, self.base.tree(origin), config, lists, &version)
        };
        let openconfig = tree(Origin::OpenConfig);
        let native = tree(Origin::Native);
        PreparedEntries { states, version, openconfig, native }
    }
}
