//! What listeners and the log are told of the steps of the engine.

mod events;
mod listeners;
mod repair_log;

pub(crate) use events::EventSource;
pub use events::{CoreEvent, ShortStatus};
pub use listeners::GraphVersion;
pub(crate) use listeners::Listeners;
