//! Planning that can be paused: its holder gives up the engine between portions, and events come in.
//!
//! ```text
//!              advance(&engine, pause)                       pause() is true
//! Planning ------------------------------> Planner over &Graph ---------------> Planning: None
//! (no borrow)  something read has changed?        |
//!                 yes: planned from the change    | complete, or refused
//!                 no:  goes on                    v
//!                                            Some(plan or error)
//! ```
//!
//! Between two calls, anything may happen to the engine. The graph logs what changes, and the plan knows what it has read
//! ([`ReadSet`](crate::overlay::ReadSet)), so unrelated events cost a comparison. The result is a plan for the state
//! of the engine at the last call, equal to that of [`Engine::plan`](crate::Engine::plan) then. A plan that had to be begun again
//! [`BEGINNINGS_MOST`] times is made without a pause: a stream of events delays it, and does not prevent it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_common::parallel;

use super::intent::sorted_places;
use super::tasks::Unit;
use super::{Planner, PlannerState, validation};
use crate::change::Delta;
use crate::dependency::Facet;
use crate::dispatch_order::DispatchOrder;
use crate::graph::{Graph, NodeIdx};
use crate::key::{FixedMap, Key, sort_by_keys_of};
use crate::outcome::PlanError;
use crate::overlay::{Overlay, OverlayNode, OverlayOf};
use crate::plan::{Plan, PlanCost};
use crate::planned_operation::OverlayIdx;

/// Units of work between two questions whether to pause. A unit takes some microseconds, so that a question comes every
/// tenth of a millisecond, and the reading of a clock does not count.
const UNITS: usize = 32;

/// Beginnings of a plan after which it is made without a pause. Each takes as long as the events let it, a plan of
/// 100 000 values half a second at most.
const BEGINNINGS_MOST: u32 = 8;

/// Questions whether to pause in one portion of a plan that the engine makes between events. Between two of them it
/// works for a millisecond at most.
const QUESTIONS: usize = 8;

/// A planner between two calls, with the revision of the graph at which it paused.
#[derive(Debug)]
struct Paused {
    overlay: OverlayOf<()>,
    state: PlannerState,
    revision: u64,
}

/// Plan in the making. Holds nothing of the engine between calls of [`Planning::advance`].
#[derive(Debug)]
pub struct Planning {
    delta: Delta,
    /// Places of the changes of the delta, ascending by key.
    sorted: Vec<u32>,
    /// Values whose surroundings changed, to be planned for beside the change.
    revisits: Vec<NodeIdx>,
    /// Identities reserved for their holders before a change that is being undone.
    reserved_claims: FixedMap<Facet, Vec<Key>>,
    paused: Option<Paused>,
    /// Number of times that the plan was begun.
    beginnings: u32,
    validated: bool,
    /// Cost of the beginnings that have ended.
    ended: PlanCost,
    units: usize,
    portion: usize,
}

impl Planning {
    /// Begins to plan a change, with the first call of [`Planning::advance`]. Sorts a large change: call it without the engine.
    pub fn new(delta: Delta) -> Self {
        Self {
            sorted: sorted_places(&delta),
            delta,
            revisits: Vec::new(),
            reserved_claims: FixedMap::default(),
            paused: None,
            beginnings: 0,
            validated: false,
            ended: PlanCost::default(),
            units: UNITS,
            portion: validation::PORTION,
        }
    }

    /// A plan for values whose surroundings changed, without a change of intent.
    pub(crate) fn of_values(revisits: Vec<NodeIdx>) -> Self {
        Self::new(Delta::default().best_effort()).revisiting(revisits)
    }

    /// Plans for values whose surroundings changed as well.
    #[must_use]
    pub(crate) fn revisiting(self, revisits: Vec<NodeIdx>) -> Self {
        Self { revisits, ..self }
    }

    /// Reserves identities for their holders before a change that is being undone.
    #[must_use]
    pub(crate) fn keeping(self, reserved_claims: FixedMap<Facet, Vec<Key>>) -> Self {
        Self { reserved_claims, ..self }
    }

    /// Asks whether to pause more often than is good for speed: for tests.
    #[must_use]
    pub fn in_portions(mut self, values: NonZeroUsize) -> Self {
        self.units = values.get();
        self.portion = values.get();
        self
    }

    /// Plans on for as long as an event may wait. Asks whether to pause at least each time that so many values are done.
    pub(crate) fn advance_portion(
        &mut self,
        graph: &Graph,
        values: usize,
    ) -> Option<Result<Plan, PlanError>> {
        self.units = self.units.min(values);
        self.portion = self.portion.min(values);
        let mut asked = 0;
        loop {
            let advanced = self.advance_on(graph, &mut || {
                asked += 1;
                asked >= QUESTIONS
            });
            // It pauses of its own accord as well, once.
            if advanced.is_some() || asked >= QUESTIONS {
                return advanced;
            }
        }
    }

    /// Takes a plan back that cannot be started: it is made once more by the next call.
    pub(crate) fn take_back(&mut self, mut plan: Plan) {
        self.delta = std::mem::take(&mut plan.delta);
        self.beginnings = 0;
        parallel::drop_aside(plan); // a large drop need not delay events
    }

    /// True once all values of the change are validated, which takes all processors for a large change. Finding the order
    /// takes one processor, so the caller can begin other work of the change then. The plan may still be refused.
    pub fn is_validated(&self) -> bool {
        self.validated
    }

    /// Number of times that the plan was begun: more than one when something that it had read changed meanwhile.
    pub fn beginnings(&self) -> u32 {
        self.beginnings
    }

