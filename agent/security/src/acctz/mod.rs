//! Accounting: which caller did what, from where, and with what result (gNSI acctz).
//!
//! A [`Record`] is one action; a [`History`] holds the latest records of the device, up to a number of bytes.
//! Each reader holds a [`Cursor`], whose cost does not depend on how far behind it is. [`secrets`] removes secret
//! values before a request is recorded; [`RepeatedCallLimiter`] counts calls that are alike instead of recording each.
//!
//! Absent on purpose: the messages that records are made from and sent as, and the file they survive in.

mod history;
mod record;
mod repeated_calls;
pub mod secrets;

pub use self::history::{Cursor, DeliveredRecord, History, RingName};
pub use self::record::{
    AccountingEvent, Activity, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, BoundedText,
    Command, CommandKind, Payload, Record, Rpc, ServiceFamily, Session, SessionStage, User,
};
pub use self::repeated_calls::RepeatedCallLimiter;
