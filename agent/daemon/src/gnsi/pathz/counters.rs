//! Counters of pathz decisions, by schema path.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_base::now_ns;
use holdfast_config::schema::Schema;
use holdfast_security::pathz::Mode;
use smol_str::SmolStr;

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

/// Schema paths of the nodes of both models, as text.
pub(super) type SchemaPaths = [Vec<SmolStr>; 2];

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counted: Mutex<CounterTable>,
}

#[derive(Debug, Default)]
struct CounterTable {
    /// Counts by schema path. Their number is bounded by that of the schema nodes.
    by_path: BTreeMap<SmolStr, Counts>,
    /// Paths whose counters were not published yet.
    fresh: Vec<SmolStr>,
}

impl Counters {
    /// Counts one decision about a schema path.
    pub(super) fn count(&self, path: SmolStr, mode: Mode, permitted: bool) {
        let mut counted = self.counted();
        if !counted.by_path.contains_key(&path) {
            counted.fresh.push(path.clone());
        }
        let counts = counted.by_path.entry(path).or_default();
        let tally = match mode {
            Mode::Read => &mut counts.reads,
            Mode::Write => &mut counts.writes,
        };
        let (times, last) = if permitted {
            (&mut tally.accepts, &mut tally.last_accept_ns)
        } else {
            (&mut tally.rejects, &mut tally.last_reject_ns)
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
}

/// Schema paths by node.
pub(super) fn schema_paths(schema: &Schema) -> Vec<SmolStr> {
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
