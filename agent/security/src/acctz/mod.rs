//! Accounting: who did what, from where, and whether they were let.
//!
//! A [`Record`] is one thing that was done; a [`History`] holds the latest of them, as many as fit a number of octets,
//! for the whole device. Who reads it holds a [`Cursor`], which costs the same however far behind it is. [`secrets`]
//! says what of a request is never written down, [`Repeats`] which refused calls are counted instead.
//!
//! Absent on purpose: the messages that records are made from and sent as, and the file they survive in.

mod history;
mod record;
mod repeats;
pub mod secrets;

pub use self::history::{Cursor, History, RingName, Told};
pub use self::record::{
    Account, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, Command, CommandKind, Deed,
    Family, Payload, Record, Rpc, Session, Stage, Text, User,
};
pub use self::repeats::Repeats;
