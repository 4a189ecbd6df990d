//! The bootstrap client against vouchers, certificates and servers that are made here, each wrong in its own way.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod detached;
mod dhcp_options;
mod fixture;
mod fuzz;
mod oversized_answers;
mod ownership;
mod pki;
mod state_machine;
mod survival;
mod tables;
