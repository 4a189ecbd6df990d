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
pub(super) const MAX_GUARD: Duration = Duration::from_millis(10);

/// Clones share the engine.
#[derive(Clone, Debug)]
pub(super) struct SharedEngine(Arc<FairLock>);

#[derive(Debug)]
struct FairLock {
    /// Held by a writer that waits for the engine. Readers pass it first.
    turnstile: Mutex<()>,
    engine: RwLock<Engine>,
}

impl SharedEngine {
    pub(super) fn new(engine: Engine) -> Self {
        let lock = FairLock { turnstile: Mutex::new(()), engine: RwLock::new(engine) };
        Self(Arc::new(lock))
    }

    /// Access for reading. After a panic of the core's thread, readers see the state in which it left the engine; the
    /// agent is about to end then.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Engine> {
        drop(self.turnstile());
        self.0.engine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Access for the core's thread.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Engine> {
        let _turn = self.turnstile();
        self.0.engine.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn turnstile(&self) -> MutexGuard<'_, ()> {
        self.0.turnstile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use holdfast_scheduler::Registry;

    use super::*;

    /// Pieces of the reader that end while the writer waits, at most: the one that is under way, and one that has begun since.
    const PIECES_MOST: usize = 2;
    /// Pieces after which the reader gives up: two seconds of them.
    const GIVEN_UP: usize = 1000;

    #[test]
    fn a_writer_waits_for_one_piece_of_a_reader() {
        let engine = SharedEngine::new(Engine::new(Registry::default()));
        let (pieces, is_done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while is_done.load(Ordering::SeqCst) == 0
                    && pieces.load(Ordering::SeqCst) < GIVEN_UP
                {
                    let _guard = engine.read();
                    thread::sleep(Duration::from_millis(2));
                    pieces.fetch_add(1, Ordering::SeqCst);
                }
            });
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(3));
                let before = pieces.load(Ordering::SeqCst);
                drop(engine.write());
                let waited = pieces.load(Ordering::SeqCst) - before;
                assert!(waited <= PIECES_MOST, "it waited for {waited} pieces");
            }
            is_done.store(1, Ordering::SeqCst);
        });
    }
}
