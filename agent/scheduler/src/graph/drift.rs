//! Drift of the values of a graph, and the policies for it.

use std::sync::Arc;

use crate::descriptor::catch_panic;
use crate::drift_policy::DriftPolicy;
use crate::graph::{Goal, Graph, NodeIdx};
use crate::key::Key;
use crate::value::SharedValue;

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
    pub(crate) fn drift(&self, idx: NodeIdx) -> Option<(&SharedValue, Option<&SharedValue>)> {
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
