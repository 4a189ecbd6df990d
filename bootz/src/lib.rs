//! How a factory-new box is brought into production by its bootstrap server.
//!
//! Start at [`client::Client`]: a state machine that takes events (a lease, an answer, a timer, a command of the
//! operator) and says what is to be done next. It opens no socket, reads no clock and draws no number: the daemon does
//! all that and hands the results in. What is believed is decided in [`ownership`]: a voucher of the vendor names the
//! owner, the owner's certificate signs the data. Nothing of an answer is looked at before that holds.
//!
//! [`wire`] speaks the protocol over a channel that the caller has connected.
//!
//! Absent on purpose: identities that live in a TPM without an IDevID certificate, and the deprecated
//! `BootstrapStream`; a server that insists on them is told so and tried again.
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
