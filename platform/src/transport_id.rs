//! Names of the transports, which descriptors and the engine know them by.

use holdfast_scheduler::TransportId;

/// Links, addresses, neighbours and routes: rtnetlink of the managed namespace.
pub const RTNETLINK: TransportId = TransportId(1);
/// Kernel variables below `/proc/sys` of the managed namespace.
pub const SYSCTL: TransportId = TransportId(2);
/// Text files below the settings' root.
pub const FILES: TransportId = TransportId(3);
/// The host name in the UTS namespace of the managed box.
pub const UTS: TransportId = TransportId(4);
