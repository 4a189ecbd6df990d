//! Next hops as configured, and the kernel routes that implement them.

use std::net::IpAddr;

pub use holdfast_config::{IPV4_METRIC, IPV6_METRIC};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::kinds::types::MAIN_TABLE;

/// One next hop of a static route as configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextHop {
    /// The list key.
    pub index: SmolStr,
    /// Target of the packets.
    pub target: NextHopTarget,
    /// Outgoing link; `None` means that of the gateway's prefix.
    pub link: Option<SmolStr>,
    /// Configured metric; `None`: the family's default.
    pub metric: Option<u32>,
}

/// Target of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NextHopTarget {
    /// To a gateway.
    Gateway(IpAddr),
    /// Drop the packets.
    Drop,
    /// Send directly on the link, which holds the destination.
    OnLink,
}

/// A kernel route, identified by table, prefix and metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRoute {
    /// Routing table.
    pub table: u32,
    /// Destination, host bits cleared.
    pub prefix: IpNet,
    /// Metric (`RTA_PRIORITY`).
    pub metric: u32,
    /// Treatment of packets.
    pub target: RouteTarget,
    /// Configured entry that the route comes from; `None` in an observed value.
    pub source: Option<RouteSource>,
    /// Origin of an observed route that another program made; `None` for a route of ours.
    pub foreign: Option<Box<ForeignRoute>>,
    /// Observed only: next hops of the target to which the kernel sends nothing, because their links have no carrier.
    #[serde(default)]
    pub unusable: Option<Box<[Hop]>>,
}

/// Destination of routes: with the metric, it identifies a route in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// Routing table.
    pub table: u32,
    /// Prefix of the addresses.
    pub prefix: IpNet,
}

impl Destination {
    /// Destination of a route.
    pub fn of(route: &KernelRoute) -> Self {
        Self { table: route.table, prefix: route.prefix }
    }
}

/// Origin of a route that another program made, with all that the kernel showed of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignRoute {
    /// `rtm_protocol`: the program.
    pub protocol: u8,
    /// The `RTM_NEWROUTE` message of the kernel (`struct rtmsg` and attributes), to put the route back as it was. The
    /// indices of links in it are those of that moment.
    pub message: Vec<u8>,
}

/// Treatment of packets by a kernel route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteTarget {
    /// Forward to one of these next hops.
    Hops(Vec<Hop>),
    /// Drops them silently (`RTN_BLACKHOLE`).
    Blackhole,
}

/// One next hop of a kernel route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hop {
    /// The gateway; `None` when the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The link. Intended: `None` leaves the choice to the kernel.
    pub link: Option<SmolStr>,
}

/// Configured entry that a kernel route implements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSource {
    /// The network instance.
    pub instance: SmolStr,
    /// The STATIC protocol instance.
    pub protocol: SmolStr,
    /// Configured next hops of this route, in the order of their `index` leaf.
    pub next_hops: Vec<NextHop>,
}

/// Next hops of a static route that are sorted without an allocation; most have fewer.
const USUAL_HOPS: usize = 4;

impl KernelRoute {
    /// A route of ours that comes from no configured entry.
    pub fn new(table: u32, prefix: IpNet, metric: u32, target: RouteTarget) -> Self {
        Self { table, prefix, metric, target, source: None, foreign: None, unusable: None }
    }

    /// Routes of table main that carry out a configured static route, ascending by metric: next hops of one metric share
    /// a kernel route. Next hops that drop packets have a metric of their own.
    pub fn of_entry(
        instance: &SmolStr,
        protocol: &SmolStr,
        prefix: IpNet,
        next_hops: &[NextHop],
    ) -> SmallVec<[Self; 1]> {
        let metric = |hop: &NextHop| Self::kernel_metric(prefix, hop.metric);
        let mut hops: SmallVec<[&NextHop; USUAL_HOPS]> = next_hops.iter().collect();
        hops.sort_by_key(|hop| metric(hop));
        let route = |same: &[&NextHop]| {
            let next_hops: Vec<NextHop> = same.iter().copied().cloned().collect();
            let hops: Option<Vec<Hop>> = next_hops.iter().map(NextHop::hop).collect();
            let target = hops.map_or(RouteTarget::Blackhole, RouteTarget::Hops);
            let instance = instance.clone();
            let protocol = protocol.clone();
            let source = Some(RouteSource { instance, protocol, next_hops });
            let metric = metric(same[0]);
            Self { source, ..Self::new(MAIN_TABLE, prefix, metric, target) }
        };
        hops.chunk_by(|one, other| metric(one) == metric(other)).map(route).collect()
    }

    /// Metric in the kernel of a configured one.
    ///
    /// A static route is worse than the connected prefix of an address, whose metric is 0 in IPv4 and 256
    /// (`IP6_RT_PRIO_ADDRCONF`) in IPv6: without a metric it gets [`IPV4_METRIC`] and [`IPV6_METRIC`]. The kernel takes 0
    /// for "the default" in IPv6, so 0 means 1 in both families.
    pub fn kernel_metric(prefix: IpNet, metric: Option<u32>) -> u32 {
        match (prefix, metric) {
            (IpNet::V4(_), None) => IPV4_METRIC,
            (IpNet::V6(_), None) => IPV6_METRIC,
            (_, Some(metric)) => metric.max(1),
        }
    }

    /// True when earlier versions entered the next hops of some routes to one prefix into the kernel in another order of
    /// preference: without a metric, or with 0, an IPv4 route had metric 0 and an IPv6 route [`IPV6_METRIC`].
    pub fn order_has_changed(routes: &[Self]) -> bool {
        let hops = routes.iter().flat_map(|route| {
            let hops = route.source.iter().flat_map(|source| &source.next_hops);
            hops.map(|hop| (earlier_metric(route.prefix, hop.metric), route.metric))
        });
        let hops: Vec<(u32, u32)> = hops.collect();
        hops.iter().any(|one| hops.iter().any(|other| one.0.cmp(&other.0) != one.1.cmp(&other.1)))
    }
}

/// Metric in the kernel by earlier versions.
fn earlier_metric(prefix: IpNet, metric: Option<u32>) -> u32 {
    match (prefix, metric.unwrap_or(0)) {
        (IpNet::V6(_), 0) => IPV6_METRIC,
        (_, metric) => metric,
    }
}

impl NextHop {
    /// Counterpart in the kernel; `None` for one that drops packets.
    fn hop(&self) -> Option<Hop> {
        let gateway = match self.target {
            NextHopTarget::Drop => return None,
            NextHopTarget::Gateway(ip) => Some(ip),
            NextHopTarget::OnLink => None,
        };
        Some(Hop { gateway, link: self.link.clone() })
    }
}
