//! Creation of planned operations with their predecessors.

use std::sync::Arc;

use super::Planner;
use crate::descriptor::{Effect, catch_panic};
use crate::graph::Graph;
use crate::operation::{Action, TransportId};
use crate::overlay::{OverlayTargetIds, to_u32};
use crate::planned_operation::{After, GivingBack, OverlayIdx, PlannedOperation};
use crate::value::SharedValue;

impl Planner<'_> {
    pub(super) fn add_operation(
        &mut self,
        oidx: OverlayIdx,
        action: Action,
        old: Option<SharedValue>,
        new: Option<SharedValue>,
        lost: &OverlayTargetIds,
    ) -> u32 {
        let key = self.overlay.node(oidx).key.clone();
        let effect = self
            .overlay
            .graph
            .registry
            .descriptor(key.kind())
            .map(|descriptor| descriptor.effect());
        let transport = match effect {
            Some(Effect::Operation(transport)) => transport,
            _ => TransportId::default(),
        };
        let after = if self.state.transports {
            self.predecessors(oidx, new.is_some(), lost)
        } else {
            After::new()
        };
        let giving_back = match action {
            Action::Update => self.hidden_applied(oidx, old.as_ref()),
            _ => None,
        };
        let op = to_u32(self.state.operations.len());
        let node = self.overlay.node_mut(oidx);
        node.op = Some(op);
        let cause = node.cause;
        self.state.operations.push(PlannedOperation {
            action,
            key,
            old,
            new,
            transport,
            cause,
            cascaded: Vec::new(),
            after,
            giving_back,
            oidx,
        });
        op
    }

    /// Operations that must be completed first, or submitted to the same transport. Complete alone: an operation that
    /// waits for nothing overtakes one that waits.
    pub(super) fn predecessors(
        &mut self,
        oidx: OverlayIdx,
        creates: bool,
        lost: &OverlayTargetIds,
    ) -> After {
        let mut before = self.overlay.node_mut(oidx).take_waits_for();
        let node = self.overlay.node(oidx);
        before.extend(node.op);
        if creates {
            before.extend(
                node.need_targets
                    .iter()
                    .filter_map(|&target_id| self.overlay.target(target_id).first_provided_by),
            );
            let claims = node.goal.spec().filter(|spec| !spec.claims().is_empty()).cloned();
            for claim in claims.iter().flat_map(|spec| spec.claims()) {
                before.extend(self.overlay.claim_mut(&claim.identity).released_by.iter().copied());
            }
        }
        for &target_id in lost {
            let state = self.overlay.target(target_id);
            // While there are other providers, dependents may stay.
            let unblocked = state.released_by().iter().copied().filter(|_| state.providers <= 1);
            before.extend(unblocked.chain(state.first_provided_by).chain(state.last_provided_by));
        }
        before.sort_unstable();
        before.dedup();
        before
    }

    /// Records the pre-image of an object that must be put back one day.
    pub(super) fn note_restore(&mut self, oidx: OverlayIdx) {
        let graph = self.overlay.graph;
        let node = self.overlay.node(oidx);
        let (Some(observed), Some(descriptor)) =
            (&node.current, graph.registry.descriptor(node.key.kind()))
        else {
            return;
        };
        if let Ok(Some(restore)) = catch_panic(|| descriptor.restore(&**observed)) {
            self.state.restores.push((node.key.clone(), restore));
        }
    }

    /// Records another pre-image when a different object has come under the key of the adopted one.
    pub(super) fn refresh_restore(&mut self, oidx: OverlayIdx) {
        let graph = self.overlay.graph;
        let node = self.overlay.node(oidx);
        let (Some(before), Some(observed), Some(descriptor)) = (
            graph.restores.get(&node.key),
            &node.current,
            graph.registry.descriptor(node.key.kind()),
        ) else {
            return;
        };
        let applied = node.idx.and_then(|idx| graph.node(idx).applied.as_ref());
        let Some(applied) = applied.or(node.goal.value()) else { return };
        let refreshed =
            catch_panic(|| descriptor.refreshed_restore(&**before, &**applied, &**observed));
        if let Ok(Some(restore)) = refreshed {
            self.state.restores.push((node.key.clone(), restore));
        }
    }

    /// The applied value, where the system shows another one, which the operation sees as `old`.
    fn hidden_applied(
        &self,
        oidx: OverlayIdx,
        old: Option<&SharedValue>,
    ) -> Option<Box<GivingBack>> {
        let idx = self.overlay.node(oidx).idx?;
        let applied = self.overlay.graph.node(idx).applied.as_ref()?;
        let is_old = old.is_some_and(|old| Arc::ptr_eq(old, applied));
        (!is_old).then(|| Box::new(GivingBack { applied: Some(applied.clone()), left: None }))
    }

    /// Present value as the operation is to see it: the applied one where the system shows that.
    pub(super) fn old_value(&self, oidx: OverlayIdx) -> Option<SharedValue> {
        let graph = self.overlay.graph;
        let node = self.overlay.node(oidx);
        let current = node.current.as_ref()?;
        let applied = node.idx.and_then(|idx| graph.node(idx).applied.as_ref());
        let as_asked = applied.filter(|applied| graph.satisfied(&node.key, applied, current));
        Some(as_asked.unwrap_or(current).clone())
    }
}

/// Number of transports that the registered kinds use.
pub(super) fn transports(graph: &Graph) -> usize {
    let mut all: Vec<TransportId> = Vec::new();
    for descriptor in graph.registry.iter() {
        if let Effect::Operation(transport) = descriptor.effect() {
            all.push(transport);
        }
    }
    all.sort_unstable();
    all.dedup();
    all.len()
}
