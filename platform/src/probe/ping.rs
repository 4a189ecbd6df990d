//! Echo requests at a pace, and what comes back.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::packet::{self, ECHO_HEADER, Heard, Mark, Outcome};
use super::socket::{IcmpSocket, Received};
use super::{ProbeError, Probes, Target};

/// Packets are this far apart at least, also in a flood: a thousand a second is what an ill-advised ping may cost others.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// How long a flood waits for an answer before it goes on without.
const FLOOD_PATIENCE: Duration = Duration::from_millis(10);
/// Octets before the message: an IPv4 header with all its options.
const MAX_IP_HEADER: usize = 60;

/// How often to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Again after this time, at least [`MIN_INTERVAL`].
    Every(Duration),
    /// Again as soon as there is an answer, or ten milliseconds have brought none.
    Flood,
}

/// What to ask, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Whom.
    pub target: Target,
    /// How many times; `None` for ever.
    pub count: Option<u32>,
    /// How often.
    pub interval: Interval,
    /// How long an answer may take before it counts as lost.
    pub wait: Duration,
    /// Octets behind the ICMP header.
    pub size: usize,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echoed {
    /// Who answered.
    pub from: IpAddr,
    /// How long it took, there and back.
    pub time: Duration,
    /// Octets of the ICMP message.
    pub octets: usize,
    /// Of the packet that it answers, counted from 1.
    pub sequence: u64,
    /// What was left of its hop limit, where the kernel told.
    pub hops_left: Option<u8>,
}

/// All answers together. Times are nanoseconds from packet to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How long it all took.
    pub elapsed: Duration,
    /// Packets.
    pub sent: u64,
    /// Answers.
    pub received: u64,
    /// The shortest time.
    pub shortest: Duration,
    /// The mean time.
    pub mean: Duration,
    /// The longest time.
    pub longest: Duration,
    /// Standard deviation of the times.
    pub deviation: Duration,
}

/// A ping under way.
#[derive(Debug)]
pub struct Ping {
    socket: IcmpSocket,
    destination: IpAddr,
    identifier: u16,
    payload: Vec<u8>,
    pace: Pace,
    buffer: Vec<u8>,
}

impl Probes {
    /// Begins to ask.
    ///
    /// # Errors
    /// When the source is none of ours, or there is no way to the destination.
    pub async fn ping(&self, settings: PingSettings) -> Result<Ping, ProbeError> {
        let PingSettings { target, count, interval, wait, size } = settings;
        let destination = target.destination;
        let socket = self.inside(move || IcmpSocket::connected(&target)).await?;
        let pattern: [u8; 8] = rand::random();
        Ok(Ping {
            socket: socket.watched()?,
            destination,
            identifier: rand::random(),
            payload: pattern.into_iter().cycle().take(size).collect(),
            pace: Pace::new(count, interval, wait, Instant::now()),
            buffer: vec![0; MAX_IP_HEADER + ECHO_HEADER + size],
        })
    }
}

impl Ping {
    /// The next answer; `None` when all have come or are lost. May be given up at any time, and asked again.
    ///
    /// # Errors
    /// When already the first packet cannot be sent. Later ones that cannot are lost.
    pub async fn next(&mut self) -> Result<Option<Echoed>, ProbeError> {
        loop {
            let Some(due) = self.pace.due() else { return Ok(None) };
            tokio::select! {
                biased;
                received = self.socket.receive(&mut self.buffer) => {
                    // An error is that of a packet before, which will get no answer.
                    if let Ok(received) = received && let Some(echoed) = self.take(&received) {
                        return Ok(Some(echoed));
                    }
                }
                () = sleep_until(due) => self.act()?,
            }
        }
    }

    /// All so far.
    pub fn summary(&self) -> Summary {
        self.pace.summary(Instant::now())
    }

    fn act(&mut self) -> Result<(), ProbeError> {
        let now = Instant::now();
        self.pace.expire(now);
        let Some(number) = self.pace.send(now) else { return Ok(()) };
        let message = packet::echo(self.destination, self.identifier, low(number), &self.payload);
        match self.socket.send(&message) {
            Err(error) if number == 1 => Err(self.unsent(error)),
            _ => Ok(()),
        }
    }

