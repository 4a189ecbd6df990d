//! Take-over of a plan: its operations go into the transaction, its goals into the graph.
//!
//! To take over a plan of a hundred thousand values takes longer than an event may wait. So it is done in portions: the
//! first when the transaction begins, the others by [`Engine::due`], between events.
//!
//! ```text
//! items of a plan:  restores | values | found in place | operations | values that wait
//!                   ========== portion ======= portion ======= ...
//!                                      ^  a fact on a key of the plan: its value is taken over ahead of its turn
//! ```
//!
//! *Invariant:* an event that comes meanwhile is judged as one that comes after the whole take-over.
//!
//! * A fact on a key of the plan finds its value taken over: that is done first, ahead of its turn.
//! * A change of what a value relies on (a provider, an identity) concerns the value at once if it is taken over. If it is not,
//!   the present state is counted at its turn, and the value is looked at again at the end of the transaction, as one is
//!   whose target changes while an operation on it is in flight.
//! * Nothing is planned from the half of a plan: no other transaction begins, and none that failed is undone, until
//!   the plan is taken over. Transactions in flight go on, since they conflict with nothing in it.
//! * To start or cancel the transaction takes effect at the end of the take-over.

use smallvec::SmallVec;

use crate::engine::Engine;
use crate::graph::{Goal, NodeIdx, TargetId};
use crate::key::Key;
use crate::operation::{Now, OpId, TxnId};
use crate::output::EngineOutput;
use crate::overlay::{OverlayNode, TargetRef, to_u32};
use crate::plan::Plan;
use crate::planned_operation::{Cause, OverlayIdx};
use crate::portion::drop_beside;
use crate::transaction::{ITEMS_MOST, Item, OpProgress, OpState, Phase, TakeOver, Transaction};

impl Engine {
    /// Begins to take over a plan, and does the first portion.
    pub(super) fn begin_take_over(
        &mut self,
        transaction: &mut Transaction,
        plan: Plan,
        now: Now,
        step: &mut EngineOutput,
    ) {
        self.count(&plan);
        self.graph.expect(plan.reads.added_nodes(), plan.reads.added_targets());
        let operations = plan.operations.len();
        transaction.first_op = self.next_op;
        transaction.open = operations;
        transaction.outstanding = 0;
        transaction.order = plan.order;
        transaction.operations = plan.operations;
        transaction.progress = Vec::with_capacity(operations);
        transaction.forget_conflict_set();
        transaction.reserved.reserve(plan.nodes.len());
        self.next_op += operations as u64;
        let mut is_found = vec![false; plan.nodes.len()];
        plan.found.iter().for_each(|&oidx| is_found[oidx as usize] = true);
        transaction.take_over = Some(Box::new(TakeOver {
            restores: plan.restores,
            indexes: vec![None; plan.nodes.len()],
            nodes: plan.nodes,
            found: plan.found,
            operations,
            waiting: plan.waiting,
            target_refs: plan.target_refs,
            reads: plan.reads,
            is_found,
            done: 0,
            revision: self.graph.log.revision(),
            is_disturbed: false,
        }));
        self.take_over_portion(transaction, now, step);
    }

    /// Does the next portion of the take-over that is under way, if there is one.
    pub(crate) fn continue_take_over(&mut self, now: Now, step: &mut EngineOutput) {
        let Some(txn) = self.running.in_take_over() else { return };
        let Some(mut transaction) = self.running.take(txn) else { return };
        self.take_over_portion(&mut transaction, now, step);
        self.running.put(transaction);
        self.after_take_over(txn, now, step);
    }

    /// Goes on with a transaction whose plan is taken over.
    pub(super) fn after_take_over(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        let Some(transaction) = self.running.get(txn) else { return };
        match transaction.phase {
            _ if transaction.take_over.is_some() => {}
            Phase::Executing if transaction.cancelled => self.abort(txn, now, step),
            Phase::Executing if transaction.prepared => {}
            Phase::Executing => self.release_prepared(txn, now, step),
            Phase::Settling { .. } | Phase::Undoing => self.dispatch(txn, now, step),
        }
    }

