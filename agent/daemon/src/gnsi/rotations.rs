//! Rotations in progress: locking, and their end at shutdown.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use holdfast_base::RebootInhibitors;
use holdfast_store::Store;

/// Idle time of a client after which its rotation is rolled back. A person who checks whether the right users can
/// still log in needs minutes; meanwhile no other client can rotate.
const IDLE: Duration = Duration::from_secs(600);

/// Rotations of one service: one at a time, and the store that keeps its artefacts. Services that rotate together have
/// one.
#[derive(Debug)]
pub(crate) struct Rotator {
    lock: Arc<Semaphore>,
    store: Store,
}

/// The held lock, released on drop.
#[derive(Debug)]
pub struct RotationGuard(
    #[expect(dead_code, reason = "to hold it is its use")] OwnedSemaphorePermit,
);

/// All rotations of the agent; clones share them.
#[derive(Clone, Debug)]
pub struct Rotations {
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// Idle time limit of clients.
    idle: Duration,
    undertakings: RebootInhibitors,
}

impl Rotator {
    pub(super) fn new(store: Store) -> Self {
        Self { lock: Arc::new(Semaphore::new(1)), store }
    }

    /// Takes the lock; `None` while another rotation is in progress.
    pub(crate) fn take(&self) -> Option<RotationGuard> {
        Arc::clone(&self.lock).try_acquire_owned().ok().map(RotationGuard)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

impl Default for Rotations {
    fn default() -> Self {
        Self {
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            idle: IDLE,
            undertakings: RebootInhibitors::default(),
        }
    }
}

impl Rotations {
    /// The same, which say in this list that they are in progress.
    pub(super) fn listed(self, undertakings: RebootInhibitors) -> Self {
        Self { undertakings, ..self }
    }

    pub(crate) fn undertakings(&self) -> &RebootInhibitors {
        &self.undertakings
    }

    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Waits until the agent stops.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Runs a rotation in a task of its own; false when the agent is stopping, in which case it does not run.
    pub(crate) fn spawn(&self, rotation: impl Future<Output = ()> + Send + 'static) -> bool {
        if self.stopping.is_cancelled() {
            return false;
        }
        self.tasks.spawn(rotation);
        true
    }

    /// Runs work in a task and waits for its result; `None` when the agent is stopping, or the work panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        if self.stopping.is_cancelled() {
            return None;
        }
        self.tasks.spawn(work).await.ok()
    }

    /// Rolls back all rotations, and waits for that up to a time limit.
    pub async fn stop(&self, at_most: Duration) {
        self.stopping.cancel();
        self.tasks.close();
        if timeout(at_most, self.tasks.wait()).await.is_err() {
            warn!("a rotation is still being taken back; the next start begins from what is final");
        }
    }
}
