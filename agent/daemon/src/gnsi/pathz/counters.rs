//! Counters of pathz decisions, by schema path.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_base::now_ns;
use holdfast_config::schema::Schema;
use holdfast_config::{Models, NodeId};
use holdfast_security::pathz::Mode;
use smol_str::SmolStr;

use super::Scope;

/// Decisions about one schema path since the start of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) accepts: u64,
    pub(crate) rejects: u64,
    /// Nanoseconds since 1970; 0 for never.
    pub(crate) last_accept_ns: u64,
    pub(crate) last_reject_ns: u64,
}

/// Key of a counter: a node of one origin. Their number is bounded by that of the schema nodes.
pub(crate) type CounterKey = (Scope, NodeId);

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Schema paths of the nodes of both models, as text.
    names: [Vec<SmolStr>; 2],
    counted: Mutex<CounterTable>,
}

#[derive(Debug, Default)]
struct CounterTable {
    by_path: BTreeMap<SmolStr, Counts>,
    /// Paths whose counters were not published yet.
    fresh: Vec<SmolStr>,
}

impl Counters {
    pub(super) fn new(models: &Models) -> Self {
        let names = [&models.openconfig, &models.native].map(schema_paths);
        Self { names, counted: Mutex::default() }
    }

    /// Counts one decision.
    pub(crate) fn count(&self, (scope, node): CounterKey, mode: Mode, permitted: bool) {
        let path = self.name(scope, node);
        let mut counted = self.counted();
        if !counted.by_path.contains_key(&path) {
            counted.fresh.push(path.clone());
        }
        let counts = counted.by_path.entry(path).or_default();
        let tally = match mode {
            Mode::Read => &mut counts.reads,
            Mode::Write => &mut counts.writes,
        };
        let (times, last) = match permitted {
            true => (&mut tally.accepts, &mut tally.last_accept_ns),
            false => (&mut tally.rejects, &mut tally.last_reject_ns),
        };
        *times += 1;
        *last = now_ns();
    }

    pub(super) fn take_fresh(&self) -> Vec<SmolStr> {
        std::mem::take(&mut self.counted().fresh)
    }

    pub(super) fn read(&self) -> Vec<(SmolStr, Counts)> {
        self.counted().by_path.iter().map(|(path, counts)| (path.clone(), *counts)).collect()
    }

    fn counted(&self) -> MutexGuard<'_, CounterTable> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schema path such as `/interfaces/interface`; origins other than OpenConfig are prefixed by their name.
    fn name(&self, scope: Scope, node: NodeId) -> SmolStr {
        let names = &self.names[usize::from(scope != Scope::OpenConfig)];
        let path = names.get(node.0 as usize).cloned().unwrap_or_default();
        match scope {
            Scope::OpenConfig => path,
            Scope::Native | Scope::Text => format!("{}:{path}", scope.name()).into(),
        }
    }
}

/// Schema paths by node.
fn schema_paths(schema: &Schema) -> Vec<SmolStr> {
    let mut paths: Vec<SmolStr> = Vec::with_capacity(schema.nodes().len());
    // Parents come before their children.
    for node in schema.nodes() {
        let above = node.parent.map(|parent| paths[parent.0 as usize].as_str());
        paths.push(match above {
            None => "/".into(),
            Some("/") => format!("/{}", node.name).into(),
            Some(above) => format!("{above}/{}", node.name).into(),
        });
    }
    paths
}
