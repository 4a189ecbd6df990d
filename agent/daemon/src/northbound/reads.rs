//! Readings that may be large: the thread on which each runs, and the conditions under which it ends early.
//!
//! A reading is a pure function of a snapshot that counts what it looks at. It begins where the request is served,
//! since most are small and a detour costs more than they do. A reading that turns out to be large is given up there
//! and begun again beside the runtime's threads, where it waits for its turn. [`IN_PLACE`] bounds the cost of the
//! first attempt. A reading whose client is gone ends at the next node that it looks at.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use holdfast_config::LimitExceeded;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{spawn_blocking, yield_now};

use super::status::Refusal;

/// Nodes that one reading may look at on a thread that serves connections. That is some milliseconds; a Get of a box
/// with a hundred ports stays below.
pub(super) const IN_PLACE: usize = 20_000;
/// Nodes of a walk before other tasks of the thread get their turn: below a millisecond.
pub(super) const PORTION: usize = 1024;

/// All readings of one service.
#[derive(Clone, Debug)]
pub(super) struct ReadPool {
    /// Permits for large readings: one for each processor but one, so that the core task and the connections always
    /// have one.
    permits: Arc<Semaphore>,
    /// Permits for walks in portions, apart from those of large readings, which last a thousand times as long.
    portions: Arc<Semaphore>,
}

/// Walks in portions that run at the same time, on threads that serve connections.
const WALKS: usize = 1;

/// Reason for which a reading ended without a result.
#[derive(Debug)]
pub(super) enum ReadStop {
    /// The reading is too large for where it runs.
    Large,
    /// The request is gone.
    Abandoned,
    Refused(Refusal),
}

impl From<Refusal> for ReadStop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<LimitExceeded> for ReadStop {
    fn from(error: LimitExceeded) -> Self {
        Self::Refused(error.into())
    }
}

/// Counter of the nodes that one reading has visited, with its limit.
#[derive(Debug)]
pub(super) struct ReadBudget {
    visited: Cell<usize>,
    most: usize,
    abandoned: Arc<AtomicBool>,
    /// First reason for which a walk has to end.
    stop: RefCell<Option<ReadStop>>,
}

impl ReadBudget {
    fn new(most: usize, abandoned: Arc<AtomicBool>) -> Self {
        Self { visited: Cell::new(0), most, abandoned, stop: RefCell::default() }
    }

    /// Counts nodes that are looked at.
    pub(super) fn spend(&self, nodes: usize) -> Result<(), ReadStop> {
        self.visited.set(self.visited.get().saturating_add(nodes));
        if self.visited.get() > self.most {
            return Err(ReadStop::Large);
        }
        if self.abandoned.load(Ordering::Relaxed) { Err(ReadStop::Abandoned) } else { Ok(()) }
    }

    /// Counts one node of a walk that cannot return a [`ReadStop`]; [`ReadBudget::stopped`] has it afterwards.
    pub(super) fn check(&self) -> ControlFlow<()> {
        self.flow(self.spend(1))
    }

    /// Turns a result into control flow, and keeps the reason to stop.
    pub(super) fn flow(&self, result: Result<(), ReadStop>) -> ControlFlow<()> {
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(stop) => {
                self.stop.borrow_mut().get_or_insert(stop);
                ControlFlow::Break(())
            }
        }
    }

    /// Takes the reason for which the last walk ended.
    pub(super) fn stopped(&self) -> ReadStop {
        self.stop.take().unwrap_or(ReadStop::Abandoned)
    }

    #[cfg(test)]
    pub(super) fn visited(&self) -> usize {
        self.visited.get()
    }
}

/// Stops a reading on another thread when its request is dropped.
struct CancelReadOnDrop(Arc<AtomicBool>);

impl Drop for CancelReadOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Default for ReadPool {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_permits(processors.saturating_sub(1).max(1))
    }
}

