//! Planning of a change from the present state of an engine.

use crate::engine::Engine;
use crate::outcome::PlanError;
use crate::plan::Plan;
use crate::planner::Planning;

impl Planning {
    /// Plans on, until the plan is complete or refused, or `pause` says that the engine is needed. Pauses once of its
    /// own accord, when all values are validated: see [`Planning::is_validated`].
    ///
    /// `pause` is asked between pieces of work of bounded size: a portion of some thousand values being validated, or
    /// some tens of values being ordered. All calls are to be with the same engine, and none after the result.
    pub fn advance(
        &mut self,
        engine: &Engine,
        pause: &mut dyn FnMut() -> bool,
    ) -> Option<Result<Plan, PlanError>> {
        self.advance_on(&engine.graph, pause)
    }
}
