//! What descriptors say of the values of a large change, asked on all processors. Descriptors are pure, so the answers
//! are those of one processor, and the order of planning is not touched.

use std::sync::Arc;

use rayon::prelude::*;

use super::ingest::Asked;
use crate::graph::Graph;
use crate::traits::{Refusal, Traits};

/// Changes up to which one processor does it all, and the least for each: asking about so many takes milliseconds, to
/// wake another processor tens of microseconds.
const FEW: usize = 2048;

/// The answer about a value that is new, as a value of its own.
pub(super) struct Ahead {
    pub(super) judged: Result<Arc<Traits>, Refusal>,
    /// Parts that were listed for it.
    pub(super) listed: u64,
}

/// One answer for each change, or none at all where that is not worth it.
pub(super) fn ask(graph: &Graph, changes: &[&Asked]) -> Vec<Option<Ahead>> {
    if changes.len() <= FEW {
        return Vec::new();
    }
    changes.par_iter().with_min_len(FEW).map(|change| answer(graph, change)).collect()
}

fn answer(graph: &Graph, (key, value): &Asked) -> Option<Ahead> {
    let value = value.as_ref().filter(|_| graph.find(key).is_none())?;
    let mut listed = 0;
    let judged = Traits::intended(&graph.registry, key, value, false, None, &mut listed);
    Some(Ahead { judged, listed })
}
