//! Rotations in progress: who may have one, and how all of them end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

/// How long a client may say nothing before what it tries is taken back: a person who looks whether the box still
/// lets the right ones in needs minutes, and nobody else can rotate in the meantime.
const IDLE: Duration = Duration::from_secs(600);

/// The right of a service to rotate: one rotation at a time. Clones are the same right, for services that share one.
#[derive(Clone, Debug)]
pub struct Turn(Arc<Semaphore>);

/// The right is taken, and given back when this is dropped.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "to hold it is its use")] OwnedSemaphorePermit);

/// All rotations of the agent; clones share them.
#[derive(Clone, Debug)]
pub struct Rotations {
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// How long a client may say nothing.
    idle: Duration,
}

impl Default for Turn {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Turn {
    /// `None` while somebody else has it.
    pub fn take(&self) -> Option<Held> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Held)
    }
}

impl Default for Rotations {
    fn default() -> Self {
        Self { tasks: TaskTracker::new(), stopping: CancellationToken::new(), idle: IDLE }
    }
}

impl Rotations {
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Resolves when the agent stops.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Runs a rotation in a task of its own; false when the agent is stopping, and then it does not run.
    pub(crate) fn spawn(&self, rotation: impl Future<Output = ()> + Send + 'static) -> bool {
        if self.stopping.is_cancelled() {
            return false;
        }
        self.tasks.spawn(rotation);
        true
    }

    /// The same for work that somebody waits for; `None` when the agent is stopping, or the work panicked.
    pub(crate) async fn carry_out<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        if self.stopping.is_cancelled() {
            return None;
        }
        self.tasks.spawn(work).await.ok()
    }

    /// Has all rotations taken back, and waits for that at most so long.
    pub async fn stop(&self, at_most: Duration) {
        self.stopping.cancel();
        self.tasks.close();
        if timeout(at_most, self.tasks.wait()).await.is_err() {
            warn!("a rotation is still being taken back; the next start begins from what is final");
        }
    }
}
