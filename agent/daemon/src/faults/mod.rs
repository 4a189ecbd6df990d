//! Faults of the box, from what readers see to what readers are told.
//!
//! One task follows the newest revision. Other tasks follow the statuses of values, the disk, the server and next hops.
//! Each of them reports the conditions that it finds to [`holdfast_faults::Faults`], which makes alarms of them. The
//! agent shows the alarms as leaves (`/fault-state`, `/system/alarms`), stores them, and sends them to listeners:
//!
//! ```text
//!  revision --+                                          +--> leaves of the newest revision
//!  statuses --+--> reports --> Faults::on --> effects ---+--> rows of the database
//!  disk ------+                                          +--> listeners
//!  server ----+
//!  services --+
//!  leases ----+
//!  probes ----+
//! ```
//!
//! Start at [`task::FaultTask::run`]. No condition is found by an event that may be lost: each source can say at any time all
//! that holds.

mod bonds;
mod check;
mod disk;
mod documents;
mod drain_settings;
mod drains;
mod fencer;
mod filter;
mod gateways;
mod guard;
mod handle;
mod impacts;
mod instances;
mod leases;
mod level;
mod links;
mod objects;
mod probes;
mod reporters;
mod rows;
mod rules;
mod server;
mod services;
mod session_fences;
mod sessions;
mod settings;
mod shown;
mod shown_sessions;
mod stamps;
mod task;
#[cfg(test)]
mod tests;
mod thresholds;
mod values;
mod visibility;

pub use check::{FaultSettingsCheck, PatternError};
pub use documents::{alarm_document, session_document, step_document, transition_document};
pub use drains::{Drain, DrainEnd, DrainError};
pub use filter::AlarmFilter;
pub use guard::FenceError;
pub use handle::{
    FaultService, FaultsStopped, LatchRefusal, Listener, News, OperatorWord, ReportError, Reporter,
    WordError, check_text,
};
pub use sessions::{SessionAnswer, SessionFollower, SessionNews, SessionRefusal};
pub use stamps::{Moment, Raise, monotonic_ns};
pub use task::{FaultParts, start};
pub use visibility::{AlarmPlaces, AlarmView, SessionView, permits};
