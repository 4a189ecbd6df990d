//! The last transitions, for those who listen and for those who come back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::alarm::Transition;

/// Events that are kept: those of an hour in which four alarms change a second.
pub const LOG_TRANSITIONS: usize = 16_384;

/// The last transitions, by ascending id.
#[derive(Clone, Debug, Default)]
pub struct Log {
    transitions: VecDeque<Arc<Transition>>,
    /// Id of the last transition; 0 before the first one.
    last_id: u64,
}

/// What somebody is told who has been told everything up to some transition.
#[derive(Clone, Debug)]
pub enum Resume {
    /// All that came since, in order.
    Transitions(Vec<Arc<Transition>>),
    /// The log does not go back so far, or has no such transition.
    Gap,
}

impl Log {
    /// A log whose transitions come after all those of earlier runs.
    pub(crate) fn after(last_id: u64) -> Self {
        Self { transitions: VecDeque::new(), last_id }
    }

    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Events by ascending id.
    pub fn transitions(&self) -> impl DoubleEndedIterator<Item = &Arc<Transition>> {
        self.transitions.iter()
    }

    /// Events after this one.
    pub fn since(&self, id: u64) -> Resume {
        let oldest = self.transitions.front().map_or(self.last_id + 1, |transition| transition.id);
        if id > self.last_id || id + 1 < oldest {
            return Resume::Gap;
        }
        let at = self.transitions.partition_point(|transition| transition.id <= id);
        Resume::Transitions(self.transitions.range(at..).cloned().collect())
    }

    /// Adds an transition, and gives it the next id.
    pub(crate) fn add(&mut self, transition: impl FnOnce(u64) -> Transition) -> Arc<Transition> {
        self.last_id += 1;
        let transition = Arc::new(transition(self.last_id));
        if self.transitions.len() == LOG_TRANSITIONS {
            self.transitions.pop_front();
        }
        self.transitions.push_back(Arc::clone(&transition));
        transition
    }
}
