//! The gRPC server: HTTP/2 over the connections of the listener, with the AAA layer in front of every service.

use std::{future::Future, time::Duration};

use tonic::{service::Routes, transport::Server};

use crate::aaa;
use crate::auth::Authenticator;
use crate::gnsi::Gnsi;
use crate::tls::Incoming;

/// Silence on a connection before an HTTP/2 ping is sent, and the time for its answer: a collector that lost its power
/// must not hold its subscriptions.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Concurrent RPCs on one connection, subscriptions included.
const MAX_STREAMS: u32 = 256;
/// Octets that a client may send before the agent reads them: of one RPC (a Set of 15 MB would be slow with the default
/// of 64 KiB), and of all RPCs of its connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Streams of one connection that the agent may reset because the client broke the protocol, counted over the
/// connection's life; one more ends the connection. Each reset waits in memory until the client reads it, and a client
/// may never read: without this limit memory has none (RUSTSEC-2024-0003). tonic overrides hyper's default, which is
/// this value, by "no limit". A correct client has a few: the body of a call that was refused at its headers is a
/// protocol error if it comes after the stream is forgotten, in a burst of more than fifty of them a second.
const MAX_LOCAL_RESETS: usize = 1024;
/// Streams of one connection that the client may reset before the agent has accepted them; one more ends the connection
/// (CVE-2023-44487, "rapid reset"). The default of h2, named so that no release changes it unnoticed.
const MAX_PENDING_ACCEPT_RESETS: usize = 20;
/// Octets of the headers of one RPC (RFC 9113 section 6.5.2); longer ones are answered with status 431. The longest
/// valid headers have a name, a password of 1 KiB and the metadata of a few proxies. The default of hyper, named for
/// the same reason.
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// Octets of one frame: the least that a server must accept (RFC 9113 section 4.2). Larger frames gain nothing, since
/// TLS splits data into records of 16 KiB.
const MAX_FRAME_BYTES: u32 = 16 * 1024;

/// Serves until `stop` resolves, then lets the RPCs under way end.
///
/// # Errors
/// When the server cannot go on; a failing connection is not such a case.
pub async fn serve(
    incoming: Incoming,
    authenticator: Authenticator,
    gnsi: Gnsi,
    routes: Routes,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_local_error_reset_streams(Some(MAX_LOCAL_RESETS))
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_ACCEPT_RESETS))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .layer(aaa::Layer::new(authenticator, gnsi))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stop)
        .await
}
