//! Echo requests at a given rate, and their replies.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::packet::{self, ECHO_HEADER, IcmpAnswer, ProbeId, ProbeOutcome};
use super::socket::{IcmpSocket, ReceivedMessage};
use super::{MAX_IP_HEADER, ProbeError, Probes, Target};

/// Least time between packets, also in a flood. A thousand a second limits the load that a careless ping puts on
/// others.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Default number of packets of a ping.
pub const DEFAULT_COUNT: u32 = 5;
/// Default time between packets of a ping.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Default time to wait for an answer.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(2);
/// Default number of bytes behind the ICMP header of a ping.
pub const DEFAULT_SIZE: usize = 56;
/// Time for which a flood waits for a reply before the next packet.
const FLOOD_REPLY_WAIT: Duration = Duration::from_millis(10);

/// Rate of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// A fixed interval, at least [`MIN_INTERVAL`].
    Every(Duration),
    /// Next packet on each reply, or after ten milliseconds without one.
    Flood,
}

/// Parameters of a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Destination and source.
    pub target: Target,
    /// Number of packets; `None` for no limit.
    pub count: Option<u32>,
    /// Rate.
    pub interval: Interval,
    /// Time after which a packet counts as lost.
    pub wait: Duration,
    /// Bytes after the ICMP header.
    pub size: usize,
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingReply {
    /// Sender of the reply.
    pub from: IpAddr,
    /// Round-trip time.
    pub time: Duration,
    /// Bytes of the ICMP message.
    pub octets: usize,
    /// Number of the request, counted from 1.
    pub sequence: u64,
    /// Remaining hop limit of the reply, if the kernel reports it.
    pub hops_left: Option<u8>,
}

/// Totals of a ping. Round-trip times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingStatistics {
    /// Time since the start.
    pub elapsed: Duration,
    /// Packets sent.
    pub sent: u64,
    /// Replies received.
    pub received: u64,
    /// Shortest round-trip time.
    pub shortest: Duration,
    /// Mean round-trip time.
    pub mean: Duration,
    /// Longest round-trip time.
    pub longest: Duration,
    /// Standard deviation of the round-trip times.
    pub deviation: Duration,
}

/// A ping in progress.
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
    /// Starts a ping.
    ///
    /// # Errors
    /// When the source is not an address of this box, or there is no route to the destination.
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
    /// Waits for the next reply; `None` when all packets are answered or lost. Cancel-safe.
    ///
    /// # Errors
    /// When the first packet cannot be sent. Later ones that cannot be sent count as lost.
    pub async fn next(&mut self) -> Result<Option<PingReply>, ProbeError> {
        loop {
            let Some(due) = self.pace.due() else { return Ok(None) };
            tokio::select! {
                biased;
                received = self.socket.receive(&mut self.buffer) => {
                    // An error here belongs to an earlier packet, which will get no reply.
                    if let Ok(received) = received && let Some(echoed) = self.take(&received) {
                        return Ok(Some(echoed));
                    }
                }
                () = sleep_until(due) => self.act()?,
            }
        }
    }

    /// Totals so far.
    pub fn summary(&self) -> PingStatistics {
        self.pace.summary(Instant::now())
    }

    fn act(&mut self) -> Result<(), ProbeError> {
        let now = Instant::now();
        self.pace.expire(now);
        let Some(number) = self.pace.send(now) else { return Ok(()) };
        let message = packet::echo(self.destination, self.identifier, low(number), &self.payload);
        match self.socket.send(&message) {
            Err(error) if number == 1 => Err(self.send_error(error)),
            _ => Ok(()),
        }
    }

    fn send_error(&self, error: io::Error) -> ProbeError {
        ProbeError::send_failed(self.destination, self.payload.len(), error)
    }

    /// Accepts a message as a reply if it returns our identifier and payload.
    fn take(&mut self, received: &ReceivedMessage) -> Option<PingReply> {
        let IcmpAnswer { mark: ProbeId::Echo { identifier, sequence }, outcome, payload, .. } =
            received.icmp_answer(&self.buffer)?
        else {
            return None;
        };
        if outcome != ProbeOutcome::Reached
            || identifier != self.identifier
            || payload != self.payload
        {
            return None;
        }
        let (sequence, time) = self.pace.record_reply(sequence, Instant::now())?;
        let octets = ECHO_HEADER + self.payload.len();
        Some(PingReply {
            from: received.from,
            time,
            octets,
            sequence,
            hops_left: received.hops_left,
        })
    }
}

/// Low sixteen bits of a packet number, as in the sequence field.
fn low(number: u64) -> u16 {
    u16::try_from(number & u64::from(u16::MAX)).unwrap_or_default()
}

/// Schedule of the packets, those in flight, and the totals. Has no clock of its own.
#[derive(Debug)]
struct Pace {
    count: Option<u32>,
    interval: Interval,
    wait: Duration,
    started: Instant,
    last_sent: Option<Instant>,
    /// A reply arrived after the last packet was sent.
    answered: bool,
    sent: u64,
    /// Send times by packet number, and thus in the order in which packets expire.
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

