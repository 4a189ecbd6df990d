//! Audit: recomputes every count and index from the planes, and compares.

use crate::dependency::{Dependency, Target};
use crate::engine::Engine;
use crate::graph::Node;
use crate::key::{FixedMap, hash_of};
use crate::value_spec::ValueSpec;

impl Engine {
    /// Checks all counters and indexes against a recomputation from scratch. Costs O(values): for tests and diagnosis.
    ///
    /// # Errors
    /// Describes the first count or index that is wrong.
    pub fn audit(&self) -> Result<(), String> {
        let mut dependents: FixedMap<&Target, u32> = FixedMap::default();
        for (_, node) in self.graph.nodes() {
            for need in node.present.iter().filter(|_| node.ours).flat_map(|present| &present.needs)
            {
                *dependents.entry(&need.target).or_default() += 1;
            }
        }
        for (target, state) in self.graph.targets() {
            let providers = self.offers(target);
            let used = dependents.get(target).copied().unwrap_or_default();
            if (state.providers, state.dependents) != (providers, used) {
                let counted = (state.providers, state.dependents);
                return Err(format!(
                    "{target:?} is counted {counted:?}, and has {:?}",
                    (providers, used)
                ));
            }
        }
        for (idx, node) in self.graph.nodes() {
            let has =
                node.present.iter().filter(|_| node.ours).flat_map(|present| present.claims());
            for claim in has {
                let (holders, _) = self.graph.holders(&claim.identity);
                if holders.is_empty() || !self.graph.is_claimant(claim, idx) {
                    return Err(format!("{} has {claim:?}, and is not known to", node.key));
                }
                // A value that could not be deleted keeps an identity that another one got meanwhile.
                let stays = node.has_failed();
                if self.is_idle() && !holders.contains(&idx) && !stays {
                    return Err(format!("{} has {claim:?}, and another one as well", node.key));
                }
            }
            let needs = node.goal.spec().map_or(&[][..], |spec| &spec.needs);
            let unmet = needs.iter().filter(|need| self.offers(&need.target) == 0).count();
            let counted = self.graph.count_unmet(idx);
            if counted as usize != unmet {
                return Err(format!(
                    "{} is counted to lack {counted}, and lacks {unmet}",
                    node.key
                ));
            }
            let target_id =
                |need: &Dependency| self.graph.find_target(&need.target, hash_of(&need.target));
            if !needs.iter().map(target_id).eq(self
                .graph
                .need_targets(idx)
                .iter()
                .copied()
                .map(Some))
            {
                return Err(format!("{} counts on targets that it does not need", node.key));
            }
            let needs = node.goal.needs();
            if !needs.iter().all(|need| self.graph.is_watching(&need.target, idx)) {
                return Err(format!("{} is missing from the lists of what it needs", node.key));
            }
            let waits = unmet == 0 && node.goal.spec().is_some() && node.present.is_none()
                || self.graph.is_reduction_stale(idx);
            let retry = node.retry.as_ref();
            if node.running_op().is_none()
                && retry.is_some_and(|it| it.error.is_some() && it.due.is_none())
            {
                return Err(format!("{} has failed, and is never tried again", node.key));
            }
            let excused = node.running_op().is_some()
                || retry.is_some_and(|retry| retry.due.is_some() || retry.error.is_some())
                || self.graph.is_contended(idx)
                || needs.iter().any(|need| self.is_leaving(&need.target));
            if waits && !excused && self.is_idle() {
                return Err(format!("{} is ready and not dirty", node.key));
            }
        }
        Ok(())
    }

    /// True when every provider of a target goes or changes as soon as it is looked at again: its operation failed, or it
    /// lost a dependency.
    fn is_leaving(&self, target: &Target) -> bool {
        let mut offering = self.graph.nodes().filter(|(_, node)| {
            node.present.as_ref().is_some_and(|present| offers(node, present, target) > 0)
        });
        offering.all(|(idx, node)| {
            let again = node.retry.as_ref().is_some_and(|retry| retry.is_due_soon());
            let stays = node.in_place() && self.graph.count_unmet(idx) == 0;
            !stays && again
        })
    }

    fn offers(&self, target: &Target) -> u32 {
        let offers = self.graph.nodes().map(|(_, node)| {
            node.present.as_ref().map_or(0, |present| offers(node, present, target))
        });
        offers.sum()
    }
}

fn offers(node: &Node, present: &ValueSpec, target: &Target) -> u32 {
    let own = match target {
        Target::Exact(key) => u32::from(node.key == *key),
        Target::Under(prefix) => u32::from(node.key.starts_with(prefix)),
        Target::Covering { space, address } => {
            let within = present
                .prefixes()
                .iter()
                .filter(|(other, prefix)| other == space && prefix.contains(address));
            u32::try_from(within.count()).unwrap_or(u32::MAX)
        }
        Target::AnyOf(_) | Target::Whole(_) => 0,
    };
    own + u32::from(present.offers(target))
}