    /// Cost so far, of all beginnings.
    pub fn cost(&self) -> PlanCost {
        self.paused
            .as_ref()
            .map_or(self.ended, |paused| self.ended + cost_of(&paused.overlay, &paused.state))
    }

    pub(crate) fn advance_on(
        &mut self,
        graph: &Graph,
        pause: &mut dyn FnMut() -> bool,
    ) -> Option<Result<Plan, PlanError>> {
        let mut planner = match self.resume(graph) {
            Some(planner) => planner,
            None => self.begin(graph),
        };
        loop {
            let advanced = self.advance_to_question(&mut planner);
            if planner.overlay.reads.is_outdated() {
                self.discard(planner.overlay.with_graph(()), planner.state);
                planner = self.begin(graph);
                continue;
            }
            match advanced {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = self.ended + planner.cost();
                    return Some(Ok(planner.into_plan(std::mem::take(&mut self.delta))));
                }
                Err(refusal) => {
                    self.ended = self.ended + planner.cost();
                    return Some(Err(refusal));
                }
            }
            let just_validated = planner.state.validated && !self.validated;
            self.validated |= planner.state.validated;
            let pausable = self.beginnings <= BEGINNINGS_MOST;
            if pausable && (just_validated || pause()) {
                let Planner { overlay, state } = planner;
                let overlay = overlay.with_graph(());
                self.paused = Some(Paused { overlay, state, revision: graph.log.revision() });
                return None;
            }
        }
    }

    /// Does as much as is done between two questions. False when the plan is complete.
    fn advance_to_question(&self, planner: &mut Planner<'_>) -> Result<bool, PlanError> {
        for _ in 0..self.units {
            match planner.advance(&self.delta)? {
                None => return Ok(false),
                Some(Unit::Portion) => break,
                Some(Unit::Value) if planner.state.validated && !self.validated => break,
                Some(Unit::Value) => {}
            }
        }
        Ok(true)
    }

    /// Planner as it paused, unless something that it has read changed since.
    fn resume<'g>(&mut self, graph: &'g Graph) -> Option<Planner<'g>> {
        let Paused { mut overlay, state, revision } = self.paused.take()?;
        if overlay.readings().are_current(graph, revision) {
            overlay.reads.note_unread(graph.log.since(revision).into_iter().flatten());
            return Some(Planner { overlay: overlay.with_graph(graph), state });
        }
        self.discard(overlay, state);
        None
    }

    /// Drops what was planned, which is no longer true.
    fn discard(&mut self, overlay: OverlayOf<()>, state: PlannerState) {
        self.ended = self.ended + cost_of(&overlay, &state);
        parallel::drop_aside((overlay, state)); // a large drop need not delay the new plan
    }

    fn begin<'g>(&mut self, graph: &'g Graph) -> Planner<'g> {
        self.beginnings += 1;
        let state = PlannerState {
            portion: self.portion,
            order: self.sorted.clone(),
            revisits: self.revisits.clone(),
            reserved_claims: self.reserved_claims.clone(),
            ..PlannerState::new(graph)
        };
        Planner { overlay: Overlay::new(graph), state }
    }
}

/// Plans for values whose surroundings changed.
///
/// # Errors
/// Passes refusals on; what the engine holds already gives none.
pub(crate) fn plan_for(graph: &Graph, revisits: Vec<NodeIdx>) -> Result<Plan, PlanError> {
    let mut planning = Planning::of_values(revisits);
    loop {
        if let Some(plan) = planning.advance_on(graph, &mut || false) {
            return plan;
        }
    }
}

/// Goals of a change alone, without operations.
pub(crate) fn goals(graph: &Graph, delta: &Delta) -> Result<Vec<OverlayNode>, PlanError> {
    let mut planner = Planner::new(graph);
    planner.state.order = sorted_places(delta);
    while !planner.state.validated {
        planner.advance(delta)?;
    }
    Ok(planner.overlay.nodes)
}

/// Cost of a plan in the making.
fn cost_of<G>(overlay: &OverlayOf<G>, state: &PlannerState) -> PlanCost {
    let visited = overlay.nodes.len() as u64;
    PlanCost { visited, edges: overlay.edges, parts: state.listed }
}

impl Planner<'_> {
    fn cost(&self) -> PlanCost {
        cost_of(&self.overlay, &self.state)
    }

    fn into_plan(mut self, delta: Delta) -> Plan {
        self.spare_bystanders();
        let cost = self.cost();
        let Self { overlay, state } = self;
        let order = DispatchOrder::of(&state.operations);
        Plan {
            delta,
            before: state.before,
            operations: state.operations,
            order,
            found: state.found,
            restores: state.restores,
            waiting: state.waiting,
            target_refs: overlay.target_refs,
            reads: overlay.reads,
            revision: overlay.graph.log.revision(),
            registry: Arc::clone(&overlay.graph.registry),
            cost,
            nodes: overlay.nodes,
        }
    }

    /// Lists a value with a new goal that is not present at the end, with its unmet dependencies.
    pub(super) fn list_waiting(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        let new = node.sources_changed && node.changed;
        if !new || node.present.is_some() || node.goal.spec().is_none() {
            return;
        }
        let need_targets = (0..).zip(&node.need_targets);
        let unmet =
            need_targets.filter(|&(_, &target_id)| self.overlay.target(target_id).providers == 0);
        let unmet = unmet.map(|(need, _)| need).collect();
        self.state.waiting.push((oidx, unmet));
    }

    pub(super) fn sort_waiting(&mut self) {
        let nodes = &self.overlay.nodes;
        sort_by_keys_of(&mut self.state.waiting, |&(oidx, _)| &nodes[oidx as usize].key);
    }
}
