//! Begin, progress and end of a transaction.

use std::collections::BTreeSet;

use crate::dispatch_order::DispatchOrder;
use crate::engine::Engine;
use crate::history::{OPERATIONS_KEPT, OmittedItems, TransactionRecord, Trigger};
use crate::key::FixedMap;
use crate::operation::{Now, TxnId};
use crate::outcome::TransactionOutcome;
use crate::output::EngineOutput;
use crate::plan::Plan;
use crate::transaction::{ConflictSet, Phase, Transaction};

impl Engine {
    pub(crate) fn begin_transaction(
        &mut self,
        txn: TxnId,
        trigger: Trigger,
        mut plan: Plan,
        prepared: bool,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let requested = plan.delta.changes.iter().take(OPERATIONS_KEPT);
        let requested = requested.map(|it| (it.key.clone(), it.value.clone())).collect();
        let mut transaction = Transaction {
            txn,
            trigger,
            mode: plan.delta.mode,
            description: plan.delta.description.clone(),
            author: plan.delta.author.clone(),
            requested,
            phase: Phase::Executing,
            operations: Vec::new(),
            progress: Vec::new(),
            first_op: 0,
            order: DispatchOrder::default(),
            reserved: Vec::new(),
            dirty_after: Vec::new(),
            conflict_set: ConflictSet::default(),
            take_over: None,
            prepared,
            restores: Vec::new(),
            cancelled: false,
            outstanding: 0,
            open: 0,
            last_progress: now.monotonic,
            read_due: None,
            failure: None,
            undo_failed: false,
            failed: Vec::new(),
            pending: Vec::new(),
            changes: std::mem::take(&mut plan.delta.changes),
            before: std::mem::take(&mut plan.before),
            claims_before: FixedMap::default(),
            rollback: None,
            awaited: BTreeSet::new(),
            past: Vec::new(),
            omitted: OmittedItems::default(),
            started: now,
        };
        self.graph.counters.transactions += 1;
        self.register_wait(txn, &plan, now, step);
        self.begin_take_over(&mut transaction, plan, now, step);
        self.running.put(transaction);
        self.after_take_over(txn, now, step);
    }

    /// Lets a transaction submit its operations, once its plan is taken over. The step of the first ones has the
    /// pre-images.
    pub(crate) fn release_prepared(&mut self, txn: TxnId, now: Now, step: &mut EngineOutput) {
        if let Some(transaction) = self.running.get(txn) {
            transaction.prepared = false;
            if transaction.take_over.is_some() {
                return;
            }
            step.restores.append(&mut transaction.restores);
            self.dispatch(txn, now, step);
        }
    }

    pub(crate) fn count(&mut self, plan: &Plan) {
        let counters = &mut self.graph.counters;
        counters.plans += 1;
        counters.visited += plan.cost.visited;
        counters.edges += plan.cost.edges;
        counters.operations_planned += plan.operations.len() as u64;
    }

    /// Installs the goals of a plan without operations.
    pub(crate) fn install_goals(&mut self, mut plan: Plan, step: &mut EngineOutput) {
        self.count(&plan);
        let mut indexes = Vec::with_capacity(plan.nodes.len());
        for node in &plan.nodes {
            indexes.push(node.idx.unwrap_or_else(|| self.graph.intern(&node.key)));
        }
        for (node, &idx) in plan.nodes.iter_mut().zip(&indexes) {
            self.install_goal(node, idx, &mut plan.target_refs, step);
        }
        plan.found.iter().for_each(|&oidx| self.install_found(indexes[oidx as usize], step));
        for (key, value) in plan.restores {
            self.graph.set_restore(&key, Some(value.clone()));
            step.restores.push((key, Some(value)));
        }
        indexes.into_iter().for_each(|idx| self.graph.forget_if_empty(idx));
    }

    /// Advances a transaction. False when it has to wait.
    pub(crate) fn advance_transaction(
        &mut self,
        txn: TxnId,
        now: Now,
        step: &mut EngineOutput,
    ) -> bool {
        let is_between_portions = self.is_between_portions();
        let Some(transaction) = self.running.get(txn) else { return false };
        match transaction.phase {
            _ if transaction.take_over.is_some() => false,
            Phase::Executing if transaction.prepared => false,
            Phase::Executing if transaction.failure.is_some() => {
                if transaction.outstanding > 0 {
                    return false;
                }
                self.begin_rollback(txn, now, step);
                true
            }
            Phase::Settling { until, behind } => {
                let hears = !transaction.awaited.is_empty() && now.monotonic < until;
                let is_under_way = transaction.has_rollback_due();
                let waits = behind.is_some_and(|other| self.running.contains(other));
                let may_go_on = !hears && !waits && !is_under_way && !is_between_portions;
                may_go_on && self.begin_undo(txn, now, step)
            }
            Phase::Executing | Phase::Undoing => {
                if transaction.open > 0 {
                    return false;
                }
                if let Some(transaction) = self.running.take(txn) {
                    self.end(transaction, now, step);
                }
                true
            }
        }
    }

    fn end(&mut self, mut transaction: Transaction, now: Now, step: &mut EngineOutput) {
        let undo = transaction.phase == Phase::Undoing;
        // The engine has found many values in place.
        let is_unnoticed =
            transaction.trigger == Trigger::Convergence && transaction.operations.is_empty();
        transaction.record(undo);
        transaction.drop_bulk();
        let txn = transaction.txn;
        self.release_values(&mut transaction, now);
        if is_unnoticed {
            return;
        }
        self.mark_parked_dirty(&transaction.failed);
        let outcome = match transaction.failure.take() {
            Some(_) if transaction.cancelled => {
                TransactionOutcome::Cancelled { txn, undone: !transaction.undo_failed }
            }
            Some((key, label, error)) => TransactionOutcome::Failed {
                txn,
                key,
                label,
                error,
                undone: !transaction.undo_failed,
            },
            None => TransactionOutcome::Done {
                txn,
                pending: transaction.pending,
                failed: transaction.failed,
            },
        };
        let trigger = transaction.trigger;
        self.history.push(TransactionRecord {
            txn,
            trigger,
            description: transaction.description,
            author: transaction.author,
            requested: transaction.requested,
            started_ns: transaction.started.unix_ns,
            ended_ns: now.unix_ns,
            operations: transaction.past,
            omitted: transaction.omitted.count,
            outcome: outcome.bounded(OPERATIONS_KEPT),
        });
        self.history.count_omitted(trigger, &transaction.omitted);
        self.report_outcome(outcome, step);
    }
}
