//! Ring buffers of the latest accounting records, and cursors for those who read them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::{AccountingEvent, Record};

/// Size of the ring of calls that change nothing: this part of the ring of changes, in addition to it. Whoever may read
/// can fill it, as fast as a program can ask.
const READS_SHARE: usize = 2;
/// Size of the strangers' ring: this part of the ring of changes, in addition to it. Anybody who can connect can fill it.
const UNAUTHENTICATED_SHARE: usize = 4;

/// The latest accounting records that fit a number of bytes, in a ring for each [`RingName`]. Readers see a single
/// history in the order of the record times.
#[derive(Debug)]
pub struct History {
    /// By `RingName`.
    rings: [Ring; RingName::ALL.len()],
    last_ns: u64,
    /// Lower bound of the complete range: every record with a later time is still in a ring.
    complete_after_ns: u64,
}

/// Times of the last dropped record of each ring, by `RingName`; 0 where none was dropped. Each ring drops in the
/// order of the times, so a drop is later than another one of its ring exactly when its time is.
type Drops = [u64; RingName::ALL.len()];

/// Ring that holds a record. Records push out those of their own ring alone, so a caller reaches no ring but those of
/// what the caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingName {
    /// Calls and commands that change something, or that were permitted to.
    Changes,
    /// Other calls and commands of callers that the agent knows: what only reads, and what was denied.
    Reads,
    /// Refused calls of those who have shown no right to anything.
    Strangers,
}

#[derive(Debug)]
struct Ring {
    records: VecDeque<Entry>,
    octets: usize,
    max_octets: usize,
    /// Time of the last dropped record; 0 when none was dropped.
    dropped_ns: u64,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    /// Last dropped records before this one.
    dropped_ns: Drops,
}

/// Read position of one reader.
#[derive(Debug)]
pub struct Cursor {
    after_ns: u64,
    /// Records that the reader asked for were dropped, and it has not been informed yet.
    lost: bool,
    /// Drops up to these need no notice: they are reported already, or precede the reader.
    excused_ns: Drops,
    /// The reader asked for all there is and has received nothing yet, so earlier drops lose nothing for it.
    from_the_beginning: bool,
}

/// A record as a reader receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredRecord {
    pub record: Arc<Record>,
    pub ring: RingName,
    /// Some requested records before this one were dropped.
    pub truncated: bool,
}

impl History {
    /// Creates an empty history that is complete from `began_ns` on. `max_octets` bounds the ring of changes; the ring of
    /// reads gets a half of it in addition, that of strangers a quarter.
    pub fn new(max_octets: usize, began_ns: u64) -> Self {
        Self {
            rings: [1, READS_SHARE, UNAUTHENTICATED_SHARE]
                .map(|share| Ring::new(max_octets / share)),
            last_ns: began_ns,
            complete_after_ns: began_ns,
        }
    }

    /// Adds a record of an earlier run. Records of one ring must come in the order of their times.
    pub fn restore(&mut self, name: RingName, record: Record) {
        self.last_ns = self.last_ns.max(record.time_ns);
        self.keep(name, record);
    }

    /// Notes that the record of this time cannot be restored, so the history is complete only after it.
    pub fn lose(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
        self.complete_after_ns = self.complete_after_ns.max(time_ns);
    }

    /// Adds a record with the current time. When the clock was set back, records continue one nanosecond apart, so
    /// that a reader which resumes from the last time it received misses none.
    pub fn push(&mut self, now_ns: u64, name: RingName, account: AccountingEvent) {
        let time_ns = now_ns.max(self.last_ns + 1);
        self.last_ns = time_ns;
        self.keep(name, Record { time_ns, account });
    }

    fn keep(&mut self, name: RingName, record: Record) {
        let record = Arc::new(record);
        let ring = self.ring_mut(name);
        ring.octets += record.octets();
        ring.records.push_back(Entry { record, dropped_ns: Drops::default() });
        while let Some(dropped_ns) = self.ring_mut(name).drop_oldest() {
            self.complete_after_ns = self.complete_after_ns.max(dropped_ns);
            // A reader that has not had the dropped record learns of the loss with its next record.
            if let Some((next, place)) = self.next_place(dropped_ns) {
                self.ring_mut(next).records[place].dropped_ns[name as usize] = dropped_ns;
            }
        }
    }

