//! Polled state: counters and clocks, read on demand.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_config::instance::{InstancePath, Step};
use holdfast_config::schema::{NodeId, Schema};
use holdfast_config::value::Value;
use netlink_packet_route::link::Stats64;
use nix::time::{ClockId, clock_gettime};
use tokio::sync::{Mutex, oneshot};

use crate::kinds::native::{self, ForLinks, InterfaceNodes, ModelError};
use crate::transport::rtnetlink::{Command, CommandSender, LinkCounters};

/// Age up to which a reading is shared: readers that ask within this time of one another get the same one.
const SHARED_FOR: Duration = Duration::from_millis(20);

/// Reads the counters of all links, once for all readers that ask at the same time.
#[derive(Debug)]
pub struct Collector {
    line: CommandSender,
    nodes: Nodes,
    latest: Mutex<Option<Reading>>,
}

/// The clocks of the box.
#[derive(Debug)]
pub struct BoxClock {
    current_datetime: Option<InstancePath>,
    up_time: Option<InstancePath>,
}

/// Leaves of the native schema with their values.
pub type PolledLeaves = Arc<Vec<(InstancePath, Value)>>;

/// Accessor of one counter in the kernel's statistics.
type Counter = fn(&Stats64) -> u64;

#[derive(Clone, Debug)]
struct Reading {
    begun: Instant,
    links: Arc<[LinkCounters]>,
    leaves: PolledLeaves,
}

/// Schema nodes of the counters; `None` where the schema lacks one of them.
#[derive(Debug)]
struct Nodes(Option<(InterfaceNodes, ForLinks<CounterNodes>)>);

/// Schema nodes of the counters of the links of one list.
#[derive(Debug)]
struct CounterNodes {
    state: NodeId,
    counters: NodeId,
    leaves: Vec<(NodeId, Counter)>,
}

/// Leaves below `state/counters` of a link, and the kernel counter of each. `rx_packets` includes multicast. Linux
/// has no per-link counters for unicast and multicast sent or for unknown protocols, so those leaves are left out.
const COUNTERS: [(&str, Counter); 11] = [
    ("in-octets", |stats| stats.rx_bytes),
    ("in-pkts", |stats| stats.rx_packets),
    ("in-unicast-pkts", |stats| stats.rx_packets.saturating_sub(stats.multicast)),
    ("in-multicast-pkts", |stats| stats.multicast),
    ("in-errors", |stats| stats.rx_errors),
    ("in-discards", |stats| stats.rx_dropped),
    ("in-fcs-errors", |stats| stats.rx_crc_errors),
    ("out-octets", |stats| stats.tx_bytes),
    ("out-pkts", |stats| stats.tx_packets),
    ("out-errors", |stats| stats.tx_errors),
    ("out-discards", |stats| stats.tx_dropped),
];

impl Collector {
    pub(crate) fn new(native: &Schema, line: CommandSender) -> Self {
        Self { line, nodes: Nodes::of(native), latest: Mutex::new(None) }
    }

    /// The leaves that a reading may have.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.all()
    }

    /// The counters of all links.
    ///
    /// A reading that began at most 20 ms ago is shared; links without counters are left out.
    pub async fn read(&self) -> PolledLeaves {
        self.reading().await.leaves
    }

    /// When the counters were read, and those of each link.
    pub(crate) async fn links(&self) -> (Instant, Arc<[LinkCounters]>) {
        let Reading { begun, links, .. } = self.reading().await;
        (begun, links)
    }

    async fn reading(&self) -> Reading {
        let started = Instant::now();
        let mut latest = self.latest.lock().await;
        if let Some(reading) = &*latest
            && started.saturating_duration_since(reading.begun) < SHARED_FOR
        {
            return reading.clone();
        }
        let begun = Instant::now();
        let links: Arc<[LinkCounters]> = self.counters().await.into();
        let leaves = Arc::new(self.nodes.leaves(&links));
        latest.insert(Reading { begun, links, leaves }).clone()
    }

    async fn counters(&self) -> Vec<LinkCounters> {
        let (answer_tx, answer) = oneshot::channel();
        self.line.command(Command::Counters(answer_tx));
        answer.await.unwrap_or_default() // empty when the transport has ended
    }
}

