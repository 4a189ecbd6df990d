//! Connections on the socket for handlers: some for each user of the box, so that no process can take all.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// Connections of one user at one time: a handler has one, or two while it is exchanged.
pub(super) const MAX_OF_USER: usize = 32;
/// Connections at one time: room for all of the 64 handlers that may be attached, and as much for other users.
const MAX_CONNECTIONS: usize = 128;

/// Numbers of open connections by the ids of their users.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<BTreeMap<u32, usize>>>);

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    connections: Connections,
    uid: u32,
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
        Some(Connection { stream, connections: self.clone(), uid })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        // Each change of the counts is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
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
}
