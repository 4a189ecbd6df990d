//! Handles for the actions of gRPC services on the box, apart from its configuration.

use holdfast_platform::probe::Probes;

use crate::dhcp::LostLeases;
use crate::packages::Packages;
use crate::reboot::Reboots;
use crate::software::Software;

/// The handles, each described in its own module; clones share them.
#[derive(Clone, Debug)]
pub struct Device {
    pub reboots: Reboots,
    pub probes: Probes,
    pub packages: Packages,
    pub software: Software,
    /// Leases that have ended without another one.
    pub lost_leases: LostLeases,
}
