//! Index from targets to the failed values that are tried again when the target changes.
//!
//! A value that failed because of its surroundings is registered under all of its targets and under its own key. With
//! no such value, every change costs one look at an empty table.

use std::collections::BTreeSet;

use crate::dependency::Target;
use crate::graph::{Graph, NodeIdx};
use crate::targets::TargetIndex;
use crate::value_spec::ValueSpec;

/// Failed values by the targets that trigger another try.
#[derive(Debug, Default)]
pub(crate) struct RetryTriggers {
    by_target: TargetIndex<BTreeSet<NodeIdx>>,
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
            self.retry_triggers.by_target.entry(target).insert(idx);
        }
        self.node_mut(idx).retry.get_or_insert_default().triggers = targets.into();
    }

    /// Removes a value from the index.
    pub(crate) fn unregister_retry_triggers(&mut self, idx: NodeIdx) {
        let Some(retry) = &mut self.node_mut(idx).retry else { return };
        for target in std::mem::take(&mut retry.triggers) {
            let by_target = &mut self.retry_triggers.by_target;
            let Some(listed) = by_target.get_mut(&target) else { continue };
            listed.remove(&idx);
            if listed.is_empty() {
                by_target.remove(&target);
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
        let RetryTriggers { by_target, triggered } = &mut self.retry_triggers;
        let specs = if old.is_some() && new.is_some() { vec![old, new] } else { vec![old.or(new)] };
        for spec in specs {
            let listed = by_target.provided_by(&key, spec);
            triggered.extend(listed.into_iter().flatten());
        }
    }
}
