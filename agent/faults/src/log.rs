//! The last transitions, for those who listen and for those who come back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::alarm::Transition;

/// Transitions that are kept: those of an hour in which four alarms change a second.
pub const LOG_TRANSITIONS: usize = 16_384;

/// The last transitions, by ascending id.
#[derive(Clone, Debug, Default)]
pub struct Log {
    transitions: VecDeque<Arc<Transition>>,
    /// Id of the last transition; 0 before the first one.
    last_id: u64,
    /// All transitions after this one are known.
    complete_after: u64,
}

/// The answer to a listener that has been told everything up to some transition.
#[derive(Clone, Debug)]
pub enum Resume {
    /// All that came since, in order.
    Transitions(Vec<Arc<Transition>>),
    /// The log does not go back so far, or has no such transition.
    Gap,
}

impl Log {
    /// The log of an earlier run, which may have given ids up to `reserved`. After a run that did not end in order
    /// the last ones may be missing.
    pub(crate) fn restored(transitions: Vec<Transition>, reserved: u64) -> Self {
        let last = transitions.last().map_or(0, |transition| transition.id);
        let last_id = last.max(reserved);
        // An entry may be missing that came among too many, or that this version cannot read.
        let neighbours = transitions.windows(2).rev();
        let hole = neighbours.into_iter().find(|pair| pair[0].id + 1 != pair[1].id);
        let first = hole.map(|pair| &pair[1]).or(transitions.first());
        let first = first.map_or(last_id, |transition| transition.id - 1);
        let complete_after = if last == last_id { first } else { last_id };
        let kept = transitions.len().saturating_sub(LOG_TRANSITIONS);
        let transitions = transitions.into_iter().skip(kept).map(Arc::new).collect();
        Self { transitions, last_id, complete_after }
    }

    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Transitions by ascending id.
    pub fn transitions(&self) -> impl DoubleEndedIterator<Item = &Arc<Transition>> {
        self.transitions.iter()
    }

    /// Transitions after this one.
    pub fn since(&self, id: u64) -> Resume {
        if id > self.last_id || id < self.complete_after {
            return Resume::Gap;
        }
        let at = self.transitions.partition_point(|transition| transition.id <= id);
        Resume::Transitions(self.transitions.range(at..).cloned().collect())
    }

    /// Adds a transition, and gives it the next id.
    pub(crate) fn add(&mut self, transition: impl FnOnce(u64) -> Transition) -> Arc<Transition> {
        self.last_id += 1;
        let transition = Arc::new(transition(self.last_id));
        if self.transitions.len() == LOG_TRANSITIONS
            && let Some(oldest) = self.transitions.pop_front()
        {
            self.complete_after = self.complete_after.max(oldest.id);
        }
        self.transitions.push_back(Arc::clone(&transition));
        transition
    }
}
