//! Losses: values of ours that the system took away or changed without an operation.
//!
//! The history of a value has transactions, and the changes that are found out here. A loss begins with the fact that
//! tells of it. It is *told*, with the time of that fact, once it is known not to be a late notification of our own change
//! ([`facts`](super::facts)). It ends with an operation on the value, or when the system has the value again without an operation.

use crate::engine::Engine;
use crate::graph::NodeIdx;
use crate::history::SystemChange;
use crate::operation::Now;
use crate::output::EngineOutput;
use crate::retry_state::Loss;
use crate::status::ValueState;

impl Engine {
    /// True for a value that is in the system as we applied it.
    pub(crate) fn is_as_applied(&self, idx: NodeIdx) -> bool {
        let node = self.graph.node(idx);
        node.applied.is_some() && self.state_of(idx, node) == ValueState::Configured
    }

    /// Begins or ends a loss after a fact. `urgent` when the fact is newer than all that we did.
    pub(crate) fn follow_loss(
        &mut self,
        idx: NodeIdx,
        was_as_applied: bool,
        now: Now,
        urgent: bool,
        step: &mut EngineOutput,
    ) {
        let is_lost = self.graph.node(idx).retry.as_ref().is_some_and(|it| it.loss.is_some());
        let is_new = !is_lost && was_as_applied && self.lost_state(idx).is_some();
        if is_new {
            let loss = Loss { since_ns: now.unix_ns, told: None };
            self.graph.node_mut(idx).retry.get_or_insert_default().loss = Some(loss);
        }
        if !is_lost && !is_new {
            return;
        }
        if urgent || self.is_as_applied(idx) {
            self.tell_loss(idx, now, step);
        }
    }

    /// Tells of a loss as it is now, or of its end. A loss that ends before it was told is forgotten.
    pub(crate) fn tell_loss(&mut self, idx: NodeIdx, now: Now, step: &mut EngineOutput) {
        let Some(loss) = self.graph.node(idx).retry.as_ref().and_then(|it| it.loss) else { return };
        let state = match self.lost_state(idx) {
            Some(state) => state,
            None if self.is_as_applied(idx) => ValueState::Configured,
            None => return,
        };
        let is_over = state == ValueState::Configured;
        let is_told = is_over && loss.told.is_none() || loss.told == Some(state);
        let next = (!is_over).then_some(Loss { told: Some(state), ..loss });
        if let Some(retry) = &mut self.graph.node_mut(idx).retry {
            retry.loss = next;
        }
        if is_told {
            return;
        }
        let node = self.graph.node(idx);
        let is_changed = state == ValueState::Drifted;
        let value = if is_changed { node.observed.clone() } else { node.applied.clone() };
        let time_ns = if loss.told.is_none() { loss.since_ns } else { now.unix_ns };
        let change = SystemChange { key: node.key.clone(), time_ns, state, value };
        step.system_changes.push(change.clone());
        self.history.push_system_change(change);
    }

    /// State of a value that the system does not have as it was applied, also where it waits for what went with it.
    fn lost_state(&self, idx: NodeIdx) -> Option<ValueState> {
        let state = self.state_of(idx, self.graph.node(idx));
        let is_lost =
            matches!(state, ValueState::Missing | ValueState::Drifted | ValueState::Pending);
        is_lost.then_some(state)
    }
}
