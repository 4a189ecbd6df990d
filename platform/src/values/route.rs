//! Next hops as configured, and the kernel routes that implement them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use smol_str::SmolStr;

use super::MAIN_TABLE;

/// One next hop of a static route as configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextHop {
    /// The list key.
    pub index: SmolStr,
    /// Target of the packets.
    pub target: NextHopTarget,
    /// Outgoing link; `None` means that of the gateway's prefix.
    pub link: Option<SmolStr>,
    /// Metric of the kernel; `None`: the family's default.
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
    /// Metric as the kernel shows it (IPv4 default 0, IPv6 default 1024).
    pub metric: u32,
    /// Treatment of packets.
    pub target: RouteTarget,
    /// Configured entry that the route comes from; `None` in an observed value.
    pub source: Option<RouteSource>,
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
            let (instance, protocol) = (instance.clone(), protocol.clone());
            let source = Some(RouteSource { instance, protocol, next_hops });
            Self { table: MAIN_TABLE, prefix, metric: metric(same[0]), target, source }
        };
        hops.chunk_by(|one, other| metric(one) == metric(other)).map(route).collect()
    }

    /// The metric that the kernel shows for a configured one (`IP6_RT_PRIO_USER` is 1024).
    pub fn kernel_metric(prefix: IpNet, metric: Option<u32>) -> u32 {
        const IPV6_DEFAULT: u32 = 1024;
        match (prefix, metric.unwrap_or(0)) {
            (IpNet::V6(_), 0) => IPV6_DEFAULT,
            (_, metric) => metric,
        }
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
