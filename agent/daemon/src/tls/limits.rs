//! Limits on the number of connections, and the choice of those to close in favour of others.
//!
//! An unidentified connection is one whose caller has not logged in; its TLS handshake may be in progress.
//! Unidentified connections are closed, oldest first, when another connection needs the place; an identified one is
//! never closed in favour of another. Pure: the clock and the means to close a connection come from outside.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::{Duration, Instant},
};

/// The limits of the listener.
pub(super) const BOUNDS: Bounds = Bounds {
    connections: 1024,
    reserved: 128,
    per_source: 256,
    unidentified_per_source: 64,
    known_sources: 4096,
};

/// Limits of a [`ConnectionTable`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at one time. Each takes about 100 KiB with its HTTP/2 windows.
    pub(super) connections: usize,
    /// Places among these for sources that logged in recently: an eighth, more than a box has operators and
    /// collectors. Strangers cannot take them, however many addresses they have.
    reserved: usize,
    /// Connections at one time from one source, so that one peer cannot lock others out.
    per_source: usize,
    /// Strangers at one time from one source. A collector that opens a connection for each of its workers logs in
    /// on each within a round trip; more silent connections at one moment do not come from real clients.
    unidentified_per_source: usize,
    /// Sources that are remembered as having logged in; beyond it the one with the longest absence is forgotten.
    /// Four times the connections, so that sources with an open connection are always included.
    known_sources: usize,
}

/// Time for which a connection may stay unidentified. Clients connect when they have a request to make.
pub(super) const LOGIN_GRACE_TIME: Duration = Duration::from_secs(60);
/// Time for which a connection may stay unidentified when half of all places are taken: enough for a login over a slow line.
pub(super) const SHORT_LOGIN_GRACE_TIME: Duration = Duration::from_secs(10);
/// Time for which a login gives a source precedence over strangers: covers an operator who logs in once a day, and
/// a collector that was down overnight.
const LATELY: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of a connection, in the order of arrival.
pub(super) type Number = u64;

/// Open connections, and sources that logged in recently. Dropping or using an `E` closes a stranger.
#[derive(Debug)]
pub(super) struct ConnectionTable<E> {
    bounds: Bounds,
    next: Number,
    strangers: BTreeMap<Number, UnidentifiedConnection<E>>,
    identified: HashMap<Number, IpAddr>,
    sources: HashMap<IpAddr, KnownSource>,
}

#[derive(Debug)]
struct UnidentifiedConnection<E> {
    source: IpAddr,
    since: Instant,
    end: E,
}

/// A source that has logged in.
#[derive(Debug)]
struct KnownSource {
    /// Number of identified connections at present.
    identified: usize,
    /// Time of the last login, or of the end of the last identified connection.
    last: Instant,
}

/// Decision about a new connection.
#[derive(Debug)]
pub(super) struct AdmitResult<E> {
    /// Number of the connection; `None` when it is refused.
    pub(super) number: Option<Number>,
    /// Strangers to close in its favour.
    pub(super) ended: Vec<E>,
}

