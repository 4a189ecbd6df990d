//! The gRPC server: HTTP/2 over the connections of the listener, with accounting, authentication and authorization in
//! front of every service.

use std::{future::Future, time::Duration};

use tonic::{service::Routes, transport::Server};

use crate::{
    accounting,
    auth::{Authenticator, Layer},
    gnsi::{self, Gnsi},
    tls::Incoming,
};

/// Silence on a connection before we ask with an HTTP/2 ping, and how long the peer may take to answer: a collector
/// that lost its power must not hold its subscriptions.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// RPCs at one time on one connection, subscriptions included.
const MAX_STREAMS: u32 = 256;
/// Octets a client may send ahead of our reading: of one RPC (a Set of 15 MB would crawl with the 64 KiB default),
/// and of all RPCs of its connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

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
        .layer(accounting::Layer::new(gnsi.accounts.clone()))
        .layer(Layer(authenticator))
        .layer(gnsi::Layer(gnsi))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stop)
        .await
}
