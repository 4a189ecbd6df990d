//! Tests that need a kernel of their own: kinds of links that the host may lack, and power cuts. See README.md beside this file.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alarms;
mod bonds;
mod power;
mod routes;
mod vlans;
mod ygnmi;
