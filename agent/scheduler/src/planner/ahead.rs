//! What descriptors say of the values of a large change, asked on all processors. Descriptors are pure, so the answers
//! are those of one processor, and the order of planning is not touched.

use std::sync::Arc;
use std::thread;

use super::ingest::Asked;
use crate::graph::Graph;
use crate::traits::{Refusal, Traits};

/// Changes for which a further thread is begun: asking about so many takes milliseconds, a thread tens of microseconds.
const WORTH_A_THREAD: usize = 2048;

/// The answer about a value that is new, as a value of its own.
pub(super) struct Ahead {
    pub(super) judged: Result<Arc<Traits>, Refusal>,
    /// Parts that were listed for it.
    pub(super) listed: u64,
}

/// One answer for each change, or none at all where that is not worth it.
pub(super) fn ask(graph: &Graph, changes: &[&Asked]) -> Vec<Option<Ahead>> {
    let wanted = changes.len() / WORTH_A_THREAD;
    // To ask for the number of processors takes longer than a small plan.
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let threads = if wanted < 2 { wanted } else { processors().min(wanted) };
    if threads < 2 {
        return Vec::new();
    }
    let mut answers = Vec::new();
    answers.resize_with(changes.len(), || None);
    let share = changes.len().div_ceil(threads);
    thread::scope(|scope| {
        let mut shares = changes.chunks(share).zip(answers.chunks_mut(share));
        let own = shares.next();
        for (changes, answers) in shares {
            scope.spawn(move || answer(graph, changes, answers));
        }
        if let Some((changes, answers)) = own {
            answer(graph, changes, answers);
        }
    });
    answers
}

fn answer(graph: &Graph, changes: &[&Asked], answers: &mut [Option<Ahead>]) {
    for ((key, value), answer) in changes.iter().zip(answers) {
        let Some(value) = value.as_ref().filter(|_| graph.find(key).is_none()) else { continue };
        let mut listed = 0;
        let judged = Traits::intended(&graph.registry, key, value, false, None, &mut listed);
        *answer = Some(Ahead { judged, listed });
    }
}
