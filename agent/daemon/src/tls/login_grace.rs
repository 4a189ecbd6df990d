//! Lifetime of connections without an identified caller.

use std::{
    future::{Future, poll_fn},
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};
use tracing::warn;

use super::limits::{AdmitResult, BOUNDS, ConnectionTable, Number};
use super::source_of;

/// Interval between log lines about refused and closed connections: a peer that connects a thousand times a second
/// must not fill the disk.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Connections of all listening sockets.
#[derive(Debug)]
pub(super) struct Limits {
    table: Mutex<ConnectionTable<oneshot::Sender<()>>>,
    tally: Mutex<Tally>,
}

/// Place of one connection in the table, released on drop.
#[derive(Debug)]
struct Permit {
    limits: Arc<Limits>,
    number: Number,
}

/// Connections refused, or closed in favour of others, since the last log line.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    ended: usize,
    logged: Option<Instant>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { table: Mutex::new(ConnectionTable::new(BOUNDS)), tally: Mutex::default() }
    }
}

impl Limits {
    /// Admits a connection as unidentified; `None` when there is no place.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<LoginGrace> {
        let (end_tx, end_rx) = oneshot::channel();
        let now = Instant::now();
        let admission = self.table().admit(source_of(address), end_tx, now.into_std());
        self.log(&admission, now);
        for end_tx in admission.ended {
            let _gone_meanwhile = end_tx.send(());
        }
        let permit = Arc::new(Permit { limits: self.clone(), number: admission.number? });
        let look = Box::pin(sleep(permit.next_check().unwrap_or_default()));
        let identified = IdentifiedFlag { set: Arc::default(), permit: Arc::downgrade(&permit) };
        Some(LoginGrace { permit, identified, state: State::Unidentified { end_rx, look } })
    }

    fn log(&self, admission: &AdmitResult<oneshot::Sender<()>>, now: Instant) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.refused += usize::from(admission.number.is_none());
        tally.ended += admission.ended.len();
        let due = tally.logged.is_none_or(|logged| now - logged >= LOG_INTERVAL);
        if due && tally.refused + tally.ended > 0 {
            let Tally { refused, ended, .. } = *tally;
            *tally = Tally { logged: Some(now), ..Tally::default() };
            warn!(refused, ended, "too many connections: new ones refused, unidentified closed");
        }
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable<oneshot::Sender<()>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    fn identified(&self) {
        self.limits.table().identified(self.number, Instant::now().into_std());
    }

    fn next_check(&self) -> Option<Duration> {
        self.limits.table().next_check(self.number, Instant::now().into_std())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.table().closed(self.number, Instant::now().into_std());
    }
}

/// Flag that a caller was identified on a connection. It does not keep the place of a closed connection.
#[derive(Clone, Debug)]
pub(crate) struct IdentifiedFlag {
    set: Arc<AtomicBool>,
    permit: Weak<Permit>,
}

impl IdentifiedFlag {
    /// A flag for tests, without a place in the table.
    #[cfg(test)]
    pub(crate) fn unbound() -> Self {
        Self { set: Arc::default(), permit: Weak::new() }
    }

    pub(crate) fn set(&self) {
        let first = !self.set.swap(true, Ordering::AcqRel);
        if let (true, Some(permit)) = (first, self.permit.upgrade()) {
            permit.identified();
        }
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }
}

/// Place of one connection, and the deadline for identifying its caller.
#[derive(Debug)]
pub(super) struct LoginGrace {
    permit: Arc<Permit>,
    identified: IdentifiedFlag,
    state: State,
}

#[derive(Debug)]
enum State {
    Unidentified {
        end_rx: oneshot::Receiver<()>,
        /// Wakes when the lifetime may be over.
        look: Pin<Box<Sleep>>,
    },
    Identified,
    Expired(io::ErrorKind),
}

impl LoginGrace {
    pub(super) fn identified_flag(&self) -> IdentifiedFlag {
        self.identified.clone()
    }

    /// Permits I/O on the connection. Wakes the task when the permission ends.
    ///
    /// # Errors
    /// When the lifetime is over, or another connection has taken the place.
    pub(super) fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if let State::Unidentified { end_rx, look } = &mut self.state {
            if self.identified.is_set() {
                self.state = State::Identified;
            } else if let Poll::Ready(ended) = Pin::new(end_rx).poll(context) {
                self.state = match ended {
                    Ok(()) => State::Expired(io::ErrorKind::ConnectionAborted),
                    Err(_) => State::Identified, // the table drops a sender when the connection is identified
                };
            } else if is_over(look, &self.permit, context) {
                self.state = match self.identified.is_set() {
                    true => State::Identified, // identified at this very moment
                    false => State::Expired(io::ErrorKind::TimedOut),
                };
            }
        }
        match self.state {
            State::Expired(kind) => Err(kind.into()),
            State::Unidentified { .. } | State::Identified => Ok(()),
        }
    }

    /// Waits until the connection has to end.
    pub(super) async fn over(&mut self) -> io::Error {
        let poll = |context: &mut Context<'_>| {
            self.check(context).err().map_or(Poll::Pending, Poll::Ready)
        };
        poll_fn(poll).await
    }
}

