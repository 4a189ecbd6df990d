//! Metrics of routes without a configured one, as the native model documents them.

/// Metric of an IPv4 route without a configured one. Routing daemons use the same for theirs.
pub const IPV4_METRIC: u32 = 20;

/// Metric of an IPv6 route without a configured one (`IP6_RT_PRIO_USER`).
pub const IPV6_METRIC: u32 = 1024;
