//! Slows down guessing of passwords.
//!
//! Attempts to log in are charged before anything is compared: one that is under way counts as a failure until it has
//! succeeded. Three tables determine the cost:
//! * a source with a name: five failures are free, then each makes the next attempt wait longer;
//! * a source alone, whatever the names: free up to a rate that no shared address of honest people reaches;
//! * a name alone, from wherever: a short delay, never a refusal, so that no stranger locks a user out.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Failures of one source with one name.
const PAIRS: Rates = Rates {
    free: 5, // people mistype, and tests try a few wrong passwords on purpose
    forget_one: Duration::from_secs(30),
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(60), // a mistake must not lock an operator out for long
};
/// Failures of one source with any name: 100 a minute, which many users behind one address do not mistype.
const SOURCES: Rates = Rates {
    free: 100,
    forget_one: Duration::from_millis(600),
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(60),
};
/// Failures with one name from any source. The waits delay the answer, so a user who knows the password still gets in.
const ACCOUNTS: Rates = Rates {
    free: 5,
    forget_one: Duration::from_secs(30),
    first_wait: Duration::from_millis(250),
    longest_wait: Duration::from_secs(2),
};
/// Rows of each table. When it is full, the row with the oldest attempt is removed: filling the table takes many
/// addresses, whose owner could guess from each of them anyway; a single source is slowed down long before.
const MAX_ROWS: usize = 4096;

/// Key of a name in the tables: a hash with a random key, because a name may be a password typed in the wrong place.
/// Two names with one hash would be slowed down together, no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameKey(u64);

/// Attempts to log in that failed or are under way.
#[derive(Debug)]
pub(super) struct BackOff {
    pairs: Table<(IpAddr, NameKey)>,
    sources: Table<IpAddr>,
    accounts: Table<NameKey>,
    names: RandomState,
}

/// The decision about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The attempt is charged, and may compare after this delay.
    Charged { delay: Duration },
    /// As many attempts are under way as may fail without cost: the attempt has to wait until one of them is settled.
    Later,
    /// The attempt is refused for this time, because of earlier failures.
    Refused { retry: Duration },
}

impl BackOff {
    pub(super) fn new() -> Self {
        Self {
            pairs: Table::new(PAIRS),
            sources: Table::new(SOURCES),
            accounts: Table::new(ACCOUNTS),
            names: RandomState::new(),
        }
    }

    pub(super) fn key(&self, name: &str) -> NameKey {
        NameKey(self.names.hash_one(name))
    }

    /// Charges an attempt, if it may be made now. A charged attempt has to be settled once: by [`BackOff::failed`] or
    /// [`BackOff::refund`].
    pub(super) fn begin(&mut self, source: IpAddr, name: NameKey, now: Instant) -> Verdict {
        let pair = self.pairs.verdict(&(source, name), now);
        let alone = self.sources.verdict(&source, now);
        let retry = [pair, alone].into_iter().filter_map(TableVerdict::wait).max();
        if let Some(retry) = retry {
            return Verdict::Refused { retry };
        }
        if [pair, alone].contains(&TableVerdict::Full) {
            return Verdict::Later;
        }
        self.pairs.begin((source, name), now);
        self.sources.begin(source, now);
        Verdict::Charged { delay: self.accounts.delay(&name, now) }
    }

    /// Settles an attempt that failed.
    pub(super) fn failed(&mut self, source: IpAddr, name: NameKey, now: Instant) {
        self.pairs.failed((source, name), now);
        self.sources.failed(source, now);
        self.accounts.failed(name, now);
    }

    /// Settles an attempt by taking its charge back.
    pub(super) fn refund(&mut self, source: IpAddr, name: NameKey, now: Instant) {
        self.pairs.refund(&(source, name), now);
        self.sources.refund(&source, now);
    }
}

