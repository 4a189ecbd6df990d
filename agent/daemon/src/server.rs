//! The HTTP/2 server of every gRPC listener, and the figures that bound what a connection costs.
//!
//! All listeners that speak HTTP/2 are served by [`serve`], whoever may connect to them: a bound that is missing on one of
//! them is missing for the whole process. `clippy.toml` lets no other place build such a server.

mod taking;

use std::{convert::Infallible, future::Future, io, pin::pin, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming as IncomingBody, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};
use tokio_stream::{Stream, StreamExt};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, body::Body, transport::server::Connected};
use tower::{Service, ServiceExt};
use tracing::debug;

use self::taking::{CallExecutor, PiecewiseBody};
use crate::deadline::deadline_of;

/// Silence on a connection before an HTTP/2 ping is sent, and the time for its answer: a collector that lost its power
/// must not hold its subscriptions.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Concurrent RPCs on one connection of a client, subscriptions included.
pub const MAX_STREAMS: u32 = 256;
/// Concurrent RPCs on one connection of a handler: its one stream, and its reads.
pub const MAX_HANDLER_STREAMS: u32 = 64;
/// Bytes that a client may send before the agent reads them: of one RPC (a Set of 15 MB would be slow with the default
/// of 64 KiB), and of all RPCs of its connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Streams of one connection that the agent may reset because the client broke the protocol, counted over the
/// connection's life; one more ends the connection. Each reset waits in memory until the client reads it, and a client
/// may never read: without this limit memory has none (RUSTSEC-2024-0003). The default of hyper, named so that no release
/// changes it unnoticed. A correct client has a few: the body of a call that was refused at its headers is a protocol error
/// if it comes after the stream is forgotten, in a burst of more than fifty of them a second.
const MAX_LOCAL_RESETS: usize = 1024;
/// Streams of one connection that the client may reset before the agent has accepted them; one more ends the connection
/// (CVE-2023-44487, "rapid reset"). The default of h2, named for the same reason.
const MAX_PENDING_ACCEPT_RESETS: usize = 20;
/// Bytes of the headers of one RPC (RFC 9113 section 6.5.2); longer ones are answered with status 431. The longest
/// valid headers have a name, a password of 1 KiB and the metadata of a few proxies. The default of hyper, named for
/// the same reason.
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// Bytes of the answers of one RPC that HTTP/2 holds for a client that does not take them. A quarter of a second at
/// 2 Mbit/s, so a client on a slow line is never without data; the default of hyper is 400 KiB, which 1200 subscriptions
/// would make half a gigabyte.
pub const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of one frame: the least that a server must accept (RFC 9113 section 4.2). Larger frames gain nothing, since
/// TLS splits data into records of 16 KiB.
const MAX_FRAME_BYTES: u32 = 16 * 1024;

/// Serves each connection with `service`, until `stop` resolves; then lets the RPCs under way end. `max_streams` is the
/// number of concurrent RPCs on one connection.
///
/// Requests have what the listener knows of their connection in their extensions. A connection that fails ends alone.
pub async fn serve<C, S>(
    incoming: impl Stream<Item = io::Result<C>>,
    max_streams: u32,
    service: S,
    stop: impl Future<Output = ()>,
) where
    C: Connected + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let connections = TaskTracker::new();
    let stopping = CancellationToken::new();
    {
        // Dropped before the wait below, so that no further connection is accepted.
        let mut incoming = pin!(incoming);
        let mut stop = pin!(stop);
        loop {
            let stream = tokio::select! {
                () = &mut stop => break,
                stream = incoming.next() => stream,
            };
            match stream {
                Some(Ok(stream)) => {
                    let service = service.clone();
                    connections.spawn(serve_one(stream, max_streams, service, stopping.clone()));
                }
                Some(Err(error)) => debug!(%error, "a connection was not accepted"),
                None => break,
            }
        }
    }
    stopping.cancel();
    connections.close();
    connections.wait().await;
}

/// Serves one connection to its end.
async fn serve_one<C, S>(stream: C, max_streams: u32, service: S, stopping: CancellationToken)
where
    C: Connected + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let info = stream.connect_info();
    let answering = service_fn(move |mut request: Request<IncomingBody>| {
        request.extensions_mut().insert(info.clone());
        answer(service.clone(), request.map(Body::new))
    });
    let stuck = CancellationToken::new();
    let builder = bounded_http2(max_streams, CallExecutor::new(stuck.clone()));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answering));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stuck.cancelled() => {
            debug!("connection closed: the client takes no answers");
            return;
        }
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection closed");
    }
}

/// HTTP/2 with all figures of this file.
#[expect(clippy::disallowed_methods, reason = "the one place where such a server is built")]
fn bounded_http2(max_streams: u32, executor: CallExecutor) -> http2::Builder<CallExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(max_streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .max_pending_accept_reset_streams(MAX_PENDING_ACCEPT_RESETS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buf_size(SEND_BUFFER)
        .max_frame_size(MAX_FRAME_BYTES);
    builder
}

/// Answers one request. A client that waits no longer gets no answer, and its call ends.
async fn answer<S>(service: S, request: Request<Body>) -> Result<Response<Body>, Infallible>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let deadline = deadline_of(request.headers(), Instant::now());
    let answer = service.oneshot(request);
    let answered = match deadline {
        None => answer.await,
        Some(deadline) => timeout_at(deadline, answer).await.unwrap_or_else(|_| {
            let status = Status::deadline_exceeded("the time that the client waits is over");
            Ok(status.into_http())
        }),
    };
    answered.map(|answer| answer.map(|body| Body::new(PiecewiseBody::of(body))))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tonic::Code;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_when_its_client_waits_no_longer() {
        let silent = |_| pending::<Result<Response<Body>, Infallible>>();
        let request = Request::builder().header("grpc-timeout", "2S").body(Body::empty()).unwrap();
        let refused = answer(tower::service_fn(silent), request).await.unwrap();
        let status = Status::from_header_map(refused.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
}
