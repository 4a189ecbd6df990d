//! Queries for diagnosis: dependencies of a value, their providers, and dependents.
//!
//! Everything here only reads. Nothing costs more than its answer, except where it says so.

use crate::dependency::Target;
use crate::engine::Engine;
use crate::graph::{Node, NodeIdx};
use crate::key::{Key, KeySet};
use crate::operation::TxnId;
use crate::outcome::PlanError;
use crate::plan::Plan;
use crate::planner;
use crate::status::ValueState;
use crate::targets::provided_targets;

/// One dependency of a value, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependencyStatus {
    /// Label shown to users while the dependency is unmet.
    pub label: String,
    pub target: Target,
    pub met: bool,
}

impl Engine {
    /// Human-readable name of the value under a key.
    pub fn label(&self, key: &Key) -> String {
        self.graph.label(key)
    }

    /// Keys of all values (no properties) that satisfy `wanted`, in no order. Visits every value once.
    pub fn keys(&self, matches: impl Fn(&Key) -> bool) -> Vec<Key> {
        let there = self.graph.nodes().filter(|(_, node)| matches(&node.key));
        let there = there.filter(|(_, node)| self.state(&node.key) != ValueState::Nonexistent);
        there.map(|(_, node)| node.key.clone()).collect()
    }

    /// Dependencies of a value: as intended, else as applied.
    pub fn needs(&self, key: &Key) -> Vec<DependencyStatus> {
        let Some(node) = self.graph.find(key).map(|idx| self.graph.node(idx)) else {
            return Vec::new();
        };
        let applied = node.present.as_ref().filter(|_| node.ours);
        let spec = node.goal.requested_spec().or(applied);
        let needs = spec.map_or(&[][..], |spec| &spec.needs);
        let need = |need: &crate::dependency::Dependency| DependencyStatus {
            label: need.label.to_string(),
            target: need.target.clone(),
            met: self.graph.provider_count(&need.target) > 0,
        };
        needs.iter().map(need).collect()
    }

    /// Providers of each of these targets, at most `most` for each, ascending. Visits every value once for all targets
    /// together, unless all of them are exact.
    pub fn providers(&self, targets: &[Target], most: usize) -> Vec<Vec<Key>> {
        let mut found: Vec<Vec<Key>> = targets.iter().map(|it| self.provider(it)).collect();
        let open = |target: &Target| !matches!(target, Target::Exact(_));
        if targets.iter().any(open) {
            for (_, node) in self.graph.nodes() {
                for (target, keys) in targets.iter().zip(&mut found).filter(|(it, _)| open(it)) {
                    if keys.len() < most && offers(node, target) {
                        keys.push(node.key.clone());
                    }
                }
            }
        }
        for keys in &mut found {
            keys.sort_unstable();
        }
        found
    }

    /// Intended values that would provide each of these targets, if they were as intended: at most `most` for each,
    /// ascending. Visits every value once for all targets together.
    pub fn would_provide(&self, targets: &[Target], most: usize) -> Vec<Vec<Key>> {
        let mut found: Vec<Vec<Key>> = vec![Vec::new(); targets.len()];
        for (_, node) in self.graph.nodes() {
            let Some(spec) = node.goal.requested_spec() else { continue };
            for (target, keys) in targets.iter().zip(&mut found) {
                if keys.len() < most && spec.is_offering(&node.key, target) {
                    keys.push(node.key.clone());
                }
            }
        }
        for keys in &mut found {
            keys.sort_unstable();
        }
        found
    }

    /// True when the value under a key exists and provides a target.
    pub fn meets(&self, key: &Key, target: &Target) -> bool {
        self.graph.find(key).is_some_and(|idx| offers(self.graph.node(idx), target))
    }

    fn provider(&self, target: &Target) -> Vec<Key> {
        match target {
            Target::Exact(key) if self.graph.provider_count(target) > 0 => vec![key.clone()],
            _ => Vec::new(),
        }
    }

    /// Values that depend on this one, or would if it existed: at most `most`, ascending.
    pub fn dependents(&self, key: &Key, most: usize) -> Vec<Key> {
        let addresses = [&self.graph.addresses];
        let mut targets = provided_targets(key, None, &addresses);
        if let Some(node) = self.graph.find(key).map(|idx| self.graph.node(idx)) {
            for spec in node.present.iter().chain(node.goal.spec()) {
                targets.extend(provided_targets(key, Some(spec), &addresses));
            }
        }
        targets.sort_unstable();
        targets.dedup();
        let mut keys = KeySet::default();
        for target in &targets {
            let watchers = self.graph.target_state(target).map(|state| state.unique_watchers());
            let watchers = watchers.iter().flat_map(|watchers| watchers.iter());
            let needing = watchers.filter(|&&idx| self.needs_target(idx, target));
            let room = most.saturating_sub(keys.len());
            keys.extend(needing.take(room).map(|&idx| self.graph.node(idx).key.clone()));
        }
        let mut keys: Vec<Key> = keys.into_iter().filter(|other| other != key).collect();
        keys.sort_unstable();
        keys
    }

    /// Filters out stale watchers: values that need something else now.
    fn needs_target(&self, idx: NodeIdx, target: &Target) -> bool {
        let node = self.graph.node(idx);
        let spec = node
            .goal
            .requested_spec()
            .into_iter()
            .chain(node.present.as_ref().filter(|_| node.ours));
        spec.into_iter().any(|spec| !spec.needs_of(target).is_empty())
    }

    /// Plans what would bring these values to the intent; all values known to be out of place when `keys` is `None`.
    /// Pure, as [`Engine::plan`] is.
    ///
    /// # Errors
    /// Passes refusals of the planner on; what the engine holds already gives none.
    pub fn plan_repair(&self, keys: Option<&[Key]>) -> Result<Plan, PlanError> {
        let nodes: Vec<NodeIdx> = match keys {
            Some(keys) => keys.iter().filter_map(|key| self.graph.find(key)).collect(),
            None => {
                let all = self.graph.nodes().map(|(idx, _)| idx);
                all.filter(|&idx| self.graph.is_out_of_place(idx)).collect()
            }
        };
        planner::plan_for(&self.graph, nodes)
    }

    /// Numbers transactions from here on: earlier runs keep their numbers in records elsewhere.
    pub fn number_from(&mut self, first: TxnId) {
        self.next_txn = self.next_txn.max(first.0);
    }
}

fn offers(node: &Node, target: &Target) -> bool {
    node.present.as_ref().is_some_and(|present| present.is_offering(&node.key, target))
}
