//! gNOI: boot configuration, reboots, factory reset, software, files, health, and probes of the network.
//!
//! Each handler is a few sentences: who asks, what, do it, answer. The meaning of a boot configuration is in
//! `holdfast_config::boot_config`, the time of a reboot in `Reboots`, the choice of a process to signal in `processes`, the
//! storage of packages in `packages`, that of files in `files`, the result of an activated software version in `software`.
//!
//! Absent on purpose: the deprecated certificate service, and services for hardware that a Linux box does not have.

mod boot_config;
mod component;
mod factory_reset;
mod file;
mod healthz;
mod os;
mod package;
mod probe;
mod process;
mod system;

pub(super) use boot_config::{BootConfigService, SetBoot, boot_of, set_boot};
pub(super) use factory_reset::FactoryResetService;
pub(super) use file::FileService;
pub(super) use healthz::HealthzService;
pub(super) use os::{OsService, begin_software};
pub(super) use system::SystemService;
