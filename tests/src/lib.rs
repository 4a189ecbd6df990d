//! Fixtures for tests of the whole agent, and the rules of the workspace that are checked from its sources.
//!
//! Start at [`netns::Netns`], in which a test lives, and [`agent::AgentProcess`], the real binary started there.
//! [`gnmi::GnmiClient`] asks it like a controller, [`clients`] are those that nobody here wrote.
//!
//! Fixtures panic with what they know when something is not as a test needs it; only what a test may want to
//! see fail is returned as an error. Absent on purpose: tests. They are the files beside `src/`, each target
//! named in the manifest.

pub mod agent;
pub mod bootz;
pub mod browser;
pub mod certificates;
pub mod clients;
pub mod dhcp;
pub mod eventually;
pub mod gnmi;
pub mod monitor;
pub mod netns;
pub mod raw_http2;
pub mod rotation;
pub mod sshd;
pub mod subscription;
pub mod trace;
pub mod unit;
