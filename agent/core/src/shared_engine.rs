//! The engine, which the core's thread alone changes, and which other threads read beside it.
//!
//! A reader keeps the core's thread from handling events for as long as it holds its guard, so it works in pieces of
//! bounded length: see [`MAX_GUARD`]. Between two pieces, the core's thread goes first: a lock that wakes it alone lets the reader
//! have the lock again before it has woken, for many pieces on end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use holdfast_scheduler::Engine;

/// Longest time for which a reader holds its guard: the delay that a notice of the kernel may suffer by it. To give the
/// guard up and to take it again costs microseconds.
pub(crate) const MAX_GUARD: Duration = Duration::from_millis(10);

/// Clones share the engine.
#[derive(Clone, Debug)]
pub(crate) struct SharedEngine(Arc<FairLock>);

#[derive(Debug)]
struct FairLock {
    /// Held by a writer that waits for the engine. Readers pass it first.
    turnstile: Mutex<()>,
    engine: RwLock<Engine>,
}

impl SharedEngine {
    pub(crate) fn new(engine: Engine) -> Self {
        let lock = FairLock { turnstile: Mutex::new(()), engine: RwLock::new(engine) };
        Self(Arc::new(lock))
    }

    /// Access for reading. After a panic of the core's thread, readers see the state in which it left the engine; the
    /// agent is about to end then.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Engine> {
        drop(self.turnstile());
        self.0.engine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Access for the core's thread.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Engine> {
        let _turn = self.turnstile();
        self.0.engine.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn turnstile(&self) -> MutexGuard<'_, ()> {
        self.0.turnstile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use holdfast_scheduler::Registry;

    use super::*;

    #[test]
    fn a_writer_that_waits_goes_before_the_next_piece_of_a_reader() {
        let engine = SharedEngine::new(Engine::new(Registry::default()));
        let was_written = AtomicBool::new(false);
        thread::scope(|scope| {
            let piece = engine.read();
            scope.spawn(|| {
                let _engine = engine.write();
                was_written.store(true, Ordering::SeqCst);
            });
            while engine.0.turnstile.try_lock().is_ok() {
                thread::yield_now(); // until the writer waits
            }
            drop(piece);
            let _next = engine.read();
            assert!(was_written.load(Ordering::SeqCst));
        });
    }
}
