//! Comparison of a plan with the transactions in flight.

use crate::engine::Engine;
use crate::operation::TxnId;
use crate::plan::Plan;
use crate::transaction::{Budget, Comparison, Verdict};

impl Engine {
    /// Compares a plan with the transactions in flight; with `going_back`, the plan is the way back of that one. Costs nothing while
    /// there are no others.
    pub(crate) fn compare(
        &mut self,
        plan: &Plan,
        comparison: &mut Comparison,
        budget: &mut Budget,
        going_back: Option<TxnId>,
    ) -> Verdict {
        self.count_compared(budget, |engine, budget| {
            let others = engine.running.iter_mut().filter(|it| it.is_opposed_to(going_back));
            for other in others {
                if !other.complete_conflict_set(&engine.graph, budget) {
                    return Verdict::Unfinished;
                }
            }
            for other in engine.running.iter().filter(|it| it.is_opposed_to(going_back)) {
                let id = other.set_id();
                let set = &other.conflict_set;
                match comparison.is_clear_of(&engine.graph, plan, id, set, budget) {
                    Some(true) => {}
                    Some(false) => return Verdict::Behind(other.txn),
                    None => return Verdict::Unfinished,
                }
            }
            Verdict::Clear
        })
    }

    /// Counts the operations and values that are looked at.
    pub(crate) fn count_compared<T>(
        &mut self,
        budget: &mut Budget,
        compare: impl FnOnce(&mut Self, &mut Budget) -> T,
    ) -> T {
        let before = budget.left;
        let result = compare(self, budget);
        self.graph.counters.compared += (before - budget.left) as u64;
        result
    }
}
