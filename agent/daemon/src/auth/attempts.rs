//! Attempts to log in with a password, from the charge to the refund.
//!
//! An attempt is charged before anything is compared, the remembered password included, and only a success whose
//! request still waits takes the charge back. A request may be dropped at any moment (RST_STREAM); then its [`Attempt`]
//! is dropped with it, and stays charged as a failure. So giving up gains nothing for a guess:
//! * a wrong one counts, as if its answer had been waited for;
//! * a right one counts as well, and leaves nothing else: what was found out about it is forgotten with the request. The
//!   next attempt with the same password is charged and compared like the first, so there is nothing to come back for.
//!
//! A client that gives up all of its right logins is slowed down like one that guesses. This is on purpose: the two
//! cannot be told apart here.
//!
//! Waiting costs other clients nothing: an attempt that waits for a delay or for the end of another one holds no permit
//! for hashing, and of each source one attempt at a time waits for a permit.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use smol_str::SmolStr;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::info;

use super::{
    LoginRefusal,
    backoff::{BackOff, NameKey, Verdict},
};
use crate::tls::source_of;

/// Time that an attempt waits for others: to be charged, and again to be compared. Delays are not counted.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts of one source that wait to be charged. A connection has 256 requests at a time; a few of them may begin at
/// once behind one address.
const MAX_WAITING: usize = 1024;
/// Sources in the table before those without attempts are removed.
const QUEUES_TO_CLEAN: usize = 1024;

/// Charges attempts; clones share all state.
#[derive(Clone, Debug)]
pub(super) struct Attempts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    back_off: Mutex<BackOff>,
    /// Lanes by source, as long as attempts of the source are under way.
    queues: Mutex<HashMap<IpAddr, Weak<SourceQueue>>>,
    /// Permits for hashing and comparing.
    places: Arc<Semaphore>,
}

/// Attempts of one source.
#[derive(Debug)]
struct SourceQueue {
    /// Permit of the one attempt that waits for hashing.
    turn: Semaphore,
    /// Notified when an attempt was settled.
    settled: Notify,
    waiting: AtomicUsize,
}

/// An attempt that is charged. If it is dropped before it is settled, its request was given up, and it stays charged.
#[derive(Debug)]
pub(super) struct Attempt {
    attempts: Attempts,
    peer: SocketAddr,
    source: IpAddr,
    key: NameKey,
    /// The name in the form that the log may show.
    loggable_name: SmolStr,
    queue: Arc<SourceQueue>,
    delay: Duration,
    settled: bool,
}

impl Attempts {
    /// `places` is the number of passwords that are compared at a time.
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Shared {
            back_off: Mutex::new(BackOff::new()),
            queues: Mutex::default(),
            places: Arc::new(Semaphore::new(places)),
        }))
    }

    /// Charges an attempt: at once, before anything is awaited, unless others of its source have to be decided first.
    ///
    /// # Errors
    /// [`LoginRefusal::BackOff`] after failures that make the client wait, [`LoginRefusal::Busy`] when other attempts take too
    /// long.
    pub(super) async fn begin(
        &self,
        peer: SocketAddr,
        name: &str,
        loggable_name: SmolStr,
    ) -> Result<Attempt, LoginRefusal> {
        let source = source_of(peer.ip());
        let lane = self.queue(source);
        let key = self.back_off().key(name);
        let deadline = Instant::now() + QUEUE_TIMEOUT;
        let mut waiter = None;
        loop {
            let mut settled = std::pin::pin!(lane.settled.notified());
            settled.as_mut().enable(); // attempts that are settled from here on wake this one
            let verdict = self.back_off().begin(source, key, Instant::now().into_std());
            match verdict {
                Verdict::Charged { delay } => {
                    let attempts = self.clone();
                    let lane = lane.clone();
                    let settled = false;
                    return Ok(Attempt {
                        attempts,
                        peer,
                        source,
                        key,
                        loggable_name,
                        queue: lane,
                        delay,
                        settled,
                    });
                }
                Verdict::Refused { retry } => {
                    return Err(LoginRefusal::BackOff { source_address: source, retry });
                }
                Verdict::Later => {}
            }
            if waiter.is_none() {
                waiter = Some(Waiter::new(&lane).ok_or(LoginRefusal::Busy)?);
            }
            timeout_at(deadline, settled).await.map_err(|_| LoginRefusal::Busy)?;
        }
    }

    /// Counts a failure without a request.
    #[cfg(test)]
    pub(super) fn fail_for_tests(&self, source: &str, name: &str) {
        let source = source_of(source.parse().unwrap());
        let key = self.back_off().key(name);
        self.back_off().failed(source, key, Instant::now().into_std());
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> Arc<Semaphore> {
        self.0.places.clone()
    }

    fn queue(&self, source: IpAddr) -> Arc<SourceQueue> {
        let mut lanes = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&source).and_then(Weak::upgrade) {
            return lane;
        }
        if lanes.len() >= QUEUES_TO_CLEAN {
            lanes.retain(|_, lane| lane.strong_count() > 0);
        }
        let lane = Arc::new(SourceQueue {
            turn: Semaphore::new(1),
            settled: Notify::new(),
            waiting: AtomicUsize::new(0),
        });
        lanes.insert(source, Arc::downgrade(&lane));
        lane
    }

    fn back_off(&self) -> MutexGuard<'_, BackOff> {
        self.0.back_off.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    /// Waits for the delay that failures of the whole account cause.
    pub(super) async fn pause(&self) {
        if !self.delay.is_zero() {
            sleep(self.delay).await;
        }
    }

    /// Waits for a permit to compare the password.
    ///
    /// # Errors
    /// [`LoginRefusal::Busy`] when others take too long.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, LoginRefusal> {
        let in_line = async {
            let _turn = self.queue.turn.acquire().await.ok()?;
            self.attempts.0.places.clone().acquire_owned().await.ok()
        };
        timeout(QUEUE_TIMEOUT, in_line).await.ok().flatten().ok_or(LoginRefusal::Busy)
    }

    /// Settles an attempt with the right password: its charge is taken back.
    pub(super) fn succeeded(self) {
        self.refund();
    }

    /// Settles an attempt that was not compared, for reasons of the agent: its charge is taken back.
    pub(super) fn not_compared(self) {
        self.refund();
    }

    /// Settles an attempt with a wrong password: it stays charged.
    pub(super) fn failed(mut self) {
        self.charge();
    }

    fn refund(mut self) {
        self.settled = true;
        let now = Instant::now().into_std();
        self.attempts.back_off().refund(self.source, self.key, now);
        self.queue.settled.notify_waiters();
    }

    fn charge(&mut self) {
        self.settled = true;
        let now = Instant::now().into_std();
        self.attempts.back_off().failed(self.source, self.key, now);
        self.queue.settled.notify_waiters();
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.settled {
            self.charge();
            info!(peer = %self.peer, user = %self.loggable_name, "login given up before it was answered, counts as failed");
        }
    }
}

/// A place among the attempts that wait to be charged.
struct Waiter<'l>(&'l SourceQueue);

impl<'l> Waiter<'l> {
    /// `None` when too many attempts wait.
    fn new(lane: &'l SourceQueue) -> Option<Self> {
        let waiting = lane.waiting.fetch_add(1, Ordering::Relaxed);
        let waiter = Self(lane); // counts down again if it is dropped here
        (waiting < MAX_WAITING).then_some(waiter)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
