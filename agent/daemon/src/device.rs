//! What services do to the box beside its configuration; clones share it.

use holdfast_platform::probe::Probes;

use crate::packages::Packages;
use crate::reboot::Reboots;
use crate::software::Software;

/// The parts of it, each with a home of its own.
#[derive(Clone, Debug)]
pub struct Device {
    pub reboots: Reboots,
    pub probes: Probes,
    pub packages: Packages,
    pub software: Software,
}
