//! gNOI: what the box boots with, its reboots, and its way back to the factory.
//!
//! Each service is a few sentences: who asks, what, do it, answer. What a boot configuration means is decided by
//! `holdfast_config::boot`, when a reboot takes place by [`Reboots`].
//!
//! Absent on purpose: the deprecated certificate service, and services for hardware that a Linux box does not have.

mod boot_config;
mod factory_reset;
mod system;

pub(super) use boot_config::{BootConfigService, boot_of, set as set_boot};
pub(super) use factory_reset::FactoryResetService;
pub(super) use system::SystemService;
