//! Faults of the box: what is wrong, since when, and who has been told.
//!
//! Start at [`Faults::on`]: sources report *conditions* by level, policies decide which of them become *alarms*, and each
//! change of an alarm is a [`Transition`] in the log, and a step of a session is a [`SessionStep`] there. [FAULTS.md](../FAULTS.md) is the specification.
//!
//! All code here is a pure function of its arguments. The time is an argument too. The result is [`Effects`], which
//! lists what the caller has to show, store and tell. A condition that is reported twice is one condition, and sources that missed something report all that they
//! have ([`Input::Level`]), so a report that is lost does no harm.
//!
//! Absent on purpose: how a condition is found (the caller reads revisions, statuses and files), gRPC, and the disk.

mod alarm;
mod condition;
mod faults;
mod fencing;
mod filter;
mod flapping;
mod glob;
mod group;
mod impact;
mod latch;
mod log;
mod monitor;
mod policy;
mod probe;
mod report;
mod resource;
mod rule;
mod session;
mod stored;
mod types;

pub use alarm::{Alarm, Change, Expiry, OperatorState, Transition};
pub use condition::{Condition, ConditionError, Kind};
pub use faults::{
    Effects, Evaluator, Faults, GroupStanding, GroupState, Input, MAX_CONDITIONS, OperatorError,
    ResetError, RuleState, RuleStatus, Verdict,
};
pub use fencing::{Action, FenceTarget, Wish};
pub use filter::Filter;
pub use flapping::{FLAPPING_LOSSES, FLAPPING_WINDOW};
pub use glob::Glob;
pub use group::{MAX_GROUP_LINKS, MAX_GROUPS, UplinkGroup, circle};
pub use impact::{ImpactCount, ImpactState, Objects};
pub use latch::{Latch, LatchError, LatchKind, LatchRequest};
pub use log::{LOG_ENTRIES, Log, LogEntry, Resume};
pub use monitor::{Monitor, MonitorError, OutsideReport, Word};
pub use policy::{Policy, Settings, Shelf};
pub use probe::{MAX_PROBES, Probe, ProbeMode, Reachability, Require};
pub use report::{Impact, Report, Silence, Source};
pub use resource::{Resource, ResourceError};
pub use rule::{AlarmRule, MAX_RULES, Threshold};
pub use session::{
    Answer, Consumer, Contents, DEFAULT_CONSUMER, Drained, Health, MaintenanceSettings,
    ObjectAction, ObjectProgress, Reply, Session, SessionChange, SessionConsumer, SessionError,
    SessionEvent, SessionInput, SessionKind, SessionObject, SessionPlan, SessionRequest,
    SessionState, SessionStep, Wants,
};
pub use stored::Row;
pub use types::{AlarmType, DRIFT_WINDOW, Effect, Severity, TYPES};

#[cfg(test)]
mod tests;