    /// Takes the value of a key over ahead of its turn, if its plan is being taken over.
    pub(crate) fn take_over_key(&mut self, key: &Key, step: &mut EngineOutput) {
        let Some(txn) = self.running.in_take_over() else { return };
        let Some(mut transaction) = self.running.take(txn) else { return };
        if let Some(mut take_over) = transaction.take_over.take() {
            if let Some(oidx) = take_over.find(&self.graph, key) {
                take_over.is_disturbed |= take_over.revision != self.graph.log.revision();
                self.take_over_value(&mut transaction, &mut take_over, oidx, step);
                self.record_found(&mut take_over, oidx, step);
                take_over.revision = self.graph.log.revision();
            }
            transaction.take_over = Some(take_over);
        }
        self.running.put(transaction);
    }

    fn take_over_portion(
        &mut self,
        transaction: &mut Transaction,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let Some(mut take_over) = transaction.take_over.take() else { return };
        take_over.is_disturbed |= take_over.revision != self.graph.log.revision();
        for _ in 0..self.portion.min(ITEMS_MOST) {
            match take_over.next() {
                None => return drop_beside(take_over.nodes.len(), take_over),
                Some(item) => self.take_over_item(transaction, &mut take_over, item, now, step),
            }
        }
        take_over.revision = self.graph.log.revision();
        transaction.take_over = Some(take_over);
    }

    fn take_over_item(
        &mut self,
        transaction: &mut Transaction,
        take_over: &mut TakeOver,
        item: (Item, usize),
        now: Now,
        step: &mut EngineOutput,
    ) {
        self.graph.counters.taken_over += 1;
        match item {
            (Item::Restore, at) => {
                let (key, value) = take_over.restores[at].clone();
                self.graph.set_restore(&key, Some(value.clone()));
                let restores = match transaction.phase {
                    Phase::Executing => &mut transaction.restores,
                    Phase::Settling { .. } | Phase::Undoing => &mut step.restores,
                };
                restores.push((key, Some(value)));
            }
            (Item::Value, at) => {
                self.take_over_value(transaction, take_over, to_u32(at), step);
            }
            (Item::Found, at) => {
                let oidx = take_over.found[at];
                self.record_found(take_over, oidx, step);
            }
            (Item::Operation, at) => self.take_over_operation(transaction, take_over, at, now),
            (Item::Waiting, at) if transaction.phase == Phase::Executing => {
                let (oidx, _) = take_over.waiting[at];
                transaction.pending.push(take_over.nodes[oidx as usize].key.clone());
            }
            (Item::Waiting, _) => {}
        }
    }

    /// Takes one value over: reserves its node, with its last operation in flight, and sets its goal.
    fn take_over_value(
        &mut self,
        transaction: &mut Transaction,
        take_over: &mut TakeOver,
        oidx: OverlayIdx,
        step: &mut EngineOutput,
    ) {
        let at = oidx as usize;
        if take_over.indexes[at].is_some() || take_over.nodes[at].is_bystander {
            return;
        }
        let idx = self.node_of(&take_over.nodes[at]);
        take_over.indexes[at] = Some(idx);
        if transaction.phase == Phase::Executing {
            self.note_claims_held(transaction, idx);
        }
        if self.graph.node_mut(idx).reserve(transaction.txn) {
            transaction.reserved.push(idx);
        }
        let node = &mut take_over.nodes[at];
        if let Some(op) = node.op {
            self.graph.node_mut(idx).begin_op(OpId(transaction.first_op + u64::from(op)));
        }
        if node.could_come() {
            self.graph.note_held_back([idx]);
        }
        self.install_goal(node, idx, &mut take_over.target_refs, step);
        if take_over.is_disturbed && !take_over.is_found[at] {
            self.look_again(idx);
        }
    }

    /// Node of the graph for one of a plan.
    fn node_of(&mut self, node: &OverlayNode) -> NodeIdx {
        let known = node.idx.filter(|&idx| self.graph.node(idx).key == node.key);
        known.unwrap_or_else(|| self.graph.intern(&node.key))
    }

