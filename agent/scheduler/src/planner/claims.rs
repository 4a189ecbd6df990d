//! Identities that only one value can hold: holders, waiting claimants, and reservations.

use super::Planner;
use crate::dependency::Claim;
use crate::graph::Goal;
use crate::key::Key;
use crate::overlay::{OverlayIdx, PendingAction};
use crate::plan::PlanError;
use crate::value_spec::ValueSpec;

impl Planner<'_> {
    /// True when another value holds an identity that this one claims; the value is tried again when that is released.
    pub(super) fn is_claimed(&mut self, oidx: OverlayIdx, spec: &ValueSpec) -> bool {
        let mut claimed = false;
        for claim in spec.claims() {
            let state = self.overlay.claim_mut(claim);
            if state.holder.is_some_and(|holder| holder != oidx) {
                state.waiting.push(oidx);
                claimed = true;
            }
        }
        claimed || self.is_reserved(oidx, spec)
    }

    /// True when an identity of a present value was given to another one, because the value seemed gone.
    pub(super) fn has_lost_claim(&mut self, oidx: OverlayIdx, spec: &ValueSpec) -> bool {
        let mut holders = spec.claims().iter().map(|claim| self.overlay.claim_mut(claim).holder);
        holders.any(|holder| holder.is_some_and(|holder| holder != oidx))
    }

    /// True when an identity is reserved for another value that still claims it.
    pub(super) fn is_reserved(&mut self, oidx: OverlayIdx, spec: &ValueSpec) -> bool {
        if self.reserved_claims.is_empty() {
            return false;
        }
        let key = &self.overlay.node(oidx).key;
        let others = spec.claims().iter().any(|claim| {
            self.reserved_claims
                .get(claim)
                .is_some_and(|owner| owner != key && self.still_claims(owner, claim))
        });
        if others {
            self.yielding.insert(key.clone(), oidx);
        }
        others
    }

    fn still_claims(&self, owner: &Key, claim: &Claim) -> bool {
        let oidx = self.overlay.touched(owner);
        let goal = oidx.and_then(|oidx| self.overlay.node(oidx).goal.spec());
        goal.is_some_and(|spec| spec.claims().contains(claim))
    }

    /// Parks values that got a reserved identity meanwhile, if the value it is reserved for claims it again.
    pub(super) fn reclaim_reserved(&mut self) {
        let mut reserved_claims: Vec<(Claim, Key)> = self
            .reserved_claims
            .iter()
            .map(|(claim, owner)| (claim.clone(), owner.clone()))
            .collect();
        reserved_claims.sort_unstable();
        for (claim, owner) in reserved_claims {
            let holder = self.overlay.claim_mut(&claim).holder;
            let Some(holder) = holder.filter(|&it| self.overlay.node(it).key != owner) else {
                continue;
            };
            if self.still_claims(&owner, &claim) {
                self.park(holder);
            }
        }
    }

    /// Drops the reservations when the values they are for do not come: the yielding values may have the identities.
    pub(super) fn drop_reservations(&mut self) -> bool {
        if self.yielding.is_empty() {
            return false;
        }
        self.reserved_claims.clear();
        let waiting = std::mem::take(&mut self.yielding);
        self.overlay.ready_changes.ready.extend(waiting.into_values());
        self.drain_ready();
        true
    }

    /// Refuses a change when this value of it claims an identity of a value that stays.
    pub(super) fn refuse_claims_of(&mut self, oidx: OverlayIdx) -> Result<(), PlanError> {
        let node = self.overlay.node(oidx);
        let waits = node.changed
            && node.unmet == 0
            && !matches!(node.pending_action, PendingAction::Nothing);
        let (value, spec) = match &node.goal {
            Goal::Valid(value, spec) if waits => (value.clone(), spec.clone()),
            _ => return Ok(()),
        };
        for claim in spec.claims() {
            let holder = self.overlay.claim_mut(claim).holder.filter(|&holder| holder != oidx);
            let Some(holder) = holder.map(|holder| self.overlay.node(holder)) else { continue };
            let registry = &self.overlay.graph.registry;
            let key = self.overlay.node(oidx).key.clone();
            let label = registry.label(&key, Some(&*value));
            let other = registry.label(&holder.key, holder.goal.value().map(|value| &**value));
            return Err(PlanError::Conflict { key, label, other });
        }
        Ok(())
    }
}
