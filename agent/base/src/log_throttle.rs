//! One line of the log for each subject and minute.
//!
//! Where something fails again and again, or is repaired again and again, each line says what the one before it said.
//! The first event of a subject is logged at once. Later events within a minute are merged into one, which is logged
//! when the minute is over and begins the next one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time in which a subject has one line. An operator who looks at the log sees the newest state of everything within it.
const PERIOD: Duration = Duration::from_secs(60);
/// Subjects with lines of their own at a time. More than this are one event for an operator, such as a card that is pulled out; they are
/// counted together, so neither the memory nor the log grows with them.
const SUBJECTS_MOST: usize = 1024;

/// Event that can be merged with a later one of the same subject.
pub trait Merge {
    /// Adds a later event.
    fn merge(&mut self, later: Self);
}

/// Lines of subjects within the last minute. Pure: the caller logs, and says what time it is, on any monotonic clock.
#[derive(Debug)]
pub struct LogThrottle<K, E> {
    /// Subjects whose minute is not over, with the events that were not logged in it.
    subjects: BTreeMap<K, Option<E>>,
    /// Ends of the minutes, ascending.
    ends: VecDeque<(Duration, K)>,
    /// Number of events of subjects beyond those, and the time of the line with it.
    beyond: u64,
    beyond_due: Option<Duration>,
}

/// Lines that are due.
#[derive(Debug, PartialEq, Eq)]
pub struct DueLines<K, E> {
    /// Subjects with the events that had no line in their last minute, in the order of its end.
    pub lines: Vec<(K, E)>,
    /// Number of events of subjects that had no line of their own.
    pub beyond: u64,
}

impl<K, E> Default for LogThrottle<K, E> {
    fn default() -> Self {
        Self { subjects: BTreeMap::new(), ends: VecDeque::new(), beyond: 0, beyond_due: None }
    }
}

impl<K: Clone + Ord, E: Merge> LogThrottle<K, E> {
    /// Takes an event in. Returns it where it is to be logged now.
    pub fn note(&mut self, subject: &K, event: E, now: Duration) -> Option<E> {
        let is_full = self.subjects.len() >= SUBJECTS_MOST;
        match self.subjects.get_mut(subject) {
            Some(Some(left_out)) => left_out.merge(event),
            Some(left_out) => *left_out = Some(event),
            None if is_full => {
                self.beyond += 1;
                self.beyond_due.get_or_insert(now.saturating_add(PERIOD));
            }
            None => {
                self.begin_period(subject.clone(), now);
                return Some(event);
            }
        }
        None
    }

    /// Takes the lines out whose time has come. Subjects without an event in their last minute are forgotten.
    pub fn due(&mut self, now: Duration) -> DueLines<K, E> {
        let mut lines = Vec::new();
        while let Some((_, subject)) = self.ends.pop_front_if(|(end, _)| *end <= now) {
            if let Some(left_out) = self.subjects.remove(&subject).flatten() {
                self.begin_period(subject.clone(), now);
                lines.push((subject, left_out));
            }
        }
        let is_beyond_due = self.beyond_due.take_if(|due| *due <= now).is_some();
        let beyond = if is_beyond_due { std::mem::take(&mut self.beyond) } else { 0 };
        DueLines { lines, beyond }
    }

    /// Takes all events out that had no line, at the end of the process.
    pub fn finish(&mut self) -> DueLines<K, E> {
        self.due(Duration::MAX)
    }

    /// Time of the next call of [`Self::due`].
    pub fn deadline(&self) -> Option<Duration> {
        self.ends.front().map(|(end, _)| *end).into_iter().chain(self.beyond_due).min()
    }

    fn begin_period(&mut self, subject: K, now: Duration) {
        self.ends.push_back((now.saturating_add(PERIOD), subject.clone()));
        self.subjects.insert(subject, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Merge for u64 {
        fn merge(&mut self, later: Self) {
            *self += later;
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn due(lines: &[(u32, u64)], beyond: u64) -> DueLines<u32, u64> {
        DueLines { lines: lines.to_vec(), beyond }
    }

    #[test]
    fn a_subject_has_one_line_a_minute_with_what_was_left_out() {
        let mut throttle = LogThrottle::default();
        assert_eq!(throttle.deadline(), None);
        assert_eq!(throttle.note(&7, 1, SECOND), Some(1), "the first one at once");
        assert_eq!(throttle.note(&8, 1, 2 * SECOND), Some(1), "another subject has its own");
        for second in 3..50 {
            assert_eq!(throttle.note(&7, 1, second * SECOND), None);
        }
        assert_eq!(throttle.due(60 * SECOND), due(&[], 0));
        assert_eq!(throttle.deadline(), Some(61 * SECOND));
        assert_eq!(throttle.due(61 * SECOND), due(&[(7, 47)], 0));
        assert_eq!(throttle.note(&7, 1, 62 * SECOND), None, "that line begins a minute");
        assert_eq!(throttle.due(62 * SECOND), due(&[], 0));
        assert_eq!(throttle.note(&8, 1, 63 * SECOND), Some(1), "it was quiet for a minute");
        assert_eq!(throttle.due(121 * SECOND), due(&[(7, 1)], 0));
        assert_eq!(throttle.due(300 * SECOND), due(&[], 0));
        assert_eq!(throttle.deadline(), None, "nothing is kept of what is quiet");
    }

    #[test]
    fn subjects_beyond_the_limit_are_counted_together() {
        let mut throttle = LogThrottle::default();
        let most = u32::try_from(SUBJECTS_MOST).unwrap();
        for subject in 0..most + 30 {
            let own = throttle.note(&subject, 1, SECOND).is_some();
            assert_eq!(own, subject < most);
        }
        assert_eq!(throttle.note(&0, 1, SECOND), None);
        assert_eq!((throttle.subjects.len(), throttle.ends.len()), (SUBJECTS_MOST, SUBJECTS_MOST));
        assert_eq!(throttle.due(61 * SECOND), due(&[(0, 1)], 30));
        assert_eq!(throttle.note(&(most + 1), 1, 62 * SECOND), Some(1));
    }

    #[test]
    fn the_end_of_the_process_leaves_nothing_out() {
        let mut throttle = LogThrottle::default();
        for subject in [7, 8, 7, 7] {
            throttle.note(&subject, 1, SECOND);
        }
        assert_eq!(throttle.finish(), due(&[(7, 2)], 0));
    }
}
