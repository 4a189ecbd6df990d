//! Index from targets to the failed values that are tried again when the target changes.
//!
//! A value that failed because of its surroundings is registered under all of its targets and under its own key. With
//! no such value, every change costs one look at an empty table.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::dependency::Target;
use crate::graph::{Graph, NodeIdx};
use crate::key::{FixedMap, Key};
use crate::value_spec::ValueSpec;

/// Failed values by the targets that trigger another try.
#[derive(Debug, Default)]
pub(crate) struct RetryTriggers {
    by_target: FixedMap<Target, BTreeSet<NodeIdx>>,
    /// Addresses of the `Covering` targets, ordered: a prefix triggers a range of them.
    covering: BTreeSet<(u32, IpAddr)>,
    /// Number of `Under` targets; with none, prefixes of keys need not be looked up.
    unders: usize,
    /// Values with a changed target, to be tried again.
    pub(crate) triggered: Vec<NodeIdx>,
}

impl Graph {
    /// Registers a failed value under all of its targets.
    pub(crate) fn register_retry_triggers(&mut self, idx: NodeIdx) {
        self.unregister_retry_triggers(idx);
        let node = self.node(idx);
        let needs = node.goal.needs();
        let mut targets: Vec<Target> = needs.iter().map(|need| need.target.clone()).collect();
        targets.push(Target::Exact(node.key.clone()));
        targets.dedup();
        for target in &targets {
            let listed = self.retry_triggers.by_target.entry(target.clone()).or_default();
            listed.insert(idx);
            match target {
                Target::Covering { table, address } => {
                    self.retry_triggers.covering.insert((*table, *address));
                }
                Target::Under(_) => self.retry_triggers.unders += 1,
                _ => {}
            }
        }
        self.node_mut(idx).retry.get_or_insert_default().triggers = targets.into();
    }

    /// Removes a value from the index.
    pub(crate) fn unregister_retry_triggers(&mut self, idx: NodeIdx) {
        let Some(retry) = &mut self.node_mut(idx).retry else { return };
        for target in std::mem::take(&mut retry.triggers) {
            let Some(listed) = self.retry_triggers.by_target.get_mut(&target) else { continue };
            listed.remove(&idx);
            let empty = listed.is_empty();
            match &target {
                Target::Covering { table, address } if empty => {
                    self.retry_triggers.covering.remove(&(*table, *address));
                }
                Target::Under(_) => self.retry_triggers.unders -= 1,
                _ => {}
            }
            if empty {
                self.retry_triggers.by_target.remove(&target);
            }
        }
    }

    /// Triggers retries of the values registered under a value that changed in the system.
    pub(crate) fn trigger_retries(
        &mut self,
        idx: NodeIdx,
        old: Option<&ValueSpec>,
        new: Option<&ValueSpec>,
    ) {
        if self.retry_triggers.by_target.is_empty() {
            return;
        }
        let key = self.node(idx).key.clone();
        self.retry_triggers.trigger(&Target::Exact(key.clone()));
        for spec in old.into_iter().chain(new) {
            for target in spec.offers.keys() {
                self.retry_triggers.trigger(target);
            }
            for &(table, prefix) in spec.prefixes() {
                self.retry_triggers.trigger_covered(table, prefix);
            }
        }
        self.retry_triggers.trigger_under(&key);
    }
}

impl RetryTriggers {
    fn trigger(&mut self, target: &Target) {
        self.triggered.extend(self.by_target.get(target).into_iter().flatten());
    }

    fn trigger_covered(&mut self, table: u32, prefix: IpNet) {
        let range = (table, prefix.network())..=(table, prefix.broadcast());
        let covered: Vec<(u32, IpAddr)> = self.covering.range(range).copied().collect();
        for (table, address) in covered {
            self.trigger(&Target::Covering { table, address });
        }
    }

    fn trigger_under(&mut self, key: &Key) {
        if self.unders > 0 {
            for prefix in key.prefixes() {
                self.trigger(&Target::Under(prefix));
            }
        }
    }
}
