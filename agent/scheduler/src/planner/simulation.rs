//! Entry points of planning.

use std::sync::Arc;

use super::Planner;
use crate::dependency::Claim;
use crate::graph::{Graph, NodeIdx};
use crate::key::{FixedMap, Key};
use crate::overlay::{OverlayIdx, OverlayNode};
use crate::plan::{Delta, Mode, Plan, PlanCost, PlanError, Unmet};

/// Plans a change of intent together with dirty values.
///
/// # Errors
/// When an atomic change is refused as a whole.
pub(crate) fn plan(graph: &Graph, delta: Delta, revisit: Vec<NodeIdx>) -> Result<Plan, PlanError> {
    plan_with(graph, delta, revisit, FixedMap::default(), || {})
}

/// Plans a change, with identities in `kept` reserved for their holders before a change that is being undone. Calls
/// `validated` when all values are validated: that part takes all processors, the rest takes one.
///
/// # Errors
/// When an atomic change is refused as a whole.
pub(crate) fn plan_with(
    graph: &Graph,
    delta: Delta,
    revisit: Vec<NodeIdx>,
    reserved_claims: FixedMap<Claim, Key>,
    validated: impl FnOnce(),
) -> Result<Plan, PlanError> {
    let mut planner = with_intent(graph, &delta, reserved_claims)?;
    validated();
    planner.simulate(&delta, revisit)?;
    let (waiting, cost) = (planner.waiting(), planner.cost());
    let overlay = planner.overlay;
    let plan = Plan {
        delta,
        operations: planner.operations,
        found: planner.found,
        restores: planner.restores,
        waiting,
        target_refs: overlay.target_refs,
        revision: graph.revision,
        registry: Arc::clone(&graph.registry),
        cost,
        nodes: overlay.nodes,
    };
    plan.admitted()
}

/// Planner with the goals of a change, before any action is chosen.
fn with_intent<'g>(
    graph: &'g Graph,
    delta: &Delta,
    reserved_claims: FixedMap<Claim, Key>,
) -> Result<Planner<'g>, PlanError> {
    let mut planner = Planner { reserved_claims, ..Planner::new(graph) };
    planner.apply_sources(delta)?;
    Ok(planner)
}

/// Goals of a change alone, without operations.
pub(crate) fn goals(graph: &Graph, delta: &Delta) -> Result<Vec<OverlayNode>, PlanError> {
    let planner = with_intent(graph, delta, FixedMap::default())?;
    Ok(planner.overlay.nodes)
}

impl Planner<'_> {
    /// Chooses and simulates all actions.
    fn simulate(&mut self, delta: &Delta, revisit: Vec<NodeIdx>) -> Result<(), PlanError> {
        self.add_dirty(revisit);
        self.run();
        if delta.mode == Mode::Atomic {
            self.refuse_claims()?;
        }
        Ok(())
    }

    /// Values with a new goal that are not present at the end, with their unmet dependencies; ascending by key.
    fn waiting(&self) -> Vec<(OverlayIdx, Unmet)> {
        let nodes = &self.overlay.nodes;
        let pending = (0..)
            .zip(nodes)
            .filter(|(_, node)| node.sources_changed && node.changed && node.present.is_none());
        let pending = pending.filter(|(_, node)| node.goal.spec().is_some());
        let unmet = |node: &OverlayNode| {
            let need_targets = (0..).zip(&node.need_targets);
            let unmet = need_targets
                .filter(|&(_, &target_id)| self.overlay.target(target_id).providers == 0);
            unmet.map(|(need, _)| need).collect()
        };
        let mut waiting: Vec<_> = pending.map(|(oidx, node)| (oidx, unmet(node))).collect();
        waiting.sort_by(|a, b| nodes[a.0 as usize].key.cmp(&nodes[b.0 as usize].key));
        waiting
    }

    fn cost(&self) -> PlanCost {
        let visited = self.overlay.nodes.len() as u64;
        PlanCost { visited, edges: self.overlay.edges, parts: self.listed }
    }
}
