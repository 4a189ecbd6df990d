//! What listeners and the log are told of the steps of the engine.

mod events;
mod repair_log;

pub use events::{CoreEvent, ShortStatus};
pub(crate) use events::{EventSender, EventSource};
pub(crate) use repair_log::RepairLog;