    /// Next time at which there is something to do; `None` at the end.
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
            Interval::Flood => FLOOD_REPLY_WAIT,
        };
        Some(last + gap.max(MIN_INTERVAL))
    }

    /// Number of the packet to send now, if one is due.
    fn send(&mut self, now: Instant) -> Option<u64> {
        self.next_send().filter(|due| *due <= now)?;
        self.sent += 1;
        (self.last_sent, self.answered) = (Some(now), false);
        self.in_flight.insert(self.sent, now);
        Some(self.sent)
    }

    /// Number and round-trip time of the answered packet, unless it is lost or was answered before.
    fn record_reply(&mut self, sequence: u16, now: Instant) -> Option<(u64, Duration)> {
        // The latest packet with these sixteen bits.
        let back = u64::from(low(self.sent).wrapping_sub(sequence));
        let number = self.sent.checked_sub(back)?;
        let time = now.saturating_duration_since(self.in_flight.remove(&number)?);
        self.answered = true;
        self.times.add(time);
        Some((number, time))
    }

    /// Counts packets as lost whose time is over.
    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.in_flight.first_entry()
            && *first.get() + self.wait <= now
        {
            first.remove();
        }
    }

    fn summary(&self, now: Instant) -> PingStatistics {
        let elapsed = now.saturating_duration_since(self.started);
        PingStatistics { elapsed, sent: self.sent, ..self.times.summary() }
    }
}

/// Sums of round-trip times, in nanoseconds.
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

    fn summary(&self) -> PingStatistics {
        let count = u128::from(self.count.max(1));
        let mean = self.sum / count;
        let deviation = (self.squares / count).saturating_sub(mean.pow(2)).isqrt();
        let of = |nanos: u128| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let received = self.count;
        let shortest = self.shortest;
        let longest = self.longest;
        let mean = of(mean);
        let deviation = of(deviation);
        PingStatistics { received, shortest, mean, longest, deviation, ..PingStatistics::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Replays events, one word per millisecond: `.` nothing, `N` the reply to packet N. Returns the action in
    /// each: `.` none, `N` packet N is sent, `!` after the end.
    fn play(
        count: Option<u32>,
        interval: Interval,
        wait: u64,
        events: &str,
    ) -> (String, PingStatistics) {
        let started = Instant::now();
        let mut pace = Pace::new(count, interval, ms(wait), started);
        let mut actions = String::new();
        let mut now = started;
        for event in events.chars() {
            if let Some(answered) = event.to_digit(10) {
                pace.record_reply(u16::try_from(answered).unwrap(), now);
            }
            pace.expire(now);
            actions.push(match (pace.send(now), pace.due()) {
                (Some(number), _) => char::from_digit(u32::try_from(number).unwrap(), 10).unwrap(),
                (None, Some(_)) => '.',
                (None, None) => '!',
            });
            now += ms(1);
        }
        (actions, pace.summary(now))
    }

    #[test]
    fn packets_are_sent_and_expire_on_schedule() {
        let every = |gap| Interval::Every(ms(gap));
        for (count, interval, wait, events, want, received) in [
            // At the interval, regardless of replies.
            (Some(2), every(3), 9, "......", "1..2..", 0),
            (Some(2), every(3), 9, ".1..2..", "1..2!!!", 2),
            // The last packet gets its full time, and no more.
            (Some(1), every(3), 4, "......", "1...!!", 0),
            (Some(1), every(3), 4, "...1.", "1..!!", 1),
            (Some(1), every(3), 4, ".....1", "1...!!", 0),
            // A reply counts once, and one to an unsent packet never.
            (Some(2), every(2), 5, ".11.2", "1.2.!", 2),
            (Some(1), every(2), 5, ".7.", "1..", 0),
            // Without a limit it never ends.
            (None, every(1), 2, "......", "123456", 0),
            // A flood follows the replies, and waits at most ten milliseconds.
            (None, Interval::Flood, 50, "..1.2..", "1.2.3..", 2),
            (None, Interval::Flood, 50, "...........", "1.........2", 0),
        ] {
            let (actions, summary) = play(count, interval, wait, events);
            assert_eq!((actions.as_str(), summary.received), (want, received), "{events}");
        }
    }

    #[test]
    fn statistics_have_mean_and_deviation_of_round_trip_times() {
        let (_, none) = play(Some(1), Interval::Every(ms(1)), 2, "...");
        let want = PingStatistics { elapsed: ms(3), sent: 1, ..PingStatistics::default() };
        assert_eq!(none, want);
        let mut times = Times::default();
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|time| times.add(ms(time)));
        let PingStatistics { received, shortest, mean, longest, deviation, .. } = times.summary();
        assert_eq!((received, shortest, mean, longest), (8, ms(2), ms(5), ms(9)));
        assert_eq!(deviation, ms(2));
    }

    #[test]
    fn packet_numbers_exceed_the_sixteen_bit_sequence_field() {
        let started = Instant::now();
        let mut pace = Pace::new(None, Interval::Every(ms(1)), ms(5), started);
        let mut now = started;
        for number in 1..=70_000_u64 {
            assert_eq!(pace.send(now), Some(number));
            let reply = pace.record_reply(low(number), now);
            assert_eq!(reply, Some((number, Duration::ZERO)));
            now += ms(1);
        }
        assert!(pace.in_flight.is_empty());
    }
}
