//! Handles for the actions of gRPC services on the box, apart from its configuration.

use crate::dhcp::LostLeases;
use crate::files::Files;
use crate::packages::Packages;
use crate::probing::ProbeService;
use crate::reboot::Reboots;
use crate::software::Software;

/// The handles, each described in its own module; clones share them.
#[derive(Clone, Debug)]
pub struct Device {
    pub reboots: Reboots,
    pub probes: ProbeService,
    pub packages: Packages,
    pub files: Files,
    pub software: Software,
    /// Leases that have ended without another one.
    pub lost_leases: LostLeases,
}
