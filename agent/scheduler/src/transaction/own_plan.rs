//! A plan that the engine makes without a request, between events, and compares with the transactions in flight.

use super::comparison::Comparison;
use crate::graph::NodeIdx;
use crate::operation::TxnId;
use crate::plan::Plan;
use crate::planner::Planning;

#[derive(Debug)]
pub(crate) struct OwnPlan {
    pub(crate) planning: Planning,
    /// Number of plans that were taken back.
    pub(crate) plans_before: u32,
    /// The plan, while it is being compared.
    pub(crate) made: Option<(Box<Plan>, Comparison)>,
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

/// Dirty values that are being planned for.
#[derive(Debug)]
pub(crate) struct Convergence {
    /// Values to be sorted out.
    pub(crate) unsorted: std::vec::IntoIter<NodeIdx>,
    /// Values to be planned for.
    pub(crate) dirty: Vec<NodeIdx>,
    /// Plan in the making, once all values are sorted out.
    pub(crate) plan: Option<OwnPlan>,
}
