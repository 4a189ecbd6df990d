//! The record of an instance: when and on whose behalf it was made and evaluated, and what came of it.

use std::collections::VecDeque;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::limits::excerpt;

/// Lines that the log of an instance keeps: some twenty ways of an instance with five states, at fifty bytes each.
pub const LOG_LINES: usize = 200;

/// Who asked for a change, and the name of that change in logs and histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeAuthor {
    pub user: SmolStr,
    pub trace: SmolStr,
}

/// Record of one instance. Times are in nanoseconds since 1970; zero stands for one that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceRecord {
    pub created_ns: u64,
    /// Time of the last walk that somebody asked for, or that changed something.
    pub last_run_ns: u64,
    /// Name of the caller who changed the instance last; empty while it is not known.
    pub last_user: SmolStr,
    /// Trace of that change.
    pub trace: SmolStr,
    /// Number of the first line of the log.
    pub first_line: u64,
    pub log: VecDeque<LogLine>,
}

/// One line of the log of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub time_ns: u64,
    pub text: Arc<str>,
}

impl InstanceRecord {
    /// Notes a walk, on behalf of `author` if somebody asked for it.
    pub fn note_walk(&mut self, author: Option<&ChangeAuthor>, now_ns: u64) {
        if self.created_ns == 0 {
            self.created_ns = now_ns;
        }
        self.last_run_ns = now_ns;
        if let Some(ChangeAuthor { user, trace }) = author {
            (self.last_user, self.trace) = (user.clone(), trace.clone());
        }
    }

    /// Appends a line, and drops the oldest of too many.
    pub fn log(&mut self, time_ns: u64, text: &str) {
        self.log.push_back(LogLine { time_ns, text: excerpt(text).into() });
        while self.log.len() > LOG_LINES {
            self.log.pop_front();
            self.first_line += 1;
        }
    }

    /// The lines with their numbers, from `first` on.
    pub fn lines_from(&self, first: u64) -> impl Iterator<Item = (u64, &LogLine)> {
        let skipped = first.saturating_sub(self.first_line);
        let numbered = (self.first_line..).zip(&self.log);
        numbered.skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    /// Number of the next line.
    pub fn next_line(&self) -> u64 {
        self.first_line + self.log.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_last_lines_under_their_numbers() {
        let mut record = InstanceRecord::default();
        for number in 0..=LOG_LINES as u64 {
            record.log(number, &format!("line {number}"));
        }
        assert_eq!((record.log.len(), record.first_line), (LOG_LINES, 1));
        assert_eq!(record.next_line(), LOG_LINES as u64 + 1);
        let last: Vec<_> = record.lines_from(LOG_LINES as u64).collect();
        let text = Arc::from(format!("line {LOG_LINES}"));
        let line = LogLine { time_ns: LOG_LINES as u64, text };
        assert_eq!(last, [(LOG_LINES as u64, &line)]);
        assert_eq!(record.lines_from(0).count(), LOG_LINES);
    }

    #[test]
    fn walks_that_nobody_asked_for_keep_the_last_user() {
        let mut record = InstanceRecord::default();
        let author = ChangeAuthor { user: "ops".into(), trace: "change/7".into() };
        record.note_walk(Some(&author), 1);
        record.note_walk(None, 2);
        assert_eq!((record.created_ns, record.last_run_ns), (1, 2));
        assert_eq!((record.last_user.as_str(), record.trace.as_str()), ("ops", "change/7"));
    }
}
