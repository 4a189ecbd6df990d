//! What Holdfast manages on a Linux network box, and how it reaches it.
//!
//! Start at [`objects`] for how an entry of the native model becomes a typed value of [`values`] and
//! how state goes back up, at [`descriptors`] for what the engine knows of each kind and how an
//! operation on it becomes requests ([`codec`]), at [`transport`] for what carries them out. [`probe`] asks
//! other hosts, beside all that. Everything but the transports and the sockets of probes is pure: no socket, file, clock or lock.
//!
//! Absent on purpose: decisions about order or retries (the engine's), and the deletion of anything
//! that does not carry our mark.
//! When a request fails, its operation fails with the kernel's own words; a creation of several
//! requests is taken back.
#![warn(missing_docs)]

pub mod codec;
mod collector;
pub mod descriptors;
pub mod hostname;
pub mod links;
pub mod netns;
pub mod objects;
mod platform;
pub mod probe;
pub mod recorded;
pub mod stored;
pub mod transport;
pub mod values;
mod vault;

pub use collector::{Collector, Leaves};
pub use platform::{Platform, PlatformError, PlatformSettings};
pub use vault::{NoVault, Vault};

#[cfg(test)]
mod kernel_tests;
