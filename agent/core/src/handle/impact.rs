//! Impacts of failures, as entries of the native model.
//!
//! The engine finds values ([`ImpactWalk`]); who is told of them knows entries. Several values may be one entry: it is down
//! when none of them works, and degraded when some do. Administratively shut links are in no impact.

use std::collections::BTreeMap;

use holdfast_config::{Configuration, EffectiveStatus, InstancePath, SharedPath};
use holdfast_platform::objects::{EntryShare, Registry};
use holdfast_scheduler::{Engine, Failure, Impact, ImpactWalk, Key};
use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::CoreHandle;
use crate::publication::{ServiceState, as_planes};
use crate::reports::GraphVersion;
use crate::request::CommitError;
use crate::shared_engine::SharedEngine;

/// Edges of the graph that are walked, and values that are turned into entries, under one guard of the engine: a millisecond
/// or two. A guard may be held for ten ([`MAX_GUARD`](crate::shared_engine::MAX_GUARD)).
const PORTION: usize = 1024;

/// Entries of the native model that do not work because of a failure. Each list ascends, and no entry is in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryImpact {
    /// Entries that do not work at all.
    pub down: Vec<InstancePath>,
    /// Entries that work in part.
    pub degraded: Vec<InstancePath>,
    /// Edges of the graph that were looked at.
    pub edges: usize,
    /// True when a limit of the walk was reached: there is more.
    pub is_truncated: bool,
    /// The graph when the walk began. Where it is another one now, the impact may be, too.
    pub version: GraphVersion,
}

/// Facts about an entry of an impact.
#[derive(Debug, Default)]
struct Standing {
    /// Values of the entry that do not work.
    down: SmallVec<[Key; 1]>,
    /// True when one of the values stands for the entry, and does not work.
    is_whole_down: bool,
    /// True when something of the entry works for certain.
    is_degraded: bool,
}

impl EntryImpact {
    /// Finds the impact of a failure. Takes as long as it is large, and reads the engine in portions.
    fn find(
        engine: &SharedEngine,
        registry: &Registry,
        configuration: &Configuration,
        failure: Failure,
    ) -> Self {
        let version = GraphVersion(engine.read().dependency_version());
        let mut walk = ImpactWalk::new(failure);
        let Impact { down, degraded, edges, is_truncated } = loop {
            let impact = walk.portion(&engine.read(), PORTION);
            if let Some(impact) = impact {
                break impact;
            }
        };
        let mut entries: BTreeMap<InstancePath, Standing> = BTreeMap::new();
        for keys in down.chunks(PORTION) {
            let engine = engine.read();
            keys.iter().for_each(|key| note(&mut entries, registry, &engine, key, true));
        }
        for keys in degraded.chunks(PORTION) {
            let engine = engine.read();
            keys.iter().for_each(|key| note(&mut entries, registry, &engine, key, false));
        }
        let mut impact = Self { edges, is_truncated, version, ..Self::default() };
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let engine = engine.read();
            for (path, standing) in entries.by_ref().take(PORTION) {
                let works = standing.works(registry, &engine, configuration, &path);
                if works { impact.degraded.push(path) } else { impact.down.push(path) }
            }
        }
        impact
    }
}

/// Notes that a value does not work, or that some of it does, with the entry that shows it.
fn note(
    entries: &mut BTreeMap<InstancePath, Standing>,
    registry: &Registry,
    engine: &Engine,
    key: &Key,
    is_down: bool,
) {
    let Some(entry) = registry.value_entry(key, as_planes(engine.planes(key))) else { return };
    let standing = entries.entry(entry.path).or_default();
    match entry.share {
        EntryShare::Attribute => standing.is_degraded = true,
        _ if !is_down => standing.is_degraded = true,
        EntryShare::Whole => standing.is_whole_down = true,
        EntryShare::OneOfSeveral => standing.down.push(key.clone()),
    }
}

impl Standing {
    /// True when some of the entry works.
    fn works(
        &self,
        registry: &Registry,
        engine: &Engine,
        configuration: &Configuration,
        path: &InstancePath,
    ) -> bool {
        if self.is_whole_down || self.is_degraded {
            return !self.is_whole_down;
        }
        let Some(entry) = configuration.effective().find_branch(&path.0) else { return false };
        let beside = registry.keys_beside(path, &entry, &self.down);
        beside.iter().any(|key| engine.planes(key)[2].is_some())
    }
}

impl CoreHandle {
    /// The entries that do not work because of a failure. The engine is read in portions, beside the core.
    ///
    /// # Errors
    /// When the walk has panicked.
    pub async fn impact(&self, failure: Failure) -> Result<EntryImpact, CommitError> {
        let engine = self.engine.clone();
        let registry = self.registry.clone();
        let configuration = self.configuration_rx.borrow().clone();
        let find = move || EntryImpact::find(&engine, &registry, &configuration, failure);
        let found = spawn_blocking(find).await;
        found.map_err(|error| CommitError::Internal {
            reason: format!("the impact of a failure cannot be found: {error}"),
        })
    }

    /// Moves when an impact may have become another one, not before the engine shows it.
    pub fn graph_version(&self) -> watch::Receiver<GraphVersion> {
        self.graph_rx.clone()
    }

    /// Shows state leaves of a service and marks of entries of the native model, in one revision; `None` takes them away.
    /// A mark is kept while its entry is not there, and is shown when it comes. The number of marks that were one too many,
    /// and are not kept. Give at most some thousand at a time, since a reader waits for all of them.
    pub fn mark(
        &self,
        leaves: ServiceState,
        marks: Vec<(SharedPath, Option<EffectiveStatus>)>,
    ) -> usize {
        self.chain.amend(leaves, marks)
    }
}
