//! HTTP/1 server for clients on the box itself, with bounds on their number and on their silence.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, serve::Listener};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Semaphore,
    time::{Sleep, sleep},
};
use tower::ServiceExt;
use tracing::debug;

/// Time for a client to send the head of a request, from the connection or from the end of the answer before. An
/// idle connection ends by it as well; clients that ask regularly connect again.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bounds of one listening socket.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at one time; one more is closed at once.
    pub connections: usize,
    /// Time for a client to take any part of an answer that is ready; none for no limit.
    pub write_timeout: Option<Duration>,
}

/// Serves each connection with the router that `routes` gives for it, without end.
pub async fn serve<L: Listener>(
    mut listener: L,
    bounds: Bounds,
    routes: impl Fn(&L::Io) -> Router,
) {
    let places = Arc::new(Semaphore::new(bounds.connections));
    loop {
        let (stream, _) = listener.accept().await;
        let Ok(place) = places.clone().try_acquire_owned() else {
            debug!(limit = bounds.connections, "connection closed: too many are open");
            continue;
        };
        let routes =
            routes(&stream).map_request(|request: Request<Incoming>| request.map(Body::new));
        let stream = TokioIo::new(WriteTimeout::new(stream, bounds.write_timeout));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(stream, TowerToHyperService::new(routes));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection closed");
            }
            drop(place);
        });
    }
}

/// Stream whose writes fail when the peer accepts no byte for a time.
#[derive(Debug)]
struct WriteTimeout<S> {
    stream: S,
    limit: Option<Duration>,
    /// Present while the peer accepts nothing.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S, limit: Option<Duration>) -> Self {
        Self { stream, limit, timer: None }
    }

    /// Passes on the outcome of a write, or fails it when it has been pending for too long.
    fn bounded<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let (Poll::Pending, Some(limit)) = (&written, self.limit) else {
            self.timer = None;
            return written;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context) // sockets have nothing to flush
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        sync::mpsc,
        time::{Instant, timeout},
    };

    use super::*;

    const BOUNDS: Bounds = Bounds { connections: 2, write_timeout: Some(Duration::from_secs(30)) };
    /// Bytes in flight between client and server in these tests.
    const BUFFER: usize = 1024;

    struct Connections(mpsc::Receiver<DuplexStream>);

    impl Listener for Connections {
        type Io = DuplexStream;
        type Addr = ();

        async fn accept(&mut self) -> (DuplexStream, ()) {
            (self.0.recv().await.expect("the test is not over"), ())
        }

        fn local_addr(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Starts a server, and returns a function that connects to it.
    fn server() -> impl AsyncFn() -> DuplexStream {
        let (connection_tx, connections) = mpsc::channel(8);
        let routes = Router::new()
            .route("/small", get(|| async { "small" }))
            .route("/large", get(|| async { vec![b'x'; 100 * BUFFER] }));
        tokio::spawn(serve(Connections(connections), BOUNDS, move |_| routes.clone()));
        async move || {
            let (client, server) = duplex(BUFFER);
            connection_tx.send(server).await.unwrap();
            client
        }
    }

    /// Seconds until the server closes a connection on which the client only reads.
    async fn closed_after(client: &mut DuplexStream) -> u64 {
        let begun = Instant::now();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_are_closed() {
        let connect = server();
        // what is sent, seconds until the end
        for (sent, want) in [
            ("", HEAD_TIMEOUT.as_secs()),
            ("GET /small HTTP/1.1\r\nHost: bo", HEAD_TIMEOUT.as_secs()),
            ("GET /small HTTP/1.1\r\n\r\n", HEAD_TIMEOUT.as_secs()), // until the next one
            ("GET /small HTTP/1.1\r\n\r\nGET", HEAD_TIMEOUT.as_secs()),
            ("GET /small HTTP/1.0\r\n\r\n", 0),
        ] {
            let mut client = connect().await;
            client.write_all(sent.as_bytes()).await.unwrap();
            assert_eq!(closed_after(&mut client).await, want, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_read_nothing_are_closed() {
        let connect = server();
        let limit = BOUNDS.write_timeout.unwrap();
        let mut client = connect().await;
        client.write_all(b"GET /large HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = [0; BUFFER];
        for _ in 0..10 {
            tokio::time::sleep(limit - Duration::from_secs(1)).await; // slow, but there
            client.read_exact(&mut answer).await.unwrap();
        }
        tokio::time::sleep(limit + Duration::from_secs(1)).await;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() < 10 * BUFFER, "{} bytes came", rest.len());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_over_the_limit_are_closed_at_once() {
        let connect = server();
        let mut connections = [connect().await, connect().await];
        let mut refused = connect().await;
        assert_eq!(closed_after(&mut refused).await, 0);
        assert_eq!(closed_after(&mut connections[0]).await, HEAD_TIMEOUT.as_secs());

        let mut client = connect().await;
        client.write_all(b"GET /small HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        timeout(HEAD_TIMEOUT, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.ends_with("small"), "{answer}");
    }
}