    fn unsent(&self, error: io::Error) -> ProbeError {
        ProbeError::unsent(self.destination, self.payload.len(), error)
    }

    /// What came is an answer when it brings back what was sent.
    fn take(&mut self, received: &Received) -> Option<Echoed> {
        let Heard { mark: Mark::Echo { identifier, sequence }, outcome, payload, .. } =
            received.heard(&self.buffer)?
        else {
            return None;
        };
        if outcome != Outcome::Reached || identifier != self.identifier || payload != self.payload {
            return None;
        }
        let (sequence, time) = self.pace.hear(sequence, Instant::now())?;
        let octets = ECHO_HEADER + self.payload.len();
        Some(Echoed { from: received.from, time, octets, sequence, hops_left: received.hops_left })
    }
}

/// The sixteen bits of a number that a packet has room for.
fn low(number: u64) -> u16 {
    u16::try_from(number & u64::from(u16::MAX)).unwrap_or_default()
}

/// When to send, what is under way, and how it went. Knows no clock.
#[derive(Debug)]
struct Pace {
    count: Option<u32>,
    interval: Interval,
    wait: Duration,
    started: Instant,
    last_sent: Option<Instant>,
    /// Something was heard since.
    answered: bool,
    sent: u64,
    /// When they were sent, by their numbers: so in the order in which they are lost.
    in_flight: BTreeMap<u64, Instant>,
    times: Times,
}

impl Pace {
    fn new(count: Option<u32>, interval: Interval, wait: Duration, started: Instant) -> Self {
        Self {
            count,
            interval,
            wait,
            started,
            last_sent: None,
            answered: false,
            sent: 0,
            in_flight: BTreeMap::new(),
            times: Times::default(),
        }
    }

    /// When there is something to do; `None` when it is over.
    fn due(&self) -> Option<Instant> {
        let lost = self.in_flight.values().next().map(|sent| *sent + self.wait);
        self.next_send().into_iter().chain(lost).min()
    }

    fn next_send(&self) -> Option<Instant> {
        if self.count.is_some_and(|count| self.sent >= u64::from(count)) {
            return None;
        }
        let Some(last) = self.last_sent else { return Some(self.started) };
        let gap = match self.interval {
            Interval::Every(gap) => gap,
            Interval::Flood if self.answered => MIN_INTERVAL,
            Interval::Flood => FLOOD_PATIENCE,
        };
        Some(last + gap.max(MIN_INTERVAL))
    }

    /// The number of the packet to be sent now, if one is due.
    fn send(&mut self, now: Instant) -> Option<u64> {
        self.next_send().filter(|due| *due <= now)?;
        self.sent += 1;
        (self.last_sent, self.answered) = (Some(now), false);
        self.in_flight.insert(self.sent, now);
        Some(self.sent)
    }

    /// Number and time of the packet that is answered, unless it is lost or answered already.
    fn hear(&mut self, sequence: u16, now: Instant) -> Option<(u64, Duration)> {
        // The last one that was sent with these sixteen bits.
        let back = u64::from(low(self.sent).wrapping_sub(sequence));
        let number = self.sent.checked_sub(back)?;
        let time = now.saturating_duration_since(self.in_flight.remove(&number)?);
        self.answered = true;
        self.times.add(time);
        Some((number, time))
    }

    /// Gives up those that have had their time.
    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.in_flight.first_entry()
            && *first.get() + self.wait <= now
        {
            first.remove();
        }
    }

    fn summary(&self, now: Instant) -> Summary {
        let elapsed = now.saturating_duration_since(self.started);
        Summary { elapsed, sent: self.sent, ..self.times.summary() }
    }
}