/// The cost of failures in one table.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Failures that cost nothing, and attempts that may be under way at the same time.
    free: u32,
    /// The time in which one failure is forgotten.
    forget_one: Duration,
    /// The wait after the first failure beyond the free ones; it doubles with each further one.
    first_wait: Duration,
    longest_wait: Duration,
}

impl Rates {
    fn wait_after(self, failures: u32) -> Duration {
        match failures.checked_sub(self.free + 1) {
            None => Duration::ZERO,
            Some(doublings) => self
                .first_wait
                .saturating_mul(2_u32.saturating_pow(doublings))
                .min(self.longest_wait),
        }
    }

    /// The number of failures that are counted at most. More would not wait longer, and would only be remembered for
    /// longer.
    fn most(self) -> u32 {
        let doublings = self.longest_wait.as_millis() / self.first_wait.as_millis().max(1);
        self.free + 2 + doublings.max(1).ilog2()
    }
}

/// The answer of a table about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableVerdict {
    Free,
    Full,
    Wait(Duration),
}

impl TableVerdict {
    fn wait(self) -> Option<Duration> {
        match self {
            Self::Wait(retry) => Some(retry),
            Self::Free | Self::Full => None,
        }
    }
}

#[derive(Debug)]
struct Table<K> {
    rates: Rates,
    rows: HashMap<K, Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    failures: u32,
    /// Attempts under way.
    undecided: u32,
    /// Time at which the failures were counted; some may have expired since.
    counted: Instant,
    /// Time at which the last attempt began or failed.
    last: Instant,
    blocked_until: Instant,
}

impl<K: Copy + Eq + Hash> Table<K> {
    fn new(rates: Rates) -> Self {
        Self { rates, rows: HashMap::new() }
    }

    fn verdict(&self, key: &K, now: Instant) -> TableVerdict {
        let Some(row) = self.rows.get(key) else { return TableVerdict::Free };
        let wait = row.blocked_until.saturating_duration_since(now);
        if !wait.is_zero() {
            return TableVerdict::Wait(wait);
        }
        let charged = row.remaining(self.rates, now) + row.undecided;
        if row.undecided == 0 || charged < self.rates.free {
            TableVerdict::Free
        } else {
            TableVerdict::Full
        }
    }

    fn delay(&self, key: &K, now: Instant) -> Duration {
        let failures = self.rows.get(key).map_or(0, |row| row.remaining(self.rates, now));
        self.rates.wait_after(failures)
    }

    fn begin(&mut self, key: K, now: Instant) {
        let row = self.row(key, now);
        row.undecided += 1;
        row.last = now;
    }

    fn failed(&mut self, key: K, now: Instant) {
        let rates = self.rates;
        let row = self.row(key, now);
        row.undecided = row.undecided.saturating_sub(1);
        row.failures = (row.failures + 1).min(rates.most());
        row.last = now;
        row.blocked_until = row.blocked_until.max(now + rates.wait_after(row.failures));
    }

    fn refund(&mut self, key: &K, now: Instant) {
        let Some(row) = self.rows.get_mut(key) else { return };
        row.undecided = row.undecided.saturating_sub(1);
        if row.is_empty(self.rates, now) {
            self.rows.remove(key);
        }
    }

    /// The row of a key, without expired failures.
    fn row(&mut self, key: K, now: Instant) -> &mut Row {
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            self.forget_oldest();
        }
        let new = Row { failures: 0, undecided: 0, counted: now, last: now, blocked_until: now };
        let row = self.rows.entry(key).or_insert(new);
        row.forget(self.rates, now);
        row
    }

    fn forget_oldest(&mut self) {
        let oldest = self.rows.iter().min_by_key(|(_, row)| row.last).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.rows.remove(&key);
        }
    }
}

impl Row {
    fn remaining(&self, rates: Rates, now: Instant) -> u32 {
        self.failures.saturating_sub(self.forgotten(rates, now))
    }