/// Checks an unidentified connection whenever its grace time may be over.
fn is_over(look: &mut Pin<Box<Sleep>>, permit: &Permit, context: &mut Context<'_>) -> bool {
    while look.as_mut().poll(context).is_ready() {
        match permit.next_check() {
            Some(left) => look.as_mut().reset(Instant::now() + left),
            None => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::super::limits::{LOGIN_GRACE_TIME, SHORT_LOGIN_GRACE_TIME};
    use super::*;

    fn admit(limits: &Arc<Limits>, address: &str) -> LoginGrace {
        limits.admit(address.parse().unwrap()).unwrap()
    }

    /// Error with which a connection without reads ends within this time.
    async fn ended_within(probation: &mut LoginGrace, time: Duration) -> Option<io::ErrorKind> {
        timeout(time, probation.over()).await.ok().map(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_login_end_after_the_grace_time() {
        let limits = Arc::new(Limits::default());
        let begun = Instant::now();
        let mut stranger = admit(&limits, "192.0.2.1");
        assert_eq!(stranger.over().await.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), LOGIN_GRACE_TIME.as_secs());
        assert_eq!(stranger.over().await.kind(), io::ErrorKind::TimedOut, "it stays so");

        let mut client = admit(&limits, "192.0.2.1");
        advance(LOGIN_GRACE_TIME / 2).await;
        assert_eq!(ended_within(&mut client, Duration::ZERO).await, None);
        client.identified_flag().set();
        assert_eq!(ended_within(&mut client, 10 * LOGIN_GRACE_TIME).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_is_half_full_waits_for_a_shorter_time() {
        let limits = Arc::new(Limits::default());
        let mut stranger = admit(&limits, "192.0.2.1");
        let mut others: Vec<_> = (1..BOUNDS.connections / 2)
            .map(|number| admit(&limits, &format!("198.51.{}.{}", number / 200, number % 200)))
            .collect();
        let begun = Instant::now();
        assert_eq!(stranger.over().await.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), SHORT_LOGIN_GRACE_TIME.as_secs());
        drop(stranger);
        let last = others.last_mut().unwrap();
        assert_eq!(ended_within(last, SHORT_LOGIN_GRACE_TIME).await, None, "no longer half full");
    }

    #[tokio::test]
    async fn the_oldest_unidentified_connection_of_a_source_is_evicted() {
        let most = 64;
        // A host chooses its IPv6 address within a /64, but not its IPv4 address.
        for (addresses, ended) in [
            (["192.0.2.1", "192.0.2.1"], true),
            (["192.0.2.1", "::ffff:192.0.2.1"], true),
            (["192.0.2.1", "192.0.2.2"], false),
            (["2001:db8::1", "2001:db8::1:2:3:4"], true),
            (["2001:db8::1", "2001:db8:0:1::1"], false),
            (["::1", "::2"], true),
        ] {
            let limits = Arc::new(Limits::default());
            let mut connections: Vec<_> = (0..most).map(|_| admit(&limits, addresses[0])).collect();
            let newcomer = admit(&limits, addresses[1]);
            let want = ended.then_some(io::ErrorKind::ConnectionAborted);
            assert_eq!(
                ended_within(&mut connections[0], Duration::ZERO).await,
                want,
                "{addresses:?}"
            );
            assert_eq!(
                ended_within(&mut connections[1], Duration::ZERO).await,
                None,
                "{addresses:?}"
            );
            drop(connections);
            newcomer.identified_flag().set();
            let identified = newcomer.identified_flag();
            drop(newcomer);
            identified.set(); // belongs to a closed connection
            assert!(limits.table().is_empty(), "{addresses:?}");
        }
    }

    #[test]
    fn the_log_does_not_repeat_each_connection() {
        let limits = Limits::default();
        let now = Instant::now();
        let refused = || AdmitResult { number: None, ended: Vec::new() };
        for _ in 0..100 {
            limits.log(&refused(), now);
        }
        assert_eq!(limits.tally.lock().unwrap().refused, 99, "the first one is in the log");
        limits.log(&refused(), now + LOG_INTERVAL);
        assert_eq!(limits.tally.lock().unwrap().refused, 0);
    }
}
