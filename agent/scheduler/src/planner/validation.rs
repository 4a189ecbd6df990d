//! Validation of the values of a large change on all processors, ahead of the planner.
//!
//! Descriptors are pure, so the answers equal those of one processor, and the order of planning is not affected.

use std::sync::Arc;

use holdfast_common::parallel;

use super::Planner;
use crate::change::{Delta, IntentChange};
use crate::graph::Graph;
use crate::key::Key;
use crate::outcome::PlanError;
use crate::sorted_map::SortedMap;
use crate::value::SharedValue;
use crate::value_spec::{ValueError, ValueSpec};

/// Number of changes up to which one processor does it all: validating this many takes a millisecond, waking another
/// processor tens of microseconds.
const FEW: usize = 2048;
/// Changes that are validated while those before them are applied: a millisecond's work, so that the answers are still
/// in the caches when they are used.
pub(super) const PORTION: usize = 2048;
/// Least number of changes that is worth another processor.
const SHARE: usize = 256;

/// Validation of a value that is new.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) validated: Result<Arc<ValueSpec>, ValueError>,
    /// Number of parts listed for it.
    pub(super) listed: u64,
    /// Validations of its parts with operations, ascending by key; parts of parts are not included.
    pub(super) parts: Vec<Validation>,
}

/// Portions of a change, as far as they are applied.
#[derive(Debug, Default)]
pub(super) struct Portions {
    /// Number of changes that are applied.
    done: usize,
    /// Validations of the next portion, once the first one has begun.
    ahead: Option<Vec<Option<Validation>>>,
}

impl Planner<'_> {
    /// Applies one portion, while other processors validate the next. Stops at the first error.
    pub(super) fn apply_portion(
        &mut self,
        mut portions: Portions,
        delta: &Delta,
    ) -> Result<Option<Portions>, PlanError> {
        let begin = portions.done;
        let all = self.state.order.len();
        let end = all.min(begin + self.state.portion);
        portions.done = end;
        if all <= FEW {
            (begin..end).try_for_each(|at| self.apply_change_of_intent(at, delta, None))?;
            return Ok((end < all).then_some(portions));
        }
        let graph = self.overlay.graph;
        let answers = match portions.ahead.take() {
            Some(answers) => answers,
            None => validations(graph, delta, &self.state.order[begin..end]),
        };
        let next = self.state.order[end..all.min(end + self.state.portion)].to_vec();
        let mut ahead = Vec::new();
        parallel::beside(
            || ahead = validations(graph, delta, &next),
            || {
                let mut numbered = (begin..end).zip(answers);
                numbered.try_for_each(|(at, answer)| self.apply_change_of_intent(at, delta, answer))
            },
        )?;
        portions.ahead = Some(ahead);
        Ok((end < all).then_some(portions))
    }
}

fn validations(graph: &Graph, delta: &Delta, places: &[u32]) -> Vec<Option<Validation>> {
    parallel::map_slice(places, SHARE, |&at| answer(graph, &delta.changes[at as usize]))
}

fn answer(graph: &Graph, IntentChange { key, value, .. }: &IntentChange) -> Option<Validation> {
    let value = value.as_ref().filter(|_| graph.find(key).is_none())?;
    let mut answer = validate(graph, key, value, false);
    let parts = answer.validated.as_ref().ok().and_then(|spec| spec.parts());
    let parts = parts.into_iter().flat_map(SortedMap::iter);
    answer.parts = parts.map(|(key, part)| validate(graph, key, &part.0, true)).collect();
    Some(answer)
}

fn validate(graph: &Graph, key: &Key, value: &SharedValue, as_part: bool) -> Validation {
    let mut listed = 0;
    let validated = ValueSpec::of_intended(&graph.registry, key, value, as_part, None, &mut listed);
    Validation { validated, listed, parts: Vec::new() }
}