    fn forgotten(&self, rates: Rates, now: Instant) -> u32 {
        let idle = now.saturating_duration_since(self.counted).as_millis();
        u32::try_from(idle / rates.forget_one.as_millis().max(1)).unwrap_or(u32::MAX)
    }

    /// Removes expired failures. Time that has passed since the last expiry counts for the next one.
    fn forget(&mut self, rates: Rates, now: Instant) {
        let forgotten = self.forgotten(rates, now);
        self.failures = self.failures.saturating_sub(forgotten);
        self.counted = match self.failures {
            0 => now,
            _ => self.counted + rates.forget_one * forgotten,
        };
    }

    fn is_empty(&self, rates: Rates, now: Instant) -> bool {
        self.undecided == 0 && self.remaining(rates, now) == 0 && now >= self.blocked_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    /// Begins an attempt, and returns its cost as text.
    fn begin(back_off: &mut BackOff, source: u32, name: &str, now: Instant) -> String {
        let key = back_off.key(name);
        match back_off.begin(address(source), key, now) {
            Verdict::Charged { delay } if delay.is_zero() => "charged".to_owned(),
            Verdict::Charged { delay } => format!("charged after {delay:?}"),
            Verdict::Later => "later".to_owned(),
            Verdict::Refused { retry } => format!("refused for {retry:?}"),
        }
    }

    fn fail(back_off: &mut BackOff, source: u32, name: &str, now: Instant) {
        back_off.failed(address(source), back_off.key(name), now);
    }

    /// Begins and fails this many attempts, which are all charged.
    #[track_caller]
    fn guess(back_off: &mut BackOff, source: u32, name: &str, times: u32, now: Instant) {
        for _ in 0..times {
            let begun = begin(back_off, source, name, now);
            assert!(begun.starts_with("charged"), "{begun}");
            fail(back_off, source, name, now);
        }
    }

    #[test]
    fn waits_grow_and_are_forgotten() {
        let mut back_off = BackOff::new();
        let start = Instant::now();
        guess(&mut back_off, 1, "ada", PAIRS.free + 1, start);
        let mut now = start;
        for seconds in [1, 2, 4, 8, 16] {
            let refused = format!("refused for {:?}", Duration::from_secs(seconds));
            assert_eq!(begin(&mut back_off, 1, "ada", now), refused);
            now += Duration::from_secs(seconds);
            assert!(begin(&mut back_off, 1, "ada", now).starts_with("charged"));
            // One at a time from here on.
            assert_eq!(begin(&mut back_off, 1, "ada", now), "later");
            fail(&mut back_off, 1, "ada", now);
        }
        let rates = PAIRS;
        for (failures, seconds) in [(5, 0), (6, 1), (11, 32), (12, 60), (13, 60), (4000, 60)] {
            assert_eq!(rates.wait_after(failures), Duration::from_secs(seconds), "{failures}");
        }
        assert_eq!(rates.most(), 12);
        let later = now + rates.forget_one * rates.most();
        assert_eq!(begin(&mut back_off, 1, "ada", later), "charged");
    }

    #[test]
    fn back_off_refuses_only_that_name_from_that_source() {
        let mut back_off = BackOff::new();
        let now = Instant::now();
        guess(&mut back_off, 1, "nobody", PAIRS.free + 1, now);
        for (source, name, want) in [
            (1, "nobody", "refused for 1s"),
            (1, "admin", "charged"),
            (2, "admin", "charged"),
            (2, "nobody", "charged after 250ms"), // the account as a whole is only slower
        ] {
            assert_eq!(begin(&mut back_off, source, name, now), want, "{source} {name}");
        }
    }

    #[test]
    fn attempts_beside_each_other_are_charged_one_after_the_other() {
        let mut back_off = BackOff::new();
        let now = Instant::now();
        for _ in 0..PAIRS.free {
            assert_eq!(begin(&mut back_off, 1, "ada", now), "charged");
        }
        assert_eq!(begin(&mut back_off, 1, "ada", now), "later");
        assert_eq!(begin(&mut back_off, 1, "bob", now), "charged");
        back_off.refund(address(1), back_off.key("ada"), now);
        assert_eq!(begin(&mut back_off, 1, "ada", now), "charged");
        for _ in 0..PAIRS.free {
            fail(&mut back_off, 1, "ada", now);
        }
        assert_eq!(begin(&mut back_off, 1, "ada", now), "charged", "the last free one");
        assert_eq!(begin(&mut back_off, 1, "ada", now), "later");
        fail(&mut back_off, 1, "ada", now);
        assert_eq!(begin(&mut back_off, 1, "ada", now), "refused for 1s");
    }

    #[test]
    fn a_source_waits_from_a_hundred_failures_a_minute_whatever_the_names() {
        let start = Instant::now();
        // Pause between failures; their number; whether the next attempt waits.
        for (pause_ms, failures, waits) in [
            (0, 100, false),
            (0, 101, true),
            (500, 1000, true),
            (600, 1000, false),
            (700, 1000, false),
        ] {
            let mut back_off = BackOff::new();
            let mut now = start;
            let mut refused = false;
            for number in 0..failures {
                let begun = begin(&mut back_off, 1, &format!("name {number}"), now);
                refused |= begun.starts_with("refused");
                if begun == "charged" {
                    fail(&mut back_off, 1, &format!("name {number}"), now);
                }
                now += Duration::from_millis(pause_ms);
            }
            refused |= begin(&mut back_off, 1, "ada", now).starts_with("refused");
            assert_eq!(refused, waits, "{failures} failures, one each {pause_ms} ms");
            assert_eq!(begin(&mut back_off, 2, "ada", now), "charged", "another source");
        }
    }

    #[test]
    fn a_success_costs_nothing_and_gives_only_its_own_charge_back() {
        let mut back_off = BackOff::new();
        let now = Instant::now();
        let key = back_off.key("ada");
        for _ in 0..1000 {
            assert_eq!(begin(&mut back_off, 1, "ada", now), "charged");
            back_off.refund(address(1), key, now);
        }
        assert!(back_off.pairs.rows.is_empty() && back_off.sources.rows.is_empty());
        guess(&mut back_off, 1, "ada", PAIRS.free, now);
        assert_eq!(begin(&mut back_off, 1, "ada", now), "charged");
        back_off.refund(address(1), key, now);
        guess(&mut back_off, 1, "ada", 1, now);
        assert_eq!(begin(&mut back_off, 1, "ada", now), "refused for 1s");
    }

    #[test]
    fn an_account_is_delayed_by_two_seconds_at_most_and_never_refused() {
        let mut back_off = BackOff::new();
        let now = Instant::now();
        for source in 0..1000 {
            guess(&mut back_off, source, "ada", 1, now);
        }
        assert_eq!(begin(&mut back_off, 5000, "ada", now), "charged after 2s");
        assert_eq!(begin(&mut back_off, 5000, "bob", now), "charged");
        let later = now + ACCOUNTS.forget_one * ACCOUNTS.most();
        assert_eq!(
            begin(&mut back_off, 5001, "ada", later),
            "charged",
            "a flood is forgotten soon"
        );
    }

    #[test]
    fn the_tables_do_not_grow_without_end() {
        let mut back_off = BackOff::new();
        let now = Instant::now();
        for number in 0..u32::try_from(MAX_ROWS).unwrap() + 10 {
            let now = now + Duration::from_millis(number.into());
            guess(&mut back_off, number, &format!("name {number}"), 1, now);
        }
        let BackOff { pairs, sources, accounts, names: _ } = &back_off;
        assert_eq!([pairs.rows.len(), sources.rows.len(), accounts.rows.len()], [MAX_ROWS; 3]);
        assert!(!sources.rows.contains_key(&address(0)), "the oldest is forgotten first");
        assert!(sources.rows.contains_key(&address(10)));
    }
}
