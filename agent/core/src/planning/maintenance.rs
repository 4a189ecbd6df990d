//! Links that maintenance sessions have: nothing new is placed on them, and their drift is nobody's business.
//!
//! The core is told all of them as a level. It refuses a Set that brings an entry whose own needs name such a link,
//! or that is a part of such a link. Changes, removals and rollbacks pass.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::schema::Origin;
use holdfast_platform::failure;
use holdfast_scheduler::{Engine, Key, SharedValue};
use smol_str::SmolStr;

use crate::examination::{EntryChange, Examiner};
use crate::request::{CommitError, Intent};

/// All links that are maintained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintainedLinks {
    /// Links on which nothing new is placed, with the id of the session.
    pub closed: BTreeMap<SmolStr, SmolStr>,
    /// Links whose drift is shown and not repaired.
    pub in_work: BTreeSet<SmolStr>,
}

impl Intent {
    /// True for changes by which clients bring new entries.
    pub(crate) fn places(&self) -> bool {
        matches!(self, Self::Edit(_) | Self::Resurrect { .. } | Self::Restore(_))
    }
}

impl MaintainedLinks {
    /// Refuses a new entry on a link that is closed.
    pub(crate) fn check(
        &self,
        changes: &[EntryChange],
        engine: &Engine,
        examiner: &Examiner,
        origin: Origin,
    ) -> Result<(), CommitError> {
        for change in changes.iter().filter(|it| !it.existed && !it.values.is_empty()) {
            let stands_on = |link: &SmolStr| {
                let entry = examiner.registry.link_path(link);
                let is_part = change.path.starts_with(&entry) && change.path != entry;
                is_part || change.values.iter().any(|value| needs(engine, value, link))
            };
            if let Some((link, session)) = self.closed.iter().find(|(link, _)| stands_on(link)) {
                return Err(CommitError::Closed {
                    path: examiner.display(&change.path, origin),
                    link: link.clone(),
                    session: session.clone(),
                });
            }
        }
        Ok(())
    }
}

/// True when a value needs a link by its name.
fn needs(engine: &Engine, (key, value): &(Key, SharedValue), link: &str) -> bool {
    let descriptor = engine.registry().descriptor(key.kind());
    let needs = descriptor.map(|it| it.dependencies(&**value)).unwrap_or_default();
    needs.iter().any(|need| failure::names_interface(&need.target, link))
}
