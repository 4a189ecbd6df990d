//! The latest records of the device, and who has read how far.

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::{Account, Record};

/// As many of the latest records as fit a number of octets.
#[derive(Debug)]
pub struct History {
    records: VecDeque<Arc<Record>>,
    octets: usize,
    max_octets: usize,
    /// How many records were dropped: the place of the first one in all that there ever were.
    dropped: u64,
    last_ns: u64,
    /// Every record after this time is here.
    complete_after_ns: u64,
}

/// How far somebody has read.
#[derive(Debug)]
pub struct Cursor {
    /// Place of the next record.
    next: u64,
    after_ns: u64,
    /// Records that were asked for are gone, and that is not told yet.
    lost: bool,
    /// Nothing was told so far, of all that there is.
    from_the_beginning: bool,
}

/// A record for somebody who reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub record: Arc<Record>,
    /// Records before this one that were asked for are gone.
    pub truncated: bool,
}

impl History {
    /// An empty one that is complete from `began_ns` on.
    pub fn new(max_octets: usize, began_ns: u64) -> Self {
        Self {
            records: VecDeque::new(),
            octets: 0,
            max_octets,
            dropped: 0,
            last_ns: began_ns,
            complete_after_ns: began_ns,
        }
    }

    /// Takes a record of an earlier run. They come in the order of their times.
    pub fn restore(&mut self, record: Record) {
        self.last_ns = self.last_ns.max(record.time_ns);
        self.keep(Arc::new(record));
    }

    /// A record of this time cannot be restored.
    pub fn lose(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
        self.complete_after_ns = self.complete_after_ns.max(time_ns);
    }

    /// Takes what happened now. When the clock was set back its records go on in order, a nanosecond apart: whoever
    /// continues from the last time it was told misses none of them.
    pub fn push(&mut self, now_ns: u64, account: Account) {
        let time_ns = now_ns.max(self.last_ns + 1);
        self.last_ns = time_ns;
        self.keep(Arc::new(Record { time_ns, account }));
    }

    fn keep(&mut self, record: Arc<Record>) {
        self.octets += record.octets();
        self.records.push_back(record);
        while self.octets > self.max_octets && self.records.len() > 1 {
            let Some(oldest) = self.records.pop_front() else { break };
            self.octets -= oldest.octets();
            self.dropped += 1;
            self.complete_after_ns = self.complete_after_ns.max(oldest.time_ns);
        }
    }

    /// For who wants the records strictly after a time; 0 is all there are.
    pub fn cursor(&self, after_ns: u64) -> Cursor {
        let before = self.records.partition_point(|record| record.time_ns <= after_ns);
        Cursor {
            next: self.dropped + before as u64,
            after_ns,
            lost: after_ns != 0 && after_ns < self.complete_after_ns,
            from_the_beginning: after_ns == 0,
        }
    }

    /// For who wants what comes from now on.
    pub fn tail(&self) -> Cursor {
        let next = self.dropped + self.records.len() as u64;
        Cursor { next, after_ns: 0, lost: false, from_the_beginning: false }
    }

    /// How many records a cursor has still to read, those that are gone not counted.
    pub fn behind(&self, cursor: &Cursor) -> u64 {
        self.dropped + self.records.len() as u64 - cursor.next.max(self.dropped)
    }

