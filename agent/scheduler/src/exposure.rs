//! Values that failed because of something else, listed under what may change: whatever they need, and themselves.
//!
//! With no such value, every change costs one look at an empty table.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::dependency::Target;
use crate::graph::{Graph, NodeIdx};
use crate::key::{FixedMap, Key};
use crate::value_spec::ValueSpec;

/// What failed values wait to see changed.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    by_target: FixedMap<Target, BTreeSet<NodeIdx>>,
    /// The addresses among the targets that want to be covered.
    covering: BTreeSet<(u32, IpAddr)>,
    /// The prefixes of keys among the targets.
    unders: usize,
    /// Values whose surroundings changed; to be tried again.
    pub(crate) changed: Vec<NodeIdx>,
}

impl Graph {
    /// Lists a failed value under all it relies on.
    pub(crate) fn expose(&mut self, idx: NodeIdx) {
        self.cover_up(idx);
        let node = self.node(idx);
        let needs = node.goal.needs();
        let mut targets: Vec<Target> = needs.iter().map(|need| need.target.clone()).collect();
        targets.push(Target::Exact(node.key.clone()));
        targets.dedup();
        for target in &targets {
            let listed = self.exposures.by_target.entry(target.clone()).or_default();
            listed.insert(idx);
            match target {
                Target::Covering { table, address } => {
                    self.exposures.covering.insert((*table, *address));
                }
                Target::Under(_) => self.exposures.unders += 1,
                _ => {}
            }
        }
        self.node_mut(idx).trouble.get_or_insert_default().exposed = targets.into();
    }

    /// Takes a value off the lists.
    pub(crate) fn cover_up(&mut self, idx: NodeIdx) {
        let Some(trouble) = &mut self.node_mut(idx).trouble else { return };
        for target in std::mem::take(&mut trouble.exposed) {
            let Some(listed) = self.exposures.by_target.get_mut(&target) else { continue };
            listed.remove(&idx);
            let empty = listed.is_empty();
            match &target {
                Target::Covering { table, address } if empty => {
                    self.exposures.covering.remove(&(*table, *address));
                }
                Target::Under(_) => self.exposures.unders -= 1,
                _ => {}
            }
            if empty {
                self.exposures.by_target.remove(&target);
            }
        }
    }

    /// Notes that a value changed in the system, for those who failed because of it.
    pub(crate) fn altered(
        &mut self,
        idx: NodeIdx,
        old: Option<&ValueSpec>,
        new: Option<&ValueSpec>,
    ) {
        if self.exposures.by_target.is_empty() {
            return;
        }
        let key = self.node(idx).key.clone();
        self.exposures.touch(&Target::Exact(key.clone()));
        for spec in old.into_iter().chain(new) {
            for target in spec.offers.keys() {
                self.exposures.touch(target);
            }
            for &(table, prefix) in spec.prefixes() {
                self.exposures.touch_covered(table, prefix);
            }
        }
        self.exposures.touch_under(&key);
    }
}

impl Exposures {
    fn touch(&mut self, target: &Target) {
        self.changed.extend(self.by_target.get(target).into_iter().flatten());
    }

    fn touch_covered(&mut self, table: u32, prefix: IpNet) {
        let range = (table, prefix.network())..=(table, prefix.broadcast());
        let covered: Vec<(u32, IpAddr)> = self.covering.range(range).copied().collect();
        for (table, address) in covered {
            self.touch(&Target::Covering { table, address });
        }
    }

    fn touch_under(&mut self, key: &Key) {
        if self.unders > 0 {
            for prefix in key.prefixes() {
                self.touch(&Target::Under(prefix));
            }
        }
    }
}
