//! Static routes as configured, and the kernel's routes that carry them out.

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

/// An instance of the STATIC protocol in a network instance. It has no effect of its own.
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
    /// Where the packet goes.
    pub target: NextHopTarget,
    /// The link it leaves by; `None`: the one on which the gateway is.
    pub link: Option<SmolStr>,
    /// Metric of the kernel; `None`: the family's default.
    pub metric: Option<u32>,
}

/// Where a next hop sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NextHopTarget {
    /// To a gateway.
    Gateway(IpAddr),
    /// Nowhere: they are dropped.
    Drop,
    /// Straight out of the link: the destination is on it.
    OnLink,
}

/// A route of the kernel. The kernel knows it by table, prefix and metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRoute {
    /// Routing table.
    pub table: u32,
    /// Destination, host bits cleared.
    pub prefix: IpNet,
    /// Metric as the kernel shows it (IPv4 default 0, IPv6 default 1024).
    pub metric: u32,
    /// What happens to packets.
    pub target: RouteTarget,
    /// The configured entry this comes from; `None` in an observed value.
    pub source: Option<RouteSource>,
}

/// What a kernel route does with packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteTarget {
    /// Sends them to one of these.
    Hops(Vec<Hop>),
    /// Drops them silently (`RTN_BLACKHOLE`).
    Blackhole,
}

/// One next hop of a kernel route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hop {
    /// The gateway; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The link. Intended: `None` leaves it to the kernel.
    pub link: Option<SmolStr>,
}

/// Which configured entry a kernel route carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSource {
    /// The network instance.
    pub instance: SmolStr,
    /// The STATIC protocol instance.
    pub protocol: SmolStr,
    /// The configured next hops behind this route, in the order of their `index` leaf.
    pub next_hops: Vec<NextHop>,
}

impl KernelRoute {
    /// The metric the kernel shows for a configured one (`IP6_RT_PRIO_USER` is 1024).
    pub fn kernel_metric(prefix: IpNet, metric: Option<u32>) -> u32 {
        const IPV6_DEFAULT: u32 = 1024;
        match (prefix, metric.unwrap_or(0)) {
            (IpNet::V6(_), 0) => IPV6_DEFAULT,
            (_, metric) => metric,
        }
    }
}