/// Sums of times, in nanoseconds.
#[derive(Debug, Default)]
struct Times {
    count: u64,
    sum: u128,
    squares: u128,
    shortest: Duration,
    longest: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.shortest = if self.count == 0 { time } else { self.shortest.min(time) };
        self.longest = self.longest.max(time);
        self.count += 1;
        self.sum += time.as_nanos();
        self.squares += time.as_nanos().pow(2);
    }

    fn summary(&self) -> Summary {
        let count = u128::from(self.count.max(1));
        let mean = self.sum / count;
        let deviation = (self.squares / count).saturating_sub(mean.pow(2)).isqrt();
        let of = |nanos: u128| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let (received, shortest, longest) = (self.count, self.shortest, self.longest);
        let (mean, deviation) = (of(mean), of(deviation));
        Summary { received, shortest, mean, longest, deviation, ..Summary::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Plays what happens, one word a millisecond: `.` nothing, `N` the answer to packet N. Returns what was done in each:
    /// `.` nothing, `N` packet N is sent, and `!` after the end.
    fn play(count: Option<u32>, interval: Interval, wait: u64, events: &str) -> (String, Summary) {
        let started = Instant::now();
        let mut pace = Pace::new(count, interval, ms(wait), started);
        let mut done = String::new();
        let mut now = started;
        for event in events.chars() {
            if let Some(answered) = event.to_digit(10) {
                pace.hear(u16::try_from(answered).unwrap(), now);
            }
            pace.expire(now);
            done.push(match (pace.send(now), pace.due()) {
                (Some(number), _) => char::from_digit(u32::try_from(number).unwrap(), 10).unwrap(),
                (None, Some(_)) => '.',
                (None, None) => '!',
            });
            now += ms(1);
        }
        (done, pace.summary(now))
    }

    #[test]
    fn packets_leave_at_their_pace_and_the_end_waits_for_answers() {
        let every = |gap| Interval::Every(ms(gap));
        for (count, interval, wait, events, want, received) in [
            // One after another, whatever comes back.
            (Some(2), every(3), 9, "......", "1..2..", 0),
            (Some(2), every(3), 9, ".1..2..", "1..2!!!", 2),
            // The last one has its time, and not more.
            (Some(1), every(3), 4, "......", "1...!!", 0),
            (Some(1), every(3), 4, "...1.", "1..!!", 1),
            (Some(1), every(3), 4, ".....1", "1...!!", 0),
            // An answer counts once, one to nothing never.
            (Some(2), every(2), 5, ".11.2", "1.2.!", 2),
            (Some(1), every(2), 5, ".7.", "1..", 0),
            // As long as it is asked.
            (None, every(1), 2, "......", "123456", 0),
            // A flood follows the answers, and is patient for ten milliseconds.
            (None, Interval::Flood, 50, "..1.2..", "1.2.3..", 2),
            (None, Interval::Flood, 50, "...........", "1.........2", 0),
        ] {
            let (done, summary) = play(count, interval, wait, events);
            assert_eq!((done.as_str(), summary.received), (want, received), "{events}");
        }
    }

    #[test]
    fn the_summary_has_the_moments_of_the_times() {
        let (_, none) = play(Some(1), Interval::Every(ms(1)), 2, "...");
        let want = Summary { elapsed: ms(3), sent: 1, ..Summary::default() };
        assert_eq!(none, want);
        let mut times = Times::default();
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|time| times.add(ms(time)));
        let Summary { received, shortest, mean, longest, deviation, .. } = times.summary();
        assert_eq!((received, shortest, mean, longest), (8, ms(2), ms(5), ms(9)));
        assert_eq!(deviation, ms(2));
    }

    #[test]
    fn numbers_outgrow_the_sixteen_bits_of_the_packet() {
        let started = Instant::now();
        let mut pace = Pace::new(None, Interval::Every(ms(1)), ms(5), started);
        let mut now = started;
        for number in 1..=70_000_u64 {
            assert_eq!(pace.send(now), Some(number));
            let heard = pace.hear(low(number), now);
            assert_eq!(heard, Some((number, Duration::ZERO)));
            now += ms(1);
        }
        assert!(pace.in_flight.is_empty());
    }
}