    /// The next record for a cursor, unless it has read all.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Told> {
        if cursor.next < self.dropped {
            cursor.next = self.dropped;
            let missed = self.complete_after_ns > cursor.after_ns;
            cursor.lost |= missed && !cursor.from_the_beginning;
        }
        // A time that is still to come is waited for.
        let skipped = usize::try_from(cursor.next - self.dropped).unwrap_or(usize::MAX);
        let mut rest = self.records.iter().skip(skipped);
        let record =
            rest.by_ref().inspect(|_| cursor.next += 1).find(|it| it.time_ns > cursor.after_ns);
        let record = record?.clone();
        cursor.from_the_beginning = false;
        Some(Told { record, truncated: std::mem::take(&mut cursor.lost) })
    }

    /// The time of the first record that is here.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.records.front().map(|record| record.time_ns)
    }

    /// Every record after this time is here. Unit: nanoseconds since 1970.
    pub fn complete_after_ns(&self) -> u64 {
        self.complete_after_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::{Authz, AuthzOutcome, Command, CommandKind, Deed, Session};
    use super::*;

    fn account(command: &str) -> Account {
        let authz = Authz { outcome: AuthzOutcome::Permit, detail: "".into() };
        let command =
            Command { kind: CommandKind::Cli, command: command.into(), arguments: vec![], authz };
        Account { session: Session::default(), deed: Deed::Command(command) }
    }

    /// Octets of a record of these tests.
    fn size() -> usize {
        Record { time_ns: 0, account: account("x") }.octets()
    }

    fn history(begin: u64, fits: usize, times: &[u64]) -> History {
        let mut history = History::new(fits * size(), begin);
        for time in times {
            history.push(*time, account("x"));
        }
        history
    }

    /// What is left for a cursor: times, the truncated ones with a `!`.
    fn rest(history: &History, cursor: &mut Cursor) -> String {
        let told = std::iter::from_fn(|| history.next(cursor));
        let text =
            |it: Told| format!("{}{}", if it.truncated { "!" } else { "" }, it.record.time_ns);
        told.map(text).collect::<Vec<_>>().join(" ")
    }

    // proves 5.96, 5.97
    #[test]
    fn records_strictly_after_a_time_are_told_and_what_is_missing_is_said_once() {
        // begin, records that fit, pushed at; asked after; told
        for (begin, fits, pushed, after, want) in [
            (10, 9, &[20, 30][..], 0, "20 30"),
            (10, 9, &[20, 30], 19, "20 30"),
            (10, 9, &[20, 30], 20, "30"),
            (10, 9, &[20, 30], 30, ""),
            // Before anything was kept: that nothing happened is not known.
            (10, 9, &[20, 30], 9, "!20 30"),
            (10, 9, &[20, 30], 10, "20 30"),
            // 20 has made place.
            (10, 2, &[20, 30, 40], 0, "30 40"),
            (10, 2, &[20, 30, 40], 19, "!30 40"),
            (10, 2, &[20, 30, 40], 20, "30 40"),
            // The clock stood still, and went back.
            (10, 9, &[20, 20, 5], 0, "20 21 22"),
            (10, 9, &[5], 0, "11"),
        ] {
            let history = history(begin, fits, pushed);
            let told = rest(&history, &mut history.cursor(after));
            assert_eq!(told, want, "after {after} of {pushed:?}, {fits} of which fit");
        }
    }

    // proves 5.97
    #[test]
    fn who_falls_behind_is_told() {
        let mut history = history(10, 2, &[20, 30]);
        let (mut all, mut some) = (history.cursor(0), history.cursor(20));
        for time in [40, 50] {
            history.push(time, account("x"));
        }
        // Who wants everything there is gets everything there is.
        assert_eq!(rest(&history, &mut all), "40 50");
        assert_eq!(rest(&history, &mut some), "!40 50");
        for time in [60, 70, 80] {
            history.push(time, account("x"));
        }
        assert_eq!(rest(&history, &mut all), "!70 80");
        assert_eq!(rest(&history, &mut some), "!70 80");
        let mut tail = history.tail();
        assert_eq!((rest(&history, &mut tail).as_str(), history.behind(&some)), ("", 0));
        let mut later = history.cursor(85);
        history.push(85, account("x"));
        history.push(90, account("x"));
        assert_eq!(rest(&history, &mut later), "90");
        assert_eq!((history.behind(&tail), rest(&history, &mut tail).as_str()), (2, "85 90"));
    }

    #[test]
    fn a_record_that_is_larger_than_the_bound_is_kept_alone() {
        let mut history = history(10, 1, &[20]);
        history.push(30, account(&"x".repeat(100)));
        assert_eq!(rest(&history, &mut history.cursor(0)), "30");
    }

    proptest! {
        /// Readers at any pace, beside a model that keeps everything.
        #[test]
        fn a_reader_gets_each_record_once_or_is_told(
            steps in proptest::collection::vec((0..3_u64, 1..30_u64), 1..60),
            fits in 1..6_usize,
            after in 0..200_u64,
        ) {
            let mut history = History::new(fits * size(), 10);
            let mut cursor = history.cursor(after);
            let (mut now, mut all, mut told) = (10, Vec::new(), Vec::new());
            let mut gap = after != 0 && after < 10;
            for (reads, later) in steps {
                now += later;
                history.push(now, account("x"));
                all.push(now);
                for _ in 0..reads {
                    let Some(it) = history.next(&mut cursor) else { break };
                    let time = it.record.time_ns;
                    let before = told.last().copied().unwrap_or(after);
                    let missed = all.iter().any(|&it| it > before && it < time);
                    let first_of_all = after == 0 && told.is_empty();
                    prop_assert!(time > before);
                    prop_assert_eq!(it.truncated, (missed || gap) && !first_of_all);
                    gap = false;
                    told.push(time);
                }
                prop_assert!(history.records.len() <= fits.max(1));
            }
        }
    }
}
