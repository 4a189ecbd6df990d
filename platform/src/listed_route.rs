//! Routes of any program, as the kernel lists them.

use std::net::IpAddr;

use ipnet::IpNet;
use smol_str::SmolStr;

/// A route of any program, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    /// Routing table.
    pub table: u32,
    /// Destination.
    pub prefix: IpNet,
    /// Metric (`RTA_PRIORITY`).
    pub metric: u32,
    /// Program that made it, as `ip route` names it.
    pub protocol: String,
    /// True for a route of this agent.
    pub is_ours: bool,
    /// Treatment of packets in a word, such as `unicast` or `blackhole`.
    pub treatment: &'static str,
    /// Attribute without which it would lead elsewhere, or otherwise, and which the model does not have.
    pub unmodelled: Option<&'static str>,
    /// Next hops in the order of the kernel.
    pub hops: Vec<ListedHop>,
}

/// A next hop of a listed route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedHop {
    /// The gateway; `None` when the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The link.
    pub link: Option<SmolStr>,
    /// Share of the packets of the route, relative to that of its other next hops.
    pub weight: u16,
    /// Reason for which packets do not arrive.
    pub fault: Option<HopFault>,
}

/// Condition of the link of a next hop that keeps packets from arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopFault {
    /// The link has no carrier, and the kernel leaves the next hop out.
    NoCarrier,
    /// The link has no carrier, and the kernel sends there all the same.
    SentWithoutCarrier,
    /// The link is down.
    Down,
}

impl HopFault {
    /// Reason for people, about a link of that name.
    pub fn text(self, link: &str) -> String {
        match self {
            Self::NoCarrier => format!("{link} has no carrier"),
            Self::SentWithoutCarrier => {
                format!("{link} has no carrier, the kernel sends all the same")
            }
            Self::Down => format!("{link} is down"),
        }
    }
}
