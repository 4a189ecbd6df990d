//! Comparison of a plan with the expected one, an operation or a change at a time.

use super::Planner;
use crate::change::Delta;
use crate::outcome::PlanError;
use crate::plan::PlanHasher;

/// Hash of a plan, as far as it is computed.
#[derive(Debug)]
pub(super) struct Hashing {
    hasher: PlanHasher,
    /// Changes in the order in which they are hashed.
    order: Vec<u32>,
    /// Number of operations and changes that are hashed.
    done: usize,
}

impl Hashing {
    /// `order` holds the places of the changes, nearly as they are hashed.
    pub(super) fn of(delta: &Delta, order: Vec<u32>) -> Self {
        Self { hasher: PlanHasher::default(), order: PlanHasher::order(delta, order), done: 0 }
    }
}

impl Planner<'_> {
    /// Hashes one operation or change. At the end, refuses the plan when the change expected another one.
    pub(super) fn hash_next(
        &mut self,
        mut hashing: Box<Hashing>,
        delta: &Delta,
    ) -> Result<Option<Box<Hashing>>, PlanError> {
        let Hashing { hasher, order, done } = &mut *hashing;
        if let Some(op) = self.state.operations.get(*done) {
            hasher.operation(op);
        } else if let Some(&at) = order.get(*done - self.state.operations.len()) {
            hasher.change(&delta.changes[at as usize]);
        } else {
            let found = hashing.hasher.finish(delta);
            return match delta.expected_plan {
                Some(expected) if expected != found => Err(PlanError::Differs { expected, found }),
                _ => Ok(None),
            };
        }
        *done += 1;
        Ok(Some(hashing))
    }
}
