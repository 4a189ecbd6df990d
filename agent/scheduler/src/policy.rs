//! What happens when the system differs from what we applied, by part of the tree.

use std::sync::Arc;

use crate::engine::{Engine, Step};
use crate::graph::{Goal, Graph, Idx, Source};
use crate::history::Origin;
use crate::key::Key;
use crate::operation::Now;
use crate::plan::Delta;

/// What to do about drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DriftPolicy {
    /// Bring the system back to the intent; the more often, the later.
    #[default]
    Repair,
    /// Show it, and leave it.
    Report,
    /// Take what the system has for the intent: see [`Step::adopted`](crate::Step::adopted). Parts, and what the
    /// descriptor refuses, are reported.
    Adopt,
}

impl Graph {
    /// The policy of the longest prefix that a key has.
    pub(crate) fn policy(&self, key: &Key) -> DriftPolicy {
        if self.policies.is_empty() {
            return DriftPolicy::Repair;
        }
        let longest = key.prefixes().filter_map(|prefix| self.policies.get(&prefix)).last();
        longest.copied().unwrap_or_default()
    }

    /// What we applied for the present intent is not what the system has.
    fn is_drifted(&self, idx: Idx) -> bool {
        let node = self.node(idx);
        let (Goal::Valid(goal, _), Some(applied)) = (&node.goal, &node.applied) else {
            return false;
        };
        let seen = node.observed.as_ref().filter(|_| node.live.is_some());
        Arc::ptr_eq(goal, applied)
            && seen.is_none_or(|seen| !self.satisfied(&node.key, applied, seen))
    }

    /// Drift that is not to be repaired.
    pub(crate) fn is_left_alone(&self, idx: Idx) -> bool {
        !self.policies.is_empty()
            && self.policy(&self.node(idx).key) != DriftPolicy::Repair
            && self.is_drifted(idx)
    }
}

impl Engine {
    /// Sets what happens to drift of all keys that start so; none leaves that to shorter prefixes. The longest prefix of
    /// a key counts. What has drifted already is looked at anew, for which every value is asked: policies change seldom.
    pub fn set_drift_policies(
        &mut self,
        policies: impl IntoIterator<Item = (Key, Option<DriftPolicy>)>,
        now: Now,
    ) -> Step {
        let mut changed = false;
        for (prefix, policy) in policies {
            let before = match policy {
                Some(policy) => self.graph.policies.insert(prefix, policy),
                None => self.graph.policies.remove(&prefix),
            };
            changed |= before != policy;
        }
        let mut step = Step::default();
        if changed {
            let drifted: Vec<Idx> = self
                .graph
                .nodes()
                .map(|(idx, _)| idx)
                .filter(|&idx| self.graph.is_drifted(idx))
                .collect();
            for idx in drifted {
                self.adopt_drift(idx, &mut step);
                self.graph.wake(idx);
            }
        }
        self.advance(step, now)
    }

    /// Makes what the system has the intent, where that is the policy for it.
    pub(crate) fn adopt_drift(&mut self, idx: Idx, step: &mut Step) {
        let node = self.graph.node(idx);
        let key = node.key.clone();
        if self.graph.policy(&key) != DriftPolicy::Adopt || !self.graph.is_drifted(idx) {
            return;
        }
        let Some((Source::Direct(source), _)) = node.sources.first().cloned() else { return };
        let seen = node.observed.clone().filter(|_| node.live.is_some());
        let delta = Delta::new(vec![(key.clone(), seen.clone())])
            .from_source(source)
            .described("adopted from the system");
        if let Ok(plan) = self.plan(delta) {
            self.enqueue(Origin::Change, plan);
            step.adopted.push((key, seen));
        }
    }
}
