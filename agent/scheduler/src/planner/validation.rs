//! What descriptors say of the values of a large change, asked on all processors while the values before them are taken
//! in. Descriptors are pure, so the answers are those of one processor, and the order of planning is not touched.

use std::sync::Arc;

use rayon::prelude::*;

use super::intent::IntentChange;
use crate::graph::Graph;
use crate::key::Key;
use crate::sorted_map::SortedMap;
use crate::value::SharedValue;
use crate::value_spec::{ValueError, ValueSpec};

/// Changes up to which one processor does it all: asking about so many takes a millisecond, to wake another processor
/// tens of microseconds.
const FEW: usize = 2048;
/// Changes that are asked about while those before them are taken in: a millisecond's worth, so that the answers
/// are still in the caches when they are needed.
const PORTION: usize = 2048;
/// The least of a portion that is worth another processor.
const SHARE: usize = 256;

/// The answer about a value that is new.
pub(super) struct Validation {
    pub(super) validated: Result<Arc<ValueSpec>, ValueError>,
    /// Parts that were listed for it.
    pub(super) listed: u64,
    /// The answers about its parts with operations of their own, ascending by key; none about parts of parts.
    pub(super) parts: Vec<Validation>,
}

/// Hands each change to `take` with the answer about it, in their order; without answers where that is not worth it.
/// The first error is the end.
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

fn answer(graph: &Graph, (key, value): &IntentChange) -> Option<Validation> {
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
