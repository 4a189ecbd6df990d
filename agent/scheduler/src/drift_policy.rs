//! Drift policies: the reaction when the system differs from what was applied, by key prefix.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::descriptor::catch_panic;
use crate::engine::{Engine, EngineOutput};
use crate::graph::{Goal, Graph, NodeIdx};
use crate::key::Key;
use crate::operation::Now;
use crate::value::SharedValue;

/// Reaction to drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DriftPolicy {
    /// Restores the intent; the more often that was necessary, the later.
    #[default]
    Repair,
    /// Shows the drift in the status and leaves it.
    Report,
}

impl Graph {
    /// Policy of the longest prefix that matches the key, unless its drift is reported in any case.
    pub(crate) fn policy(&self, key: &Key) -> DriftPolicy {
        if !self.reported.is_empty() && key.prefixes().any(|prefix| self.reported.contains(&prefix))
        {
            return DriftPolicy::Report;
        }
        if self.policies.is_empty() {
            return DriftPolicy::Repair;
        }
        let longest = key.prefixes().filter_map(|prefix| self.policies.get(&prefix)).last();
        longest.copied().unwrap_or_default()
    }

    /// The applied value, and the observed one, where the intent was applied and the system shows something else.
    fn drift(&self, idx: NodeIdx) -> Option<(&SharedValue, Option<&SharedValue>)> {
        let node = self.node(idx);
        let (Goal::Valid(goal, _), Some(applied)) = (&node.goal, &node.applied) else {
            return None;
        };
        let observed = node.observed.as_ref().filter(|_| node.present.is_some());
        let differs = Arc::ptr_eq(goal, applied)
            && observed.is_none_or(|observed| !self.satisfied(&node.key, applied, observed));
        differs.then_some((applied, observed))
    }

    /// True for drift that is shown and not repaired: the policy says so, or the kind of the value does.
    pub(crate) fn is_drift_tolerated(&self, idx: NodeIdx) -> bool {
        let Some((applied, observed)) = self.drift(idx) else { return false };
        let key = &self.node(idx).key;
        self.policy(key) != DriftPolicy::Repair
            || observed.is_some_and(|observed| self.tolerates(key, applied, observed))
    }

    fn tolerates(&self, key: &Key, applied: &SharedValue, observed: &SharedValue) -> bool {
        let descriptor = self.registry.descriptor(key.kind());
        descriptor.is_some_and(|descriptor| {
            catch_panic(|| descriptor.tolerates(&**applied, &**observed)).unwrap_or(false)
        })
    }
}

impl Engine {
    /// Sets the policies of key prefixes; `None` leaves a prefix to shorter ones. The longest prefix of a key counts.
    /// Visits every value to find what has drifted before: policies change seldom.
    pub fn set_drift_policies(
        &mut self,
        policies: impl IntoIterator<Item = (Key, Option<DriftPolicy>)>,
        now: Now,
    ) -> EngineOutput {
        let mut changed = false;
        for (prefix, policy) in policies {
            let before = match policy {
                Some(policy) => self.graph.policies.insert(prefix, policy),
                None => self.graph.policies.remove(&prefix),
            };
            changed |= before != policy;
        }
        if changed {
            self.look_at_drifted();
        }
        self.advance(EngineOutput::default(), now)
    }

    /// Has the drift of keys with these prefixes reported, whatever the policies say, and that of no others. Visits every value
    /// where that is new.
    pub fn report_drift_of(&mut self, prefixes: BTreeSet<Key>, now: Now) -> EngineOutput {
        if self.graph.reported != prefixes {
            self.graph.reported = prefixes;
            self.look_at_drifted();
        }
        self.advance(EngineOutput::default(), now)
    }

    fn look_at_drifted(&mut self) {
        let values = self.graph.nodes().map(|(idx, _)| idx);
        let drifted: Vec<NodeIdx> = values.filter(|&idx| self.graph.drift(idx).is_some()).collect();
        for idx in drifted {
            self.graph.mark_dirty(idx);
        }
    }
}