impl BoxClock {
    /// The clocks, as leaves of the native schema.
    pub fn new(native: &Schema) -> Self {
        let system = |leaf: &str| {
            let names = ["system", "state", leaf];
            let mut at = native.root();
            let steps = names.iter().map(|name| {
                at = native.child(at, None, name)?;
                Some(Step::node(at))
            });
            steps.collect::<Option<Vec<_>>>().map(InstancePath)
        };
        Self { current_datetime: system("current-datetime"), up_time: system("up-time") }
    }

    /// The leaves that a reading may have.
    pub fn nodes(&self) -> Vec<NodeId> {
        let paths = [&self.current_datetime, &self.up_time].into_iter().flatten();
        paths.filter_map(InstancePath::leaf).collect()
    }

    /// The time of day, and the time since the kernel started.
    pub fn read(&self) -> Vec<(InstancePath, Value)> {
        let now = || Value::Str(rfc3339(SystemTime::now()).into());
        let date = self.current_datetime.iter().map(|path| (path.clone(), now()));
        let up_time = self.up_time.as_ref().zip(up_time_ns());
        date.chain(up_time.map(|(path, up)| (path.clone(), Value::Uint(up)))).collect()
    }

    /// Boot time of the kernel, nanoseconds since 1970. Constant while the agent runs, hence not polled. `None`
    /// when the kernel does not report it (`btime` in proc_stat(5)).
    pub fn boot_time_ns() -> Option<u64> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        seconds.trim().parse::<u64>().ok()?.checked_mul(1_000_000_000)
    }
}

impl Nodes {
    fn of(native: &Schema) -> Self {
        let of_list = |list: &str| CounterNodes::find(native, list);
        Self(InterfaceNodes::bind(native).ok().zip(ForLinks::find(of_list).ok()))
    }

    fn all(&self) -> Vec<NodeId> {
        let lists = self.0.iter().flat_map(|(_, nodes)| nodes.all());
        lists.flat_map(|nodes| nodes.leaves.iter().map(|(leaf, _)| *leaf)).collect()
    }

    fn leaves(&self, links: &[LinkCounters]) -> Vec<(InstancePath, Value)> {
        let mut all = Vec::with_capacity(links.len() * COUNTERS.len());
        let Some((interfaces, nodes)) = &self.0 else { return all };
        for link in links {
            let nodes = nodes.of_link(&link.link);
            let state = interfaces.link(&link.link).join(Step::node(nodes.state));
            let counters = state.join(Step::node(nodes.counters));
            all.extend(nodes.leaves.iter().map(|(node, value)| {
                (counters.join(Step::node(*node)), Value::Uint(value(&link.counters)))
            }));
        }
        all
    }
}

impl CounterNodes {
    fn find(native: &Schema, list: &str) -> Result<Self, ModelError> {
        let counters = format!("{list}/state/counters");
        let leaf = |(name, counter): (&str, Counter)| {
            Ok((native::find(native, &format!("{counters}/{name}"))?, counter))
        };
        Ok(Self {
            state: native::find(native, &format!("{list}/state"))?,
            counters: native::find(native, &counters)?,
            leaves: COUNTERS.into_iter().map(leaf).collect::<Result<_, _>>()?,
        })
    }
}

/// Time since the kernel started, suspension included.
fn up_time_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    u64::try_from(Duration::from(time).as_nanos()).ok()
}

/// Date and time in UTC as RFC 3339 writes it, with nanoseconds.
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = since.as_secs() / 86_400;
    let rest = since.as_secs() % 86_400;
    let (year, month, day) = civil_from_days(days);
    let hour = rest / 3600;
    let minute = rest / 60 % 60;
    let second = rest % 60;
    let fraction = since.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of a year and the months before
/// it have a regular pattern of 153 days in five.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let shifted = days + 719_468; // days from 0000-03-01 to 1970-01-01
    let era = shifted / DAYS_IN_400_YEARS;
    let day = shifted % DAYS_IN_400_YEARS;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn polled_counters_are_in_the_native_model() {
        let native = Schema::native().unwrap();
        assert_eq!(BoxClock::new(&native).nodes().len(), 2);
        let nodes = Nodes::of(&native);
        assert_eq!(nodes.all().len(), 2 * COUNTERS.len(), "of interfaces, and of VLANs");
        let counters = Stats64::default();
        let paths = nodes.leaves(&[LinkCounters { link: "eth0.5".into(), counters }]);
        let path = paths[0].0.to_path(&native).to_string();
        assert_eq!(path, "/interfaces/interface[name=eth0]/vlan[index=5]/state/counters/in-octets");
    }
}
