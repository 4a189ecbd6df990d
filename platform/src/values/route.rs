//! Static routes as configured, and the kernel routes that implement them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A network instance. Only DEFAULT, the namespace itself, exists so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInstance {
    /// Its name.
    pub name: SmolStr,
}

/// An instance of the STATIC protocol in a network instance. It has no effect by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticProtocol {
    /// The network instance.
    pub instance: SmolStr,
    /// The protocol's name.
    pub name: SmolStr,
}

/// A static route as configured: next hops of several metrics in one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticRoute {
    /// The network instance.
    pub instance: SmolStr,
    /// The STATIC protocol instance.
    pub protocol: SmolStr,
    /// The destination, host bits cleared.
    pub prefix: IpNet,
    /// Free text.
    pub description: Option<SmolStr>,
    /// The next hops in the order of their `index` leaf.
    pub next_hops: Vec<NextHop>,
}

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

impl KernelRoute {
    /// The metric that the kernel shows for a configured one (`IP6_RT_PRIO_USER` is 1024).
    pub fn kernel_metric(prefix: IpNet, metric: Option<u32>) -> u32 {
        const IPV6_DEFAULT: u32 = 1024;
        match (prefix, metric.unwrap_or(0)) {
            (IpNet::V6(_), 0) => IPV6_DEFAULT,
            (_, metric) => metric,
        }
    }
}
