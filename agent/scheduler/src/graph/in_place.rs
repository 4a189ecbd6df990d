//! Values in place, and those that need no plan to be counted as such.

use super::{Goal, Graph, NodeIdx, TargetState};
use crate::dependency::Target;
use crate::key::Key;
use crate::targets::provided_targets;
use crate::value_spec::ValueSpec;

impl Graph {
    /// True when a value is not as intended, or cannot stay as it is.
    pub(crate) fn is_out_of_place(&self, idx: NodeIdx) -> bool {
        let node = self.node(idx);
        match &node.goal {
            _ if !node.used => false,
            Goal::Refused(..) => false,
            Goal::Valid(_, spec) => {
                !node.in_place()
                    || self.count_unmet(idx) > 0
                    || self.is_reduction_stale(idx)
                    || self.is_contended(idx)
                    || !node.is_present_as(spec)
            }
            Goal::Nothing => {
                let owned =
                    node.observed.as_ref().is_some_and(|observed| self.owned(&node.key, observed));
                node.present.is_some()
                    && (owned || node.applied.is_some() || self.restores.contains_key(&node.key))
            }
        }
    }

    /// True for a value of ours that is found in place, and that no plan would decide otherwise about: it has what it needs,
    /// claims nothing that another value may hold, and nothing needs what it provides.
    pub(crate) fn is_found_for_itself(&self, idx: NodeIdx) -> bool {
        let node = self.node(idx);
        let (Goal::Valid(value, spec), Some(observed), Some(present)) =
            (&node.goal, &node.observed, &node.present)
        else {
            return false;
        };
        let is_new = node.applied.is_none() && node.running_op().is_none() && node.retry.is_none();
        let is_free = node.owner().is_none() && spec.claims().is_empty() && !node.goal.is_partial();
        is_new
            && is_free
            && !node.goal.is_reducible()
            && self.count_unmet(idx) == 0
            && self.satisfied(&node.key, value, observed)
            && self.owned(&node.key, observed)
            && !self.restores.contains_key(&node.key)
            && !self.is_needed(&node.key, present)
    }

    /// True when a value that is in place needs something that this one provides, or one that is intended does.
    fn is_needed(&self, key: &Key, present: &ValueSpec) -> bool {
        let is_watched =
            |target: &Target| self.target_state(target).is_some_and(TargetState::is_watched);
        // Most kinds are needed by none, and their keys need not be looked up.
        let kind = key.kind();
        let is_target = self.target_kinds.contains(kind) || self.has_under_targets(kind);
        if is_target || !present.prefixes().is_empty() {
            let provided = provided_targets(key, Some(present), &[&self.addresses]);
            return provided.iter().any(is_watched);
        }
        present.offers.keys().any(is_watched)
    }
}
