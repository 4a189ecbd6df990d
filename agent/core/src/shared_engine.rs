//! The engine, which the core's thread alone changes, and which other threads read beside it.
//!
//! A reader keeps the core's thread from handling events for as long as it holds its guard, so it works in pieces of
//! bounded length: see [`MAX_GUARD`].

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use holdfast_scheduler::Engine;

/// Longest time for which a reader holds its guard: the delay that a notice of the kernel may suffer by it. To give the
/// guard up and to take it again costs microseconds.
pub(super) const MAX_GUARD: Duration = Duration::from_millis(10);

/// Clones share the engine.
#[derive(Clone, Debug)]
pub(super) struct SharedEngine(Arc<RwLock<Engine>>);

impl SharedEngine {
    pub(super) fn new(engine: Engine) -> Self {
        Self(Arc::new(RwLock::new(engine)))
    }

    /// Access for reading. After a panic of the core's thread, readers see the state in which it left the engine; the
    /// agent is about to end then.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Engine> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Access for the core's thread.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Engine> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
