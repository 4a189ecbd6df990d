//! Bytes that a call makes the agent hold.

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Body as _;
use tonic::Status;
use tonic::body::Body;

use crate::server::SEND_BUFFER;

/// Bytes of a call with one answer, besides the answer: its task, its stream in HTTP/2 and its permission.
const UNARY_CALL: usize = 16 * 1024;
/// Bytes of a call that streams: what HTTP/2 holds, and as much for messages that are made and not handed over yet.
pub(super) const STREAM: usize = 2 * SEND_BUFFER;

/// Completes an answer in one message, so that its size is known and it is held in the form in which it is sent: that of a
/// Get takes ten times as much before. Returns it with the bytes of the call.
pub(super) async fn collected(response: Response<Body>) -> (Response<Body>, usize) {
    let (parts, body) = response.into_parts();
    if body.is_end_stream() {
        return (Response::from_parts(parts, body), UNARY_CALL);
    }
    let collected = match body.collect().await {
        Ok(collected) => collected,
        Err(status) => return (status.into_http(), UNARY_CALL),
    };
    let trailers = collected.trailers().cloned();
    let octets = collected.to_bytes();
    let size = octets.len() + UNARY_CALL;
    (Response::from_parts(parts, whole(octets, trailers)), size)
}

fn whole(octets: Bytes, trailers: Option<http::HeaderMap>) -> Body {
    let octets = Full::new(octets).map_err(|never| -> Status { match never {} });
    Body::new(octets.with_trailers(std::future::ready(trailers.map(Ok))))
}
