//! Identities that only one value can hold: holders, waiting claimants, and reservations.

use std::sync::Arc;

use super::Planner;
use crate::dependency::{Claim, Facet};
use crate::graph::Goal;
use crate::key::Key;
use crate::outcome::PlanError;
use crate::overlay::PendingAction;
use crate::planned_operation::OverlayIdx;
use crate::value_spec::ValueSpec;

impl Planner<'_> {
    /// True when another value holds an identity that this one claims; the value is tried again when that is released.
    pub(super) fn is_claimed(&mut self, oidx: OverlayIdx, spec: &ValueSpec) -> bool {
        let mut claimed = false;
        for claim in spec.claims() {
            let state = self.overlay.claim_mut(&claim.identity);
            if state.rival(claim, oidx).is_some() {
                state.waiting.push(oidx);
                claimed = true;
            }
        }
        claimed || self.is_reserved(oidx, spec)
    }

    /// True when an identity of a present value was given to another one, because the value seemed gone.
    pub(super) fn has_lost_claim(&mut self, oidx: OverlayIdx, spec: &ValueSpec) -> bool {
        spec.claims().iter().any(|claim| self.rival(oidx, claim).is_some())
    }

    /// Another value that holds an identity, and with which this one cannot hold it.
    fn rival(&mut self, oidx: OverlayIdx, claim: &Claim) -> Option<OverlayIdx> {
        self.overlay.claim_mut(&claim.identity).rival(claim, oidx)
    }

    /// True when an identity is reserved for other values that still claim it, and cannot hold it with this one.
    pub(super) fn is_reserved(&mut self, oidx: OverlayIdx, spec: &ValueSpec) -> bool {
        if self.state.reserved_claims.is_empty() {
            return false;
        }
        let key = &self.overlay.node(oidx).key;
        let others = spec.claims().iter().any(|claim| {
            let owners = self.state.reserved_claims.get(&claim.identity);
            let owners = owners.filter(|owners| !owners.contains(key));
            owners.into_iter().flatten().any(|owner| self.still_claims(owner, claim))
        });
        if others {
            self.state.yielding.insert(key.clone(), oidx);
        }
        others
    }

    /// True when a value claims an identity so that one with `claim` cannot hold it too.
    fn still_claims(&self, owner: &Key, claim: &Claim) -> bool {
        let oidx = self.overlay.touched(owner);
        let goal = oidx.and_then(|oidx| self.overlay.node(oidx).goal.spec());
        let owned = goal.and_then(|spec| spec.claim_of(&claim.identity));
        owned.is_some_and(|owned| !owned.goes_with(claim.side))
    }

    /// Parks values that got a reserved identity meanwhile, if a value it is reserved for claims it again.
    pub(super) fn reclaim_reserved(&mut self) {
        let mut reserved_claims: Vec<(Facet, Vec<Key>)> = self
            .state
            .reserved_claims
            .iter()
            .map(|(identity, owners)| (identity.clone(), owners.clone()))
            .collect();
        reserved_claims.sort_unstable();
        for (identity, owners) in reserved_claims {
            let claimed = self.overlay.claim_mut(&identity);
            let side = claimed.side;
            let mut holders = claimed.holders.clone();
            holders.retain(|&mut holder| !owners.contains(&self.overlay.node(holder).key));
            let held = Claim { identity, side };
            if owners.iter().any(|owner| self.still_claims(owner, &held)) {
                for holder in holders {
                    self.park(holder);
                }
            }
        }
    }

    /// Drops the reservations when the values they are for do not come: the yielding values may have the identities.
    pub(super) fn drop_reservations(&mut self) -> bool {
        if self.state.yielding.is_empty() {
            return false;
        }
        self.state.reserved_claims.clear();
        let waiting = std::mem::take(&mut self.state.yielding);
        self.overlay.ready_changes.ready.extend(waiting.into_values());
        self.drain_ready();
        true
    }

    /// Refuses a change when this value of it claims an identity of a value that stays.
    pub(super) fn refuse_claims_of(&mut self, oidx: OverlayIdx) -> Result<(), PlanError> {
        let node = self.overlay.node(oidx);
        let Goal::Valid(value, spec) = &node.goal else { return Ok(()) };
        // A foreign value that cannot be taken over stays as it is, and nothing is to be done about it.
        let is_left = node.op.is_none()
            && node.present.as_ref().is_some_and(|present| !Arc::ptr_eq(present, spec));
        let waits = is_left || !matches!(node.pending_action, PendingAction::Nothing);
        if !node.changed || node.unmet > 0 || !waits {
            return Ok(());
        }
        let value = value.clone();
        let spec = spec.clone();
        for claim in spec.claims() {
            let holder = self.rival(oidx, claim);
            let Some(holder) = holder.map(|holder| self.overlay.node(holder)) else { continue };
            let registry = &self.overlay.graph.registry;
            let key = self.overlay.node(oidx).key.clone();
            let label = registry.label(&key, Some(&*value));
            let other = registry.label(&holder.key, holder.goal.value().map(|value| &**value));
            let claimed = Some(claim.identity.clone());
            return Err(PlanError::Conflict { key, label, other, claimed });
        }
        Ok(())
    }
}
