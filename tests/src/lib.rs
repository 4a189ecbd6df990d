//! Fixtures for tests of the whole agent, and the rules of the workspace that are checked from its sources.
//!
//! Start at [`netns::Netns`], the namespace of a test, and [`agent::AgentProcess`], the real binary started there.
//! [`gnmi::GnmiClient`] calls it like a controller; [`clients`] are programs by others.
//!
//! Fixtures panic, with details, when a precondition of a test does not hold; only failures that a test may expect are
//! returned as errors. Absent on purpose: tests. They are in the other folders of this crate, and the manifest lists
//! each target.

pub mod agent;
pub mod bootz;
pub mod browser;
pub mod certificates;
pub mod clients;
pub mod dhcp;
pub mod eventually;
pub mod gnmi;
pub mod guide;
pub mod handler;
mod kernel_defaults;
pub mod lab;
pub mod monitor;
pub mod mounts;
pub mod netns;
pub mod pages;
pub mod picture;
pub mod raw_http2;
pub mod rotation;
pub mod services;
pub mod sources;
pub mod sshd;
pub mod subscription;
pub mod systemd_unit;
pub mod tap;
pub mod terminal;
pub mod trace;
