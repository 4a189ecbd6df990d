//! Changes of the drift policies.

use std::collections::BTreeSet;

use crate::drift_policy::DriftPolicy;
use crate::engine::Engine;
use crate::graph::NodeIdx;
use crate::key::Key;
use crate::operation::Now;
use crate::output::EngineOutput;

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
