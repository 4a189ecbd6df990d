//! Subscriptions that are ignored because no model has their path: the setting, the log, and the counts that readers see.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, NodeId, Value};
use holdfast_core::{Datastore, PolledState, ServiceState};
use holdfast_platform::objects::GRPC_SERVER;
use holdfast_telemetry::PolledReading;
use smol_str::SmolStr;
use tracing::{info, warn};

use crate::settings::UnknownPaths;

/// Paths that are counted at a time; beyond it, the path that was ignored longest ago is dropped. A subscription list
/// for boxes of several vendors has some hundred paths, and each takes a kilobyte at most.
const COUNTED_PATHS: usize = 1000;
/// Paths that are logged in a run of the agent, each once. The limit equals that of the counts, so that no subscriber
/// can fill the log, or the memory for the logged paths.
const LOGGED_PATHS: usize = COUNTED_PATHS;

/// The handling of subscriptions to paths that no model has, with counts since the start of the agent.
#[derive(Debug)]
pub struct IgnoredSubscriptions {
    /// The setting of the command line, for a configuration without one.
    option: UnknownPaths,
    /// The leaf with the setting of the configuration.
    setting: InstancePath,
    /// The two leaves of an entry, below the entry of some path.
    path: InstancePath,
    count: InstancePath,
    table: Mutex<Table>,
    /// Paths whose entries readers see. Locked while entries are published, so that later ones are shown later.
    published: tokio::sync::Mutex<BTreeSet<SmolStr>>,
}

/// Paths and how often each was ignored.
#[derive(Debug, Default)]
struct Table {
    by_path: HashMap<SmolStr, PathCount>,
    /// Paths by the order in which each was ignored last.
    by_turn: BTreeMap<u64, SmolStr>,
    turns: u64,
    logged: HashSet<SmolStr>,
}

#[derive(Clone, Copy, Debug)]
struct PathCount {
    times: u64,
    last_turn: u64,
}

impl IgnoredSubscriptions {
    /// Starts without counts, with the setting of the command line.
    ///
    /// # Errors
    /// When the models in the binary lack a leaf, which the first test finds.
    pub fn new(native: &Schema, option: UnknownPaths) -> Result<Self, MissingNode> {
        let server = ("grpc-server", &[("name", GRPC_SERVER)][..]);
        let below = |below: &[(&str, &[(&str, &str)])]| {
            native.instance_path(&[&[("system", &[][..]), server], below].concat())
        };
        let entry = ("ignored-subscription", &[("path", "/")][..]);
        Ok(Self {
            option,
            setting: below(&[("unknown-subscription-paths", &[])])?,
            path: below(&[entry, ("state", &[]), ("path", &[])])?,
            count: below(&[entry, ("state", &[]), ("count", &[])])?,
            table: Mutex::default(),
            published: tokio::sync::Mutex::default(),
        })
    }

    /// The setting in force: from the configuration, or else from the command line.
    pub(in super::super) fn setting(&self, core: &impl Datastore) -> UnknownPaths {
        let configuration = core.configuration();
        let leaf = configuration.effective().find_leaf(&self.setting);
        let configured = leaf.and_then(|leaf| match leaf.value {
            Value::Enum(name) => UnknownPaths::from_str(&name, false).ok(),
            _ => None,
        });
        configured.unwrap_or(self.option)
    }

    /// Counts and logs ignored paths; returns when readers see the counts.
    pub(super) async fn note(&self, core: &impl Datastore, paths: &[SmolStr]) {
        if paths.is_empty() {
            return;
        }
        let unlogged = {
            let mut table = self.table();
            paths.iter().for_each(|path| table.count(path));
            table.take_unlogged(paths)
        };
        for path in &unlogged {
            info!(%path, "no model has this path: subscriptions to it are ignored");
        }
        if !unlogged.is_empty() && self.table().is_log_full() {
            warn!(
                paths = LOGGED_PATHS,
                "no further path of an ignored subscription is logged until the agent starts again"
            );
        }
        self.show(core).await;
    }

