//! gNOI: what the box boots with, its reboots, its way back to the factory, and what it can tell of its surroundings.
//!
//! Each service is a few sentences: who asks, what, do it, answer. What a boot configuration means is decided by
//! `holdfast_config::boot`, when a reboot takes place by `Reboots`, which process may be signalled by `processes`, how
//! packages are kept by `packages`, what becomes of an activated version of the software by `software`.
//!
//! Absent on purpose: the deprecated certificate service, and services for hardware that a Linux box does not have.

mod boot_config;
mod component;
mod factory_reset;
mod os;
mod package;
mod probe;
mod process;
mod system;

pub(super) use boot_config::{BootConfigService, SetBoot, boot_of, set as set_boot};
pub(super) use factory_reset::FactoryResetService;
pub(super) use os::{OsService, begin as begin_software};
pub(super) use system::SystemService;
