//! Progress of the plans that the engine makes without a request.

use crate::engine::Engine;
use crate::operation::TxnId;
use crate::outcome::PlanError;
use crate::transaction::{Budget, ComparedPlan, Comparison, OwnPlan, Verdict};

impl Engine {
    /// Makes a portion of a plan, or compares a portion of it. `None` while there is more to do.
    pub(crate) fn advance_own_plan(
        &mut self,
        own: &mut OwnPlan,
        going_back: Option<TxnId>,
    ) -> Option<Result<ComparedPlan, PlanError>> {
        if let Some((plan, _)) = own.made.take_if(|(plan, _)| !plan.renew(&self.graph)) {
            own.take_back(*plan);
        }
        let (plan, mut comparison) = match own.made.take() {
            Some(made) => made,
            None => match self.plan_portion(&mut own.planning)? {
                Ok(plan) => (Box::new(plan), Comparison::default()),
                Err(refusal) => return Some(Err(refusal)),
            },
        };
        let mut budget = Budget::of_step(self.portion);
        budget.extend_after(own.plans_before);
        match self.compare(&plan, &mut comparison, &mut budget, going_back) {
            Verdict::Clear => Some(Ok((*plan, None))),
            Verdict::Behind(other) => Some(Ok((*plan, Some(other)))),
            Verdict::Unfinished => {
                own.made = Some((plan, comparison));
                None
            }
        }
    }
}
