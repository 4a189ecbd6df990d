//! Reports of the steps of the engine, for listeners and for the log.

mod events;
mod listeners;
mod repair_log;

pub(crate) use events::EventSource;
pub use events::{CoreEvent, ShortStatus};
pub use listeners::GraphVersion;
pub(crate) use listeners::Listeners;