    /// Makes a cursor for the records strictly after a time; 0 asks for all there are.
    pub fn cursor(&self, after_ns: u64) -> Cursor {
        Cursor {
            after_ns,
            lost: after_ns != 0 && after_ns < self.complete_after_ns,
            excused_ns: self.drops(),
            from_the_beginning: after_ns == 0,
        }
    }

    /// Makes a cursor for future records only.
    pub fn tail(&self) -> Cursor {
        Cursor {
            after_ns: self.last_ns,
            lost: false,
            excused_ns: self.drops(),
            from_the_beginning: false,
        }
    }

    /// Counts the records that a cursor has still to read, without those that were dropped.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        self.rings.iter().map(|ring| ring.records.len() - ring.place_after(cursor.after_ns)).sum()
    }

    /// Returns the next record for a cursor up to a time, or `None` when the cursor has read all.
    pub fn next(&self, cursor: &mut Cursor, up_to_ns: u64) -> Option<DeliveredRecord> {
        let (name, place) = self.next_place(cursor.after_ns)?;
        let Entry { record, dropped_ns } = &self.ring(name).records[place];
        if record.time_ns > up_to_ns {
            return None;
        }
        if std::mem::take(&mut cursor.from_the_beginning) {
            cursor.excused_ns = self.drops(); // a reader of everything starts where the history starts
        }
        let mut drops = dropped_ns.iter().zip(cursor.excused_ns);
        cursor.lost |= drops.any(|(dropped, excused)| *dropped > excused.max(cursor.after_ns));
        cursor.after_ns = record.time_ns;
        Some(DeliveredRecord {
            record: record.clone(),
            ring: name,
            truncated: std::mem::take(&mut cursor.lost),
        })
    }

    /// Time of the oldest record in a ring.
    pub fn oldest_ns(&self, ring: RingName) -> Option<u64> {
        self.ring(ring).records.front().map(|entry| entry.record.time_ns)
    }

    /// Time of the newest record, dropped or not.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Lower bound of the complete range: every later record is still here. Unit: nanoseconds since 1970.
    pub fn complete_after_ns(&self) -> u64 {
        self.complete_after_ns
    }

    fn drops(&self) -> Drops {
        RingName::ALL.map(|name| self.ring(name).dropped_ns)
    }

    /// Finds the first record after a time in any ring.
    fn next_place(&self, after_ns: u64) -> Option<(RingName, usize)> {
        let places = RingName::ALL.into_iter().filter_map(|name| {
            let ring = self.ring(name);
            let place = ring.place_after(after_ns);
            Some((ring.records.get(place)?.record.time_ns, (name, place)))
        });
        places.min_by_key(|(time_ns, _)| *time_ns).map(|(_, place)| place)
    }

    fn ring(&self, name: RingName) -> &Ring {
        &self.rings[name as usize]
    }

    fn ring_mut(&mut self, name: RingName) -> &mut Ring {
        &mut self.rings[name as usize]
    }
}

impl RingName {
    pub const ALL: [Self; 3] = [Self::Changes, Self::Reads, Self::Strangers];
}

impl Ring {
    fn new(max_octets: usize) -> Self {
        Self { records: VecDeque::new(), octets: 0, max_octets, dropped_ns: 0 }
    }

    /// Index of the first record after a time.
    fn place_after(&self, after_ns: u64) -> usize {
        self.records.partition_point(|entry| entry.record.time_ns <= after_ns)
    }

