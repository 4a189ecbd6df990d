//! How much each link carries in a second, from the counters of two readings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_config::instance::{InstancePath, Step};
use holdfast_config::schema::{NodeId, Schema};
use holdfast_config::value::Value;
use netlink_packet_route::link::Stats64;
use smol_str::SmolStr;

use crate::collector::Collector;
use crate::kinds::native::{self, ForLinks, InterfaceNodes, ModelError};
use crate::transport::rtnetlink::LinkCounters;

/// Least time between the two readings that rates come from. Several collectors ask at their own times, and the counters of
/// less than this are few packets.
const SHORTEST_WINDOW: Duration = Duration::from_secs(5);
/// Most time between them: the default interval of OpenConfig, 300 s, and some for a collector that asks late. An average over
/// more says little of the present, so then there are no rates until the next question.
const LONGEST_WINDOW: Duration = Duration::from_secs(330);

/// Reader of the rates of all links. It asks the kernel for nothing but the counters of [`Collector`].
#[derive(Debug)]
pub struct LinkRates {
    counters: Arc<Collector>,
    nodes: Option<Nodes>,
    before: Mutex<Samples>,
}

/// Readings that later ones are compared with.
#[derive(Debug, Default)]
struct Samples {
    /// The one that rates are taken from.
    older: Option<Sample>,
    /// The one that takes its place once it is [`SHORTEST_WINDOW`] old.
    newer: Option<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    time: Instant,
    links: Arc<[LinkCounters]>,
}

/// Nodes of the native model for the links of one list: those above the rates, and each rate.
#[derive(Debug)]
struct RateNodes {
    state: NodeId,
    rates: NodeId,
    leaves: Vec<(NodeId, Rate)>,
    load_interval: NodeId,
}

/// Nodes of the rates of all links.
#[derive(Debug)]
struct Nodes {
    interfaces: InterfaceNodes,
    rates: ForLinks<RateNodes>,
}

/// Accessor of one counter in the kernel's statistics, and the units of the rate in one of the counter.
type Rate = (fn(&Stats64) -> u64, u64);

const RATES: [(&str, Rate); 4] = [
    ("in-bits-rate", (|stats| stats.rx_bytes, 8)),
    ("in-pkts-rate", (|stats| stats.rx_packets, 1)),
    ("out-bits-rate", (|stats| stats.tx_bytes, 8)),
    ("out-pkts-rate", (|stats| stats.tx_packets, 1)),
];

impl LinkRates {
    /// Rates from the counters of a reader.
    pub fn new(native: &Schema, counters: Arc<Collector>) -> Self {
        Self { counters, nodes: Nodes::find(native).ok(), before: Mutex::default() }
    }

    /// The leaves that a reading may have.
    pub fn nodes(&self) -> Vec<NodeId> {
        let lists = self.nodes.iter().flat_map(|nodes| nodes.rates.all());
        let leaves = lists.flat_map(|nodes| {
            nodes.leaves.iter().map(|(leaf, _)| *leaf).chain([nodes.load_interval])
        });
        leaves.collect()
    }

    /// The rates of all links since an earlier reading; none where the earlier readings are too old.
    pub async fn read(&self) -> Vec<(InstancePath, Value)> {
        let (time, links) = self.counters.links().await;
        let now = Sample { time, links };
        let before = {
            let mut samples = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            samples.take(&now)
        };
        let Some((nodes, before)) = self.nodes.as_ref().zip(before) else { return Vec::new() };
        nodes.leaves(&before, &now)
    }
}

impl Samples {
    /// The sample to compare with a new one, which later ones may be compared with.
    fn take(&mut self, now: &Sample) -> Option<Sample> {
        let age = |sample: &Sample| now.time.saturating_duration_since(sample.time);
        self.older = self.older.take().filter(|it| age(it) <= LONGEST_WINDOW);
        self.newer = self.newer.take().filter(|it| age(it) <= LONGEST_WINDOW);
        if self.newer.as_ref().is_some_and(|newer| age(newer) >= SHORTEST_WINDOW) {
            self.older = self.newer.take();
        }
        self.newer.get_or_insert_with(|| now.clone());
        let older = self.older.as_ref();
        older.filter(|it| age(it) >= SHORTEST_WINDOW).cloned()
    }
}

