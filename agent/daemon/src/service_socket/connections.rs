//! Connections on the socket for handlers: some for each user of the box, so that no process can take all.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::{Connected, UdsConnectInfo};

/// Connections of one user at one time: a handler has one, or two while it is exchanged.
pub(super) const MAX_OF_USER: usize = 32;
/// Connections at one time: room for all of the 64 handlers that may be attached, and as much for other users.
const MAX_CONNECTIONS: usize = 128;

/// Time for which a connection may be without a call; then it ends, and its place is free. A handler attaches at once, and stays
/// attached; clients of gRPC connect again by themselves.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Numbers of open connections by the ids of their users.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<BTreeMap<u32, usize>>>);

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    connections: Connections,
    uid: u32,
    calls: Calls,
    /// End of the time without a call, as far as it is known.
    idle_end: Pin<Box<Sleep>>,
}

/// The peer of a connection, and the calls that are open on it.
#[derive(Clone, Debug)]
pub(super) struct HandlerPeer {
    pub(super) process: UdsConnectInfo,
    pub(super) calls: Calls,
}

/// Open calls of a connection; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Calls(Arc<Mutex<CallCount>>);

#[derive(Debug)]
struct CallCount {
    open: usize,
    /// Time of the connection, or of the end of its last call.
    idle_since: Instant,
}

/// A call that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenCall(Calls);

impl Calls {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(CallCount { open: 0, idle_since: Instant::now() })))
    }

    pub(super) fn begin(&self) -> OpenCall {
        self.lock().open += 1;
        OpenCall(self.clone())
    }

    /// Time at which the connection ends, if no call comes.
    fn idle_end(&self) -> Instant {
        let count = self.lock();
        let since = if count.open == 0 { count.idle_since } else { Instant::now() };
        since + IDLE_TIME
    }

    fn lock(&self) -> MutexGuard<'_, CallCount> {
        // Each change of the count is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        count.open -= 1;
        count.idle_since = Instant::now();
    }
}

impl Connections {
    /// Takes a connection, unless there are too many already or its user is not known.
    pub(super) fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let uid = stream.peer_cred().ok()?.uid();
        let mut counts = self.lock();
        let of_user = counts.get(&uid).copied().unwrap_or_default();
        if of_user >= MAX_OF_USER || counts.values().sum::<usize>() >= MAX_CONNECTIONS {
            return None;
        }
        counts.insert(uid, of_user + 1);
        drop(counts);
        let calls = Calls::new();
        let idle_end = Box::pin(sleep(IDLE_TIME));
        Some(Connection { stream, connections: self.clone(), uid, calls, idle_end })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        // Each change of the counts is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Ready when the connection has been without a call for too long.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        while self.idle_end.as_mut().poll(context).is_ready() {
            let end = self.calls.idle_end();
            if end <= Instant::now() {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.idle_end.as_mut().reset(end);
        }
        Poll::Pending
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut counts = self.connections.lock();
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = HandlerPeer;

    fn connect_info(&self) -> HandlerPeer {
        HandlerPeer { process: self.stream.connect_info(), calls: self.calls.clone() }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.poll_idle(context).map(Err),
            read => read,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_user_has_a_bounded_number_of_connections_and_gets_places_back() {
        let connections = Connections::default();
        let stream = || UnixStream::pair().unwrap().0;
        let mut open: Vec<_> =
            (0..MAX_OF_USER).map(|_| connections.admit(stream()).unwrap()).collect();
        assert!(connections.admit(stream()).is_none());
        open.pop();
        open.extend(connections.admit(stream()));
        assert_eq!(open.len(), MAX_OF_USER);
        assert!(connections.admit(stream()).is_none());
        drop(open);
        assert!(connections.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_that_has_been_without_a_call_for_a_minute() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut connection = Connections::default().admit(near).unwrap();
        let calls = connection.calls.clone();
        let second = Duration::from_secs(1);
        let mut buffer = [0; 8];
        let mut silent_for = async |time| {
            let read = connection.read(&mut buffer);
            timeout(time, read).await.ok().map(|ended| ended.unwrap_err().kind())
        };
        assert_eq!(silent_for(IDLE_TIME - second).await, None);
        let call = calls.begin();
        assert_eq!(silent_for(10 * IDLE_TIME).await, None, "a handler says nothing for hours");
        let other = calls.begin();
        drop(call);
        assert_eq!(silent_for(2 * IDLE_TIME).await, None);
        drop(other);
        assert_eq!(silent_for(IDLE_TIME - second).await, None);
        assert_eq!(silent_for(2 * second).await, Some(io::ErrorKind::TimedOut));
    }
}
