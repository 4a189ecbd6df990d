//! Bootstrap of a factory-new box by a bootz server.
//!
//! Start at [`client::Client`]: a state machine that takes events (a lease, an answer, a timer, a command of the
//! operator) and returns the actions to carry out. It opens no socket, reads no clock and draws no random number:
//! the daemon does all that and hands the results in. [`ownership`] verifies bootstrap data: a voucher of the
//! vendor names the owner, and the owner's certificate signs the data. No part of an answer is used before that
//! check.
//!
//! [`wire`] implements the protocol over a channel that the caller has connected.
//!
//! Absent on purpose: identities in a TPM without an IDevID certificate, and the deprecated `BootstrapStream`. A
//! server that insists on either gets an error, and the attempt is repeated later.
#![warn(missing_docs)]

mod chain;
pub mod client;
pub mod cms;
pub mod dhcp;
pub mod identity;
pub mod image;
pub mod ownership;
pub mod payload;
pub mod retry;
mod signature;
pub mod transport_key;
pub mod uri;
pub mod voucher;
pub mod wire;
