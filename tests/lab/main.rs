//! Tests that need a kernel of their own: kinds of links that the host may lack, power cuts, and
//! a box that systemd runs. See README.md beside this file.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alarms;
mod bonds;
mod links;
mod power;
mod routes;
mod systemd;
mod vlans;
mod ygnmi;
