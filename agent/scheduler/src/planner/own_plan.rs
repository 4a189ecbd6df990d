//! A plan that the engine makes between events, and compares with the transactions in flight.

use super::Planning;
use crate::engine::Engine;
use crate::operation::TxnId;
use crate::plan::{Plan, PlanError};
use crate::transaction::{Budget, Comparison, Verdict};

#[derive(Debug)]
pub(crate) struct OwnPlan {
    planning: Planning,
    /// Number of plans that were taken back.
    plans_before: u32,
    /// The plan, while it is being compared.
    made: Option<(Box<Plan>, Comparison)>,
}

/// A plan that is made, and the transaction in flight that it has to wait for.
pub(crate) type ComparedPlan = (Plan, Option<TxnId>);

impl OwnPlan {
    pub(crate) fn new(planning: Planning) -> Self {
        Self { planning, plans_before: 0, made: None }
    }

    /// Takes a plan back that cannot be started: it is made once more.
    pub(crate) fn take_back(&mut self, plan: Plan) {
        self.planning.take_back(plan);
        self.plans_before += 1;
    }
}

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