impl RateNodes {
    fn find(native: &Schema, list: &str) -> Result<Self, ModelError> {
        let rates = format!("{list}/state/rates");
        let leaf = |name: &str| native::find(native, &format!("{rates}/{name}"));
        Ok(Self {
            state: native::find(native, &format!("{list}/state"))?,
            rates: native::find(native, &rates)?,
            leaves: RATES
                .into_iter()
                .map(|(name, rate)| Ok((leaf(name)?, rate)))
                .collect::<Result<_, _>>()?,
            load_interval: leaf("load-interval")?,
        })
    }
}

impl Nodes {
    fn find(native: &Schema) -> Result<Self, ModelError> {
        let rates = ForLinks::find(|list| RateNodes::find(native, list))?;
        Ok(Self { interfaces: InterfaceNodes::bind(native)?, rates })
    }

    fn leaves(&self, before: &Sample, now: &Sample) -> Vec<(InstancePath, Value)> {
        let window = now.time.saturating_duration_since(before.time);
        let earlier: HashMap<&SmolStr, &Stats64> =
            before.links.iter().map(|link| (&link.link, &link.counters)).collect();
        let mut all = Vec::with_capacity(now.links.len() * (RATES.len() + 1));
        for link in now.links.iter() {
            let Some(earlier) = earlier.get(&link.link) else { continue };
            let nodes = self.rates.of_link(&link.link);
            let state = self.interfaces.link(&link.link).join(Step::node(nodes.state));
            let rates = state.join(Step::node(nodes.rates));
            for (leaf, (counter, units)) in &nodes.leaves {
                let rate = per_second(counter(earlier), counter(&link.counters), window);
                let value = rate.map(|rate| Value::Uint(rate.saturating_mul(*units)));
                all.extend(value.map(|value| (rates.join(Step::node(*leaf)), value)));
            }
            let seconds = Value::Uint(window.as_secs());
            all.push((rates.join(Step::node(nodes.load_interval)), seconds));
        }
        all
    }
}

/// Rise of a counter in a second. A counter that has fallen belongs to another link of that name, so nothing is known of its rate.
fn per_second(before: u64, now: u64, window: Duration) -> Option<u64> {
    let rise = u128::from(now.checked_sub(before)?) * 1000;
    u64::try_from(rise.checked_div(window.as_millis())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: Instant, link: &str, bytes: u64) -> Sample {
        let mut counters = Stats64::default();
        counters.rx_bytes = bytes;
        counters.rx_packets = bytes / 100;
        let links = [LinkCounters { link: link.into(), counters }];
        Sample { time, links: links.into() }
    }

    #[test]
    fn rates_come_from_a_reading_that_is_neither_too_young_nor_too_old() {
        let start = Instant::now();
        let mut samples = Samples::default();
        let mut window = |seconds| {
            let time = start + Duration::from_secs(seconds);
            let before = samples.take(&sample(time, "eth0", 0));
            before.map(|it| time.duration_since(it.time).as_secs())
        };
        let rows = [
            (0, None),
            (1, None),
            (5, Some(5)),
            (7, Some(7)),
            (9, Some(9)),
            (11, Some(6)),
            (1000, None),
        ];
        for (at, want) in rows {
            assert_eq!(window(at), want, "{at} s after the first question");
        }
        assert_eq!(window(1010), Some(10));
    }

    #[test]
    fn rates_are_rises_in_a_second() {
        let native = Schema::native().unwrap();
        let nodes = Nodes::find(&native).unwrap();
        let start = Instant::now();
        let later = start + Duration::from_secs(10);
        let shown = |before: &Sample, now: &Sample| {
            let line = |(path, value): (InstancePath, Value)| {
                let path = path.to_path(&native).to_string();
                format!("{} {value}", path.rsplit('/').next().unwrap())
            };
            nodes.leaves(before, now).into_iter().map(line).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            shown(&sample(start, "eth0", 1000), &sample(later, "eth0", 21_000)),
            "in-bits-rate 16000, in-pkts-rate 20, out-bits-rate 0, out-pkts-rate 0, load-interval 10"
        );
        assert_eq!(
            shown(&sample(start, "eth0", 1000), &sample(later, "eth0", 0)),
            "out-bits-rate 0, out-pkts-rate 0, load-interval 10",
            "another link of the same name"
        );
        assert_eq!(shown(&sample(start, "eth1", 0), &sample(later, "eth0", 9)), "", "a new link");
    }
}