    /// Drops the oldest record when the ring is over its size, and returns its time. The newest record always
    /// stays.
    fn drop_oldest(&mut self) -> Option<u64> {
        if self.octets <= self.max_octets || self.records.len() <= 1 {
            return None;
        }
        let oldest = self.records.pop_front()?;
        self.octets -= oldest.record.octets();
        self.dropped_ns = oldest.record.time_ns;
        Some(self.dropped_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::record::{Activity, Authz, AuthzOutcome, Command, CommandKind, Session};
    use super::*;

    fn account(command: &str) -> AccountingEvent {
        let authz = Authz { outcome: AuthzOutcome::Permit, detail: "".into() };
        let command =
            Command { kind: CommandKind::Cli, command: command.into(), arguments: vec![], authz };
        AccountingEvent { session: Session::default(), activity: Activity::Command(command) }
    }

    impl History {
        fn holds(&self, time_ns: u64) -> bool {
            let mut entries = self.rings.iter().flat_map(|ring| &ring.records);
            entries.any(|entry| entry.record.time_ns == time_ns)
        }
    }

    /// Bytes of a record of these tests.
    fn size() -> usize {
        Record { time_ns: 0, account: account("x") }.octets()
    }

    fn history(begin: u64, fits: usize, times: &[u64]) -> History {
        let mut history = History::new(fits * size(), begin);
        for time in times {
            history.push(*time, RingName::Changes, account("x"));
        }
        history
    }

    /// Times of the records left for a cursor, the truncated ones with a `!`.
    fn rest(history: &History, cursor: &mut Cursor) -> String {
        let records = std::iter::from_fn(|| history.next(cursor, u64::MAX));
        let text = |it: DeliveredRecord| {
            format!("{}{}", if it.truncated { "!" } else { "" }, it.record.time_ns)
        };
        records.map(text).collect::<Vec<_>>().join(" ")
    }

    // proves 5.96, 5.97
    #[test]
    fn a_cursor_delivers_later_records_and_reports_truncation_once() {
        // begin, records that fit, pushed at; asked after; told
        for (begin, fits, pushed, after, want) in [
            (10, 9, &[20, 30][..], 0, "20 30"),
            (10, 9, &[20, 30], 19, "20 30"),
            (10, 9, &[20, 30], 20, "30"),
            (10, 9, &[20, 30], 30, ""),
            // Before the history began nothing is known, so a request from there is truncated.
            (10, 9, &[20, 30], 9, "!20 30"),
            (10, 9, &[20, 30], 10, "20 30"),
            // 20 was dropped for room.
            (10, 2, &[20, 30, 40], 0, "30 40"),
            (10, 2, &[20, 30, 40], 19, "!30 40"),
            (10, 2, &[20, 30, 40], 20, "30 40"),
            // The clock stood still, then went back.
            (10, 9, &[20, 20, 5], 0, "20 21 22"),
            (10, 9, &[5], 0, "11"),
        ] {
            let history = history(begin, fits, pushed);
            let delivered = rest(&history, &mut history.cursor(after));
            assert_eq!(delivered, want, "after {after} of {pushed:?}, and {fits} of them fit");
        }
    }

    // proves 5.97
    #[test]
    fn a_slow_reader_sees_truncation() {
        let mut history = history(10, 2, &[20, 30]);
        let mut all = history.cursor(0);
        let mut some = history.cursor(20);
        for time in [40, 50] {
            history.push(time, RingName::Changes, account("x"));
        }
        // A request for everything there is is complete by definition.
        assert_eq!(rest(&history, &mut all), "40 50");
        assert_eq!(rest(&history, &mut some), "!40 50");
        for time in [60, 70, 80] {
            history.push(time, RingName::Changes, account("x"));
        }
        assert_eq!(rest(&history, &mut all), "!70 80");
        assert_eq!(rest(&history, &mut some), "!70 80");
        let mut tail = history.tail();
        assert_eq!((rest(&history, &mut tail).as_str(), history.behind(&some)), ("", 0));
        let mut later = history.cursor(85);
        history.push(85, RingName::Changes, account("x"));
        history.push(90, RingName::Changes, account("x"));
        assert_eq!(rest(&history, &mut later), "90");
        assert_eq!((history.behind(&tail), rest(&history, &mut tail).as_str()), (2, "85 90"));
    }

    /// Room for changes is `fits`, for reads a half and for strangers a quarter of it; times with an `r` are reads, those
    /// with an `s` strangers'.
    fn mixed(fits: usize, pushed: &str) -> History {
        let mut history = History::new(fits * size(), 10);
        for word in pushed.split_whitespace() {
            let (time, ring) = match word.split_at(word.len() - 1) {
                (time, "s") => (time, RingName::Strangers),
                (time, "r") => (time, RingName::Reads),
                _ => (word, RingName::Changes),
            };
            history.push(time.parse().unwrap(), ring, account("x"));
        }
        history
    }

    // proves 5.97
    #[test]
    fn records_displace_only_those_of_their_ring() {
        // records that fit, pushed; asked after; told
        for (fits, pushed, after, want) in [
            (4, "20 30s 40", 0, "20 30 40"),
            (4, "20 30s 40s 50", 0, "20 40 50"), // all there is: never truncated
            (4, "20 30s 40s 50", 20, "!40 50"),
            (4, "20 30s 40s 50", 30, "40 50"),
            (4, "20 30s 40s 50", 19, "!20 40 50"), // said on the first record, and not again
            (2, "20s 30 40 50", 0, "20 40 50"),
            (2, "20s 30 40 50", 15, "!20 40 50"),
            (4, "20 30r 40r 50r 60s 70s", 0, "20 40 50 70"),
            (4, "20 30r 40r 50r 60s 70s", 25, "!40 50 70"),
        ] {
            let history = mixed(fits, pushed);
            let delivered = rest(&history, &mut history.cursor(after));
            assert_eq!(delivered, want, "after {after} of {pushed:?}, and {fits} of them fit");
        }
        for (who, left) in [("s", "42039"), ("r", "42038 42039")] {
            let flood = format!("20 30 {} 99999999", format!("40{who} ").repeat(42_000));
            let history = mixed(4, &flood);
            assert_eq!(rest(&history, &mut history.cursor(0)), format!("20 30 {left} 99999999"));
        }
    }

    #[test]
    fn a_loss_is_reported_even_if_a_later_one_precedes_the_reader() {
        let mut history = mixed(2, "20 30 40s 50s"); // 40 is gone
        let mut all = history.cursor(0);
        assert_eq!(history.next(&mut all, u64::MAX).unwrap().record.time_ns, 20);
        for time in [60, 70] {
            history.push(time, RingName::Changes, account("x")); // 30 goes
        }
        assert_eq!(rest(&history, &mut all), "!50 60 70");
    }

    #[test]
    fn a_record_that_is_larger_than_the_bound_is_kept_alone() {
        let mut history = history(10, 1, &[20]);
        history.push(30, RingName::Changes, account(&"x".repeat(100)));
        assert_eq!(rest(&history, &mut history.cursor(0)), "30");
    }

    proptest! {
        /// Readers at any pace, compared with a model that keeps everything.
        #[test]
        fn a_cursor_delivers_each_record_once_or_reports_truncation(
            steps in proptest::collection::vec((0..3_u64, 1..30_u64, 0..RingName::ALL.len()), 1..60),
            fits in 1..6_usize,
            after in 0..200_u64,
        ) {
            let mut history = History::new(fits * size(), 10);
            let mut cursor = history.cursor(after);
            let mut now = 10;
            let mut all = Vec::new();
            let mut delivered = Vec::new();
            let mut gap = after != 0 && after < 10;
            let mut gone_before = BTreeSet::new(); // no loss to a reader of everything that begins later
            for (reads, later, ring) in steps {
                now += later;
                history.push(now, RingName::ALL[ring], account("x"));
                all.push(now);
                for _ in 0..reads {
                    let first_of_all = after == 0 && delivered.is_empty();
                    if first_of_all {
                        gone_before = all.iter().copied().filter(|&it| !history.holds(it)).collect();
                    }
                    let Some(it) = history.next(&mut cursor, u64::MAX) else { break };
                    let time = it.record.time_ns;
                    let before = delivered.last().copied().unwrap_or(after);
                    let mut between = all.iter().filter(|&&it| it > before && it < time);
                    let missed = between.any(|it| !gone_before.contains(it));
                    prop_assert!(time > before);
                    prop_assert_eq!(it.truncated, missed || gap);
                    gap = false;
                    delivered.push(time);
                }
                for (ring, share) in history.rings.iter().zip([1, READS_SHARE, UNAUTHENTICATED_SHARE]) {
                    prop_assert!(ring.records.len() <= (fits / share).max(1));
                }
            }
        }
    }
}
