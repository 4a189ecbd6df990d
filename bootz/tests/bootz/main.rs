//! The bootstrap client against vouchers, certificates and servers that are made here, each wrong in its own way.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod fuzz;
mod hostile;
mod machine;
mod options;
mod ownership;
mod pki;
mod pure;
mod scene;
mod survival;
