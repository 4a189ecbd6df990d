//! Validation of the values of a large change on all processors, ahead of the planner.
//!
//! Descriptors are pure, so the answers equal those of one processor, and the order of planning is not affected.

use std::sync::Arc;

use rayon::prelude::*;

use crate::graph::Graph;
use crate::key::Key;
use crate::plan::IntentChange;
use crate::sorted_map::SortedMap;
use crate::value::SharedValue;
use crate::value_spec::{ValueError, ValueSpec};

/// Number of changes up to which one processor does it all: validating this many takes a millisecond, waking another
/// processor tens of microseconds.
const FEW: usize = 2048;
/// Changes that are validated while those before them are applied: a millisecond's work, so that the answers are still
/// in the caches when they are used.
const PORTION: usize = 2048;
/// Least number of changes that is worth another processor.
const SHARE: usize = 256;

/// Validation of a value that is new.
pub(super) struct Validation {
    pub(super) validated: Result<Arc<ValueSpec>, ValueError>,
    /// Number of parts listed for it.
    pub(super) listed: u64,
    /// Validations of its parts with operations, ascending by key; parts of parts are not included.
    pub(super) parts: Vec<Validation>,
}

/// Calls `take` for each change in order, with its validation where the change is large. Stops at the first error.
pub(super) fn each<'c, E>(
    graph: &Graph,
    changes: &[&'c IntentChange],
    mut take: impl FnMut(&'c IntentChange, Option<Validation>) -> Result<(), E>,
) -> Result<(), E> {
    if changes.len() <= FEW {
        return changes.iter().try_for_each(|change| take(change, None));
    }
    let mut portions = changes.chunks(PORTION);
    let mut portion = portions.next().unwrap_or_default();
    let mut answers = ask(graph, portion);
    loop {
        let next = portions.next().unwrap_or_default();
        let known = portion.iter().zip(std::mem::take(&mut answers));
        let taken = rayon::in_place_scope(|scope| {
            scope.spawn(|_| answers = ask(graph, next));
            known.into_iter().try_for_each(|(change, answer)| take(change, answer))
        });
        taken?;
        if next.is_empty() {
            return Ok(());
        }
        portion = next;
    }
}

fn ask(graph: &Graph, changes: &[&IntentChange]) -> Vec<Option<Validation>> {
    changes.par_iter().with_min_len(SHARE).map(|change| answer(graph, change)).collect()
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