impl ReadPool {
    fn with_permits(readings: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(readings)),
            portions: Arc::new(Semaphore::new(WALKS)),
        }
    }

    /// Carries out a reading, which must have no effects because it may be begun twice.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        read: impl Fn(&ReadBudget) -> Result<T, ReadStop> + Send + 'static,
    ) -> Result<T, Refusal> {
        match read(&ReadBudget::new(IN_PLACE, Arc::default())) {
            Ok(result) => Ok(result),
            Err(ReadStop::Refused(refusal)) => Err(refusal),
            Err(ReadStop::Large | ReadStop::Abandoned) => self.run_blocking(read).await,
        }
    }

    /// Carries out a reading that is known to be large.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadBudget) -> Result<T, ReadStop> + Send + 'static,
    ) -> Result<T, Refusal> {
        let abandoned = Arc::new(AtomicBool::new(false));
        let _until_the_end = CancelReadOnDrop(abandoned.clone());
        let turn = acquire(&self.permits).await;
        let task = spawn_blocking(move || {
            let _turn = turn;
            read(&ReadBudget::new(usize::MAX, abandoned))
        });
        match task.await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(ReadStop::Refused(refusal))) => Err(refusal),
            // The runtime is stopping: nothing else gives up a reading whose request is still there.
            Ok(Err(ReadStop::Large | ReadStop::Abandoned)) => Err(Refusal::stopping()),
            Err(panic) => Err(Refusal::internal(panic.to_string())),
        }
    }

    /// Portions for the walks of one task.
    pub(super) fn walk_quota(&self) -> WalkQuota {
        WalkQuota { permits: self.portions.clone(), left: IN_PLACE }
    }
}

async fn acquire(turns: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Nodes that the walks of one task may visit before they have to wait for permits.
#[derive(Debug)]
pub(super) struct WalkQuota {
    permits: Arc<Semaphore>,
    left: usize,
}

/// One portion of a walk. It holds a permit, except for the first [`IN_PLACE`] nodes.
#[derive(Debug)]
pub(super) struct WalkPortion {
    /// Nodes that it may look at.
    pub(super) nodes: usize,
    turn: Option<OwnedSemaphorePermit>,
}

impl WalkQuota {
    /// Resets the free nodes of a task that was idle.
    pub(super) fn rested(&mut self) {
        self.left = IN_PLACE;
    }

    /// The next portion, once there is a permit for it.
    pub(super) async fn next(&mut self) -> WalkPortion {
        if self.left > 0 {
            return WalkPortion { nodes: self.left.min(PORTION), turn: None };
        }
        yield_now().await;
        WalkPortion { nodes: PORTION, turn: Some(acquire(&self.permits).await) }
    }

    /// Counts the nodes that were visited, and returns the permit.
    pub(super) fn finish(&mut self, portion: WalkPortion, nodes: usize) {
        self.left = self.left.saturating_sub(nodes);
        drop(portion.turn);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn small_readings_run_in_place_and_large_ones_beside() {
        for (nodes, begun) in [(IN_PLACE, 1), (IN_PLACE + 1, 2)] {
            let here = std::thread::current().id();
            let begins = Arc::new(AtomicUsize::new(0));
            let count = begins.clone();
            let elsewhere = ReadPool::default()
                .run(move |work| {
                    count.fetch_add(1, Ordering::SeqCst);
                    (0..nodes).try_for_each(|_| work.spend(1))?;
                    assert_eq!(work.visited(), nodes);
                    Ok(std::thread::current().id() != here)
                })
                .await
                .unwrap();
            assert_eq!((begins.load(Ordering::SeqCst), elsewhere), (begun, begun == 2));
        }
    }

    #[tokio::test]
    async fn a_reading_without_a_client_ends_and_gives_its_turn_back() {
        let reads = ReadPool::with_permits(1);
        let endless = reads.run_blocking(|work| -> Result<(), ReadStop> {
            loop {
                work.spend(1)?;
            }
        });
        assert!(tokio::time::timeout(Duration::from_millis(20), endless).await.is_err());
        // It has the only turn, so this waits for its end.
        assert_eq!(reads.run_blocking(|_| Ok(7)).await, Ok(7));
    }

    #[tokio::test]
    async fn portions_need_a_turn_when_the_first_are_used_up() {
        let reads = ReadPool::with_permits(1);
        let mut portions = reads.walk_quota();
        let mut free = 0;
        let portion = loop {
            let portion = portions.next().await;
            if portion.turn.is_some() {
                break portion;
            }
            free += portion.nodes;
            let nodes = portion.nodes;
            portions.finish(portion, nodes);
        };
        assert_eq!(free, IN_PLACE);
        let mut others = reads.walk_quota();
        others.left = 0;
        let waiting = tokio::time::timeout(Duration::from_millis(20), others.next());
        assert!(waiting.await.is_err(), "there is one turn");
        portions.finish(portion, PORTION);
        assert!(others.next().await.turn.is_some());
    }
}