    /// Shows present entries, and removes those of dropped paths. If a call is cancelled, the next one does all of it.
    async fn show(&self, core: &impl Datastore) {
        let mut published = self.published.lock().await;
        let counted: BTreeSet<SmolStr> = self.table().by_path.keys().cloned().collect();
        let removed = published
            .difference(&counted)
            .map(|path| (self.path.clone().with_last_key(Value::Str(path.clone())), None));
        let fresh = counted.difference(&published);
        let fresh = fresh.map(|path| {
            (
                self.path.clone().with_last_key(Value::Str(path.clone())),
                Some(Value::Str(path.clone())),
            )
        });
        let changes: ServiceState = removed.chain(fresh).collect();
        if !changes.is_empty() {
            core.show_state(changes).await;
            *published = counted;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IgnoredSubscriptions {
    fn counts(&self) -> Vec<(InstancePath, Value)> {
        let table = self.table();
        let count = |(path, counted): (&SmolStr, &PathCount)| {
            (self.count.clone().with_last_key(Value::Str(path.clone())), Value::Uint(counted.times))
        };
        table.by_path.iter().map(count).collect()
    }
}

#[tonic::async_trait]
impl PolledState for IgnoredSubscriptions {
    fn nodes(&self) -> Vec<NodeId> {
        self.count.leaf().into_iter().collect()
    }

    async fn read(&self) -> PolledReading {
        self.counts().into()
    }
}

impl Table {
    fn count(&mut self, path: &SmolStr) {
        self.turns += 1;
        let last_turn = self.turns;
        let before = self.by_path.get(path).copied();
        if let Some(before) = before {
            self.by_turn.remove(&before.last_turn);
        }
        let times = before.map_or(0, |before| before.times) + 1;
        self.by_path.insert(path.clone(), PathCount { times, last_turn });
        self.by_turn.insert(last_turn, path.clone());
        if self.by_path.len() > COUNTED_PATHS
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.by_path.remove(&oldest);
        }
    }

    /// Notes paths as logged, and returns those that were not logged before, up to the limit.
    fn take_unlogged(&mut self, paths: &[SmolStr]) -> Vec<SmolStr> {
        let log = |path: &&SmolStr| !self.is_log_full() && self.logged.insert((*path).clone());
        paths.iter().filter(log).cloned().collect()
    }

    fn is_log_full(&self) -> bool {
        self.logged.len() >= LOGGED_PATHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: usize) -> SmolStr {
        format!("/other/path{number}").into()
    }

    fn paths(numbers: std::ops::Range<usize>) -> Vec<SmolStr> {
        numbers.map(path).collect()
    }

    #[test]
    fn of_too_many_paths_those_ignored_longest_ago_are_forgotten() {
        let mut table = Table::default();
        paths(0..COUNTED_PATHS).iter().for_each(|path| table.count(path));
        table.count(&path(0));
        paths(COUNTED_PATHS..COUNTED_PATHS + 2).iter().for_each(|path| table.count(path));
        let times = |number| table.by_path.get(&path(number)).map(|counted| counted.times);
        assert_eq!([times(0), times(1), times(2), times(3)], [Some(2), None, None, Some(1)]);
        assert_eq!((table.by_path.len(), table.by_turn.len()), (COUNTED_PATHS, COUNTED_PATHS));
    }

    #[test]
    fn each_path_is_logged_once_and_no_more_than_some() {
        let mut table = Table::default();
        assert_eq!(table.take_unlogged(&[path(0), path(1), path(0)]), paths(0..2));
        assert_eq!(table.take_unlogged(&paths(0..3)), paths(2..3));
        assert!(!table.is_log_full());
        assert_eq!(table.take_unlogged(&paths(0..LOGGED_PATHS + 2)), paths(3..LOGGED_PATHS));
        assert!(table.is_log_full());
        assert_eq!(table.take_unlogged(&paths(0..LOGGED_PATHS + 2)), paths(0..0));
    }
}