    /// Notes the identities that a value holds before the change.
    fn note_claims_held(&self, transaction: &mut Transaction, idx: NodeIdx) {
        let node = self.graph.node(idx);
        let present = node.present.iter().filter(|_| node.ours);
        for claim in present.flat_map(|present| present.claims()) {
            if self.graph.holders(&claim.identity).0.contains(&idx) {
                let holders = transaction.claims_before.entry(claim.identity.clone()).or_default();
                holders.push(node.key.clone());
            }
        }
    }

    /// Installs the goal of a value that a plan has touched.
    pub(crate) fn install_goal(
        &mut self,
        node: &mut OverlayNode,
        idx: NodeIdx,
        target_refs: &mut [TargetRef],
        step: &mut EngineOutput,
    ) {
        if !node.changed {
            return;
        }
        self.clear_error(idx);
        let graph_ids = node.need_targets.iter().map(|&it| target_refs[it as usize].graph_id);
        let graph_ids: SmallVec<[Option<TargetId>; 4]> = graph_ids.collect();
        let sources = std::mem::take(&mut node.sources);
        let goal = std::mem::take(&mut node.goal);
        self.graph.set_goal(idx, sources, goal, &graph_ids);
        for (&target_id, &graph_id) in node.need_targets.iter().zip(self.graph.need_targets(idx)) {
            target_refs[target_id as usize].graph_id = Some(graph_id);
        }
        step.changed.push(node.key.clone());
        let node = self.graph.node(idx);
        if node.present.is_none() && matches!(node.goal, Goal::Nothing) {
            self.graph.set_applied(idx, None);
        }
    }

    fn record_found(
        &mut self,
        take_over: &mut TakeOver,
        oidx: OverlayIdx,
        step: &mut EngineOutput,
    ) {
        if !std::mem::take(&mut take_over.is_found[oidx as usize]) {
            return;
        }
        let Some(idx) = take_over.indexes[oidx as usize] else { return };
        self.install_found(idx, step);
        if take_over.is_disturbed {
            self.look_again(idx);
        }
    }

    /// Records a value that was found in place as applied.
    pub(crate) fn install_found(&mut self, idx: NodeIdx, step: &mut EngineOutput) {
        let Goal::Valid(value, spec) = self.graph.node(idx).goal.clone() else { return };
        self.graph.set_applied(idx, Some(value));
        self.clear_error(idx);
        self.graph.set_present_by_us(idx, Some(spec), true);
        self.graph.update_unsettled(idx);
        step.changed.push(self.graph.node(idx).key.clone());
    }

    /// Has a value looked at again that is taken over after something has changed: it may have been a target.
    fn look_again(&mut self, idx: NodeIdx) {
        let node = self.graph.node(idx);
        let is_operated = node.running_op().is_some();
        let is_missing = node.present.is_none();
        let is_waiting = self.graph.count_unmet(idx) > 0;
        if !is_operated && is_waiting && self.graph.is_ours(idx) {
            return self.graph.lost_dependency.push(idx);
        }
        // A value that still waits hears of a provider that comes.
        let goes_on_waiting = !is_operated && is_waiting && is_missing;
        if goes_on_waiting && !self.graph.is_reduction_stale(idx) {
            return;
        }
        // A value that is to go may be able to stay: that is decided when its operation has ended.
        if is_operated || self.graph.is_out_of_place(idx) {
            self.graph.mark_dirty(idx);
        }
    }

    fn take_over_operation(
        &mut self,
        transaction: &mut Transaction,
        take_over: &TakeOver,
        at: usize,
        now: Now,
    ) {
        let operation = &transaction.operations[at];
        let Some(idx) = take_over.indexes[operation.oidx as usize] else { return };
        transaction.progress.push(OpProgress { idx, state: OpState::Waiting });
        if operation.cause == Cause::Drift {
            let retry = &mut self.graph.node_mut(idx).retry;
            retry.get_or_insert_default().repairing(now.monotonic);
        }
    }
}
