//! Slows down those who guess passwords: each failure of a source makes its next attempts wait longer.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Failures that cost nothing: people mistype, and tests try a few wrong passwords on purpose.
const FREE_FAILURES: u32 = 5;
/// The wait after the first failure beyond these; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait: a mistake must not lock an operator out for long.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// After this long, one failure is forgotten.
const FORGET_ONE: Duration = Duration::from_secs(30);
/// Sources remembered at one time. Beyond it the one with the oldest failure is forgotten: filling the table takes
/// that many addresses, whose owner could guess from each of them anyway.
const MAX_SOURCES: usize = 4096;

/// Failed logins by source.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    sources: HashMap<IpAddr, Failures>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
    blocked_until: Instant,
}

/// The unit that is slowed down: an IPv4 address, or the /64 that one IPv6 host can pick its addresses from.
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl BackOff {
    /// How long the source still has to wait, if it has to.
    pub(super) fn wait(&mut self, source: IpAddr, now: Instant) -> Option<Duration> {
        let failures = self.sources.get(&source)?;
        if failures.remaining(now) == 0 && now >= failures.blocked_until {
            self.sources.remove(&source);
            return None;
        }
        failures.blocked_until.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    pub(super) fn failed(&mut self, source: IpAddr, now: Instant) {
        let earlier = self.sources.get(&source).map_or(0, |failures| failures.remaining(now));
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.forget_oldest();
        }
        let count = earlier.saturating_add(1);
        self.sources
            .insert(source, Failures { count, last: now, blocked_until: now + wait_after(count) });
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .sources
            .iter()
            .min_by_key(|(_, failures)| failures.last)
            .map(|(source, _)| *source);
        if let Some(source) = oldest {
            self.sources.remove(&source);
        }
    }
}

impl Failures {
    fn remaining(&self, now: Instant) -> u32 {
        let forgotten = now.saturating_duration_since(self.last).as_secs() / FORGET_ONE.as_secs();
        self.count.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }
}

fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES + 1) {
        None => Duration::ZERO,
        Some(doublings) => {
            FIRST_WAIT.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_WAIT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_forgotten() {
        let mut back_off = BackOff::default();
        let start = Instant::now();
        let [here, there] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        for _ in 0..FREE_FAILURES {
            back_off.failed(here, start);
            assert_eq!(back_off.wait(here, start), None);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            back_off.failed(here, start);
            assert_eq!(back_off.wait(here, start), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(back_off.wait(there, start), None);
        assert_eq!(back_off.wait(here, start + LONGEST_WAIT), None);
        let later = start + FORGET_ONE * (FREE_FAILURES + 8);
        assert_eq!(back_off.wait(here, later), None);
        assert!(back_off.sources.is_empty());
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let mut back_off = BackOff::default();
        let now = Instant::now();
        for number in 0..u32::try_from(MAX_SOURCES).unwrap() + 10 {
            back_off.failed(
                IpAddr::from(number.to_be_bytes()),
                now + Duration::from_millis(number.into()),
            );
        }
        assert_eq!(back_off.sources.len(), MAX_SOURCES);
        assert!(!back_off.sources.contains_key(&"0.0.0.0".parse().unwrap()));
    }

    #[test]
    fn a_source_is_an_address_or_a_64() {
        for (address, want) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(source_of(address.parse().unwrap()), want.parse::<IpAddr>().unwrap());
        }
    }
}
