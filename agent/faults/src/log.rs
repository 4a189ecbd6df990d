//! The last transitions of alarms and steps of sessions, for those who listen and for those who come back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::alarm::Transition;
use crate::session::SessionStep;

/// Entries that are kept: those of an hour in which four alarms change a second.
pub const LOG_ENTRIES: usize = 16_384;

/// An entry of the log.
#[derive(Clone, Debug)]
pub enum LogEntry {
    Alarm(Arc<Transition>),
    Step(Arc<SessionStep>),
}

/// The last entries, by ascending id.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: VecDeque<LogEntry>,
    /// Id of the last entry; 0 before the first one.
    last_id: u64,
    /// All entries after this one are known.
    complete_after: u64,
}

/// The answer to a listener that has been told everything up to some entry.
#[derive(Clone, Debug)]
pub enum Resume {
    /// All that came since, in order.
    Entries(Vec<LogEntry>),
    /// The log does not go back so far, or has no such entry.
    Gap,
}

impl LogEntry {
    /// Ascends, also over restarts of the agent.
    pub fn id(&self) -> u64 {
        match self {
            Self::Alarm(transition) => transition.id,
            Self::Step(step) => step.id,
        }
    }

    pub fn transition(&self) -> Option<&Arc<Transition>> {
        match self {
            Self::Alarm(transition) => Some(transition),
            Self::Step(_) => None,
        }
    }

    pub fn step(&self) -> Option<&Arc<SessionStep>> {
        match self {
            Self::Alarm(_) => None,
            Self::Step(step) => Some(step),
        }
    }
}

impl Log {
    /// The log of an earlier run, which may have given ids up to `reserved`. After a run that did not end in order
    /// the last ones may be missing.
    pub(crate) fn restored(entries: Vec<LogEntry>, reserved: u64) -> Self {
        let last = entries.last().map_or(0, LogEntry::id);
        let last_id = last.max(reserved);
        // An entry may be missing that came among too many, or that this version cannot read.
        let neighbours = entries.windows(2).rev();
        let hole = neighbours.into_iter().find(|pair| pair[0].id() + 1 != pair[1].id());
        let first = hole.map(|pair| &pair[1]).or(entries.first());
        let first = first.map_or(last_id, |entry| entry.id() - 1);
        let complete_after = if last == last_id { first } else { last_id };
        let kept = entries.len().saturating_sub(LOG_ENTRIES);
        Self { entries: entries.into_iter().skip(kept).collect(), last_id, complete_after }
    }

    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Entries by ascending id.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.iter()
    }

    /// Entries after this one.
    pub fn since(&self, id: u64) -> Resume {
        if id > self.last_id || id < self.complete_after {
            return Resume::Gap;
        }
        let at = self.entries.partition_point(|entry| entry.id() <= id);
        Resume::Entries(self.entries.range(at..).cloned().collect())
    }

    /// Adds a transition, and gives it the next id.
    pub(crate) fn add(&mut self, transition: impl FnOnce(u64) -> Transition) -> Arc<Transition> {
        let transition = Arc::new(transition(self.next_id()));
        self.push(LogEntry::Alarm(Arc::clone(&transition)));
        transition
    }

    /// Adds a step of a session, and gives it the next id.
    pub(crate) fn add_step(&mut self, step: impl FnOnce(u64) -> SessionStep) -> Arc<SessionStep> {
        let step = Arc::new(step(self.next_id()));
        self.push(LogEntry::Step(Arc::clone(&step)));
        step
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn push(&mut self, entry: LogEntry) {
        if self.entries.len() == LOG_ENTRIES
            && let Some(oldest) = self.entries.pop_front()
        {
            self.complete_after = self.complete_after.max(oldest.id());
        }
        self.entries.push_back(entry);
    }
}