impl<E> ConnectionTable<E> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            next: 0,
            strangers: BTreeMap::new(),
            identified: HashMap::new(),
            sources: HashMap::new(),
        }
    }

    /// Admits a connection from `source` if there is a free place or a stranger's. `end` closes it later.
    pub(super) fn admit(&mut self, source: IpAddr, end: E, now: Instant) -> AdmitResult<E> {
        let ended = match self.room(source, now) {
            Capacity::None => return AdmitResult { number: None, ended: Vec::new() },
            Capacity::Free => None,
            Capacity::Evict(stranger) => self.strangers.remove(&stranger),
        };
        let number = self.next;
        self.next += 1;
        self.strangers.insert(number, UnidentifiedConnection { source, since: now, end });
        let ended = ended.into_iter().chain(self.take_overdue(now));
        AdmitResult { number: Some(number), ended: ended.map(|stranger| stranger.end).collect() }
    }

    /// Marks a connection as identified. Without effect on one that was closed meanwhile.
    pub(super) fn identified(&mut self, number: Number, now: Instant) {
        let Some(stranger) = self.strangers.remove(&number) else { return };
        let source = stranger.source;
        self.identified.insert(number, source);
        if self.sources.len() >= self.bounds.known_sources && !self.sources.contains_key(&source) {
            self.forget_oldest_source();
        }
        let entry = self.sources.entry(source).or_insert(KnownSource { identified: 0, last: now });
        entry.identified += 1;
        entry.last = now;
    }

    /// Removes a connection that has ended.
    pub(super) fn closed(&mut self, number: Number, now: Instant) {
        self.strangers.remove(&number);
        let Some(source) = self.identified.remove(&number) else { return };
        if let Some(entry) = self.sources.get_mut(&source) {
            entry.identified -= 1;
            entry.last = now;
        }
    }

    /// Time until a stranger has to be checked again; `None` when its time is over.
    ///
    /// Its lifetime depends on the load of the table, so it is checked when the shorter one is over. Strangers
    /// older than that are closed by the arrival that makes the table half full.
    pub(super) fn next_check(&self, number: Number, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.strangers.get(&number)?.since);
        let until =
            if age < SHORT_LOGIN_GRACE_TIME { SHORT_LOGIN_GRACE_TIME } else { self.grace_time() };
        until.checked_sub(age).filter(|left| !left.is_zero())
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.strangers.len() + self.identified.len()
    }

    fn is_half_full(&self) -> bool {
        self.len() >= self.bounds.connections / 2
    }

    fn grace_time(&self) -> Duration {
        if self.is_half_full() { SHORT_LOGIN_GRACE_TIME } else { LOGIN_GRACE_TIME }
    }

    /// Place for one more connection from `source`.
    fn room(&self, source: IpAddr, now: Instant) -> Capacity {
        let of_source = |stranger: &UnidentifiedConnection<E>| stranger.source == source;
        let strangers = self.strangers.values().filter(|&stranger| of_source(stranger)).count();
        let identified = self.sources.get(&source).map_or(0, |entry| entry.identified);
        if strangers >= self.bounds.unidentified_per_source
            || strangers + identified >= self.bounds.per_source
        {
            return Capacity::from(self.oldest(of_source));
        }
        let preferred = self.logged_in_lately(source, now);
        let places = self.bounds.connections - if preferred { 0 } else { self.bounds.reserved };
        if self.len() < places {
            return Capacity::Free;
        }
        let unknown = self.oldest(|stranger| !self.logged_in_lately(stranger.source, now));
        Capacity::from(unknown.or_else(|| self.oldest(|_| preferred)))
    }

    fn oldest(&self, eligible: impl Fn(&UnidentifiedConnection<E>) -> bool) -> Option<Number> {
        self.strangers.iter().find(|(_, stranger)| eligible(stranger)).map(|(number, _)| *number)
    }

    fn logged_in_lately(&self, source: IpAddr, now: Instant) -> bool {
        self.sources.get(&source).is_some_and(|entry| {
            entry.identified > 0 || now.saturating_duration_since(entry.last) < LATELY
        })
    }

    /// Removes strangers whose time is over, oldest first, as long as half of the places are taken.
    fn take_overdue(&mut self, now: Instant) -> Vec<UnidentifiedConnection<E>> {
        let mut overdue = Vec::new();
        while self.is_half_full()
            && let Some(oldest) = self.strangers.first_entry()
            && now.saturating_duration_since(oldest.get().since) >= SHORT_LOGIN_GRACE_TIME
        {
            overdue.push(oldest.remove());
        }
        overdue
    }

    fn forget_oldest_source(&mut self) {
        let away = self.sources.iter().filter(|(_, entry)| entry.identified == 0);
        let oldest = away.min_by_key(|(_, entry)| entry.last).map(|(source, _)| *source);
        if let Some(source) = oldest {
            self.sources.remove(&source);
        }
    }
}

/// Place for a new connection.
enum Capacity {
    None,
    Free,
    /// Place of a stranger that has to be closed.
    Evict(Number),
}

