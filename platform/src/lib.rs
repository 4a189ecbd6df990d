//! What Holdfast manages on a Linux network box, and how it reaches it.
//!
//! Start at [`values`] for the kernel-side objects as typed structs, at [`codec`] for how an
//! operation on one of them becomes requests, at [`Platform`] for the transports that carry them
//! out on one managed box. Everything but the transports and the [`Collector`] is pure: no socket,
//! file, clock or lock.
#![warn(missing_docs)]

pub mod codec;
mod collector;
pub mod descriptors;
pub mod links;
pub mod netns;
pub mod objects;
mod platform;
pub mod stored;

pub mod transport;
pub mod values;

pub use collector::{Collector, Leaves};
pub use platform::{Platform, PlatformError, PlatformSettings};

#[cfg(test)]
mod kernel_tests;