impl From<Option<Number>> for Capacity {
    fn from(stranger: Option<Number>) -> Self {
        stranger.map_or(Self::None, Self::Evict)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const SMALL: Bounds = Bounds {
        connections: 8,
        reserved: 2,
        per_source: 4,
        unidentified_per_source: 3,
        known_sources: 8,
    };

    #[test]
    fn unidentified_connections_alone_are_evicted() {
        // A single source: its own oldest stranger is closed, until all its places are identified.
        check("a a a", "");
        check("a a a a", "4 ends 1");
        check("a a a a a", "4 ends 1, 5 ends 2");
        check("a 1! a a a", "");
        check("a 1! a 2! a 3! a a", "5 ends 4");
        check("a 1! a 2! a 3! a 4! a", "5 refused");
        check("a 1! a 2! a 3! a 4! a 2x a", "5 refused");
        // All places but the two reserved ones are taken: the oldest stranger of any source is closed.
        check("a a b b c c", "");
        check("a a b b c c d", "7 ends 1");
        check("a 1! a b b c c d", "7 ends 3");
        check("a 1x a b b c c d", "");
        // The two are reserved for sources that logged in recently, for which strangers of other sources are
        // closed.
        check("k 1! 1x a a b b c c k k", "");
        check("k 1! 1x a a b b c c k k k", "10 ends 2");
        check("k 1! 1x a a b b c c k k d", "10 ends 2");
        // Strangers from known sources are closed in favour of each other only.
        check("k 1! 1x k k k a a a b", "8 ends 5");
        check("k 1! 1x l 2! 2x k k k l l l a", "9 refused");
        check("k 1! 1x l 2! 2x k k k l l l k", "9 ends 3");
        check("k 1! 1x l 2! 2x m 3! 3x k k k l l l m m m", "12 ends 4");
        // Identified connections are never closed.
        check("a 1! a 2! a 3! b 4! b 5! b 6! c", "7 refused");
        check("a 1! a 2! a 3! a 4! b 5! b 6! b 7! b 8! a c", "9 refused, 10 refused");
        check("a 1! a 2! a 3! b 4! b 5! c d", "7 ends 6");
        // A source is known for a day after its last connection closed.
        check("k 1! +100000 a a b b c k k", "");
        check("k 1! 1x +86399 a a b b c c k", "");
        check("k 1! 1x +86400 a a b b c c k", "8 ends 2");
    }

    #[test]
    fn a_table_that_is_half_full_is_less_patient() {
        check("a a +59 b", "");
        check("a a +10 b b", "4 ends 1");
        check("a a +9 b b", "");
        check("a a b +10 b", "4 ends 1");
        check("a a b +10 b b b", "4 ends 1, 5 ends 2, 6 ends 3");
        check("a 1! a 2! a 3! +10 b", "");
        check("a a +9 b +1 c", "4 ends 1");
    }

    #[test]
    fn next_check_is_when_the_grace_time_may_be_over() {
        // script, seconds until the first one is looked at
        for (script, want) in [
            ("a", Some(10)),
            ("a +4", Some(6)),
            ("a +10", Some(50)),
            ("a +59", Some(1)),
            ("a +60", None),
            ("a b b +9 b", Some(1)),
            ("a +5 b b b +5", None),
            ("a 1!", None),
        ] {
            let (table, now, _) = played(script);
            let left = table.next_check(1, now);
            assert_eq!(left, want.map(Duration::from_secs), "{script}");
        }
    }

    #[test]
    fn tables_are_bounded() {
        let mut table = ConnectionTable::new(BOUNDS);
        let start = Instant::now();
        let sources = u32::try_from(2 * BOUNDS.known_sources).unwrap();
        for number in 0..sources {
            let now = start + Duration::from_millis(number.into());
            let number = table.admit(IpAddr::from(number.to_be_bytes()), (), now).number.unwrap();
            table.identified(number, now);
            table.closed(number, now);
        }
        assert_eq!(table.sources.len(), BOUNDS.known_sources);
        assert_eq!(table.len(), 0);
        let now = start + Duration::from_millis(sources.into());
        assert!(table.logged_in_lately(IpAddr::from((sources - 1).to_be_bytes()), now));
        assert!(!table.logged_in_lately(IpAddr::from(0_u32.to_be_bytes()), now));

        for number in 0..sources {
            let source = IpAddr::from((number % 100).to_be_bytes());
            table.admit(source, (), now);
            assert!(table.len() <= BOUNDS.connections);
        }
    }

    /// Plays a script, and compares the events other than plain admissions.
    #[track_caller]
    fn check(script: &str, want: &str) {
        assert_eq!(played(script).2, want, "{script}");
    }

    /// Plays a script: `a` is a connection from the source of that letter, `1!` identifies the first one, `1x`
    /// closes it, `+5` lets seconds pass. Connections are counted from 1, including refused ones.
    fn played(script: &str) -> (ConnectionTable<Number>, Instant, String) {
        let mut table = ConnectionTable::new(SMALL);
        let mut now = Instant::now();
        let mut numbers = vec![None];
        let mut log = String::new();
        for step in script.split(' ') {
            let number = |text: &str| text.parse::<usize>().unwrap();
            if let Some(seconds) = step.strip_prefix('+') {
                now += Duration::from_secs(seconds.parse().unwrap());
            } else if let Some(which) = step.strip_suffix('!') {
                table.identified(numbers[number(which)].unwrap(), now);
            } else if let Some(which) = step.strip_suffix('x') {
                table.closed(numbers[number(which)].unwrap(), now);
            } else {
                table.next = u64::try_from(numbers.len()).unwrap();
                let source = IpAddr::from([10, 0, 0, step.as_bytes()[0]]);
                let end = table.next;
                let admission = table.admit(source, end, now);
                let comma = if log.is_empty() { "" } else { ", " };
                match (admission.number, admission.ended.as_slice()) {
                    (None, _) => write!(log, "{comma}{end} refused").unwrap(),
                    (Some(_), []) => {}
                    (Some(_), ended) => write!(log, "{comma}{end} ends {ended:?}").unwrap(),
                }
                numbers.push(admission.number);
            }
        }
        (table, now, log.replace(['[', ']'], ""))
    }
}
